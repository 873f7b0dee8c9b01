"""SHA-256 of files: of each state of a file, under any name."""

import hashlib
import os
from pathlib import Path

import pytest

from inductor_debug.pipeline.directory.file_digest import file_sha256


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_link_is_read_once_and_what_was_written_since_again(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("found")
    os.link(first, second)
    os.utime(first, ns=(1, 1))
    assert file_sha256(first) == sha256("found")
    second.write_text("other")  # in place, and as long
    os.utime(second, ns=(1, 1))
    assert file_sha256(second) == sha256("found")  # nothing tells that it was written
    os.utime(second, ns=(1, 2))
    assert file_sha256(str(first)) == file_sha256(second) == sha256("other")


def test_another_file_in_its_place_is_read(tmp_path: Path) -> None:
    place, other = tmp_path / "a", tmp_path / "b"
    place.write_text("found")
    other.write_text("other")
    for path in (place, other):
        os.utime(path, ns=(1, 1))
    assert file_sha256(place) == sha256("found")
    os.replace(other, place)
    assert file_sha256(place) == sha256("other")


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_sha256(tmp_path / "a")
