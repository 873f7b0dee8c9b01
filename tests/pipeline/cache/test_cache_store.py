"""The stages' results on disk: put, given out, damaged, pruned, and written by several processes at once."""

import errno
import json
import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inductor_debug.pipeline.cache import store
from inductor_debug.pipeline.cache.key import differing
from inductor_debug.pipeline.cache.store import Cache, Entry, entry_of, record_of
from inductor_debug.pipeline.directory.rundir import DiskFull, RunDirectory
from inductor_debug.stages.artifacts.records import StageRecord

PARTS = {"stage": "capture", "settings": {"seed": 0}}


def finished(path: Path, text: str = "found") -> tuple[RunDirectory, StageRecord]:
    """A run's directory with what a stage left."""
    run = RunDirectory(path, identity="one")
    run.store("capture/a.txt", text)
    run.store("capture/graphs/b.txt", text)  # the same content twice
    return run, StageRecord("capture", "passed", 2.5, "so", artifacts=["capture/a.txt", "capture/graphs/b.txt"])


def kept(cache: Cache, path: Path, text: str = "found", **more: dict[str, str]) -> Entry:
    run, record = finished(path, text)
    entry = entry_of(record, PARTS, run, **more)
    cache.put("key", entry, run)
    return entry


def only(cache: Cache) -> tuple[Path, Entry]:
    """The one result that is kept."""
    ((path, entry),) = cache.entries("capture", "key")
    assert entry is not None
    return path, entry


def test_a_result_is_given_with_its_files_and_counted(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    kept(cache, tmp_path / "one")
    path, entry = only(cache)
    other = RunDirectory(tmp_path / "two")
    assert cache.give(path, entry, other) == ""
    assert other.read_text("capture/graphs/b.txt") == other.read_text("capture/a.txt") == "found"
    assert os.stat(other.path / "capture/a.txt").st_ino == os.stat(tmp_path / "one/capture/a.txt").st_ino
    assert record_of(entry).message == "so" and entry.run == str(tmp_path / "one")
    assert [(item.stage, item.hits) for item in cache.kept()] == [("capture", 1)]
    assert not list(other.path.rglob(".*"))


def test_a_file_that_was_edited_in_a_run_is_not_given_to_another(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    kept(cache, tmp_path / "one")
    (tmp_path / "one/capture/a.txt").write_text("edited in place")
    path, entry = only(cache)
    other = RunDirectory(tmp_path / "two")
    assert cache.give(path, entry, other) == "capture/a.txt is not what was kept"
    assert not (other.path / "capture/a.txt").exists()
    assert cache.kept() == []  # it would stand in the way of what its stage comes to now


def test_a_script_is_copied_for_it_is_there_to_be_edited(tmp_path: Path) -> None:
    cache, run = Cache(tmp_path / "cache"), RunDirectory(tmp_path / "one", identity="one")
    run.store("repros/a.py", "1")
    record = StageRecord("capture", "failed", 1.0, "so", artifacts=["repros/a.py"])
    cache.put("key", entry_of(record, PARTS, run), run)
    other = RunDirectory(tmp_path / "two")
    assert cache.give(*only(cache), other) == ""
    (tmp_path / "one/repros/a.py").write_text("edited")
    assert other.read_text("repros/a.py") == "1"
    assert cache.give(*only(cache), RunDirectory(tmp_path / "three")) == ""


def killed_while_it_gives(cache: Cache, path: Path, entry: Entry, to: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: os._exit(9))
        cache.give(path, entry, RunDirectory(to))


def test_what_a_process_left_that_was_killed_while_it_gave_is_removed(tmp_path: Path) -> None:
    cache, other = Cache(tmp_path / "cache"), RunDirectory(tmp_path / "two")
    kept(cache, tmp_path / "one")
    process = multiprocessing.get_context("fork").Process(
        target=killed_while_it_gives, args=(cache, *only(cache), other.path)
    )
    process.start()
    process.join()
    assert process.exitcode == 9
    assert len([path for path in other.path.rglob("*") if path.is_file()]) == 1
    other.remove_caches()
    assert not [path for path in other.path.rglob("*") if path.is_file()]


def test_a_result_is_given_where_its_own_files_are(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    kept(cache, tmp_path / "one")
    assert cache.give(*only(cache), RunDirectory(tmp_path / "one")) == ""
    assert sorted(path.name for path in (tmp_path / "one").rglob("*") if path.is_file()) == ["a.txt", "b.txt"]


def test_a_file_that_is_gone_is_told(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    kept(cache, tmp_path / "one")
    path, entry = only(cache)
    next(path.glob("*.file")).unlink()
    assert cache.give(path, entry, RunDirectory(tmp_path / "two")) == "capture/a.txt is gone"


def test_a_result_is_for_whoever_may_read_the_folder(tmp_path: Path) -> None:
    """A cache that others fill is read all the same."""
    cache, before = Cache(tmp_path / "cache"), os.umask(0o022)
    try:
        kept(cache, tmp_path / "one")
    finally:
        os.umask(before)
    path, _ = only(cache)
    assert path.stat().st_mode & 0o777 == 0o755 and (path / "entry.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("number", "told"), [(errno.ENOSPC, None), (errno.EACCES, "capture/a.txt can't be taken (")])
def test_what_the_system_refuses_to_give_is_told(
    number: int, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache")
    kept(cache, tmp_path / "one")

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(store, "_link", refused)
    if told is None:
        with pytest.raises(DiskFull, match="the disk is full"):
            cache.give(*only(cache), RunDirectory(tmp_path / "two"))
    else:
        assert cache.give(*only(cache), RunDirectory(tmp_path / "two")).startswith(told)
    assert len(cache.kept()) == 1  # it is whole


def test_entries_that_are_torn_or_of_another_shape_are_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    kept(cache, tmp_path / "one")
    ((path, _),) = cache.entries("capture", "key")
    for content in ("", "{", json.dumps({"stage": "capture"}), json.dumps([])):
        (path / "entry.json").write_text(content)
        assert list(cache.entries("capture", "key")) == [(path, None)]
    kept(cache, tmp_path / "one")  # takes its place
    ((path, entry),) = cache.entries("capture", "key")
    assert entry is not None and cache.give(path, entry, RunDirectory(tmp_path / "three")) == ""


def test_one_key_has_a_result_for_each_run_and_state_of_the_users_code(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    kept(cache, tmp_path / "one", sources={"model.py": "1"})
    kept(cache, tmp_path / "two", sources={"model.py": "2"})
    kept(cache, tmp_path / "three", sources={"model.py": "2"})
    found = [entry for _, entry in cache.entries("capture", "key") if entry is not None]
    assert sorted((entry.sources["model.py"], Path(entry.run).name) for entry in found) == [
        ("1", "one"), ("2", "three"), ("2", "two"),
    ]  # fmt: skip


def test_many_writers_leave_whole_results(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: kept(cache, tmp_path / str(number)), range(40)))
    found = list(cache.entries("capture", "key"))
    assert len(found) == 40
    for path, entry in found:
        assert entry is not None and cache.give(path, entry, RunDirectory(tmp_path / "run")) == ""
    assert [item.name for item in (tmp_path / "cache/stages/capture").iterdir()] == ["key"]


def test_pruning_removes_the_longest_unused_first(tmp_path: Path) -> None:
    cache, now = Cache(tmp_path / "cache"), time.time()
    for age in (3, 1, 2):
        run, record = finished(tmp_path / str(age), str(age) * 1000)
        cache.put(f"key{age}", entry_of(record, PARTS, run), run)
        ((path, _),) = cache.entries("capture", f"key{age}")
        os.utime(path / "entry.json", (now - age * 86400,) * 2)
    assert [item.path.parent.name for item in cache.kept()] == ["key3", "key2", "key1"]
    size = cache.kept()[0].nbytes
    assert [item.path.parent.name for item in cache.prune(limit=size * 2 + 100)] == ["key3"]
    assert [item.path.parent.name for item in cache.prune(older_than_s=1.5 * 86400)] == ["key2"]
    assert cache.prune(limit=size + 100, older_than_s=2 * 86400) == []
    assert len(cache.prune(older_than_s=0)) == 1
    assert not list((tmp_path / "cache").rglob("*.file"))
    assert (tmp_path / "3/capture/a.txt").read_text() == "3" * 1000  # the run's own files stay


def test_what_cannot_be_removed_is_not_told_as_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    cache = Cache(tmp_path / "cache")
    kept(cache, tmp_path / "one")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        assert cache.prune(older_than_s=-1) == []
    assert len(cache.kept()) == 1 and "can't be removed" in caplog.text
    assert len(cache.prune(older_than_s=-1)) == 1 and cache.kept() == []


def test_all_results_are_measured_only_where_they_may_exceed_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, measured, kept_now = Cache(tmp_path / "cache"), [], Cache.kept
    monkeypatch.setattr(Cache, "kept", lambda self: measured.append(len(found := kept_now(self))) or found)
    kept(cache, tmp_path / "0")
    (nbytes,) = (item.nbytes for item in kept_now(cache))
    limit = 4 * nbytes + nbytes // 2
    for number in range(1, 4):
        cache.hold(limit)
        kept(cache, tmp_path / str(number))
    cache.hold(limit)
    assert measured == [1], "of what it did not put itself it can't know"
    kept(cache, tmp_path / "4")
    cache.hold(limit)
    assert measured == [1, 5] and len(kept_now(cache)) == 4
    cache.hold(limit)
    assert measured == [1, 5]
    (tmp_path / "cache/stages/sizes").write_bytes(b"torn")
    cache.hold(limit)
    assert measured == [1, 5, 4]


def test_what_differs_is_told_by_name_and_what_a_stage_follows_last() -> None:
    here = {"follows": {"capture": "1"}, "source": "a", "files": {"w.pt": "x"}, "settings": {"seed": 1, "dtype": "f"}}
    there = {"follows": {"capture": "2"}, "source": "b", "files": {"w.pt": "y"}, "settings": {"seed": 0}}
    assert differing(here, there) == [
        "the content of w.pt", "settings.dtype (not there → f)", "settings.seed (0 → 1)", "this package's source",
        "what capture depends on",
    ]  # fmt: skip
    assert differing(here, here) == []
