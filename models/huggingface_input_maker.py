"""Inputs of transformers' models beyond text, image and sound: made where forward can't do without them."""

import inspect
import logging
import re
from collections.abc import Callable, Collection
from typing import Any

import torch

from inductor_debug.models.blame import identifiers_in
from inductor_debug.models.errors import is_out_of_memory
from inductor_debug.models.random_state import preserved_random_state
from inductor_debug.models.torch_text import unfit_sizes

logger = logging.getLogger(__name__)

Shape = list[int]


def field(config: Any, *names: str, default: int | None = None) -> int | None:
    """The first integer of those names in a configuration, or in the configurations that it is made of."""
    parts = [getattr(config, name, None) for name in getattr(config, "sub_configs", None) or {}]
    for name in names:
        for part in (config, *parts):
            value = getattr(part, name, None)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return default


class InputMaker:
    """Makes tensors by the names that transformers' forwards give them.

    Args:
        config: the model's.
        batch, sequence: sizes.
        given: makes text, images and sound by name; what it raises is passed on.
        generator: of the random numbers.
    """

    def __init__(
        self,
        config: Any,
        batch: int,
        sequence: int,
        given: dict[str, Callable[[], torch.Tensor]],
        generator: torch.Generator,
    ) -> None:
        self.config, self.batch, self.sequence, self.given, self.generator = config, batch, sequence, given, generator

    def knows(self, name: str) -> bool:
        """Whether :meth:`make` has a tensor of that name."""
        return name in self.given or name in _SHAPES

    def make(self, name: str, made: dict[str, torch.Tensor]) -> torch.Tensor:
        """The tensor called ``name``, beside those that are made; one of an unknown name integers or a hidden state."""
        if name in self.given:
            return self.given[name]()
        if name not in _SHAPES and of_integers(name):
            return torch.zeros(self.rows(), dtype=torch.int64)
        kind, shape_of = _SHAPES.get(name, _SHAPES["hidden_states"])
        shape = shape_of(self, made)
        if kind == "floats":
            return torch.randn(shape, generator=self.generator)
        return torch.full(shape, 1 if kind == "ones" else 0, dtype=torch.int64)

    @property
    def width(self) -> int:
        """Of a hidden state."""
        return field(self.config, "hidden_size", "d_model", "embed_dim", "n_embd", default=1) or 1

    def rows(self, *last: int) -> Shape:
        """(batch, sequence, last)."""
        return [self.batch, self.sequence, *last]

    def past(self, *last: int) -> Shape:
        """(batch, steps that a forecast looks back on, last)."""
        lags = getattr(self.config, "lags_sequence", None) or [0]
        steps = field(self.config, "context_length", "prediction_length", default=self.sequence) or self.sequence
        return [self.batch, steps + max(lags), *last]

    def future(self, *last: int) -> Shape:
        """(batch, steps of a forecast, last)."""
        return [self.batch, field(self.config, "prediction_length", default=1) or 1, *last]

    def channels(self) -> Shape:
        """The channels of a time series, where there are several."""
        series = field(self.config, "num_input_channels")
        several = field(self.config, "input_size", default=1) or 1
        return [series] if series is not None else [several] if several > 1 else []


def _like(name: str, dim: int, *others: str) -> Callable[[InputMaker, dict[str, torch.Tensor]], Shape]:
    """(batch, size of what is made under ``name``, or one of ``others``, along ``dim``)."""

    def shape(maker: InputMaker, made: dict[str, torch.Tensor]) -> Shape:
        found = next((made[item] for item in (name, *others) if item in made), None)
        return [maker.batch, maker.sequence if found is None else int(found.shape[dim])]

    return shape


def _frames(maker: InputMaker, made: dict[str, torch.Tensor]) -> Shape:
    """(batch, frames) of the made spectrogram: the dimension that does not count its bins."""
    if "input_features" not in made:
        return maker.rows()
    *_, first, second = made["input_features"].shape
    bins = field(maker.config, "num_mel_bins", "feature_size", default=0)
    return [maker.batch, second if first == bins else first]


_GRID = (1, 4, 4)
"""Frames, rows and columns of patches."""


def _patches(maker: InputMaker, made: dict[str, torch.Tensor]) -> Shape:
    """(patches, numbers in one), of an image that comes in patches."""
    config = maker.config
    side = field(config, "patch_size", default=14) or 14
    deep = field(config, "temporal_patch_size", default=1) or 1
    return [_GRID[1] * _GRID[2], (field(config, "in_channels", "num_channels", default=3) or 3) * deep * side * side]


_SHAPES: dict[str, tuple[str, Callable[[InputMaker, dict[str, torch.Tensor]], Shape]]] = {
    "bbox": ("zeros", lambda maker, made: [*_like("input_ids", 1)(maker, made), 4]),
    "pixel_mask": ("ones", lambda maker, made: [maker.batch, *made["pixel_values"].shape[-2:]]),
    "input_features_mask": ("ones", _frames),
    "feature_attention_mask": ("ones", _frames),
    "decoder_input_values": ("floats", lambda maker, made: maker.rows(field(maker.config, "num_mel_bins") or 80)),
    "hidden_states": ("floats", lambda maker, made: maker.rows(maker.width)),
    "inputs_embeds": ("floats", lambda maker, made: maker.rows(maker.width)),
    "encoder_hidden_states": (
        "floats",
        lambda maker, made: maker.rows(field(maker.config, "encoder_hidden_size", default=maker.width) or 1),
    ),
    "query_embeds": (
        "floats",
        lambda maker, made: [maker.batch, field(maker.config, "num_query_tokens", default=32) or 32, maker.width],
    ),
    "states": ("floats", lambda maker, made: maker.rows(field(maker.config, "state_dim", default=1) or 1)),
    "actions": ("floats", lambda maker, made: maker.rows(field(maker.config, "act_dim", "action_dim", default=1) or 1)),
    "rewards": ("floats", lambda maker, made: maker.rows(1)),
    "returns_to_go": ("floats", lambda maker, made: maker.rows(1)),
    "timesteps": ("zeros", lambda maker, made: maker.rows()),
    "past_values": ("floats", lambda maker, made: maker.past(*maker.channels())),
    "past_observed_mask": ("ones", lambda maker, made: maker.past(*maker.channels())),
    "past_time_features": (
        "floats",
        lambda maker, made: maker.past(field(maker.config, "num_time_features", default=0) or 0),
    ),
    "future_values": ("floats", lambda maker, made: maker.future(*maker.channels())),
    "future_time_features": (
        "floats",
        lambda maker, made: maker.future(field(maker.config, "num_time_features", default=0) or 0),
    ),
}
"""Name → what it holds ("floats" of a normal distribution, "zeros", "ones") and its shape."""
_ELSEWISE = ("inputs_embeds", "encoder_hidden_states", "hidden_states", "decoder_input_ids", "past_observed_mask")
"""Made only where forward has no default for them, or where it speaks of them."""


def annotated(item: inspect.Parameter) -> str:
    """An argument's annotation in words."""
    return str(getattr(item.annotation, "__name__", item.annotation))


def is_tensor(item: inspect.Parameter) -> bool:
    """Whether an argument of forward may be a tensor, as far as its annotation says; ``*args`` is none."""
    if item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD):
        return False
    return item.annotation is item.empty or "Tensor" in annotated(item)


def of_integers(name: str) -> bool:
    """Whether an input of that name is made of integers where its shape alone is given."""
    return name.endswith(("ids", "labels", "mask")) or name == "bbox"


def complete(model: Any, made: dict[str, torch.Tensor], maker: InputMaker, main: str, fixed: Collection[str]) -> bool:
    """Add to ``made`` what forward needs and can be made. False where forward does not run on it all the same.

    First what has no default. Then, but for models of text alone, forward is run, in evaluation mode without
    gradients: an input that the error, or the line that raised it, speaks of is made, until forward runs or speaks of
    none. An input of another size than torch says that it wants is made once more, but for those that are ``fixed``.
    Modules and generators are left as found, but for what forward itself keeps. A model of text alone is taken to run:
    it may be large.

    Args:
        model: the transformers model.
        made: the inputs by argument name; changed in place.
        maker: makes the others.
        main: name of the model's main input, e.g. ``input_ids``.
        fixed: names of inputs whose shapes the user gave.
    """
    parameters = inspect.signature(model.forward).parameters
    if "grid_thw" in parameters and "grid_thw" not in made:
        first = next(iter(parameters))
        made[first] = torch.randn(_patches(maker, made), generator=maker.generator)
        made["grid_thw"] = torch.tensor([_GRID])
    for name, item in parameters.items():
        if item.default is item.empty and name not in made and (maker.knows(name) or is_tensor(item)):
            made[name] = maker.make(name, made)
    left = [name for name in parameters if made and name not in made and maker.knows(name)]
    if set(left) <= set(_ELSEWISE) and main == "input_ids" and main in made:
        return True
    error, refitted = _raised(model, made), set(fixed)
    others = [name for name, item in parameters.items() if is_tensor(item) and name not in (*made, *left)]
    while error is not None:
        named = identifiers_in(error)
        said = re.findall(r"\w+", str(error))  # a line names much that forward can do without
        spoken = next((name for name in (*left, *others) if name in (named if name in left else said)), None)
        if spoken is not None:
            logger.info("%s.forward speaks of %s, which is made for it", type(model).__name__, spoken)
            made[spoken] = maker.make(spoken, made)
            (left if spoken in left else others).remove(spoken)
        elif (wanted := _refitted(str(error), made, maker.sequence)) and wanted[0] not in refitted:
            name, shape = wanted
            made[name] = torch.randn(shape, generator=maker.generator)
            refitted.add(name)
        else:
            return False
        error = _raised(model, made)
    return True


def _refitted(said: str, made: dict[str, torch.Tensor], sequence: int) -> tuple[str, Shape] | None:
    """The made input with a size that an error calls wrong, and the shape that it asks for.

    Where the channels, not the rows, come second, the rows come last.
    """
    for dim, got, wanted in unfit_sizes(said):
        for name, tensor in made.items():
            shape = list(tensor.shape)
            if tensor.is_floating_point() and len(shape) == 3 and shape[dim] == got:
                shape[dim] = wanted
                return name, shape if dim == -1 else [*shape[:2], sequence]
    return None


def runs(model: Any, made: dict[str, torch.Tensor]) -> bool:
    """Whether forward runs on ``made``, in evaluation mode without gradients; memory that runs out does not count."""
    return _raised(model, made) is None


def _raised(model: Any, made: dict[str, torch.Tensor]) -> Exception | None:
    """What forward raises on ``made``; None if it runs, or if memory ran out."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), preserved_random_state(torch.device("cpu")):
            model(**made)
    except Exception as error:  # noqa: BLE001 - of the architecture's own code; the eager check tells of it
        if is_out_of_memory(error):
            return None
        return error
    finally:
        model.train(training)
    return None
