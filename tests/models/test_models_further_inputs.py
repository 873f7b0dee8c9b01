"""Inputs that forward speaks of when it lacks them are made; a forward that lacks nothing is not run for it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from models.errors import ConfigurationError
from models.huggingface_further import FurtherInputs, complete
from models.huggingface_inputs import make_inputs


class Model(nn.Module):
    """Counts its calls, and wants boxes, of which its error says nothing but in the line that raises."""

    main_input_name = "input_ids"

    def __init__(self, wants_boxes: bool) -> None:
        super().__init__()
        self.norm, self.calls, self.wants_boxes = nn.BatchNorm1d(4), 0, wants_boxes

    def forward(self, input_ids: torch.Tensor, inputs_embeds: Any = None, bbox: Any = None) -> torch.Tensor:
        self.calls += 1
        self.norm(torch.rand(2, 4))
        return bbox.sum() + input_ids.sum() if self.wants_boxes else input_ids.sum()


class Text(Model):
    def forward(self, input_ids: torch.Tensor, inputs_embeds: Any = None) -> torch.Tensor:  # type: ignore[override]
        return super().forward(input_ids)


def completed(model: Model) -> dict[str, torch.Tensor]:
    made = {"input_ids": torch.zeros(2, 16, dtype=torch.int64)}
    complete(model, made, FurtherInputs(SimpleNamespace(), 2, 16, {}, torch.Generator()))
    return made


def test_what_the_raising_line_speaks_of_is_made_and_nothing_else_is_changed() -> None:
    model, state = Model(wants_boxes=True).train(), torch.get_rng_state()
    made = completed(model)
    assert list(made) == ["input_ids", "bbox"] and made["bbox"].shape == (2, 16, 4)
    assert model.training and model.norm.num_batches_tracked == 0
    assert torch.equal(torch.get_rng_state(), state)


def test_what_forward_can_do_without_is_not_made() -> None:
    assert list(completed(Model(wants_boxes=False))) == ["input_ids"]


def test_a_model_of_text_alone_is_not_run() -> None:
    model = Text(wants_boxes=False)
    assert list(completed(model)) == ["input_ids"] and model.calls == 0


def test_a_shape_is_taken_where_none_can_be_guessed() -> None:
    class Sound(nn.Module):
        main_input_name = "input_features"
        config = SimpleNamespace(is_encoder_decoder=False)

        def forward(self, input_features: torch.Tensor) -> torch.Tensor:
            return input_features

    with pytest.raises(ConfigurationError, match=r"Try: '\+model.build.input_shapes.input_features=\[2,16,…\]'"):
        make_inputs(Sound(), 2, 16, 8, {})
    made = make_inputs(Sound(), 2, 16, 8, {"input_features": [2, 5, 7]})
    assert made["input_features"].shape == (2, 5, 7)
