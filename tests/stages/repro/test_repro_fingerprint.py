"""One failure has one fingerprint, whatever a sweep varies; another failure has another."""

import re

import pytest
from constrain_graphs import call, graph, placeholder, tensor

from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.artifacts.records import ReproRecord
from inductor_debug.stages.repro.fingerprint import fingerprint, operations_of
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.repros import write_repros


def repros(
    columns: int = 9, dtype: str = "float32", target: str = "aten.relu.default", **profile: object
) -> list[ReproRecord]:
    """Of a graph with one operation on a tensor of so many columns."""
    given = placeholder("x", 4, 16, dtype=dtype)
    made = call("made", target, ["x"], tensor(4, columns, dtype=dtype))
    found = check([graph(given, made)], AccelConfig(**{"strict": True, "alignment": 4, **profile}))
    return write_repros([graph(given, made)], found, verified=0).summary


def of(**changes: object) -> set[str]:
    return {item.fingerprint for item in repros(**changes)}


@pytest.mark.parametrize(
    "varied", [{"columns": 27}, {"dtype": "bfloat16"}, {"alignment": 2}, {"columns": 33, "dtype": "float16"}]
)
def test_a_violation_is_the_same_whatever_size_dtype_and_alignment(varied: dict[str, object]) -> None:
    (found,) = of()
    assert re.fullmatch(r"[0-9a-f]{12}", found) and of(**varied) == {found}


@pytest.mark.parametrize(
    "other",
    [
        {"target": "aten.sigmoid.default"},
        {"alignment": None, "rules": [Rule("rank", value=1)], "columns": 8},
        {"alignment": None, "rules": [Rule("alignment", effect="reject", value=4)]},
    ],
)
def test_another_rule_target_or_effect_is_another_violation(other: dict[str, object]) -> None:
    assert of(**other) and not of(**other) & of()


def test_the_failure_of_a_violation_is_told() -> None:
    assert [item.failure for item in repros()] == ["alignment of aten.relu.default (pad)"]


PROGRAM = """
def inputs():
    return [torch.randn({size})]


def program(x):
    norm = torch.ops.aten.native_layer_norm.default(x, [{size}], None, None, 1e-05)
    getitem = norm[0]
    last = torch.ops.aten.{last}(getitem)
    return (last, getitem)
"""


def test_a_program_is_known_by_what_it_calls_in_its_order() -> None:
    small, large = (PROGRAM.format(size=size, last="relu.default") for size in (2, 512))
    assert operations_of(small) == (
        "torch.ops.aten.native_layer_norm.default",
        "getitem",
        "torch.ops.aten.relu.default",
    )
    assert operations_of(small) == operations_of(large) != operations_of(PROGRAM.format(size=2, last="sigmoid.default"))


def test_parts_are_not_run_together() -> None:
    assert len({fingerprint("ab", "c"), fingerprint("a", "bc"), fingerprint("abc"), fingerprint("c", "ab")}) == 4
