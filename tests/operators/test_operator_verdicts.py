"""The comparison on results of torch's whole operator database: nothing found where nothing is, one element found."""

import random
from typing import Any

import pytest
import torch

from inductor_debug.stages.numerics.comparison import KernelDiff, TensorComparison

from operator_draw import KINDS, LEFT_OUT, NOT_REPRODUCIBLE, draw, leaves, operators, wide  # isort: skip

TIMES = 100
"""The planted error, in floors (or in tolerances, where there is no gold)."""


def compared(reference: dict[str, Any], test: dict[str, Any], gold: dict[str, Any]) -> KernelDiff:
    difference = KernelDiff()
    difference.compare_leaves(reference, test, gold, kind="output")
    return difference


def spoiled(value: Any, row: TensorComparison, choice: random.Random) -> Any:
    """``value`` with one element wrong: an integer's last bit, a number by ``TIMES`` floors."""
    if not isinstance(value, torch.Tensor):
        return spoiled(torch.tensor(value, dtype={float: torch.float64}.get(type(value))), row, choice).item()
    wrong = value.detach().clone(memory_format=torch.contiguous_format)
    flat = wrong.reshape(-1)
    index = choice.randrange(flat.numel())
    old = flat[index].item()
    if not (value.is_floating_point() or value.is_complex()):
        flat.view(torch.uint8)[index * flat.element_size()] ^= 1
    elif not torch.isfinite(flat[index]):
        flat[index] = 0
    else:
        floor = row.floor_max
        if floor is None:
            floor = row.atol + row.rtol * abs(old)
        flat[index] = old + max(TIMES * floor, torch.finfo(value.dtype).tiny)
    return flat.reshape(wrong.shape)


@pytest.mark.parametrize(
    ("kind", "every", "least"),
    [
        (None, 5, 120),
        pytest.param(None, 1, 600, marks=pytest.mark.slow),
        *(pytest.param(kind, 1, 300, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_one_wrong_element_is_a_defect_and_none_is_exact(kind: str | None, every: int, least: int) -> None:
    """For every fifth operator; in the slow suite for all, and for every kind of number that each takes."""
    alarms, missed, empty, count = {}, {}, [], 0
    for drawn in draw(kind=kind, every=every):
        reference, gold = leaves(drawn.eager()), wide(leaves(drawn.gold()))
        same = compared(reference, leaves(drawn.eager()), gold)
        fine = ("exact", "within_floor") if drawn.op.name in NOT_REPRODUCIBLE else ("exact",)
        if any(row.verdict not in fine for row in same.rows):
            alarms[drawn.name] = same.verdict, [row.message for row in same.rows]
        rows = [row for row in same.rows if row.elements]
        if not rows:
            empty.append(drawn.name)
            continue
        choice = random.Random(drawn.name)
        row = choice.choice(rows)
        path = row.path
        found = compared(reference, reference | {path: spoiled(reference[path], row, choice)}, gold)
        if found.verdict != "defect":
            missed[drawn.name] = path, found.verdict, row, next(each for each in found.rows if each.path == path)
        count += 1
    print(kind, count, "empty:", empty)
    assert not alarms, alarms
    assert not missed, missed
    assert count >= least, count


def test_few_operators_are_left_out() -> None:
    names = {op.name for op in operators()}
    assert set(LEFT_OUT) <= names
    assert sum(op.name in LEFT_OUT for op in operators()) <= 0.1 * len(operators())
