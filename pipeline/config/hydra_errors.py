"""Words Hydra's, omegaconf's and YAML's errors the way ours are worded: what was got, what is valid, what to type."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException, ValidationError

from inductor_debug.models.errors import (
    ConfigurationError,
    DamagedError,
    closest_first,
    example_of,
    invalid_choice,
    nearest,
    quoted,
    shortened,
    shown,
)
from inductor_debug.pipeline.config.help import CONF, GROUPS, options
from inductor_debug.pipeline.config.keys import override_of, place_of, unknown_key
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.pipeline.config.schema_fields import (
    annotation_of,
    describe,
    example_for,
    expected,
    fields_of,
    fitting,
    is_list,
)
from inductor_debug.stages.registry import declared
from inductor_debug.stages.torch_internals.registered_names import registered_names

_IN_FILE = re.compile(r"^In '([^']+)'")


_EXTRAS = {"joblib": "joblib", "submitit_slurm": "slurm", "submitit_local": "slurm", "ray": "ray"}
"""Launcher of another package → our extra that installs it."""


def translate(
    error: BaseException,
    overrides: Sequence[str],
    stored_file: str = "",
    choices: Mapping[str, Any] | None = None,
    folders: Sequence[Path] = (),
    shows: str = "",
) -> ConfigurationError:
    """The ConfigurationError that says what ``error`` means.

    Args:
        error: anything raised while composing or converting a configuration.
        overrides: the command line's, to say which of them it was.
        stored_file: the file of ``--config-path``, where there is one.
        choices: group → selected option, where composition got that far.
        folders: in which the groups' YAML is looked for, beside ours.
        shows: the words that ask to be shown a configuration (``--cfg job``), where nothing is to be run.
    """
    chain = list(_chain(error))
    where = _where(chain, stored_file)
    for cause in chain:
        if isinstance(cause, DamagedError):
            return ConfigurationError(str(cause))
        if isinstance(cause, ConfigurationError):
            return _placed(cause, overrides, choices or {})
        if isinstance(cause, yaml.MarkedYAMLError):
            return _yaml_error(cause)
        if isinstance(cause, MissingConfigException):
            return _missing(cause, overrides, [*folders, CONF])
        if isinstance(cause, OverrideParseException):
            return _unreadable(cause)
    for cause in chain:
        if isinstance(cause, OmegaConfBaseException) and cause.full_key:
            return _key_error(cause, overrides, where)
    too_large = re.search(r"full_key: (\S+)", str(error)) if isinstance(error, ArithmeticError) else None
    if too_large:
        return _type_error(too_large[1], error, override_of(too_large[1], overrides), where)
    return _other(chain, overrides, where, shows)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _where(chain: Sequence[BaseException], stored_file: str) -> str:
    for cause in chain:
        match = _IN_FILE.match(str(cause))
        if match:
            name = match[1]
            return stored_file if name == "stored_run" else f"{name}.yaml"
    return ""


def _placed(error: ConfigurationError, overrides: Sequence[str], choices: Mapping[str, Any]) -> ConfigurationError:
    """A check's message, with the override or the file that its key came from where it does not say so itself."""
    group = error.key.partition(".")[0]
    place = override_of(error.key, overrides) or (f"{group}/{choices[group]}.yaml" if choices.get(group) else "")
    return error.with_parts(place=place) if error.valid and not error.place else error


def _missing(error: Any, overrides: Sequence[str], folders: Sequence[Path]) -> ConfigurationError:
    """A group's option that there is not (``model=berrt``)."""
    missing = str(error.missing_cfg_file or "")
    ours = next((group for group in (*GROUPS, "stages") if missing.startswith(f"{group}/")), None)
    group, name = (ours, missing[len(ours) + 1 :]) if ours else missing.rpartition("/")[::2]
    if not group or not name:
        return _other([error], overrides, "")
    choices = list(declared()) if group == "stages" else [choice for choice in error.options or [] if choice[0] != "_"]
    if group.partition("/")[0] != "hydra" and not choices and group not in (*GROUPS, "stages"):
        return invalid_choice("group", group, (*GROUPS, "stages"), where=override_of(group, overrides))
    override = override_of(group, overrides)
    if group in GROUPS:
        return _no_option(group, name, choices, override, folders)
    if group == "hydra/launcher" and name in _EXTRAS:
        return ConfigurationError(
            f"got {override_of('cluster', overrides) or override}, and its launcher {name} is not installed here",
            key="cluster",
            valid=f"what runs on one of {', '.join(closest_first(name, choices))}, or an installed launcher",
            hint=f"pip install 'inductor-debug[{_EXTRAS[name]}]'",
        )
    wrong = invalid_choice(group, name, choices, where=override)
    if "[" not in override:
        return wrong
    near = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", closest_first(name, choices)[0], override)
    near = re.sub(r"\[([\w,]*)\]", lambda listed: f"[{','.join(dict.fromkeys(listed[1].split(',')))}]", near)
    return wrong.with_parts(hint=near)


def _no_option(
    group: str, name: str, choices: Sequence[str], override: str, folders: Sequence[Path]
) -> ConfigurationError:
    """A name that no YAML file of a group has: one misspelt, a backend of torch's own, or the user's own file."""
    looked = ", ".join(str(folder / group) for folder in folders)
    valid = ", ".join(closest_first(name, choices))
    missing = ConfigurationError(f"got {shown(name)}", key=group, place=override)
    flag = "" if any(folder != CONF for folder in folders) else "--config-dir FOLDER "
    own = f"FOLDER/{group}/{name}.yaml" if flag else f"{folders[0] / group / name}.yaml"
    valid += f"; a YAML file of your own, {own}, is found with --config-dir (looked in {looked})"
    if group == "backend" and (registered := nearest(name, {*choices, *registered_names()})) not in (None, *choices):
        valid += f"; torch's own registry has {registered}"
        return missing.with_parts(valid=valid, hint=f"backend=dynamo backend.name={registered}")
    near = nearest(name, choices)
    needed = {"custom": " model.build._target_=my_package.nets.build"}.get(near or "", "")
    hint = f"{group}={near}{needed}" if near else f"{flag}{group}={name}, with {own}"
    return missing.with_parts(valid=valid, hint=hint)


def _unreadable(error: Any) -> ConfigurationError:
    reason, given = _visible(str(error.message).splitlines()[0]), _visible(str(error.override))
    valid = "KEY=VALUE, KEY=[a,b], KEY={a: 1}, +KEY=VALUE, ~KEY, with a value that holds =, ( or , in quotes"
    key = given.lstrip("+~").partition("=")[0]
    near = ", ".join(closest_first(key, [*GROUPS, *fields_of(Config)]))
    groups = [group for group in GROUPS if given in options(group)]
    example = f"{groups[0]}={given}" if groups else "python -m pipeline --help"
    if "=" in given:
        values = given.partition("=")[2].split(",")
        named = [value for value in values if value.strip()]
        listed = 0 < len(named) < len(values) and all(re.fullmatch(r"[\w.-]+", value) for value in named)
        example = f"--multirun {key}={','.join(named)}" if listed else f"{shortened(key)}='VALUE'"
    return ConfigurationError(
        f"got {shown(given)}, which can't be read ({shortened(reason)})",
        key="command line",
        valid=f"{valid}; keys: {near}",
        hint=example,
    )


def _visible(text: str) -> str:
    """``text`` with its control characters as Python writes them."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _yaml_error(error: Any) -> ConfigurationError:
    mark = error.problem_mark or error.context_mark
    place = f"{mark.name}:{mark.line + 1}:{mark.column + 1}" if mark else "a YAML file"
    problem = " ".join(part for part in (error.context, error.problem) if part)
    return ConfigurationError(
        f"not YAML ({problem})",
        key=place,
        valid="one 'key: value' a line, with keys of one block at one indentation",
        hint=f"correct line {mark.line + 1 if mark else '?'} and run again",
    )


def _key_error(error: Any, overrides: Sequence[str], where: str) -> ConfigurationError:
    """An unknown key or a wrong type, from a file or from an override."""
    key = error.full_key.strip().removeprefix("Config.")
    override = override_of(key, overrides)
    place = place_of(key, overrides, where)
    missing = re.search(r"Missing mandatory value: (\w+)\.", str(error))
    if missing and missing[1] in GROUPS:
        group = missing[1]
        deleted = next((typed for typed in overrides if typed.startswith(f"~{group}")), place)
        return ConfigurationError(
            "got none",
            key=group,
            place=deleted,
            valid=f"one of {', '.join(options(group))}",
            hint=f"{group}={options(group)[0]}",
        )
    if isinstance(error, InterpolationResolutionError):
        return ConfigurationError(
            _first_line(error),
            key=key,
            place=place,
            valid=f"${{KEY}} with KEY one of {', '.join(fields_of(Config))}",
            hint=f"{key}=VALUE",
        )
    if "." not in key and key not in fields_of(Config) and dataclasses.is_dataclass(error.object_type):
        fields = fields_of(error.object_type)
        if error.object_type is not Config and fields:  # within a list: omegaconf does not say which
            what = str(getattr(error.object_type, "__name__", "mapping")).lower()
            place = next((typed for typed in overrides if re.search(rf"\b{re.escape(key)}\b", typed)), where)
            if key in fields:
                hint = f"{key}: [VALUE]" if is_list(fields[key]) else f"{key}: VALUE"
                return ConfigurationError(
                    _first_line(error), key=f"{key} of a {what}", place=place, valid=describe(fields[key]), hint=hint
                )
            near = ", ".join(closest_first(key, fields))
            first = near.partition(",")[0]
            hint = quoted(place.replace(key, first)) if place in overrides else f"{first}: VALUE"
            return ConfigurationError(f"no such key of a {what}", key=key, place=place, valid=near, hint=hint)
    if isinstance(error, ValidationError):
        return _type_error(key, error, override, place)
    return unknown_key(key, overrides, where)


def _type_error(key: str, error: Any, override: str, place: str) -> ConfigurationError:
    wanted = expected(key)
    if not wanted:
        return ConfigurationError(_first_line(error), key=key, place=place, hint="python -m pipeline --help")
    value = re.search(r"Value '(.*?)'", str(error))
    typed = override.partition("=")[2] if override.lstrip("+").partition("=")[0] == key else ""
    named = typed or (value[1] if value else "")
    got = shown(named) if named else _first_line(error)
    hint = example_of(re.sub(r"\[\d+\]$", "", key), wanted[1])
    return ConfigurationError(f"got {got}", key=key, place=place, valid=wanted[0], hint=hint)


def _other(chain: Sequence[BaseException], overrides: Sequence[str], where: str, shows: str = "") -> ConfigurationError:
    """What has no form of its own: a group that there is not, a sweep without --multirun, a duplicate, …"""
    text = str(chain[0]) or str(chain[-1])
    misshapen = re.search(r"In '(\w+)/[^']*'.*Merge error: (\w+) is not a subclass", text, re.DOTALL)
    wanted = expected(misshapen[1]) if misshapen else None
    if misshapen and wanted:
        return ConfigurationError(
            f"got a {misshapen[2]}", key=misshapen[1], place=where, valid=wanted[0], hint=f"name: my_{misshapen[1]}"
        )
    deleted = re.search(r"Could not delete from config\. '([^']+)'", text)
    if deleted:
        return unknown_key(deleted[1], overrides, where)
    repeated = re.search(r"Multiple values for (\w+)\.", text)
    if repeated:
        group = repeated[1]
        override = override_of(group, overrides)
        return ConfigurationError(
            "got a second value",
            key=group,
            place=override,
            valid=f"one of {', '.join(options(group))}",
            hint=override.lstrip("+") or group + "=NAME",
        )
    named = re.search(r"Could not override '([\w./@]+)", text) or re.search(r"config group '([\w/]+)'", text)
    if named:
        return unknown_key(named[1].replace("/", "."), overrides, where)
    ambiguous = re.search(r"Ambiguous value for argument '(.*?)'|Sweep parameters '(.*?)'", text)
    if ambiguous:
        return _several_values(ambiguous[1] or ambiguous[2], shows)
    plus = re.search(r"Either remove \+ prefix: '([^']+)'|groups is not supported: '\+\+([^']+)'", text)
    if plus:
        typed = plus[1] or plus[2]
        key = typed.lstrip("+").partition("=")[0]
        return ConfigurationError(
            "got a plus before a key that there is already", key=key, valid=f"{key}=VALUE", hint=quoted(typed)
        )
    message = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return ConfigurationError(message, key="configuration", place=where, hint="python -m pipeline --help")


def _several_values(override: str, shows: str) -> ConfigurationError:
    """Several values of a key where there is to be one run, or one configuration that is shown."""
    key, _, value = override.partition("=")
    listed = key == "stages" or is_list(annotation_of(key))
    none = "(" in value if shows else "glob(" in value and key not in GROUPS  # glob matches names of files
    one = f"{key}={options(key)[0]}" if key in GROUPS else example_of(key, example_for(key))
    one = f"'{key}=[{value}]'" if listed else one
    if shows:
        valid = f"{'a list [a,b]' if listed else 'one value'}, for {shows} shows one configuration"
        one = one if listed or none else quoted(_each_fitting(key, value).partition(",")[0])
        hint = f"{one} {shows}"
    elif listed:
        valid, hint = "a list [a,b], or several with --multirun", f"{one}, or --multirun {override}"
    else:
        valid = "one value, or several with --multirun"
        hint = one if none else f"--multirun {quoted(_each_fitting(key, value))}"
    return ConfigurationError("got several values", key=key, place=override, valid=valid, hint=hint)


def _each_fitting(key: str, value: str) -> str:
    """``KEY=A,B`` as a sweep takes it: whole numbers that the key does not take are replaced by one that it does."""
    parts = value.split(",")
    if all(re.fullmatch(r"[+-]?\d+", part) for part in parts):
        parts = list(dict.fromkeys(fitting(key, part) for part in parts))
    return f"{key}={','.join(parts)}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
