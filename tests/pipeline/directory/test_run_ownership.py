"""A run owns its directory: no other command writes into it, and no result of another run is taken for its own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from listings import listing
from runner_support import HERE, execute, make_config

from inductor_debug.pipeline.config.fingerprint import fingerprint, stored_fingerprint
from inductor_debug.pipeline.directory.names import OWNER, SWEEP_OWNER
from inductor_debug.pipeline.directory.ownership import claim_run, claim_sweep
from inductor_debug.pipeline.directory.refusals import DirectoryRefused
from inductor_debug.pipeline.directory.rundir import RunDirectory
from inductor_debug.pipeline.run.runner import run
from inductor_debug.stages.artifacts.records import StageRecord

pytestmark = pytest.mark.usefixtures("stages_on_path")


def test_another_configuration_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    first = execute(tmp_path / "run", "plain", seed=1)
    before = listing(tmp_path)
    for stages, seed in ((("plain",), 2), (("plain", "after"), 1), (("constrain",), 1)):
        with pytest.raises(
            DirectoryRefused, match=r"holds another run.*\nTry: runner\.overwrite=true.*hydra\.run\.dir="
        ):
            execute(first.path, *stages, seed=seed)
    assert listing(tmp_path) == before


def test_the_same_configuration_starts_clean(tmp_path: Path) -> None:
    first = execute(tmp_path / "run", "plain", "report", seed=1)
    identity = first.json("manifest.json")["identity"]
    (first.path / "plain" / "numbers.json").unlink()
    again = execute(first.path, "plain", "report", seed=1)
    assert again.code == 0 and again.json("plain/numbers.json")["value"] == 3
    assert again.log.count("report …") == 1
    new = again.json("manifest.json")["identity"]
    assert new != identity
    records = [json.loads(path.read_bytes()) for path in (again.path / ".stages").iterdir()]
    assert {record["identity"] for record in records} == {new} == {again.summary["run"]["identity"]}
    assert again.json(OWNER)["identity"] == new


def test_overwriting_removes_what_the_earlier_run_wrote_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    (path / "notes.txt").write_text("mine")
    (path / "plain").mkdir()
    (path / "plain" / "mine.json").write_text("{}")
    first = execute(path, "plain", "constrain", "report")
    assert not {"notes.txt", "plain/mine.json"} & set(first.json("manifest.json")["files"])
    second = execute(path, "after", "report", overwrite=True)
    assert second.message("after").startswith("shared=False value=None")
    files = {name for name in second.json("manifest.json")["files"] if not name.startswith(".")}
    assert files == {"summary.json", "run.log", "report/seen.json"}
    assert (path / "notes.txt").read_text() == "mine" and (path / "plain" / "mine.json").read_text() == "{}"
    assert sorted(item.name for item in (path / "plain").iterdir()) == ["mine.json"]
    assert "report" in second.statuses and "plain …" not in second.log


def test_a_run_that_was_killed_is_removed_by_its_records_and_the_places_where_a_run_writes(tmp_path: Path) -> None:
    first = execute(tmp_path / "run", "plain", "lower", "report")
    (first.path / "manifest.json").unlink()
    (first.path / "lower" / "half").mkdir(parents=True)
    (first.path / "lower" / "half" / "kernels.csv").write_text("torn")
    (first.path / ".cache-abc").mkdir()
    (first.path / ".cache-abc" / "kernel.so").write_text("")
    (first.path / "notes.txt").write_text("mine")
    assert execute(first.path, "after", overwrite=True).code == 0
    left = {path.relative_to(first.path).as_posix() for path in first.path.rglob("*") if path.is_file()}
    assert left == {"notes.txt", "manifest.json", "summary.json", "run.log", OWNER, ".stages/after.json"}


@pytest.mark.parametrize("identity", [True, False], ids=["of_this_run", "of_another"])
def test_whatever_a_manifest_says_nothing_outside_is_touched(tmp_path: Path, identity: bool) -> None:
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    for name in ("a.txt", "folder/b.txt"):
        (outside / name).write_text("precious")
    first = execute(tmp_path / "run", "plain")
    (first.path / "data").mkdir()
    (first.path / "data" / "linked").symlink_to(outside / "folder")
    (first.path / "data" / "link.txt").symlink_to(outside / "a.txt")
    names = ["../outside/a.txt", str(outside / "a.txt"), "data/linked/b.txt", "data/link.txt",
             "plain/../../outside/a.txt", "", ".", "..", "/", "a\0b", "\udcff", "x" * 5000, "data",
             f"//{outside}/a.txt"]  # fmt: skip
    manifest = first.json("manifest.json") | {"files": dict.fromkeys(names, "")}
    if not identity:
        manifest["identity"] = "another"
    (first.path / "manifest.json").write_text(json.dumps(manifest))
    before = listing(outside)
    assert execute(first.path, "after", overwrite=True).code == 0
    assert listing(outside) == before
    assert (first.path / "data" / "link.txt").is_symlink() and (first.path / "data" / "linked").is_symlink()


@pytest.mark.parametrize("place", ["run.log", "capture", ".hydra", OWNER, "plain/linked", "summary.json"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_link_where_a_run_would_write_is_refused(tmp_path: Path, place: str, overwrite: bool) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("precious")
    path = tmp_path / "run" / place
    path.parent.mkdir(parents=True)
    path.symlink_to(outside if place in ("capture", ".hydra") else outside / "file")
    before = listing(tmp_path)
    with pytest.raises(DirectoryRefused, match=r"link|holds another"):
        execute(tmp_path / "run", "plain", overwrite=overwrite)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("content", ["", "[]", "{", '{"identity": 1}', "[" * 100_000])
def test_an_owner_that_cannot_be_read_is_another_run_where_there_is_one(tmp_path: Path, content: str) -> None:
    first = execute(tmp_path / "run", "plain")
    (first.path / OWNER).write_text(content)
    with pytest.raises(DirectoryRefused, match="holds another run"):
        execute(first.path, "plain")
    assert execute(first.path, "plain", overwrite=True).code == 0


def test_a_directory_in_use_is_refused_until_its_run_ends(tmp_path: Path) -> None:
    process = hanging(tmp_path / "run")
    before = listing(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(DirectoryRefused, match=rf"in use by process {process.pid} on"):
            execute(tmp_path / "run", "plain", overwrite=overwrite)
    assert listing(tmp_path) == before
    process.kill()
    process.wait()
    again = execute(tmp_path / "run", "plain", overwrite=True)  # waits for what the killed one had started
    assert (again.code, again.statuses) == (0, {"plain": "passed"})


def hanging(path: Path) -> "subprocess.Popen[str]":
    """A process whose run in ``path`` hangs in its second stage."""
    code = (
        "import sys, logging; sys.path.insert(0, sys.argv[1]); logging.basicConfig(level='INFO', stream=sys.stdout)\n"
        "from pathlib import Path; from runner_support import execute\n"
        "execute(Path(sys.argv[2]), 'plain', 'hangs_plainly', 'after')"
    )
    command = [sys.executable, "-u", "-c", code, str(HERE), str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    assert any("hanging now" in line for line in process.stdout)
    return process


def test_of_two_that_claim_a_directory_one_has_it(tmp_path: Path) -> None:
    first = claim_run(tmp_path, "one")
    with pytest.raises(DirectoryRefused, match="in use"):
        claim_run(tmp_path, "one")
    first.release()
    claim_run(tmp_path, "one").release()


def test_records_of_another_run_are_not_read(tmp_path: Path) -> None:
    RunDirectory(tmp_path, identity="a").store_stage(StageRecord("plain", "passed", 1.0, ""))
    assert list(RunDirectory(tmp_path, identity="a").stage_records()) == ["plain"]
    assert RunDirectory(tmp_path, identity="b").stage_records() == {}


def test_a_rejected_configuration_leaves_the_earlier_runs_directory_to_it(tmp_path: Path) -> None:
    first = execute(tmp_path / "run", "plain")
    before = listing(first.path)
    for keep in (False, True):
        with pytest.raises(DirectoryRefused):
            execute(first.path, "rejects", keep_rejected=keep)
    assert listing(first.path) == before


def test_what_counts_as_the_same_configuration() -> None:
    same = fingerprint(make_config("plain", "after"))
    assert fingerprint(make_config("plain", "after", overwrite=True)) == same
    others = [
        make_config("after", "plain"),
        make_config("plain", "after", seed=1),
        make_config("plain", "after", timeout_s=5.0),
        make_config("plain", "after", options={"plain": {"x": 1}}),
    ]
    assert same not in {fingerprint(other) for other in others}


def test_a_directory_that_cannot_be_made_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryRefused, match=r"can't be written.*\nTry: hydra.run.dir=FOLDER"):
        execute(tmp_path / "file" / "run", "plain")


def test_a_sweep_owns_its_directory_and_removes_jobs_that_it_does_not_have(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    claim_sweep(sweep, ["x", "y"], ["0-a", "1-b"]).release()
    for name in ("0-a", "1-b"):
        execute(sweep / name, "plain")
    (sweep / "1-b" / "notes.txt").write_text("mine")
    (sweep / "sweep.csv").write_text("")
    before = listing(sweep)
    with pytest.raises(
        DirectoryRefused, match=r"job '1-b' is here '1-c'.*\nTry: runner.overwrite=true.*hydra.sweep.dir="
    ):
        claim_sweep(sweep, ["x", "z"], ["0-a", "1-c"])
    assert listing(sweep) == before
    with claim_sweep(sweep, ["x", "y"], ["0-a", "1-b"]), pytest.raises(DirectoryRefused, match="in use"):
        claim_sweep(sweep, ["x", "y"], ["0-a", "1-b"])
    claim_sweep(sweep, ["x", "z"], ["0-a", "1-c"], overwrite=True).release()
    assert not (sweep / "sweep.csv").exists() and (sweep / "0-a" / "summary.json").is_file()
    assert [path.name for path in (sweep / "1-b").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("overwrite", [False, True], ids=["kept", "overwrite"])
def test_a_sweep_and_a_run_do_not_share_a_directory(tmp_path: Path, overwrite: bool) -> None:
    sweep, job = tmp_path / "sweep", tmp_path / "job"
    with claim_sweep(sweep, ["a"], ["0"]), claim_run(sweep / "0", "a"):
        pass
    with claim_run(job, "a"):
        pass
    before = listing(tmp_path)
    with pytest.raises(DirectoryRefused, match=r"hydra\.run\.dir: .*/sweep holds a sweep"):
        claim_run(sweep, "a", overwrite=overwrite)
    with pytest.raises(DirectoryRefused, match=r"hydra\.sweep\.dir: .*/job holds a run"):
        claim_sweep(job, ["a"], ["0"], overwrite=overwrite)
    assert listing(tmp_path) == before
    with claim_sweep(sweep, ["a"], ["0"]), claim_run(sweep / "0", "a"):
        pass


def test_a_sweeps_owner_cannot_name_jobs_outside(tmp_path: Path) -> None:
    run_outside = execute(tmp_path / "outside", "plain").path
    sweep = tmp_path / "sweep"
    jobs = ["../outside", str(run_outside), "linked", "deep/../../outside"]
    claim_sweep(sweep, ["x"], jobs).release()
    (sweep / "linked").symlink_to(run_outside)
    before = listing(run_outside)
    claim_sweep(sweep, ["y"], ["0"], overwrite=True).release()
    assert listing(run_outside) == before


def test_a_claim_is_let_go_of_when_the_run_is_over(tmp_path: Path) -> None:
    assert run(make_config("plain"), tmp_path / "run", stage_classes={"plain": "runner_stages:Plain"}) == 0
    claim_run(tmp_path / "run", "other", overwrite=True).release()
    shutil.rmtree(tmp_path / "run")


def earlier_version(path: Path, *stages: str, **config: Any) -> None:
    """A finished run as a version without owner's records left it, with the user's own files beside and between."""
    from omegaconf import OmegaConf

    execute(path, *stages, **config)
    (path / OWNER).unlink()
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["identity"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    (path / ".hydra").mkdir()
    (path / ".hydra" / "config.yaml").write_text(
        OmegaConf.to_yaml(OmegaConf.structured(make_config(*stages, **config)))
    )
    (path / "notes.txt").write_text("mine")
    (path / "constrain").mkdir(exist_ok=True)
    (path / "constrain" / "mine.csv").write_text("mine")


def test_the_same_configuration_starts_clean_where_an_earlier_version_ran(tmp_path: Path) -> None:
    path = tmp_path / "run"
    earlier_version(path, "plain", "after", seed=1)
    (path / "report").mkdir()
    (path / "report" / "old.json").write_text("{}")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"] |= {"report/old.json": "0", "notes.txt": "0", "../outside.txt": "0"}
    (path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "outside.txt").write_text("mine")
    again = execute(path, "plain", "after", seed=1)
    assert again.code == 0 and again.json(OWNER)["identity"] == again.summary["run"]["identity"]
    assert not (path / "report" / "old.json").exists()
    kept = ("notes.txt", "constrain/mine.csv", "../outside.txt")
    assert [(path / name).read_text() for name in kept] == ["mine"] * 3
    assert not set(kept) & set(again.json("manifest.json")["files"])


def test_another_configuration_where_an_earlier_version_ran_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    earlier_version(path, "plain", "after", seed=1)
    before = listing(tmp_path)
    for stages, seed in ((("plain", "after"), 2), (("after", "plain"), 1), (("plain",), 1)):
        with pytest.raises(DirectoryRefused, match=r"holds another run, of another configuration.*\nTry: runner\.over"):
            execute(path, *stages, seed=seed)
    assert listing(tmp_path) == before


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "seed: [",
        "nosuch: 1",
        "seed: ${oc.env:HOME}",
        "stages: 3",
        "model: {nosuch: 1}",
        "a: &a 1\nb: *a",
        "\0",
    ],
)
def test_a_stored_configuration_that_tells_nothing_is_refused_with_what_to_type(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run"
    earlier_version(path, "plain")
    (path / ".hydra" / "config.yaml").write_text(content)
    assert stored_fingerprint(path) is None
    before = listing(tmp_path)
    with pytest.raises(
        DirectoryRefused, match=r"can't be established .*\.hydra/config\.yaml.*\nTry: runner\.overwrite"
    ):
        execute(path, "plain")
    assert listing(tmp_path) == before


def test_a_stored_configuration_behind_a_link_is_none(tmp_path: Path) -> None:
    earlier_version(tmp_path / "one", "plain")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for place in (".hydra/config.yaml", ".hydra"):
        target = tmp_path / "two" / place
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        target.symlink_to(tmp_path / "one" / place)
        assert stored_fingerprint(tmp_path / "two") is None
        target.unlink()
        target.parent.mkdir(exist_ok=True)


def test_an_option_that_the_earlier_version_did_not_have_has_its_default(tmp_path: Path) -> None:
    config = make_config("plain")
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text("model: {name: toy}\nstages: {plain: {}}\n")
    assert stored_fingerprint(tmp_path) == fingerprint(config)


def test_a_sweep_of_an_earlier_version_is_the_same_by_its_jobs(tmp_path: Path) -> None:
    configurations = [fingerprint(make_config("plain", seed=seed)) for seed in range(3)]
    for job, seed in (("0", 0), ("1", 1)):  # the third had not started
        earlier_version(tmp_path / job, "plain", seed=seed)
    (tmp_path / "sweep.csv").write_text("job\n")
    with pytest.raises(DirectoryRefused, match="another sweep"):
        claim_sweep(tmp_path, configurations[::-1], ["0", "1", "2"])
    with pytest.raises(DirectoryRefused, match="can't be established"):
        claim_sweep(tmp_path, configurations[:1], ["0"])
    assert (tmp_path / "sweep.csv").exists() and not (tmp_path / SWEEP_OWNER).exists()
    with claim_sweep(tmp_path, configurations, ["0", "1", "2"]):
        assert not (tmp_path / "sweep.csv").exists() and (tmp_path / "0" / "summary.json").exists()
