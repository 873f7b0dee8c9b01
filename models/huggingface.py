"""Any transformers architecture by its configuration class, or a local checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from inductor_debug.models.blame import fields_spoken_of, missing_package, place_of
from inductor_debug.models.errors import ConfigurationError, closest_first, invalid_choice, is_out_of_memory
from inductor_debug.models.huggingface_inputs import make_inputs

SHOWN = 20
"""Names that a message lists; transformers has hundreds."""
FIELDS = 3
"""Fields whose values a message gives."""


def build(
    batch_size: int,
    sequence_length: int,
    image_size: int,
    config: str | None = None,
    overrides: dict[str, Any] | None = None,
    model_class: str | None = None,
    checkpoint: str | None = None,
    input_shapes: dict[str, list[int]] | None = None,
) -> tuple[nn.Module, tuple[()], dict[str, torch.Tensor]]:
    """A transformers model in float32 and inputs that fit its forward, all by keyword.

    Args:
        batch_size, sequence_length, image_size: of the inputs. The sequence is cut to what the model can read; a
            vision model that reads one size alone is built for ``image_size`` unless ``overrides`` name another.
        config: a configuration class, e.g. "GPT2Config"; weights are random.
        overrides: fields of that class. ``use_cache`` is false unless it is named here: a cache is no output
            that a single step needs.
        model_class: e.g. "BertForSequenceClassification" or "AutoModelForMaskedLM". Default: ``AutoModel``.
        checkpoint: a folder that ``save_pretrained`` wrote; used instead of ``config``.
        input_shapes: further inputs, or other shapes for the made ones, by forward's argument names.

    Raises:
        ConfigurationError: an unknown class or field, a value that the class refuses, a folder that is not there,
            or a forward whose inputs can't be guessed.
    """
    import transformers

    fields = dict(overrides or {})
    if checkpoint:
        model = _from_checkpoint(transformers, checkpoint, model_class, fields)
    else:
        model = _from_config(transformers, _config(transformers, config, fields, image_size), model_class)
    kwargs = make_inputs(model, batch_size, sequence_length, image_size, dict(input_shapes or {}))
    return model, (), kwargs


def _config(transformers: Any, name: str | None, fields: dict[str, Any], image_size: int) -> Any:
    kind: Any = getattr(transformers, name or "", None)
    base = transformers.PretrainedConfig
    if not (isinstance(kind, type) and issubclass(kind, base) and kind is not base):
        known = {item for item in dir(transformers) if item.endswith("Config")}
        raise _unknown_class("model.build.config", name, sorted(known))
    template = kind()
    fields = dict(fields)
    if hasattr(template, "use_cache"):
        fields.setdefault("use_cache", False)
    if isinstance(getattr(template, "image_size", None), int):
        fields.setdefault("image_size", image_size)
    elif isinstance(getattr(getattr(template, "vision_config", None), "image_size", None), int):
        fields["vision_config"] = {"image_size": image_size} | dict(fields.get("vision_config") or {})
    fields = _over(template, fields, str(name))
    try:
        return kind(**fields)
    except _refusals() as error:
        raise ConfigurationError(f"model.build.overrides: {name} refuses {fields}: {error}") from error


def _over(template: Any, fields: dict[str, Any], where: str) -> dict[str, Any]:
    """``fields`` for a configuration like ``template``; for one inside it over those that ``template`` gives it."""
    values, others = template.to_dict(), (*template.attribute_map, "attn_implementation")
    for key in fields:
        if key not in values and key not in others and not hasattr(template, key):
            raise _unknown_field(key, [*values, *template.attribute_map], where)
    found = dict(fields)
    for key, given in fields.items():
        inner = vars(template).get(key)
        if isinstance(given, Mapping) and hasattr(inner, "to_dict"):
            found[key] = _own_values(inner) | _over(inner, dict(given), f"{where}.{key}")
    return found


def _own_values(config: Any) -> dict[str, Any]:
    """What names the class of a configuration, and the fields in which it differs from what that class makes."""
    usual = type(config)().to_dict()
    kind = {"model_type": config.model_type} if config.model_type else {}
    return kind | {key: value for key, value in config.to_dict().items() if usual.get(key) != value}


def _refusals() -> tuple[type[Exception], ...]:
    """What a configuration class raises for a value; transformers 5 has an exception of its own for a wrong type."""
    import huggingface_hub.errors

    usual = (TypeError, ValueError, KeyError, AttributeError)
    strict = getattr(huggingface_hub.errors, "StrictDataclassError", None)
    return usual if strict is None else (*usual, strict)


def _model_class(transformers: Any, name: str | None) -> Any:
    kind = getattr(transformers, name or "AutoModel", None)
    usable = isinstance(kind, type) and (hasattr(kind, "from_config") or issubclass(kind, transformers.PreTrainedModel))
    if not usable:
        choices = [item for item in dir(transformers) if item.startswith("AutoModel") or "For" in item]
        choices += [item for item in dir(transformers) if item.endswith("Model")]
        raise _unknown_class("model.build.model_class", name, choices)
    return kind


def _from_config(transformers: Any, config: Any, model_class: str | None) -> nn.Module:
    kind = _model_class(transformers, model_class)
    try:
        if issubclass(kind, transformers.PreTrainedModel):
            expected = kind.config_class
            if expected is not None and not isinstance(config, expected):
                raise invalid_choice("model.build.config", type(config).__name__, [expected.__name__])
            model: nn.Module = kind(config)
        else:
            model = kind.from_config(config)
    except Exception as error:
        if isinstance(error, ConfigurationError) or is_out_of_memory(error):
            raise
        raise _not_built(kind, config, error) from error
    return model.float()


def _not_built(kind: Any, config: Any, error: Exception) -> ConfigurationError:
    """The message for a constructor that raised: what it lacks, or the fields that its line speaks of."""
    package, said = missing_package(error), " ".join(str(error).split())
    fields = fields_spoken_of(config, error)
    if package:
        said, hint = f"the package {package} is not installed", f"pip install {package}"
    elif said.startswith("Unrecognized configuration class"):
        said, hint = said.split(" Model type")[0], "model.build.model_class=… with a class of that architecture"
    else:
        values = config.to_dict()
        told = [f"{name} is {values[name]!r}" for name in fields[:FIELDS] if name in values]
        said = f"{type(error).__name__}: {said}\n  at {place_of(error)}{''.join(f'{chr(10)}  {item}' for item in told)}"
        hint = f"'+model.build.overrides.{fields[0] if fields else 'FIELD'}=VALUE'"
        hint += "" if fields else ", a field of that class that makes the line above work"
    return ConfigurationError(
        f"model.build: {kind.__name__} can't be built from {type(config).__name__}: {said}\nTry: {hint}"
    )


def _from_checkpoint(transformers: Any, folder: str, model_class: str | None, fields: dict[str, Any]) -> nn.Module:
    if not (Path(folder) / "config.json").is_file():
        raise ConfigurationError(
            f"model.build.checkpoint: got {folder!r}: there is no {Path(folder) / 'config.json'}; valid: a folder "
            "that save_pretrained wrote."
        )
    kind = _model_class(transformers, model_class)
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    for key, value in fields.items():
        if not hasattr(config, key):
            raise _unknown_field(key, [*config.to_dict()], folder)
        setattr(config, key, value)
    try:
        model: nn.Module = kind.from_pretrained(folder, config=config, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"model.build.checkpoint: {folder} can't be loaded: {error}") from error
    return model.float()


def _unknown_field(field: str, choices: list[str], where: str) -> ConfigurationError:
    ordered = closest_first(field, sorted(set(choices)))
    return ConfigurationError(
        f"model.build.overrides: got {field!r} (in {where}); valid: {', '.join(ordered)}.\n"
        f"Try: +model.build.overrides.{ordered[0]}=VALUE"
    )


def _unknown_class(key: str, name: str | None, choices: list[str]) -> ConfigurationError:
    ordered = closest_first(name or "", choices)
    rest = f" and {len(ordered) - SHOWN} more of transformers" if len(ordered) > SHOWN else ""
    got = "nothing" if name is None else repr(name)
    return ConfigurationError(f"{key}: got {got}; valid: {', '.join(ordered[:SHOWN])}{rest}.\nTry: {key}={ordered[0]}")
