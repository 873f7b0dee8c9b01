"""Where a NaN was born: named where what was printed tells it, and else what it takes to learn it. Nobody is blamed."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from printed_values import NAN, ONES, lowered, observed

from inductor_debug.stages.artifacts.lowered_tables import ValueRow
from inductor_debug.stages.lower.buffer_contents import Memory
from inductor_debug.stages.lower.first_nonfinite import births, in_column, place_of, to_learn
from inductor_debug.stages.lower.values import ValueObserver

from native_printer import save_tensor  # isort: skip

INFINITE = torch.full((70,), math.inf)
LAST = [("before_launch - cpp_relu - buf3", NAN), ("after_launch - cpp_relu - buf3", NAN)]
PLACE = "g0.forward, before cpp_relu, in buf3, whose memory holds buf2"


def test_what_was_filtered_out_is_not_blamed_and_the_option_that_tells_it_is_named() -> None:
    observer = observed(*LAST, kernels=["cpp_relu"])
    among = "mm_out:3 or cpp_relu:2 or mm_out:1 or arg0_1"
    assert [row.born for row in observer.rows] == [among, among]
    told = f"{PLACE}, written by mm_out:3; where it was born is not known: in {among}"
    assert observer.describe().endswith(f"{told}; to learn it, type backend.options.kernels=[cpp_relu,mm_out]")


def test_an_input_that_torch_prints_beside_the_filtered_kernels_is_known() -> None:
    observer = observed(("aoti_model_inputs - arg0_1", ONES), *LAST, kernels=["cpp_relu"])
    assert [row.when for row in observer.rows] == ["before", "after"]
    assert {row.born for row in observer.rows} == {"mm_out:3 or cpp_relu:2 or mm_out:1"}


def test_what_the_graph_was_given_was_not_born_in_it() -> None:
    printed = [("aoti_model_inputs - arg0_1", NAN), ("before_launch - mm_out - buf0", ONES),
               ("before_launch - mm_out - arg0_1", NAN), ("after_launch - mm_out - buf0", NAN)]  # fmt: skip
    given = observed(*printed, kernels=["mm_out"])
    assert [row.born for row in given.rows] == ["", "arg0_1", "arg0_1"]
    assert given.describe().endswith("before mm_out, in arg0_1; the graph was given it")
    assert place_of(given.rows[-1]) == "g0.forward, after mm_out, in buf0; the graph was given it, as arg0_1"
    assert to_learn(given.rows[-1], ["mm_out"], 2) == ""


def test_a_nan_that_is_given_is_followed_to_where_it_was_born() -> None:
    observer = observed(
        ("after_launch - mm_out - buf0", NAN), ("aoti_model_inputs - arg0_1", ONES),
        ("before_launch - cpp_relu - buf1", NAN), ("after_launch - cpp_relu - buf1", NAN),
        ("after_launch - mm_out - buf2", NAN), *LAST,
    )  # fmt: skip
    assert {row.born for row in observer.rows if row.state == "nan"} == {"mm_out:1"}
    assert observer.describe().endswith("the first NaN is in g0.forward, after mm_out, in buf0")
    (last,) = [row for row in observer.rows if row.launch == 3 and row.when == "before"]
    assert place_of(last) == f"{PLACE}, born in mm_out:1"


def test_an_infinity_that_becomes_a_nan_is_none_of_its_reader() -> None:
    observer = observed(("after_launch - mm_out - buf0", INFINITE), ("after_launch - cpp_relu - buf1", NAN))
    assert [row.born for row in observer.rows] == ["mm_out:1 or arg0_1", "cpp_relu:2"]


def test_a_value_that_changed_without_a_launch_is_nobodys() -> None:
    observer = observed(
        ("after_launch - cpp_relu - buf1", ONES), ("before_launch - mm_out - buf1", NAN),
        ("after_launch - mm_out - buf2", NAN),
    )  # fmt: skip
    assert observer.rows[1].born == ""
    assert observer.describe().endswith("before mm_out, in buf1, written by cpp_relu:2; where it was born is not known")


def test_integers_hold_no_nan() -> None:
    graph = lowered()
    graph.schedule.buffers["arg0_1"] = replace(graph.schedule.buffers["arg0_1"], dtype="int64")
    assert births(Memory(graph), {}, "nan")["buf0", "mm_out:1"] == ["mm_out:1"]
    assert births(Memory(lowered()), {}, "nan")["buf0", "mm_out:1"] == ["mm_out:1", "arg0_1"]


@pytest.mark.parametrize(("saved", "born"), [(ONES, "mm_out:3"), (NAN, "cpp_relu:2")])
def test_saved_tensors_of_filtered_kernels_are_looked_at(saved: torch.Tensor, born: str) -> None:
    """Level 1 saves those of every kernel: torch's filter is of level 2."""
    observer = ValueObserver(level=1, kernels=["cpp_relu"])

    def run() -> Sequence[torch.Tensor]:
        save_tensor(ONES, "buf0", "after_launch", "mm_out")
        save_tensor(saved, "buf1", "before_launch", "mm_out")
        save_tensor(NAN, "buf2", "after_launch", "mm_out")
        save_tensor(NAN, "buf3", "before_launch", "cpp_relu")
        return []

    observer(lowered(), run)
    (row,) = observer.rows
    assert row.kernel == "cpp_relu" and row.born == born
    assert len(observer.files) == 1


def test_many_launches_are_counted_and_the_filter_is_left_out() -> None:
    column = in_column([f"kernel_{index}:{index}" for index in range(20)])
    assert column.startswith("kernel_0:0 or kernel_1:1 or ") and column.endswith(" or 12 more")
    row = ValueRow("g", 0, 0, "last", "after", "buf0", True, state="nan", born=column)
    assert to_learn(row, ["last"], 2) == "backend.options.kernels=[]"
    assert to_learn(row, [], 1) == "backend.options.print_values=2" and to_learn(row, [], 2) == ""
    assert to_learn(replace(row, born="kernel_0:0"), ["last"], 2) == ""


def test_a_table_without_the_column_names_no_birth_place() -> None:
    row = ValueRow("g0.forward", 0, 0, "relu", "before", "buf1", True, "buf0", "mm_out:1", handle=2, state="nan")
    words = "g0.forward, before relu, in buf1, whose memory holds buf0, written by mm_out:1"
    assert place_of(row) == f"{words}; where it was born is not known"
