"""Inputs that transformers' own processors make of random pictures and sound, as an architecture reads them."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
import torch

from inductor_debug.models.compat import prepare_torchvision

logger = logging.getLogger(__name__)

_SECONDS = 1


def processed_inputs(config: Any, parameters: dict[str, bool], batch: int, image: int, seed: int) -> Iterator[Any]:
    """Inputs by the names of forward, one dict for each processor that knows the architecture and runs.

    A processor is made with its class's own settings, but for those that the configuration has by the same name; no
    file is read. What it calls otherwise than forward does is matched by the last words of the names
    (``image_grid_thw`` is ``grid_thw``), then by the order of what forward can't do without.

    Args:
        config: the model's.
        parameters: forward's argument names, and whether it needs them.
        batch, image: pictures, and their height and width in pixels; sound is ``_SECONDS`` long.
        seed: of the pictures and the sound.
    """
    drawn = numpy.random.default_rng(seed)
    pictures = [drawn.integers(0, 256, (image, image, 3), dtype=numpy.uint8) for _ in range(batch)]
    pairs = [[picture, picture[::-1].copy()] for picture in pictures]
    for kind in _processors(config):
        for call in _calls(kind, config, pictures, pairs, drawn):
            try:
                result = call()
                result = result if isinstance(result, Mapping) else {"pixel_values": result}
            except Exception as error:  # noqa: BLE001 - of a processor that these do not suit
                logger.debug("%s does not take what was drawn: %s", kind.__name__, error)
                continue
            tensors = {name: value for name, value in result.items() if isinstance(value, torch.Tensor)}
            if tensors:
                yield _named(tensors, parameters)
                break


def _processors(config: Any) -> Iterator[Any]:
    """Classes of image processors and feature extractors for a configuration, the nearest by the type's name first."""
    prepare_torchvision()
    import transformers
    from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING_NAMES
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

    own = str(config.model_type)
    for known in (IMAGE_PROCESSOR_MAPPING_NAMES, FEATURE_EXTRACTOR_MAPPING_NAMES):
        types = sorted((name for name in known if _part_of(own, name.replace("-", "_"))), key=len, reverse=True)
        for kind in types[:1]:
            named = known[kind]
            names = named.values() if isinstance(named, dict) else named if isinstance(named, tuple) else (named,)
            yield from (getattr(transformers, name) for name in names if name and hasattr(transformers, name))


def _part_of(own: str, whole: str) -> bool:
    """Whether the type ``gemma4_vision`` is, or is a part of, ``gemma4``."""
    own = own.replace("-", "_")
    return own == whole or own.startswith(f"{whole}_")


def _calls(kind: Any, config: Any, pictures: Any, pairs: Any, drawn: Any) -> Iterator[Callable[[], Any]]:
    parts = [config, getattr(config, "vision_config", None), getattr(config, "audio_config", None)]
    fields: dict[str, Any] = {}
    for part in parts:
        fields = (part.to_dict() if part is not None else {}) | fields
    fields = {"feature_size": fields.get("num_mel_bins")} | fields
    try:
        usual = vars(kind())
        shared = [name for name in usual if name in fields and _same_number_type(fields[name], usual[name])]
        processor = kind(**{name: fields[name] for name in shared})
    except Exception as error:  # noqa: BLE001 - one that wants a package or settings
        logger.debug("%s can't be made: %s", kind.__name__, error)
        return
    rate = getattr(processor, "sampling_rate", None)
    if rate is None:
        yield lambda: processor(images=pictures, return_tensors="pt")
        yield lambda: processor(images=pairs, return_tensors="pt")
    else:
        sound = [drawn.standard_normal(_SECONDS * rate).astype(numpy.float32) for _ in pictures]
        yield lambda: processor(sound, sampling_rate=rate, return_tensors="pt")


def _same_number_type(value: Any, usual: Any) -> bool:
    return type(value) is type(usual) and isinstance(value, (int, float)) and not isinstance(value, bool)


def _named(tensors: dict[str, torch.Tensor], parameters: dict[str, bool]) -> dict[str, torch.Tensor]:
    found = {name: tensors.pop(name) for name in parameters if name in tensors}
    left = [name for name in parameters if name not in found]
    for name in left:
        tails = (name, name.partition("_")[2] or name)
        same = next((item for item in tensors if item.partition("_")[2] in tails), None)
        if same is not None and parameters[name]:
            found[name] = tensors.pop(same)
    needed = [name for name in left if parameters[name] and name not in found]
    found |= dict(zip(needed, list(tensors.values()), strict=False))
    return {name: value.float() if value.is_floating_point() else value for name, value in found.items()}
