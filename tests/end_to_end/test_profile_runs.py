"""A profile from the command line, alone, and a run that does not ask for one."""

import gzip
import json
from pathlib import Path

from command_line import Finished, command

MODEL = ("model=custom", "model.build._target_=small_models.perceptron", "model.name=perceptron")


def test_a_profile_alone_and_with_a_ceiling_of_the_accelerators(tmp_path: Path) -> None:
    done = command(
        *MODEL, "backend=aot_eager", "mode=training", "stages=[report]", "+stages=profile", "stages.profile.steps=3",
        "accel.peaks.bandwidth=1e12", "accel.peaks.flops.float32=5e13", f"hydra.run.dir={tmp_path / 'run'}",
        cwd=tmp_path,
    )  # fmt: skip
    finished = Finished(done.returncode, done.stdout + done.stderr, tmp_path / "run")
    assert finished.code == 0, finished.output
    assert finished.statuses() == {"profile": "passed", "report": "passed"}
    kernels = finished.table("profile/kernels.csv")
    assert set(kernels.graph) == {"g0.forward", "g0.backward"} and kernels.profile_flops_share.notna().any()
    trace = json.loads(gzip.decompress((finished.directory / "profile" / "trace.json.gz").read_bytes()))
    assert any("g0.backward|" in event.get("name", "") for event in trace["traceEvents"])
    report = (finished.directory / "report" / "report.html").read_text()
    assert "Where does the time go?" in report and "profile_bound" in report
    (longest,) = finished.json("profile/summary.json")["longest"][:1]
    assert " of the measured " in longest and " of the profile's " in longest
    assert [ceiling["source"] for ceiling in finished.json("profile/summary.json")["ceilings"]] == [
        "measured", "profile",
    ]  # fmt: skip


def test_options_of_a_stage_that_was_not_asked_for_are_refused(tmp_path: Path) -> None:
    done = command(*MODEL, "stages.profile.steps=3", cwd=tmp_path)
    assert done.returncode == 2 and "profile" in done.stderr + done.stdout
