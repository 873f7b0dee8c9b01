"""What a stored capture is checked against: a profile that is asked for, or the run's own."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inductor_debug.models.errors import ConfigurationError, DamagedError, RunDirectoryError, UserError, invalid_choice
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.config.arguments import config_directory
from inductor_debug.pipeline.config.imports import arrange_path
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.names import MANIFEST
from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.stored_run import made_again

if TYPE_CHECKING:
    from inductor_debug.stages.accelerators.profile import Profile

CUSTOM = "custom"
"""The rule that calls a function."""


@dataclass(frozen=True)
class Asked:
    """What a capture is checked against, as the command line says it.

    Attributes:
        accel: a profile's name or file; None for the run's own.
        overrides: ``FIELD=VALUE`` each.
        config_dir: a folder of the user's, whose ``accel/NAME.yaml`` are profiles too.
        trusted: True where callables that the run itself names may be called.
    """

    accel: str | None = None
    overrides: Sequence[str] = ()
    config_dir: Path | None = None
    trusted: bool = False

    @classmethod
    def of(cls, overrides: Sequence[str], accel: str | None, config_dir: Path | None, trusted: bool = False) -> "Asked":
        """What a command line asks for.

        Args:
            overrides: ``FIELD=VALUE`` each; ``accel=NAME`` is the same as ``--accel NAME``.
            accel: name or path of another profile than the run's; None for the run's.
            config_dir: a folder with ``accel/NAME.yaml``.
            trusted: True calls the rules that the run itself names.
        """
        named = [override.partition("=")[2] for override in overrides if override.startswith("accel=")]
        names = list(dict.fromkeys([*named, *([] if accel is None else [accel])]))
        if len(names) > 1:
            raise UserError(f"check: got the profiles {', '.join(names)}; valid: one.\nTry: accel={names[0]}")
        others = [override for override in overrides if not override.startswith("accel=")]
        return cls(names[0] if names else None, others, config_dir, trusted)


@dataclass(frozen=True)
class Against:
    """What a capture is checked against.

    Attributes:
        config: the profile. base: what the run's backend declared, which ``config`` edits; None for nothing.
        note: what a reader must know about that; empty for nothing.
        passed_over: callables of custom rules that the run names and that were not called.
    """

    config: AccelConfig
    base: "Profile | None" = None
    note: str = ""
    passed_over: tuple[str, ...] = ()

    @property
    def unlooked(self) -> str:
        """What was not looked at, in words; empty where every rule was."""
        if not self.passed_over:
            return ""
        rules = counted(len(self.passed_over), "custom rule")
        return (
            f"not established: {rules} that the stored run names, not looked at: {', '.join(self.passed_over)}. "
            "Try: --trust, which imports and calls what it names"
        )


def against(run: Path, asked: Asked) -> Against:
    """The profile that is asked for, or the run's own: with ``accel=none`` what its backend declares.

    The variables MOCK_* edit the profile ``mock``. Asked for by name, it is edited by those of this process; the run's
    own by those that the run had, so that a check finds what the run found.

    Raises:
        ConfigurationError: there is no such profile, or a value of it or of a variable MOCK_* can't be read.
    """
    from inductor_debug.stages.accelerators.profile import apply_environment, load_config

    if asked.config_dir is not None:
        config_directory(str(asked.config_dir))
    changes = _changes(asked.overrides)
    if asked.accel is not None:
        named = load_config(_named(asked.accel, asked.config_dir), **changes)
        return _callable(Against(apply_environment(named, os.environ)))
    config = _own_profile(run, changes)
    then = _variables(run) if config.name == "mock" else {}
    config = _changed(apply_environment(config, then), changes)
    found = Against(config, *(_declared(run) if config.name == "none" else (None, _told(then, config.name))))
    return _callable(found if asked.trusted else _without_callables(found, own_rules="rules" in changes))


def _callable(found: Against) -> Against:
    """``found``, with Python's path as its custom rules need it: the user's may be in the working directory.

    Where nothing is to be called nothing is added: what an import of a library's looks for must not be found there.
    """
    rules = (*found.config.rules, *(found.base.rules if found.base else ()))
    if any(rule.rule == CUSTOM for rule in rules):
        arrange_path()
    return found


def _without_callables(found: Against, *, own_rules: bool) -> Against:
    """``found`` without the custom rules that the stored run names.

    Args:
        own_rules: True where ``config.rules`` were given on the command line.
    """
    config, base = found.config, found.base
    stored = [] if own_rules else [rule for rule in config.rules if rule.rule == CUSTOM]
    declared = [rule for rule in base.rules if rule.rule == CUSTOM] if base else []
    kept = replace(config, rules=[rule for rule in config.rules if rule not in stored])
    if base and declared:
        base = replace(base, rules=tuple(rule for rule in base.rules if rule not in declared))
    return replace(found, config=kept, base=base, passed_over=tuple(map(_target, [*stored, *declared])))


def _target(rule: Rule) -> str:
    """The callable that a custom rule names."""
    target = rule.value.get("_target_") if isinstance(rule.value, Mapping) else rule.value
    return visible(str(target))


def _variables(run: Path) -> dict[str, str]:
    """The variables MOCK_* that a run had; RunDirectoryError where its manifest can't be read."""
    from inductor_debug.stages.accelerators.profile import PREFIX

    try:
        manifest = files.MANIFEST.read(StoredFolder(run))
    except DamagedError as error:
        unknown = "So the variables MOCK_* of the run are not known"
        raise error.with_parts(valid=f"{error.valid}. {unknown}", hint="accel=mock") from error
    if manifest is None:  # nothing says that there were any
        return {}
    if manifest.environment is None:
        raise DamagedError(
            "has no environment, so the variables MOCK_* of the run are not known",
            key=visible(str(run / MANIFEST)),
            hint="accel=mock",
        )
    return {name: value for name, value in manifest.environment.items() if name.startswith(PREFIX)}


def _told(then: Mapping[str, str], name: str) -> str:
    """Which variables MOCK_* are in force, where the run had some or this process has others."""
    from inductor_debug.stages.accelerators.profile import RULE_VARIABLES

    own = {key: value for key, value in then.items() if key in RULE_VARIABLES}
    here = {key: os.environ[key] for key in RULE_VARIABLES if key in os.environ}
    if name != "mock" or (not own and own == here):
        return ""
    had = ", ".join(f"{key}={value}" for key, value in own.items()) or "no MOCK_*"
    ignored = "; what is set here is not applied. Try: accel=mock" if here and here != own else ""
    return f"note: the profile mock is as it was in the run, with {had}{ignored}"


def _changes(overrides: Sequence[str]) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from yaml import YAMLError

    found: Any = OmegaConf.create()
    for override in overrides:
        key, _, value = override.removeprefix("accel.").partition("=")
        name, dot, below = key.partition(".")
        known = [item.name for item in fields(AccelConfig)]
        if name not in known:
            raise invalid_choice("accel", name, known, where=override, example=f"accel.{{}}{dot}{below}={value}")
        try:
            found = OmegaConf.merge(found, OmegaConf.from_dotlist([override.removeprefix("accel.")]))
        except YAMLError as error:
            raise ConfigurationError(
                f"check: got {override!r}, whose value can't be read; valid: YAML.\nTry: quotes, as in denied=['*']"
            ) from error
    changes = OmegaConf.to_object(found)
    assert isinstance(changes, dict)
    return {str(key): value for key, value in changes.items()}


def _named(accel: str, config_dir: Path | None) -> str | Path:
    """A name or file as ``load_config`` takes it, a file of the user's folder by its name."""
    if config_dir is None:
        return accel
    from inductor_debug.stages.accelerators.profile import profile_names

    folder = config_directory(str(config_dir))
    own = {file.stem: file for file in sorted((folder / "accel").glob("*.yaml"))} if folder else {}
    if accel not in own and accel not in profile_names() and not Path(accel).suffix:
        raise invalid_choice("accel", accel, [*own, *profile_names()], where=f"{config_dir} and conf")
    return own.get(accel, accel)


@dataclass(frozen=True)
class _Configured:
    """What a check takes from a stored configuration."""

    accel: dict[str, Any]


def _own_profile(run: Path, changes: Mapping[str, Any]) -> AccelConfig:
    """A run's own profile, without the fields that ``changes`` replace whole; no interpolation of it is resolved."""
    from inductor_debug.stages.accelerators.yaml_profiles import stored_config

    try:
        stored = StoredFolder(run).read_yaml(store.HYDRA, _Configured).accel
    except (FileNotFoundError, DamagedError) as error:
        told = (
            f"{visible(str(run))} holds no {store.HYDRA}."
            if isinstance(error, FileNotFoundError)
            else str(error.with_parts(hint=""))
        )
        raise RunDirectoryError(f"check: no profile of the run can be read: {told}\nTry: accel=strict16") from error
    replaced = [key for key, value in changes.items() if not isinstance(value, Mapping)]
    return stored_config({key: value for key, value in stored.items() if key not in replaced}, str(run / store.HYDRA))


def _changed(config: AccelConfig, changes: Mapping[str, Any]) -> AccelConfig:
    """A profile with fields replaced; ConfigurationError for one that has no such value, or is none."""
    if not changes:
        return config
    from omegaconf import OmegaConf
    from omegaconf.errors import MissingMandatoryValue

    from inductor_debug.stages.accelerators.profile import with_overrides

    try:
        found = OmegaConf.to_object(with_overrides(OmegaConf.structured(config), changes))
    except MissingMandatoryValue as error:
        key = f"accel.{error.full_key}"
        raise ConfigurationError(f"{key}: got no value; valid: a value for it.\nTry: accel=strict16") from error
    assert isinstance(found, AccelConfig)
    return found


def _declared(run: Path) -> "tuple[Profile | None, str]":
    """What the run's backend declared, and what to say about it."""
    from inductor_debug.stages.accelerators.profile import read_profile
    from inductor_debug.stages.settings import may_declare

    folder, shown = StoredFolder(run), visible(str(run))
    backend, again = store.row(run)["backend"], made_again(run, "stages=[capture,constrain]")
    if not folder.has(files.DECLARED.path):
        known = backend is None or not may_declare(backend) or (run / "constrain").is_dir()
        missing = f"the rules that the backend {backend} may declare are not checked"
        note = f"note: {missing}: the stage constrain, which stores them, did not run.\nTry: {again}"
        return None, "" if known else note
    try:
        stored = folder.read_json(files.DECLARED.path)
        own = "; what its own check would find is not known here" if stored["own_check"] else ""
        return read_profile(stored), f"note: the rules are those that the backend {backend} declares{own}"
    except DamagedError as error:
        raise error.with_parts(hint=again) from error
    except TypeError as error:  # a field that a rule has not
        told = f"can't be read: {visible(str(error))}"
        raise DamagedError(told, key=f"{shown}/{files.DECLARED.path}", hint=again) from error
