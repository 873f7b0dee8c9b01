"""Inputs that fit the forward signature of a transformers model."""

import inspect
import logging
from typing import Any

import torch
from torch import nn

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.huggingface_input_maker import (
    InputMaker,
    annotated,
    complete,
    field,
    is_tensor,
    of_integers,
    runs,
)
from inductor_debug.models.huggingface_processors import processed_inputs
from inductor_debug.models.random_state import input_generator

logger = logging.getLogger(__name__)

_LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")


def make_inputs(
    model: Any, batch: int, sequence: int, image: int, shapes: dict[str, list[int]]
) -> dict[str, torch.Tensor]:
    """Inputs by forward's argument names.

    Tokens are int64 (batch, sequence) with an all-ones mask; an encoder-decoder gets ``decoder_input_ids`` too. All
    else is float32 from a normal distribution: images (batch, channels, height, width), videos (batch, frames,
    channels, height, width), audio (batch, samples), (batch, bins, frames) or (batch, frames, bins). What else forward
    needs is made by name, see :func:`models.huggingface_input_maker.complete`.

    Args:
        model: a transformers model on the CPU.
        batch, sequence, image: sizes; the sequence is cut to what the model can read, with a warning.
        shapes: further inputs or other shapes, by argument name. Names ending in ``ids``, ``labels`` or ``mask``
            are integers, ``bbox`` zeros, all others floats.

    Raises:
        ConfigurationError: forward does not take a name in ``shapes``, or nothing that is made here.
    """
    names = inspect.signature(model.forward).parameters
    takes_any = any(item.kind == item.VAR_KEYWORD for item in names.values())
    for name in shapes:
        if name not in names and not takes_any:
            raise ConfigurationError(f"model.build.input_shapes: got {name!r}; valid: {', '.join(names)}.")
    generator, config, main = input_generator(), model.config, main_input(model)
    given = {name: _of_shape(name, [int(size) for size in shape], _text_config(config), generator)
             for name, shape in shapes.items()}  # fmt: skip
    text = {
        "input_ids": lambda: _tokens(_text_config(config), batch, _readable(model, config, sequence), generator),
        "pixel_values": lambda: torch.randn(_image_shape(config, batch, image), generator=generator),
        "input_values": lambda: torch.randn(_wave_shape(config, batch, sequence), generator=generator),
        "input_features": lambda: torch.randn(_feature_shape(config, batch, sequence), generator=generator),
    }
    text["decoder_input_ids"] = text["qformer_input_ids"] = text["input_ids"]
    maker = InputMaker(config, batch, sequence, text, generator)
    unknown: ConfigurationError | None = None
    made = dict(given)
    try:
        made = _guessed(model, main, batch, sequence, image, given, generator)
        if main in names and main not in made and is_tensor(names[main]):
            made[main] = maker.make(main, made)
        if complete(model, made, maker, main, given):
            return made
    except ConfigurationError as error:
        unknown = error
    needs = {name: item.default is item.empty and item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)
             for name, item in names.items()}  # fmt: skip
    for other in processed_inputs(config, needs, batch, image, generator.initial_seed()):
        beside = {name: tensor for name, tensor in made.items() if name not in other and needs.get(name)}
        for candidate in (made | other | given, beside | other | given, other | made):
            if runs(model, candidate):
                logger.info("the inputs of %s are its own processor's", type(model).__name__)
                return candidate
    if unknown is not None:
        raise unknown
    lacking = [name for name, needed in needs.items() if needed and name not in made]
    if lacking or not made:
        name = lacking[0] if lacking else main
        raise ConfigurationError(unknown_shape(model, name, batch, sequence))
    return made


def main_input(model: Any) -> str:
    """The name of the input that a model is about, as its class says; forward's first where it takes none of that name.

    transformers gives every class "input_ids" that does not say otherwise; some name several.
    """
    names = list(inspect.signature(model.forward).parameters)
    said = model.main_input_name
    for name in said if isinstance(said, (list, tuple)) else [said]:
        if name in names:
            return str(name)
    return names[0] if names else "nothing"


def unknown_shape(model: Any, name: str, batch: int, sequence: int) -> str:
    """The message for an input that forward needs and that nothing here makes."""
    item = inspect.signature(model.forward).parameters.get(name)
    kind = type(model).__name__
    if item is None or item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD):
        return (
            f"model=huggingface: {kind} has no forward of its own; valid: a class that has one.\n"
            "Try: model.build.config=… and model.build.model_class=… of one of its parts"
        )
    if not is_tensor(item):
        return (
            f"model=huggingface: {kind}.forward takes {name!r}, which is no tensor but {annotated(item)}.\n"
            "Try: model=custom model.build._target_=… with a callable that returns the model and such an input"
        )
    shape = shape_to_try(name, batch, sequence)
    return (
        f"model=huggingface: {kind}.forward takes {name!r}, which has no known shape.\n"
        f"Try: '+model.build.input_shapes.{name}={shape}'"
    )


def _guessed(
    model: Any,
    main: str,
    batch: int,
    sequence: int,
    image: int,
    given: dict[str, torch.Tensor],
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    """Text, images and sound, where forward takes them, and what is ``given``."""
    names, config = inspect.signature(model.forward).parameters, model.config
    made: dict[str, torch.Tensor] = {}
    if "input_ids" in names and main not in ("pixel_values", "input_values", "input_features"):
        text = config.get_text_config(encoder=True) if config.is_encoder_decoder else _text_config(config)
        made["input_ids"] = _tokens(text, batch, _readable(model, text, sequence), generator)
        if "attention_mask" in names:
            made["attention_mask"] = torch.ones_like(made["input_ids"])
    if "pixel_values" in names and (main == "pixel_values" or hasattr(config, "projection_dim")):
        made["pixel_values"] = torch.randn(_image_shape(config, batch, image), generator=generator)
    if main == "input_values" and main not in given:
        made["input_values"] = torch.randn(_wave_shape(config, batch, sequence), generator=generator)
    if main == "input_features" and main not in given:
        made["input_features"] = torch.randn(_feature_shape(config, batch, sequence), generator=generator)
    if "decoder_input_ids" in names and getattr(config, "is_encoder_decoder", False):
        length = _readable(model, config, sequence, ("max_target_positions", *_LENGTH_FIELDS))
        made["decoder_input_ids"] = _tokens(_text_config(config), batch, length, generator)
    return made | given


def _text_config(config: Any) -> Any:
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _tokens(config: Any, batch: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """Random tokens without padding, the last one the end token where there is one: some heads look for it."""
    vocabulary = getattr(config, "vocab_size", None) or 2
    tokens = torch.randint(vocabulary, (batch, length), generator=generator)
    padding, end = getattr(config, "pad_token_id", None), getattr(config, "eos_token_id", None)
    if vocabulary > 3:
        special = [token for token in (padding, end) if isinstance(token, int) and 0 <= token < vocabulary]
        ordinary = next(token for token in range(vocabulary) if token not in special)
        for token in special:
            tokens[tokens == token] = ordinary
    if isinstance(end, int) and 0 <= end < vocabulary:
        tokens[:, -1] = end
    return tokens


def _readable(model: nn.Module, config: Any, length: int, fields: tuple[str, ...] = _LENGTH_FIELDS) -> int:
    """``length``, cut to the longest sequence the model can read."""
    limits = [getattr(config, name) for name in fields if isinstance(getattr(config, name, None), int)][:1]
    for name, module in model.named_modules():
        # RoBERTa's kin count positions from the padding token's index on.
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            limits.append(module.num_embeddings - module.padding_idx - 1)
    limit = min((value for value in limits if value > 0), default=length)
    if limit < length:
        logger.warning("model.sequence_length=%d is more than this model reads; using %d", length, limit)
    return min(limit, length)


def _image_shape(config: Any, batch: int, image: int) -> list[int]:
    vision = getattr(config, "vision_config", None) or config
    size = getattr(vision, "image_size", None) or image
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    if (height, width) != (image, image):
        logger.warning("model.image_size=%d: this model reads %dx%d alone; using that", image, height, width)
    channels = getattr(vision, "num_channels", None) or 3
    frames = getattr(vision, "num_frames", None)
    return [batch, *([frames] if isinstance(frames, int) else []), channels, height, width]


def _wave_shape(config: Any, batch: int, frames: int) -> list[int]:
    """Samples that the convolutions turn into ``frames`` frames; spectrogram models get their own fixed shape."""
    if hasattr(config, "max_length") and hasattr(config, "num_mel_bins"):
        return [batch, config.max_length, config.num_mel_bins]
    hop = getattr(config, "hop_length", None)
    if isinstance(hop, int):  # a codec, which reads channels
        return [batch, getattr(config, "audio_channels", 1), frames * hop]
    samples = frames
    pairs = zip(getattr(config, "conv_kernel", ()), getattr(config, "conv_stride", ()), strict=True)
    for kernel, stride in reversed(list(pairs)):
        samples = (samples - 1) * stride + kernel
    return [batch, samples]


def _feature_shape(config: Any, batch: int, frames: int) -> list[int]:
    bins = getattr(config, "num_mel_bins", None)
    if bins and hasattr(config, "max_source_positions") and not hasattr(config, "input_feat_per_channel"):
        return [batch, bins, 2 * config.max_source_positions]  # Whisper reads exactly this many frames
    if field(config, "num_mel_bins") and field(config, "spec_size"):  # CLAP: a picture of a fixed size
        return [batch, 1, field(config, "spec_size") or 1, field(config, "num_mel_bins") or 1]
    found = field(config, "input_feat_per_channel", "feature_projection_input_dim", "num_mel_bins", "input_dim")
    if found is not None:
        return [batch, frames, found]
    raise ConfigurationError(
        "model=huggingface: input_features of this architecture have no known shape.\n"
        f"Try: '+model.build.input_shapes.input_features={shape_to_try('input_features', batch, frames)}'"
    )


def _of_shape(name: str, shape: list[int], config: Any, generator: torch.Generator) -> torch.Tensor:
    if name.endswith("mask"):
        return torch.ones(shape, dtype=torch.int64)
    if name == "bbox":
        return torch.zeros(shape, dtype=torch.int64)
    if name.endswith("input_ids"):
        return torch.randint(getattr(config, "vocab_size", None) or 2, shape, generator=generator)
    if of_integers(name):
        return torch.zeros(shape, dtype=torch.int64)
    return torch.randn(shape, generator=generator)


def shape_to_try(name: str, batch: int, sequence: int) -> str:
    """A shape for an input of which nothing but its name is known, as a message writes it."""
    return f"[{batch},{sequence}]" if of_integers(name) else f"[{batch},{sequence},WIDTH]"
