"""A profile as the rules read it: validated, environment applied, scalars and rules made one list."""

import datetime
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import (
    ConfigurationError,
    closest_first,
    invalid_choice,
    nearest,
    shown,
    wrong_value,
)
from inductor_debug.models.options import LARGEST, Range, check_declared
from inductor_debug.models.stored import read_own_yaml
from inductor_debug.models.units import VALID_BYTES, parse_bytes
from inductor_debug.stages.accelerators.config import AccelConfig, NumericsConfig, PeaksConfig, Rule, Waiver
from inductor_debug.stages.accelerators.number_formats import validate_numerics
from inductor_debug.stages.accelerators.rule_fields import Written, edited, validated
from inductor_debug.stages.accelerators.rule_kinds import KINDS, SCALARS
from inductor_debug.stages.accelerators.yaml_profiles import exact_config
from inductor_debug.stages.graphs.records import ITEM_BYTES

log = logging.getLogger(__name__)

PREFIX = "MOCK_"
REPRO_DIRECTORY = "MOCK_REPRO_DIR"
RULE_VARIABLES = ("MOCK_STRICT", "MOCK_ALIGNMENT", "MOCK_MAX_MEMORY")
VARIABLES = (*RULE_VARIABLES, REPRO_DIRECTORY)
"""Environment variables of the mock: what overrides its profile, and where a violation leaves its reproductions."""

FIELDS = [item.name for item in fields(AccelConfig)]
FOLDER = Path(__file__).resolve().parents[2] / "conf" / "accel"


@dataclass(frozen=True)
class Profile:
    """A validated profile.

    Attributes:
        name: its name.
        strict: True where a violation is an error.
        rules: every rule, all of its fields filled in.
        waivers: accepted findings.
        numerics: what ``backend=emulated`` emulates.
        written: the rules once more, with the keys that the user wrote; empty for a profile made by hand.
    """

    name: str = "none"
    strict: bool = False
    rules: tuple[Rule, ...] = ()
    waivers: tuple[Waiver, ...] = field(default=())
    numerics: NumericsConfig = field(default_factory=NumericsConfig)
    written: tuple[Written, ...] = field(default=(), compare=False, repr=False)

    @property
    def names_of_torch(self) -> bool:
        """Whether it lists operations or dtypes, which only torch can tell to exist."""
        listed = self.of("operation") or self.of("dtype") or self.numerics.fallback
        return bool(listed) or any(rule.operations for rule in self.rules)

    def of(self, rule: str) -> list[Rule]:
        """The rules of that name."""
        return [item for item in self.rules if item.rule == rule]


def validate_profile(
    config: AccelConfig, environment: Mapping[str, str] | None = None, *, base: Profile | None = None
) -> Profile:
    """The profile that ``config`` describes.

    Args:
        config: as the user wrote it.
        environment: where MOCK_STRICT, MOCK_ALIGNMENT and MOCK_MAX_MEMORY are read, for the profile called ``mock``
            alone; default ``os.environ``.
        base: a profile that ``config`` edits instead of being one of its own. Its name stays, its rules and waivers
            come first, and it is strict or not where ``config.strict`` is None.

    Raises:
        ConfigurationError: a value is outside what its key allows.
    """
    base = base or Profile(config.name)
    config = apply_environment(config, os.environ if environment is None else environment)
    if not isinstance(config.strict, bool | None):
        raise wrong_value("accel.strict", config.strict, "true or false", "true")
    written = [validated(rule, f"{base.name}.rules[{index}]") for index, rule in enumerate(base.rules)]
    written += [validated(rule, f"accel.rules[{index}]") for index, rule in enumerate(config.rules)]
    written = edited(written, config)
    for index, waiver in enumerate(config.waivers):
        _validate_waiver(waiver, f"accel.waivers[{index}]")
    validate_numerics(config.numerics)
    _validate_peaks(config.peaks)
    numerics = config.numerics if config.numerics.stated else base.numerics
    strict = base.strict if config.strict is None else config.strict
    rules = tuple(item.rule for item in written)
    return Profile(base.name, strict, rules, (*base.waivers, *config.waivers), numerics, tuple(written))


def completed(profile: Profile) -> Profile:
    """A profile made by hand with every field of its rules filled in; ConfigurationError where one is not valid."""
    return validate_profile(AccelConfig(), base=profile)


def stored_profile(profile: Profile) -> dict[str, Any]:
    """A profile's rules and waivers for JSON; :func:`read_profile` is the inverse."""
    rules, waivers = [vars(rule) for rule in profile.rules], [vars(waiver) for waiver in profile.waivers]
    return {"name": profile.name, "strict": profile.strict, "rules": rules, "waivers": waivers}


def read_profile(stored: Mapping[str, Any]) -> Profile:
    """The profile of a JSON document; KeyError or TypeError where it is none."""
    rules, waivers = (Rule(**rule) for rule in stored["rules"]), (Waiver(**waiver) for waiver in stored["waivers"])
    return Profile(stored["name"], stored["strict"], tuple(rules), tuple(waivers))


def listed(profile: Profile) -> Iterator[tuple[str, str]]:
    """Every operation that a profile names, without the ``!`` of one left out, and the key that names it."""
    for item in profile.written or completed(profile).written:
        for pattern in item.rule.operations or ():
            yield pattern.removeprefix("!"), f"{item.key}.operations"
        if item.rule.rule == "operation":
            value = item.rule.value
            for pattern in value["allow"] if isinstance(value, Mapping) else value:
                yield pattern, item.value_key
    for pattern in profile.numerics.fallback:
        yield pattern.removeprefix("!"), "accel.numerics.fallback"


def load_config(name_or_path: str | Path, **overrides: Any) -> AccelConfig:
    """As :func:`stages.accelerators.loading.load_profile`, before validation and environment."""
    path = _profile_path(str(name_or_path))
    exact = exact_config(path, overrides)
    return _judged_config(path, overrides) if exact is None else exact


def _judged_config(path: Path, overrides: Mapping[str, Any]) -> AccelConfig:
    """By OmegaConf, as the pipeline reads a profile: converted where a value allows it, else ConfigurationError."""
    from omegaconf import OmegaConf
    from omegaconf.errors import ConfigKeyError, OmegaConfBaseException
    from yaml import YAMLError

    try:
        merged = OmegaConf.merge(OmegaConf.structured(AccelConfig), *_layers(path))
        config = OmegaConf.to_object(with_overrides(merged, overrides))
    except ConfigurationError:
        raise  # of an override, not of the file
    except ConfigKeyError as error:
        owner = error.object_type if is_dataclass(error.object_type) else AccelConfig
        named = owner.__name__.removesuffix("Config").lower()
        what = "" if owner is AccelConfig else f" of {'a ' * (owner in (Rule, Waiver))}{named}"
        near = closest_first(str(error.key), [item.name for item in fields(owner)])
        raise ConfigurationError(f"no such key{what}", key=str(error.full_key or error.key), place=str(path),
                                 valid=", ".join(near), hint=f"{near[0]}: VALUE") from error  # fmt: skip
    except (OmegaConfBaseException, YAMLError, OSError, ValueError) as error:
        raise ConfigurationError(f"accel: {path} can't be read as a profile: {error}") from error
    assert isinstance(config, AccelConfig)
    return config


def _layers(path: Path, above: tuple[Path, ...] = ()) -> list[Any]:
    """A profile's file, and those that its ``defaults`` name, in the order in which Hydra merges them.

    A name is that of a file beside it, else of one of ours. As in Hydra the file itself comes where ``_self_`` stands,
    else last.

    Args:
        path: the file.
        above: those that led to it.

    Raises:
        ConfigurationError: ``defaults`` is no list of names, or leads back to a file.
    """
    from omegaconf import OmegaConf

    if path.resolve() in above:
        raise ConfigurationError("this profile is built on itself", key="defaults", place=str(path),
                                 valid="profiles of which none leads back", hint="defaults: [strict16]")  # fmt: skip
    read_own_yaml(path)  # its limits
    content: Any = OmegaConf.load(path)
    written = content.pop("defaults", OmegaConf.create([])) if OmegaConf.is_dict(content) else []
    names = list(written) if OmegaConf.is_list(written) or isinstance(written, list) else [None]
    if not all(isinstance(name, str) and re.fullmatch(r"\w[\w-]*", name) for name in names):
        raise ConfigurationError(f"got {shown(str(written))}", key="defaults", place=str(path),
                                 valid="a list of profiles' names", hint="defaults: [strict16]")  # fmt: skip
    found = []
    for name in names if "_self_" in names else [*names, "_self_"]:
        beside = path.parent / f"{name}.yaml"
        if name == "_self_":
            found.append(content)
        elif beside.is_file() or name in profile_names():
            found += _layers(beside if beside.is_file() else FOLDER / beside.name, (*above, path.resolve()))
        else:
            raise invalid_choice("defaults", name, profile_names(), where=str(path), example="defaults: [{}]")
    return found


def with_overrides(config: Any, overrides: Mapping[str, Any]) -> Any:
    """OmegaConf's ``config`` with fields replaced; ConfigurationError for one that has no such value, or is none."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for key, value in overrides.items():
        if key not in FIELDS:
            raise invalid_choice("accel override", key, FIELDS, example="{}")
        try:
            config = OmegaConf.merge(config, {key: value})
        except OmegaConfBaseException as error:
            example = KINDS[SCALARS[key]].example if key in SCALARS else "null"
            why = str(error).partition("\n")[0]
            listed = "ListConfig" in why
            raise ConfigurationError(
                f"got {value!r} (in accel.{key}={value})" + ("" if listed else f": {why}"),
                key=f"accel.{error.full_key or key}",
                valid="a list" if listed else "",
                hint=f"accel.{key}={example}",
            ) from error
    return config


def apply_environment(config: AccelConfig, environment: Mapping[str, str]) -> AccelConfig:
    """``config`` with MOCK_* applied where it is the ``mock`` profile; ConfigurationError for an unreadable value."""
    if config.name != "mock":
        return config
    check_variables(environment)
    changes: dict[str, Any] = {}
    if "MOCK_STRICT" in environment:
        changes["strict"] = _boolean("MOCK_STRICT", environment["MOCK_STRICT"])
    if "MOCK_ALIGNMENT" in environment:
        changes["alignment"] = _positive("MOCK_ALIGNMENT", environment["MOCK_ALIGNMENT"])
    if "MOCK_MAX_MEMORY" in environment:
        changes["max_tensor_bytes"] = _memory("MOCK_MAX_MEMORY", environment["MOCK_MAX_MEMORY"])
    return replace(config, **changes) if changes else config


def check_variables(environment: Mapping[str, str]) -> None:
    """ConfigurationError for a variable MOCK_* that there is not: misspelt, it would leave the mock as it was."""
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in VARIABLES:
            nearest = closest_first(name, VARIABLES)
            raise ConfigurationError(
                f"got {environment[name]!r} (in the environment), but the mock has no such variable",
                key=name,
                valid=", ".join(nearest),
                hint=f"unset {name}, or {nearest[0]}={environment[name]}",
            )


def _profile_path(given: str) -> Path:
    if given.endswith((".yaml", ".yml")) or os.sep in given:
        if not Path(given).is_file():
            raise ConfigurationError(
                f"got {given!r}, and there is no such file",
                key="accel",
                valid=f"a .yaml file, or {', '.join(profile_names())}",
                hint=f"accel={nearest(Path(given).stem, profile_names()) or 'strict16'}",
            )
        return Path(given)
    if given not in profile_names():
        raise invalid_choice("accel", given, profile_names(), where=str(FOLDER))
    return FOLDER / f"{given}.yaml"


def profile_names() -> list[str]:
    """Names of the profiles in ``conf/accel``."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def _validate_peaks(config: PeaksConfig) -> None:
    """ConfigurationError for a rate that is none, or one of a dtype that torch does not have."""
    check_declared(config, "accel.peaks")
    for dtype, rate in config.flops.items():
        if dtype not in ITEM_BYTES:
            raise invalid_choice("accel.peaks.flops", dtype, ITEM_BYTES, example="accel.peaks.flops.{}=1e12")
        Range(0, LARGEST, whole=False, above=True, example="1e12").check(rate, f"accel.peaks.flops.{dtype}")


def _validate_waiver(waiver: Waiver, key: str) -> None:
    if waiver.rule != "*" and not any(character in waiver.rule for character in "*?[") and waiver.rule not in KINDS:
        raise invalid_choice(f"{key}.rule", waiver.rule, KINDS)
    if waiver.reason in ("", "???"):
        raise wrong_value(f"{key}.reason", waiver.reason, "why it is accepted", "until the next chip")
    if (waiver.rule, waiver.source, waiver.target) == ("*", "*", "*"):
        raise ConfigurationError(
            "waives everything", key=key, valid="a rule, a source or a target", hint="rule: alignment"
        )
    if waiver.expires is not None:
        expiry(waiver, key)


def has_expired(waiver: Waiver, today: datetime.date) -> bool:
    """Whether a waiver no longer holds."""
    expires = expiry(waiver)
    return expires is not None and today >= expires


def expiry(waiver: Waiver, key: str = "accel.waivers") -> datetime.date | None:
    """The day from which the waiver no longer holds, or None; ConfigurationError where it is not an ISO date."""
    if waiver.expires is None:
        return None
    try:
        return datetime.date.fromisoformat(str(waiver.expires))
    except ValueError:
        raise ConfigurationError(
            f"got {waiver.expires!r}", key=f"{key}.expires", valid="a date as YYYY-MM-DD", hint="expires: 2027-01-31"
        ) from None


def _boolean(key: str, text: str) -> bool:
    values = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if text.strip().lower() not in values:
        raise invalid_choice(key, text, values, where="the environment")
    return values[text.strip().lower()]


def _positive(key: str, text: str) -> int:
    if not re.fullmatch(r"\s*\+?[0-9]+\s*", text) or int(text) <= 0:
        raise wrong_value(key, text, "a whole number above 0", "16", where="the environment")
    return int(text)


def _memory(key: str, text: str) -> int:
    found = parse_bytes(text)
    if found is None:
        raise wrong_value(key, text, VALID_BYTES, "16GiB", where="the environment")
    return found
