"""A profile as the rules read it: validated, environment applied, scalars and rules made one list. Torch-free."""

import datetime
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from models.errors import ConfigurationError, invalid_choice
from stages.constrain.config import AccelConfig, Rule, Waiver
from stages.constrain.plain import plain_config
from stages.graphs import ITEM_BYTES

log = logging.getLogger(__name__)

RULES = {
    "alignment": "pad",
    "dtype": "reject",
    "layout": "copy",
    "memory_tensor": "reject",
    "operation": "reject",
}
"""Rule → the effect it has where the profile names none."""

EFFECTS = ("reject", "pad", "cast", "copy", "fallback")
DIMS = ("last", "last2", "contraction", "all")
ROLES = ("activation", "parameter", "index")
UNITS = ("elements", "bytes")
LAYOUTS = ("contiguous", "channels_last")
DTYPES = (*ITEM_BYTES, "float8_e8m0fnu", "float4_e2m1fn_x2")
SCALARS = {"alignment": "alignment", "dtypes": "dtype", "layout": "layout", "max_tensor_bytes": "memory_tensor",
           "denied": "operation"}  # fmt: skip
"""Scalar field of a profile → the rule that it edits."""

FOLDER = Path(__file__).resolve().parents[2] / "conf" / "accel"


@dataclass(frozen=True)
class Profile:
    """A validated profile.

    Attributes:
        name: its name.
        strict: True where a violation is an error.
        rules: every rule, all of its fields filled in.
        waivers: accepted findings.
    """

    name: str = "none"
    strict: bool = False
    rules: tuple[Rule, ...] = ()
    waivers: tuple[Waiver, ...] = field(default=())

    def of(self, rule: str) -> list[Rule]:
        """The rules of that name."""
        return [item for item in self.rules if item.rule == rule]


def validate_profile(config: AccelConfig, environment: Mapping[str, str] | None = None) -> Profile:
    """The profile that ``config`` describes.

    Args:
        config: as the user wrote it.
        environment: where MOCK_STRICT, MOCK_ALIGNMENT and MOCK_MAX_MEMORY are read, for the profile called ``mock``
            alone; default ``os.environ``.

    Raises:
        ConfigurationError: a value is outside what its key allows.
    """
    config = apply_environment(config, os.environ if environment is None else environment)
    _require(config.strict, bool, "accel.strict", "true or false")
    rules = [_validated(rule, f"accel.rules[{index}]") for index, rule in enumerate(config.rules)]
    for key, name in SCALARS.items():
        rules = _edit(rules, name, getattr(config, key), key)
    rules = _edit_alignment(rules, config)
    for index, waiver in enumerate(config.waivers):
        _validate_waiver(waiver, f"accel.waivers[{index}]")
    return Profile(config.name, config.strict, tuple(rules), tuple(config.waivers))


def load_profile(name_or_path: str | Path, **overrides: Any) -> Profile:
    """A profile of ``conf/accel`` by name, or a YAML file by path, with fields replaced.

    Args:
        name_or_path: ``"strict16"``, or ``"my/chip.yaml"``.
        overrides: fields of :class:`~stages.constrain.config.AccelConfig`, e.g. ``alignment=32``.

    Raises:
        ConfigurationError: no such profile, not readable as one, or a value that is not valid.
    """
    return validate_profile(load_config(name_or_path, **overrides))


def load_config(name_or_path: str | Path, **overrides: Any) -> AccelConfig:
    """As :func:`load_profile`, before validation and environment: the typed configuration."""
    path = _profile_path(str(name_or_path))
    valid = [item.name for item in fields(AccelConfig)]
    for key in overrides:
        if key not in valid:
            raise invalid_choice("accel override", key, valid)
    plain = plain_config(path, overrides)
    return _judged_config(path, overrides, valid) if plain is None else plain


def _judged_config(path: Path, overrides: Mapping[str, Any], valid: list[str]) -> AccelConfig:
    """By OmegaConf, as the pipeline reads a profile: converted where a value allows it, else ConfigurationError."""
    from omegaconf import OmegaConf
    from omegaconf.errors import ConfigKeyError, OmegaConfBaseException
    from yaml import YAMLError

    try:
        content = OmegaConf.load(path)
        merged = OmegaConf.merge(OmegaConf.structured(AccelConfig), content, overrides)
        config = OmegaConf.to_object(merged)
    except ConfigKeyError as error:
        raise invalid_choice("accel", str(error.full_key or error.key), valid, where=str(path)) from error
    except (OmegaConfBaseException, YAMLError, OSError, ValueError) as error:
        raise ConfigurationError(f"accel: {path} can't be read as a profile: {error}") from error
    assert isinstance(config, AccelConfig)
    return config


def apply_environment(config: AccelConfig, environment: Mapping[str, str]) -> AccelConfig:
    """``config`` with MOCK_* applied where it is the ``mock`` profile; ConfigurationError for an unreadable value."""
    if config.name != "mock":
        return config
    changes: dict[str, Any] = {}
    if "MOCK_STRICT" in environment:
        changes["strict"] = _boolean("MOCK_STRICT", environment["MOCK_STRICT"])
    if "MOCK_ALIGNMENT" in environment:
        changes["alignment"] = _positive("MOCK_ALIGNMENT", environment["MOCK_ALIGNMENT"])
    if "MOCK_MAX_MEMORY" in environment:
        changes["max_tensor_bytes"] = _size("MOCK_MAX_MEMORY", environment["MOCK_MAX_MEMORY"])
    return replace(config, **changes) if changes else config


def _profile_path(given: str) -> Path:
    if given.endswith((".yaml", ".yml")) or os.sep in given:
        if not Path(given).is_file():
            raise ConfigurationError(f"accel: no file {given}. Give a .yaml file or one of: {', '.join(_names())}.")
        return Path(given)
    if given not in _names():
        raise invalid_choice("accel", given, _names(), where=str(FOLDER))
    return FOLDER / f"{given}.yaml"


def _names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def _edit(rules: list[Rule], name: str, value: Any, key: str) -> list[Rule]:
    """A scalar replaces the value of every rule that it names, or makes that rule where there is none."""
    if value is None or (key == "denied" and not value):
        return rules
    _validate_value(name, value, f"accel.{key}")
    if any(rule.rule == name for rule in rules):
        return [replace(rule, value=value) if rule.rule == name else rule for rule in rules]
    return [*rules, _validated(Rule(rule=name, value=value), f"accel.{key}")]


def _edit_alignment(rules: list[Rule], config: AccelConfig) -> list[Rule]:
    if config.alignment_dims is not None and config.alignment_dims not in DIMS:
        raise invalid_choice("accel.alignment_dims", config.alignment_dims, DIMS)
    for role in config.alignment_roles or []:
        if role not in ROLES:
            raise invalid_choice("accel.alignment_roles", role, ROLES)
    changes: dict[str, Any] = {}
    if config.alignment_dims is not None:
        changes["dims"] = config.alignment_dims
    if config.alignment_roles is not None:
        changes["roles"] = list(config.alignment_roles)
    if changes and not any(rule.rule == "alignment" for rule in rules):
        log.warning("accel.alignment_dims and accel.alignment_roles have no effect: profile %s has no alignment rule",
                    config.name)  # fmt: skip
    return [replace(rule, **changes) if rule.rule == "alignment" else rule for rule in rules]


def _validated(rule: Rule, key: str) -> Rule:
    """``rule`` with every field filled in."""
    if rule.rule not in RULES:
        raise invalid_choice(f"{key}.rule", rule.rule, RULES)
    effect = RULES[rule.rule] if rule.effect is None else rule.effect
    dims, roles, unit = rule.dims or "last", rule.roles, rule.unit or "elements"
    if effect not in EFFECTS:
        raise invalid_choice(f"{key}.effect", effect, EFFECTS)
    if dims not in DIMS:
        raise invalid_choice(f"{key}.dims", dims, DIMS)
    if unit not in UNITS:
        raise invalid_choice(f"{key}.unit", unit, UNITS)
    for role in roles or []:
        if role not in ROLES:
            raise invalid_choice(f"{key}.roles", role, ROLES)
    if rule.value is None:
        raise ConfigurationError(f"{key}.value: the rule {rule.rule!r} has none. Try: {_example(rule.rule)}")
    _validate_value(rule.rule, rule.value, f"{key}.value")
    ignored = [name for name in ("dims", "roles", "unit") if getattr(rule, name) is not None]
    if ignored and rule.rule != "alignment":
        log.warning("%s: %s have no effect on the rule %s", key, ", ".join(ignored), rule.rule)
    roles = ["activation", "parameter"] if roles is None else roles
    return replace(rule, effect=effect, dims=dims, roles=roles, unit=unit)


def _validate_value(rule: str, value: Any, key: str) -> None:
    if rule in ("alignment", "memory_tensor"):
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise ConfigurationError(f"{key}: got {value!r}; valid: a whole number above 0. Try: {_example(rule)}")
    elif rule == "layout":
        if value not in LAYOUTS:
            raise invalid_choice(key, value, LAYOUTS)
    elif isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise ConfigurationError(f"{key}: got {value!r}; valid: a list. Try: {_example(rule)}")
    elif rule == "dtype":
        if not value:
            raise ConfigurationError(
                f"{key}: got []: it would allow no dtype at all. Try: {_example(rule)}, or null for no rule"
            )
        for dtype in value:
            if str(dtype).removeprefix("torch.") not in DTYPES:
                raise invalid_choice(key, dtype, DTYPES)
    else:
        for pattern in value:
            if not isinstance(pattern, str) or not re.fullmatch(r"[\w.:*?\[\]!-]+", pattern):
                raise ConfigurationError(f"{key}: got {pattern!r}; valid: an operation's name or pattern. "
                                         f"Try: {_example(rule)}")  # fmt: skip


def _example(rule: str) -> str:
    return {
        "alignment": "accel.alignment=16",
        "memory_tensor": "accel.max_tensor_bytes=17179869184",
        "layout": "accel.layout=contiguous",
        "dtype": "accel.dtypes=[float32,int64]",
        "operation": "accel.denied=[aten.convolution]",
    }[rule]


def _validate_waiver(waiver: Waiver, key: str) -> None:
    if waiver.rule != "*" and not any(character in waiver.rule for character in "*?[") and waiver.rule not in RULES:
        raise invalid_choice(f"{key}.rule", waiver.rule, RULES)
    if waiver.reason in ("", "???"):
        raise ConfigurationError(f"{key}.reason: a waiver needs one. Try: {key}.reason='accepted until the next chip'")
    if (waiver.rule, waiver.source, waiver.target) == ("*", "*", "*"):
        raise ConfigurationError(f"{key}: waives everything; give rule, source or target. Try: {key}.rule=alignment")
    if waiver.expires is not None:
        expiry(waiver, key)


def expiry(waiver: Waiver, key: str = "accel.waivers") -> datetime.date | None:
    """The day from which the waiver no longer holds, or None; ConfigurationError where it is not an ISO date."""
    if waiver.expires is None:
        return None
    try:
        return datetime.date.fromisoformat(str(waiver.expires))
    except ValueError:
        raise ConfigurationError(
            f"{key}.expires: got {waiver.expires!r}; valid: a date as YYYY-MM-DD. Try: {key}.expires=2027-01-31"
        ) from None


def _require(value: Any, kind: type, key: str, valid: str) -> None:
    if not isinstance(value, kind):
        raise ConfigurationError(f"{key}: got {value!r}; valid: {valid}. Try: {key}=true")


def _boolean(key: str, text: str) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if text.strip().lower() not in words:
        raise invalid_choice(key, text, words, where="the environment")
    return words[text.strip().lower()]


def _positive(key: str, text: str) -> int:
    if not re.fullmatch(r"\s*\+?[0-9]+\s*", text) or int(text) <= 0:
        raise ConfigurationError(f"{key}: got {text!r} (in the environment); valid: a whole number above 0. "
                                 f"Try: {key}=16")  # fmt: skip
    return int(text)


def _size(key: str, text: str) -> int:
    """Bytes: a whole number, with KiB, MiB, GiB or TiB where wanted."""
    match = re.fullmatch(r"\s*([0-9]+)\s*([kmgt]ib)?\s*", text, re.IGNORECASE)
    if not match or int(match[1]) <= 0:
        raise ConfigurationError(f"{key}: got {text!r} (in the environment); valid: bytes above 0, or a number with "
                                 f"KiB, MiB, GiB or TiB. Try: {key}=16GiB")  # fmt: skip
    return int(match[1]) * 1024 ** (("kib", "mib", "gib", "tib").index(match[2].lower()) + 1 if match[2] else 0)
