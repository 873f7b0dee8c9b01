"""Values that are kept in a file are what they were, as they were laid out."""

import errno
import logging
import os

import pytest
import torch
from torch import Tensor, nn

from inductor_debug.models.case import Case
from inductor_debug.stages.localize.runs import kept
from inductor_debug.stages.localize.runs.kept import Kept, Range, Standing, Stored, has_tensor

BASE = torch.randn(64, 96)


def values() -> dict[str, Tensor]:
    """Each of another kind, all but the last two larger than what stays in memory."""
    return {
        "plain": BASE,
        "half": BASE.bfloat16(),
        "turned": BASE.t(),
        "rows": BASE[8:],
        "columns": BASE[:, 1:],
        "widened": torch.randn(1, 8192).expand(3, 8192),
        "whole": torch.arange(9000),
        "complex": torch.complex(BASE, BASE),
        "conjugated": torch.complex(BASE, BASE).conj(),
        "sparse": BASE.to_sparse(),
        "small": torch.randn(3, 4).t(),
        "none": torch.empty(0, 5),
    }


@pytest.mark.parametrize("name", values())
def test_a_value_is_what_it_was_whatever_is_written_later(name: str) -> None:
    given = values()[name]
    found, before = Kept[str](), given.clone()
    found[name] = given
    if name not in ("sparse", "widened", "none"):
        given.zero_()
    read = found[name]
    assert read.dtype == before.dtype and read.shape == before.shape
    if name != "sparse":
        assert read.stride() == given.stride() or name == "conjugated"
    torch.testing.assert_close(read.to_dense(), before.to_dense(), rtol=0, atol=0)
    BASE.copy_(torch.randn(64, 96))


def test_what_is_large_lies_in_a_file_and_a_view_of_it_once() -> None:
    found = Kept[str]()
    found["base"] = BASE
    before = BASE.clone()
    for name, view in {"turned": BASE.t(), "part": BASE[3:, 5:], "bits": BASE.view(torch.int32)}.items():
        found.look(name, view, "base", BASE)
        entry, base = found.entries[name], found.entries["base"]
        assert isinstance(entry, Stored) and entry.place is base.place and isinstance(entry.place, Range)
        assert torch.equal(found[name], view) and found[name].stride() == view.stride()
    found.look("other", (BASE + 1).t(), "base", BASE)
    assert torch.equal(found["other"], (before + 1).t())
    assert has_tensor(found, "base") and not has_tensor(found, "nothing")


def test_where_the_disk_is_full_values_stay_in_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    found = Kept[str]()
    found["first"] = BASE
    monkeypatch.setattr(os, "pwrite", full)
    before = BASE.clone()
    with caplog.at_level(logging.WARNING, logger=kept.__name__):
        found["second"] = BASE
        found["third"] = BASE
    found.look("turned", BASE.t(), "second", BASE)
    BASE.zero_()
    for name, right in {"first": before, "second": before, "third": before, "turned": before.t()}.items():
        assert torch.equal(found[name], right)
    assert [record.getMessage().partition(" in ")[0] for record in caplog.records] == [
        "localize: No space left on device"
    ]


def test_what_the_disk_has_left_is_left_to_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kept, "LEFT", 1 << 62)
    found = Kept[str]()
    with caplog.at_level(logging.WARNING, logger=kept.__name__):
        found["x"] = BASE
    assert found.store.full and torch.equal(found["x"], BASE) and "stay in memory" in caplog.text


def test_what_nothing_knows_any_more_is_written_over() -> None:
    found = Kept[str]()
    for _ in range(20):
        found["x"] = BASE
    assert found.store._end <= 3 * BASE.nbytes
    found.look("turned", BASE.t(), "x", BASE)
    del found["x"]
    found["y"] = BASE + 1
    found["z"] = BASE + 2
    assert torch.equal(found["turned"], BASE.t()) and torch.equal(found["y"], BASE + 1)


def test_another_error_of_the_disk_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(OSError, match="Input/output error"):
        Kept[str]()["x"] = torch.randn(64, 96)


def test_what_the_case_has_again_after_a_step_stands() -> None:
    module, x = nn.Linear(96, 96), torch.randn(64, 96)
    standing = Standing(Case.of(module, (x,)))
    assert module.weight in standing and x not in standing and module.weight * 1 not in standing
    with torch.no_grad():
        module.weight.add_(1)
    assert module.weight not in standing
    found = Kept[str]()
    found.keep("bias", module.bias, standing)
    assert found["bias"].data_ptr() == module.bias.data_ptr()
