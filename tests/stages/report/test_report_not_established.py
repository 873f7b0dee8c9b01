"""What a report says of stages that failed or did not run, and of what could not be established."""

import shlex
from pathlib import Path

import pytest
from small_report import OUTSIDE, Text, full, report, summary, violations
from typer.main import get_command

from inductor_debug.pipeline.cli import app


def test_a_skipped_or_crashed_stage_is_said():
    broken = summary(
        verdict="crashed", numerics={"verdict": "not_established", "compared": 0, "failed": None}, benchmark=None
    )
    broken["stages"][3] |= {"status": "crashed", "message": "signal 11"}
    broken["stages"][4] |= {"status": "skipped", "message": "kerneldiff crashed"}
    content = full(**{"summary.json": broken})
    del content["kerneldiff/outputs.csv"], content["kerneldiff/plots/loss.png"]
    html, data = report(content)
    text = " ".join(Text(html).words)
    assert "the stage kerneldiff crashed: signal 11" in text
    assert "the stage benchmark was skipped: kerneldiff crashed" in text
    assert data["verdict"] == "crashed" and len(data["not_established"]) == 3
    assert "The stage kerneldiff crashed: signal 11." in data["findings"]
    assert "(training, float32, cpu) crashes in the stage kerneldiff (signal 11)" in data["sentence"]
    assert "None of 0" not in text and "– of" not in text


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"constrain/violations.csv": violations(0), "kerneldiff/outputs.csv": "path,verdict,bound\na,exact,bits\n",
         "summary.json": summary(numerics={"compared": 1, "failed": 0, "verdict": "exact"})},
        {"summary.json": summary(violations={"total": None}), "constrain/violations.csv": violations(0)},
        {"summary.json": summary(stages=[{"name": "capture", "status": "crashed"}], verdict="crashed")},
        {"summary.json": summary(stages=[{"name": "capture", "status": "passed"}])},
    ],
    ids=["defect", "right", "no rules", "crash", "rest not asked"],
)  # fmt: skip
def test_what_to_type_next_are_commands_that_there_are(changed):
    _, data = report(full(**changed))
    entries = [command for entry in data["contents"] for command in entry["then"]]
    assert data["then"] and all(" RUN" not in command for command in data["then"])
    for command in [*data["then"], *entries]:
        tool, name, *rest = shlex.split(command)
        assert tool == "inductor-debug" and name in get_command(app).commands, command  # type: ignore[attr-defined]
        flags = {flag for option in get_command(app).commands[name].params for flag in option.opts}
        assert {word for word in rest if word.startswith("--")} <= flags, command


def test_a_fit_that_could_not_be_established_is_none():
    """A strict profile, no finding, and code that is in no graph."""
    found = summary()
    found["stages"][1] |= {"name": "constrain", "status": "failed", "message": "Whether the model fits is open."}
    found["violations"] |= {"total": 0, "by_rule": {}, "by_effect": {}, "by_severity": {}, "strict": True}
    _, data = report(full(**{"summary.json": found, "constrain/violations.csv": violations(0)}))
    assert (
        "fits the profile" not in data["sentence"] and "Does it fit?" in data["sentence"].partition("Not answered")[2]
    )


def test_a_run_that_judged_nothing_says_where_it_failed():
    why = "not established: backend.options.kernels: got 'KERNEL'"
    stages = [{"name": name, "status": "failed", "message": why} for name in ("lower", "kerneldiff")]
    stages = [{"name": "capture", "status": "passed", "message": ""}, *stages]
    failed = summary(verdict="failed", stages=stages, numerics=None, violations=None, benchmark=None)
    _, data = report({"summary.json": failed}, folder=Path("/runs/wrong"))
    assert "fails in the stages lower and kerneldiff." in data["sentence"]
    _, data = report({"summary.json": failed | {"violations": summary()["violations"]}})
    assert "fails in the stages lower and kerneldiff" in data["sentence"]
    assert not any("minify" in command for command in data["then"])  # no failure is known


LATE = "timed out: still running after runner.timeout_s=60. To wait longer, add to the command: runner.timeout_s=120"


def test_after_a_timeout_more_time_is_proposed_first():
    stages = [{"name": "lower", "status": "timed_out", "message": LATE}]
    late = summary(verdict="crashed", stages=stages, numerics=None, violations=None, benchmark=None)
    _, data = report({"summary.json": late}, folder=Path("/runs/late"))
    assert data["then"][0] == "inductor-debug rerun /runs/late runner.timeout_s=120"


def test_a_stage_without_a_section_that_ends_badly_is_in_the_sentence():
    good = {"numerics": {"compared": 1, "failed": 0, "verdict": "exact"}, "verdict": "crashed"}
    crashed = summary(
        **good, stages=[*summary()["stages"], {"name": "acme", "status": "crashed", "message": "signal 6"}]
    )
    _, data = report(full(**{"summary.json": crashed}))
    assert "(training, float32, cpu) crashes in the stage acme," in data["sentence"]
    failed = summary(**good | {"verdict": "failed"}, stages=[{"name": "acme", "status": "failed", "message": "no"}])
    _, data = report(full(**{"summary.json": failed}))
    assert "fails in the stage acme" in data["sentence"]


def test_commands_name_the_run_where_it_lies(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    html, data = report(full(), folder=tmp_path / "outputs" / "a run")
    assert data["then"][0].split(" ", 2)[2].startswith("'outputs/a run'") and data["address"] == "'outputs/a run'"
    assert "inductor-debug rerun 'outputs/a run'" in Text(html).words
    _, data = report(full(), folder=Path("/elsewhere/run"))
    assert data["reproduce"][1] == "inductor-debug rerun /elsewhere/run"


def test_nothing_stored_is_not_a_pass():
    html, data = report({})
    assert data["verdict"] == "not_established" and len(data["not_established"]) == 5
    assert "nothing is established" in "".join(Text(html).words)
    assert "Passed" not in "".join(Text(html).words)


def test_a_stage_that_passed_and_stored_nothing_is_said():
    content = full()
    del content["lower/g0.forward/provenance.json"]
    _, data = report(content)
    assert any("stage lower passed but stored nothing" in line for line in data["not_established"])


def test_what_lowering_did_not_establish_is_said():
    content = full()
    content["lower/g0.forward/provenance.json"]["not_established"] = ["no post-fusion IR"]
    _, data = report(content)
    assert data["not_established"] == ["g0.forward, lowering: no post-fusion IR.", OUTSIDE]


def test_undecided_checks_are_said():
    content = full(**{"constrain/violations.csv": violations().replace("warning", "undecided")})
    _, data = report(content)
    assert any("3 checks" in line for line in data["not_established"])


def test_a_speed_up_that_is_not_established_is_said():
    noisy = summary()
    noisy["benchmark"] = noisy["benchmark"] | {"speedup_ci95": [0.15, 6.3]}
    _, data = report(full(**{"summary.json": noisy}))
    [answer] = [entry for entry in data["contents"] if entry["key"] == "benchmark"]
    assert answer["word"] == "no difference"
    assert any("Whether it is faster or slower" in line for line in data["not_established"])
    _, data = report(full())
    assert not any("contains 1" in line for line in [*data["findings"], *data["not_established"]])


def test_a_speed_up_that_interference_may_have_made_is_no_headline():
    busy = summary()
    reason = "other programs took 84 % of the 2 cores that timing needed"
    doubted = {"speedup": 151.0, "speedup_ci95": [129.0, 292.0], "established": False, "not_established": reason}
    busy["benchmark"] = busy["benchmark"] | doubted
    html, data = report(full(**{"summary.json": busy}))
    [answer] = [entry for entry in data["contents"] if entry["key"] == "benchmark"]
    assert (answer["state"], answer["word"], answer["does"]) == ("unknown", "not established", "")
    assert answer["then"] == ["inductor-debug rerun RUN 'stages=[benchmark,report]'"]
    assert f"How fast it is: {reason}." in data["not_established"]
    assert f"{reason}. What was measured:" in "".join(Text(html).words)


def test_without_a_profile_the_stored_capture_is_to_be_held_to_one():
    """The stage constrain alone would find no rule to check."""
    stages = [{"name": "capture", "status": "passed"}]
    for accel, command in (("none", "check RUN accel=warn16"), ("chip", "rerun RUN +stages=constrain")):
        run = summary()["run"] | {"accel": accel}
        _, data = report({"summary.json": summary(run=run, stages=stages, violations=None)})
        (fit,) = (entry for entry in data["contents"] if entry["title"] == "Does it fit?")
        assert fit["word"] == "not asked" and fit["then"] == [f"inductor-debug {command}"]
