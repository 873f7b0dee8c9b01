"""What the stage says first of a comparison, for a reader who knows none of its words."""

from typing import Any

import pytest

from inductor_debug.stages.artifacts.localization import Culprit, Localization, Place
from inductor_debug.stages.kerneldiff.records import Comparison
from inductor_debug.stages.kerneldiff.section import _coarse, worst_first
from inductor_debug.stages.kerneldiff.tables import sentence
from inductor_debug.stages.numerics.records import TensorComparison

WRONG = "the RMS error is 12 times the noise floor (limit 4)"
NOT_LOOKED = "not established: stages.kerneldiff.localize.when=never"


def row(verdict: str, **more: Any) -> TensorComparison:
    return TensorComparison("output", "logits", verdict=verdict, **more)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("exact")], "the result is equal to the reference bit for bit."),
        ([row("exact")] * 2, "all the results are equal to the reference bit for bit."),
        ([row("within_floor")], "no error in the result is larger than rounding explains."),
        ([row("within_floor", resolution=0.5), row("exact")],
         "no error in the 2 results is larger than rounding explains. In 1 of them an error of 0.5 times the "
         "tensor's size would not be seen, so large is rounding noise."),
        ([row("within_floor", resolution=0.7), row("within_tolerance", resolution=0.5), row("exact")],
         "no error in the 3 results is larger than the tolerance. In 2 of them an error of 0.5 to 0.7 times the "
         "tensor's size would not be seen, so large is rounding noise or the tolerance."),
        ([row("within_tolerance", resolution=0.49)], "no error in the result is larger than the tolerance."),
    ],
)  # fmt: skip
def test_what_is_right_is_right_for_the_inputs_that_were_tried(rows: list[TensorComparison], said: str) -> None:
    worst = max((item.verdict for item in rows), key=["exact", "within_floor", "within_tolerance"].index)
    assert sentence(Comparison(worst, f"{worst}: told", rows), "not needed: nothing failed") == (
        f"The numbers are right for the inputs that were tried: {said}"
    )


def test_tensors_that_differ_in_a_layers_number_alone_are_one_row_of_the_page() -> None:
    rows = [{"kind": "gradient", "path": f"layer.{layer}.bias", "verdict": "within_floor", "resolution": "4.0"}
            for layer in range(12)]  # fmt: skip
    rows += [{"kind": "output", "path": "1", "verdict": "within_tolerance", "resolution": "25.125"},
             {"kind": "output", "path": "0", "verdict": "defect", "resolution": "9"},
             {"kind": "loss", "path": "loss", "verdict": "exact", "resolution": ""}]  # fmt: skip
    calm = {"verdict": "within_floor", "ratio": "3.0", "resolution": "0.1"}
    assert sorted([calm, *rows], key=worst_first)[0]["path"] == "0"  # the defect
    assert sorted([calm, rows[0] | {"ratio": "1.0"}], key=worst_first)[0]["path"] == "layer.0.bias"
    assert _coarse(rows) == [
        {"tensor": "output 1", "tensors": 1, "would_pass": "25.1"},
        {"tensor": "gradient layer.*.bias", "tensors": 12, "would_pass": "4"},
    ]


def test_what_is_wrong_names_the_first_operation_or_says_that_it_is_not_known() -> None:
    wrong = Comparison("defect", "defect: 1 exact, 1 defect", [row("defect", message=WRONG), row("exact")])
    assert sentence(wrong, NOT_LOOKED) == (
        "The numbers are wrong in 1 result of 2. Which operation is wrong is not established."
    )
    alone = Comparison("defect", "defect: 1 defect", [row("defect", message=WRONG)])
    assert sentence(alone, NOT_LOOKED).startswith("The numbers are wrong in the only result. Which operation ")
    told = "Each operation that was checked is right for what it received. Their rounding adds up to the defect."
    assert sentence(wrong, Localization("accumulation", "observed", f"{told}\n2 of 2 operations were checked.")) == (
        f"The numbers are wrong in 1 result of 2. {told}"
    )
    line = "/x/site-packages/vision/net.py:3"
    place = Place("g0.forward", "relu", "aten.relu.default", ["relu"], source=line, kernel="fused_relu:1")
    found = Localization("operation", "observed", "…", culprits=[Culprit(place, "operation", 12.0, None, 1)])
    assert sentence(wrong, found) == (
        "The numbers are wrong in 1 result of 2. The first wrong operation is aten.relu.default (relu of g0.forward) "
        "at vision/net.py:3, computed by fused_relu:1."
    )


def test_what_could_not_be_compared_says_why() -> None:
    raised = Comparison("not_established", "not_established: the reference side raised ValueError: no rows: none")
    assert sentence(raised, NOT_LOOKED) == (
        "Whether the numbers are right is not established: the reference side raised ValueError: no rows: none."
    )
    unknown = Comparison("not_established", "not_established: 1 exact, 1 not_established; worst output logits: x",
                         [row("exact"), row("not_established", message="drawn differently")])  # fmt: skip
    assert sentence(unknown, NOT_LOOKED) == (
        "Whether the numbers are right is not established: output logits: drawn differently."
    )
    same = Comparison("not_exercised", "not_exercised: reference and test are both eager; 3 draws", [row("exact")])
    assert sentence(same, NOT_LOOKED) == "The numbers were not put to the test: reference and test are both eager."
