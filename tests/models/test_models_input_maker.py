"""Inputs that forward speaks of when it lacks them are made; a forward that lacks nothing is not run for it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from inductor_debug.models.blame import fields_spoken_of, missing_package
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.huggingface_input_maker import InputMaker, complete
from inductor_debug.models.huggingface_inputs import make_inputs


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
    complete(model, made, InputMaker(SimpleNamespace(), 2, 16, {}, torch.Generator()), "input_ids", ())
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


class Reader(nn.Module):
    """Of the type ``name``; what its forward takes, a subclass says."""

    def __init__(self, name: str, main: Any, **fields: Any) -> None:
        super().__init__()
        self.main_input_name = main
        self.config = SimpleNamespace(model_type=name, is_encoder_decoder=False, to_dict=lambda: fields, **fields)
        self.layer = nn.Linear(7, 3)


class Wide(Reader):
    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        return self.layer(latents)


def test_an_input_of_an_unknown_name_is_as_wide_as_torch_says() -> None:
    assert make_inputs(Wide("none", "latents", hidden_size=5), 2, 16, 8, {})["latents"].shape == (2, 16, 7)


def test_a_width_that_was_given_stays() -> None:
    made = make_inputs(Wide("none", "latents", hidden_size=5), 2, 16, 8, {"latents": [2, 4, 6]})
    assert made["latents"].shape == (2, 4, 6)


class Patches(Reader):
    def forward(self, pixel_values: torch.Tensor, grid_shapes: torch.Tensor, task: Any = None) -> torch.Tensor:
        batch, patches, width = pixel_values.shape
        assert grid_shapes.prod(-1).tolist() == [patches] * batch and width == 3 * 16 * 16
        return pixel_values.sum()


def test_what_no_guess_fits_is_made_by_the_architectures_own_processor() -> None:
    """Its ``spatial_shapes`` are forward's ``grid_shapes``, by the last words of the names; a class may name several
    inputs that it is about."""
    model = Patches("siglip2_vision_model", ["pixel_values", "task"])
    made = make_inputs(model, 2, 16, 64, {})
    assert set(made) == {"pixel_values", "grid_shapes"} and made["pixel_values"].dtype == torch.float32
    again = make_inputs(model, 2, 16, 64, {})
    assert all(torch.equal(made[name], again[name]) for name in made)


class Nothing(Reader):
    def forward(self, *args: Any) -> None:
        raise NotImplementedError


class Session:
    """No tensor."""


class Sessions(Reader):
    def forward(self, session: Session) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(("model", "said"), [
    (Nothing("none", "input_ids"), "Nothing has no forward of its own; valid: a class that has one"),
    (Sessions("none", "input_ids"), "forward takes 'session', which is no tensor but Session"),
])  # fmt: skip
def test_an_input_that_can_not_be_made_is_told_as_what_it_is(model: nn.Module, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make_inputs(model, 2, 16, 8, {})


def test_a_shape_is_taken_where_none_can_be_guessed() -> None:
    class Sound(nn.Module):
        main_input_name = "input_features"
        config = SimpleNamespace(is_encoder_decoder=False, model_type="none", to_dict=dict)

        def forward(self, input_features: torch.Tensor) -> torch.Tensor:
            return input_features

    with pytest.raises(ConfigurationError, match=r"Try: '\+model.build.input_shapes.input_features=\[2,16,WIDTH\]'"):
        make_inputs(Sound(), 2, 16, 8, {})
    made = make_inputs(Sound(), 2, 16, 8, {"input_features": [2, 5, 7]})
    assert made["input_features"].shape == (2, 5, 7)


class Seen(Reader):
    def forward(self, pixel_values: torch.Tensor, visual_feats: torch.Tensor | None = None) -> Any:
        if visual_feats is None:
            raise ValueError("`visual_feats` cannot be `None`")
        return self.layer(visual_feats) + pixel_values.mean()


def test_a_tensor_that_the_error_itself_names_is_made() -> None:
    made = make_inputs(Seen("none", "pixel_values", hidden_size=5), 2, 16, 8, {})
    assert made["visual_feats"].shape == (2, 16, 7)


def test_the_fields_of_the_innermost_line_come_first() -> None:
    config = SimpleNamespace(
        to_dict=lambda: {"layers": 2, "text_config": {"model_type": "t", "kinds": None}, "wide": 1}
    )

    def built() -> Any:
        kinds = None
        return kinds[0]  # type: ignore[index]

    try:
        [built() for layers in range(1)]
    except TypeError as error:
        assert fields_spoken_of(config, error) == ["text_config.kinds", "layers"]
    else:
        pytest.fail("None has no items")


@pytest.mark.parametrize("said", [
    "\nTimmBackbone requires the timm library but it was not found", "No module named 'timm.models'",
])  # fmt: skip
def test_a_package_that_is_not_installed_is_named(said: str) -> None:
    assert missing_package(ImportError(said)) == "timm" and missing_package(ValueError(said)) is None
