"""How inputs are varied: sizes from the builder or by name, dtypes, layouts; nothing else may change."""

from typing import Any

import pytest
import torch
from capture_models import case_of
from guard_models import Added, Masked, Picky, Plain, build_fixed, build_masked
from torch import nn

from inductor_debug.models.build import build_case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.guards.layouts import channels_last, other_layout, resized, restrided
from inductor_debug.stages.guards.stage import rebuilder
from inductor_debug.stages.guards.variations import Planned, Rebuilder, other_sizes, plan
from inductor_debug.stages.settings import Settings

FIXED, MASKED = f"{build_fixed.__module__}.build_fixed", f"{build_masked.__module__}.build_masked"


def settings_of(target: str, **sizes: Any) -> Settings:
    return Settings(ModelConfig("small", {"_target_": target}, **sizes))


def shapes(planned: Planned) -> dict[str, list[int]]:
    assert planned.case is not None
    return {name: list(tensor.shape) for name, tensor in planned.case.named_inputs().items()}


def masked_case() -> Any:
    return build_case(settings_of(MASKED, batch_size=4, sequence_length=16).model)


@pytest.mark.parametrize(("size", "others"), [(1, (2, 3)), (2, (3, 4)), (3, (4, 5)), (4, (2, 3)), (128, (64, 96))])
def test_other_sizes_avoid_the_constants_and_the_own(size: int, others: tuple[int, int]) -> None:
    assert other_sizes(size) == others


def test_building_anew_changes_tokens_and_mask_alike_and_keeps_the_module() -> None:
    settings = settings_of(MASKED, batch_size=4, sequence_length=16)
    case = masked_case()
    planned = plan(case, ["batch", "length"], {}, rebuilder(settings))
    assert [(item.record.kind, item.record.step, item.record.established_by) for item in planned] == [
        ("batch", 1, "built with model.batch_size=2"),
        ("batch", 2, "built with model.batch_size=3"),
        ("length", 1, "built with model.sequence_length=8"),
        ("length", 2, "built with model.sequence_length=12"),
    ]
    assert shapes(planned[0]) == {"inputs.tokens": [2, 16], "inputs.mask": [2, 16], "weight": [7]}
    assert shapes(planned[3]) == {"inputs.tokens": [4, 12], "inputs.mask": [4, 12], "weight": [7]}
    assert planned[0].record.change == "inputs.tokens [4, 16] → [2, 16], inputs.mask [4, 16] → [2, 16]"
    assert all(item.case is not None and item.case.module is case.module for item in planned)


def test_a_builder_without_that_size_establishes_nothing() -> None:
    settings = settings_of(FIXED, batch_size=6)
    (item,) = plan(build_case(settings.model), ["batch"], {}, rebuilder(settings))
    assert item.case is None
    assert "the inputs that are built with model.batch_size=3 have the same sizes" in item.record.message
    assert "Try: stages.guards.dims.batch.INPUT=DIMENSION" in item.record.message


def test_a_builder_that_refuses_a_size_is_told() -> None:
    def build(sizes: Any) -> Any:
        raise ValueError("one size only")

    (item,) = plan(case_of(Plain(), torch.ones(6, 4)), ["batch"], {}, Rebuilder({"batch_size": 1}, build))
    assert item.case is None and "building with model.batch_size=2 raised ValueError: one size only" in (
        item.record.message
    )


def test_named_dimensions_take_existing_values_only() -> None:
    case = masked_case()
    dims = {"length": {"inputs.tokens": 1, "inputs.mask": 1}}
    shorter, middle = plan(case, ["length"], dims, None)
    assert shapes(shorter) == {"inputs.tokens": [4, 8], "inputs.mask": [4, 8], "weight": [7]}
    assert torch.equal(shorter.case.kwargs["inputs"]["tokens"], case.kwargs["inputs"]["tokens"][:, :8])
    assert shapes(middle)["inputs.mask"] == [4, 12]
    short = build_case(settings_of(MASKED, batch_size=4, sequence_length=2).model)
    longer = plan(short, ["length"], dims, None)[1].case.kwargs["inputs"]["tokens"]
    assert torch.equal(longer, short.kwargs["inputs"]["tokens"].repeat(1, 2))


def test_one_tensor_under_two_names_stays_one() -> None:
    x = torch.randn(6, 5)
    (first, _) = plan(case_of(Added(), x, x), ["batch"], {"batch": {"x": 0, "y": 0}}, None)
    assert first.case.args[0] is first.case.args[1] and first.case.args[0].shape == (3, 5)
    (layout,) = plan(case_of(Added(), x, x), ["contiguity"], {}, None)
    assert layout.case.args[0] is layout.case.args[1] and layout.case.args[0].stride() == (1, 6)


def test_tensors_that_share_memory_keep_their_layout() -> None:
    memory = torch.randn(12, 5)
    (item,) = plan(case_of(Added(), memory[:6], memory[6:]), ["contiguity"], {}, None)
    assert item.case is None and "has its memory for itself" in item.record.message


def test_the_dtype_leaves_integers_alone_and_the_case_unchanged() -> None:
    case = masked_case()
    inputs, weights = plan(case, ["dtype"], {}, None)
    found = {name: tensor.dtype for name, tensor in inputs.case.named_inputs().items()}
    assert found == {"inputs.tokens": torch.int64, "inputs.mask": torch.int64, "weight": torch.bfloat16}
    assert (inputs.cast, weights.cast) == (None, torch.bfloat16)
    assert case.kwargs["weight"].dtype == torch.float32
    assert {item.dtype for item in case.module.parameters()} == {torch.float32}


def test_a_bfloat16_case_is_tried_in_float32() -> None:
    case = case_of(Picky(), torch.ones(4, 4, dtype=torch.bfloat16))
    (item,) = plan(case, ["dtype"], {}, None)  # it has no weights
    assert item.case.args[0].dtype == torch.float32


def test_integers_alone_have_no_other_dtype() -> None:
    class Looked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    (item,) = plan(case_of(Looked(), torch.arange(4)), ["dtype"], {}, None)
    assert item.case is None and "no input has a floating dtype" in item.record.message


def test_layouts_of_an_image_are_swapped_and_channels_last() -> None:
    image = torch.randn(2, 3, 8, 6)
    swapped, last = plan(case_of(Picky(), image), ["contiguity"], {}, None)
    assert swapped.case.args[0].stride() == (144, 48, 1, 8)
    assert last.case.args[0].is_contiguous(memory_format=torch.channels_last)
    for item in (swapped, last):
        assert torch.equal(item.case.args[0], image) and item.case.args[0]._base is None


@pytest.mark.parametrize(
    ("tensor", "strides"),
    [
        (torch.arange(6.0), [2]),
        (torch.zeros(1, 5), [10, 2]),
        (torch.zeros(2, 3), [1, 2]),
        (torch.zeros(2, 3).t(), [2, 1]),
        (torch.zeros(3, 1).expand(3, 4), [4, 1]),
        (torch.zeros(1), None),
        (torch.zeros(()), None),
        (torch.zeros(0, 3), None),
    ],
)
def test_other_layouts(tensor: torch.Tensor, strides: list[int] | None) -> None:
    assert other_layout(tensor) == strides
    if strides is not None:
        copy = restrided(tensor, strides)
        assert torch.equal(copy, tensor) and list(copy.stride()) == strides


def test_channels_last_is_for_images_alone() -> None:
    assert channels_last(torch.zeros(2, 3, 4)) is None
    assert channels_last(torch.zeros(2, 1, 4, 4)) is None  # the same memory
    assert channels_last(torch.zeros(1, 2, 3, 4, 5)) == [120, 1, 40, 10, 2]


def test_another_size_keeps_the_order_of_strides_the_gradient_and_the_marks() -> None:
    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last).requires_grad_()
    torch._dynamo.mark_dynamic(image, 0, min=2, max=64)
    copy = resized(image, 0, 5)
    assert copy.shape == (5, 3, 4, 4) and copy.is_contiguous(memory_format=torch.channels_last)
    assert copy.requires_grad and copy.is_leaf
    assert copy._dynamo_dynamic_indices == {0}
    assert torch.equal(copy[2:4], image)


def test_the_masked_model_reads_what_it_says() -> None:
    case = masked_case()
    assert isinstance(case.module, Masked) and case.run().output.shape == (4, 16, 7)
