"""In which process, with which variables and in which temporary folder a stage runs."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from runner_support import Outcome, execute

from inductor_debug.models.config import ModelConfig
from inductor_debug.pipeline.directory import manifest
from inductor_debug.pipeline.directory.manifest import git_state
from inductor_debug.pipeline.directory.records import CudaDevice, Repository, TorchFound
from inductor_debug.pipeline.run.events import Finished, Found
from inductor_debug.pipeline.run.parent.session import WorkerSession, log_event
from inductor_debug.pipeline.run.plan import batch_of
from inductor_debug.pipeline.run.runner import Runner
from inductor_debug.stages.settings import Settings

pytestmark = pytest.mark.usefixtures("stages_on_path")
SET = "CUBLAS_WORKSPACE_CONFIG"


def surroundings(outcome: Outcome, *stages: str) -> list[dict]:
    assert set(outcome.statuses.values()) == {"passed"}, outcome.log
    return [outcome.json(f"{stage}/surroundings.json") for stage in stages]


def test_what_is_timed_on_cuda_runs_without_the_variable_that_equal_bits_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SET, raising=False)
    outcome = execute(tmp_path / "run", "lower", "benchmark", "profile", "report", device="cuda")
    lower, benchmark, profile = surroundings(outcome, "lower", "benchmark", "profile")
    assert lower["workspace"] == ":4096:8" and lower["children"] is None
    assert [found["workspace"] for found in (benchmark, profile)] == [None, None]
    assert lower["pid"] != benchmark["pid"] == profile["pid"]


def test_a_profile_on_cuda_is_taken_without_the_variable_that_equal_bits_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SET, raising=False)
    (found,) = surroundings(execute(tmp_path / "run", "profile", device="cuda"), "profile")
    assert found["workspace"] is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_variable_of_the_users_stays_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setenv(SET, ":16:8")
    found = surroundings(execute(tmp_path / "run", "lower", "benchmark", device=device), "lower", "benchmark")
    assert {(each["workspace"], each["children"]) for each in found} == {(":16:8", ":16:8")}
    assert found[0]["pid"] == found[1]["pid"]  # nothing to take away, so no other process


def test_on_the_cpu_one_process_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SET, raising=False)
    lower, benchmark = surroundings(execute(tmp_path / "run", "lower", "benchmark"), "lower", "benchmark")
    assert lower["workspace"] is None and lower["pid"] == benchmark["pid"]


def test_in_this_process_no_other_may_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SET, raising=False)
    (found,) = surroundings(execute(tmp_path / "run", "benchmark", isolation="none"), "benchmark")
    assert found["children"] is None


@pytest.mark.parametrize("isolation", ["process", "none"])
def test_temporary_files_are_within_the_run(tmp_path: Path, isolation: str) -> None:
    """Torch keeps its precompiled headers there, wherever its cache is."""
    before = tempfile.gettempdir()
    outcome = execute(tmp_path / "run", "profile", isolation=isolation)
    (found,) = surroundings(outcome, "profile")
    assert Path(found["temporary"]).is_relative_to(outcome.path)
    assert not Path(found["temporary"]).exists()  # removed with the run's caches
    assert tempfile.gettempdir() == before


def test_temporary_files_of_a_shared_cache_are_in_it(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    outcome = execute(tmp_path / "run", "profile", compiler_cache=True, cache_dir=str(cache))
    (found,) = surroundings(outcome, "profile")
    assert Path(found["temporary"]).is_relative_to(cache)


def test_stages_share_a_process_as_long_as_their_variables_agree() -> None:
    stages = ["capture", "lower", "benchmark", "profile", "guards", "report"]
    assert batch_of(stages, []) == stages
    assert batch_of(stages, [SET]) == ["capture", "lower"]
    assert batch_of(stages[2:], [SET]) == ["benchmark", "profile"]
    assert batch_of(["benchmark", "report"], [SET]) == ["benchmark", "report"]
    assert batch_of(["guards", "report"], [SET]) == ["guards", "report"]


def repository(folder: Path) -> Path:
    """A repository of one commit, of one file, which is given."""
    file = folder / "net.py"
    file.write_text("x = 1\n")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "net.py"], [*author, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    return file


def told_by_git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout.strip()


def test_a_folder_has_the_repository_that_holds_it(tmp_path: Path) -> None:
    file, inner = repository(tmp_path), tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    root, commit = told_by_git(inner, "rev-parse", "--show-toplevel"), told_by_git(inner, "rev-parse", "HEAD")
    (inner / "untracked.py").touch()
    assert git_state(inner) == Repository(root, commit, dirty=False)
    file.write_text("x = 2\n")
    assert git_state(inner) == Repository(root, commit, dirty=True)
    linked = tmp_path / "linked"  # a worktree's .git is a file
    told_by_git(tmp_path, "worktree", "add", "-q", "--detach", str(linked))
    assert git_state(linked) == Repository(str(linked), commit, dirty=False)


def test_what_git_sets_for_a_hook_is_not_told_of_other_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooked, other, bare = (tmp_path / name for name in ("hooked", "other", "bare"))
    for folder in (hooked, other, bare):
        folder.mkdir()
    repository(hooked), repository(other)
    commit = told_by_git(other, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(hooked / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(hooked / ".git" / "index"))
    assert git_state(other) == Repository(str(other), commit, dirty=False)
    assert git_state(bare) is None


def test_a_repository_without_a_commit_is_told_as_none(tmp_path: Path) -> None:
    told_by_git(tmp_path, "init", "-q")
    assert git_state(tmp_path) is None
    (tmp_path / "inner" / ".git").mkdir(parents=True)  # which git does not take for one
    assert git_state(tmp_path / "inner") is None


def test_reading_a_repositorys_state_writes_nothing_into_it(tmp_path: Path) -> None:
    file = repository(tmp_path)
    os.utime(file, (1, 1))  # git status would look at the file again, and note that in the index
    index = (tmp_path / ".git" / "index").read_bytes()
    state = git_state(tmp_path)
    assert state is not None and state.dirty is False
    assert (tmp_path / ".git" / "index").read_bytes() == index


def test_a_newer_torch_is_warned_of_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = manifest.installed_versions()
    monkeypatch.setattr(manifest, "installed_versions", lambda: versions | {"torch": "99.0"})
    outcome = execute(tmp_path / "run", "lower", isolation="none")
    assert set(outcome.statuses.values()) == {"passed"}
    assert "torch 99.0 is newer" in outcome.log


def test_a_stage_says_its_sentence_and_its_figures_are_there_for_who_asks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="inductor_debug.pipeline.run.runner"):
        log_event(Finished("lower", "failed", 2.04, "It is wrong.\n1 of 2.\nA rule."))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "lower failed in 2.0 s: It is wrong."), ("DEBUG", "lower: 1 of 2."), ("DEBUG", "lower: A rule."),
    ]  # fmt: skip


def test_a_later_process_that_leaves_cuda_alone_hides_no_device() -> None:
    runner = Runner.__new__(Runner)
    runner.described = manifest.describe_run(Settings(model=ModelConfig(), device="cuda"), {}, "one")
    seen = TorchFound(16, "AVX512", False, [CudaDevice("NVIDIA H200", 1)], "13.0")
    for found in (seen, None, TorchFound(8, "AVX512", False, [], "13.0")):
        runner._note_devices(found)
    told = runner.described.devices.found
    assert told is not None and (told.threads, told.cuda) == (8, seen.cuda)


def test_a_stage_of_the_cache_that_knows_no_device_hides_none() -> None:
    session = WorkerSession.__new__(WorkerSession)
    session.devices = None
    seen = TorchFound(16, "AVX512", False, [CudaDevice("NVIDIA H200", 1)], "13.0")
    for found in (seen, TorchFound(8, "AVX512", False, [], "13.0"), None):
        session._handle(Found(found))
    assert session.devices is not None and session.devices.cuda == seen.cuda
