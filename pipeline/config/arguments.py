"""Reads the command line: Hydra's flags, and overrides in the forms that this program promises."""

import argparse
import functools
import re
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from inductor_debug.models.errors import ConfigurationError, closest_first, invalid_choice, shown
from inductor_debug.models.stored import read_yaml, shaped
from inductor_debug.pipeline.config.renamed import with_names_of_today
from inductor_debug.pipeline.config.schema_fields import leaves
from inductor_debug.pipeline.loudness import QUIET_FLAGS, QUIET_HELP, VERBOSE_FLAGS, VERBOSE_HELP
from inductor_debug.stages.registry import declared

FORMATS = ("table", "json")
_STAGE_LIST = re.compile(r"(\+{0,2})stages=(.*)", re.DOTALL)
_LIST = re.compile(r"stages=\[([^\[\]]*)\]")


def _parser() -> argparse.ArgumentParser:
    """Hydra's own, with our flags."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.add_argument(*QUIET_FLAGS, action="store_true", help=QUIET_HELP)
    parser.add_argument(*VERBOSE_FLAGS, action="store_true", help=VERBOSE_HELP)
    parser.add_argument("--format", choices=FORMATS, default="table", help="json prints the result as JSON")
    return parser


def flags() -> list[str]:
    """Every flag of a run's command line: Hydra's and ours."""
    return [option for action in _parser()._actions for option in action.option_strings]


def config_dir_of(argv: Sequence[str]) -> Path | None:
    """The folder of ``--config-dir``, before anything is parsed; None where it is not there."""
    for index, word in enumerate(argv):
        if word in ("--config-dir", "-cd") and index + 1 < len(argv):
            return Path(argv[index + 1])
        if word.startswith("--config-dir="):
            return Path(word.partition("=")[2])
    return None


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Flags and overrides; ConfigurationError for a flag that there is not."""
    parser = _parser()
    parser.prog = "python -m pipeline"

    def fail(message: str) -> NoReturn:
        given = message.rpartition(":")[2].strip()
        ordered = ", ".join(closest_first(given.partition("=")[0], flags()))
        raise ConfigurationError(
            f"{message}; valid flags: {ordered}", key="command line", hint="python -m pipeline --help"
        )

    parser.error = fail  # type: ignore[method-assign]
    return parser.parse_intermixed_args(list(argv))


@functools.cache
def _open() -> re.Pattern[str]:
    """Overrides in mappings with keys of their own (a compiler's, a builder's arguments, dtypes, inputs)."""
    keys = [re.escape(key) for key, kind in leaves().items() if typing.get_origin(kind) is dict]
    return re.compile(rf"({'|'.join(keys)})(\.[^=]+)?=")


def normalise(overrides: Sequence[str]) -> list[str]:
    """Overrides as Hydra wants them: ``++`` before the keys of open mappings; duplicate stages are an error."""
    result = []
    for override in _one_stage_list(overrides):
        _reject_duplicate_stages(override)
        result.append(f"++{override}" if _open().match(override) else override)
    return result


def overridden_groups(overrides: Sequence[str], groups: Sequence[str]) -> set[str]:
    """Those of ``groups`` that an override selects anew (``accel=strict16``)."""
    return {key for override in overrides if (key := override.lstrip("+").partition("=")[0]) in groups}


def _one_stage_list(overrides: Sequence[str]) -> list[str]:
    """``stages=[a] +stages=b`` as ``stages=[a,b]``: beside such a list Hydra drops the addition in silence."""
    lists = [override for override in overrides if _LIST.fullmatch(override)]
    if not lists:
        return list(overrides)
    added = [match for override in overrides if (match := _STAGE_LIST.fullmatch(override)) and _adds(match)]
    merged = [override for override in overrides if override not in {match[0] for match in added}]
    names = [*_LIST.findall(lists[-1]), *(match[2].strip("[]") for match in added)]
    merged[merged.index(lists[-1])] = f"stages=[{','.join(name for name in names if name)}]"
    return merged


def _adds(stages: re.Match[str]) -> bool:
    """Whether it is ``+stages=a`` or ``+stages=[a,b]``, and no sweep."""
    return bool(stages[1]) and "," not in re.sub(r"\[.*\]", "", stages[2])


def added_to(file: Path, overrides: Sequence[str]) -> list[str]:
    """Overrides for a stored configuration: ``+stages=a`` adds to its stages, not to the default ones."""
    stages = [match for override in overrides if (match := _STAGE_LIST.fullmatch(override))]
    if not stages or not all(map(_adds, stages)):
        return list(overrides)
    new = {name.strip() for match in stages for name in match[2].strip("[]").split(",")}
    before = [name for name in _stage_names(_stored(file).get("stages") or {}, file) if name not in new]
    return _one_stage_list([*overrides, f"stages=[{','.join(before)}]"]) if before else list(overrides)


def _reject_duplicate_stages(override: str) -> None:
    match = _STAGE_LIST.fullmatch(override)
    if not match:
        return
    for names in re.findall(r"\[([^\[\]]*)\]", match[2]) or [match[2]] * match[2].startswith("["):
        listed = [name.strip().strip("'\"") for name in names.split(",") if name.strip()]
        repeated = sorted({name for name in listed if listed.count(name) > 1})
        if repeated:
            unique = ",".join(dict.fromkeys(listed))
            raise ConfigurationError(
                f"{', '.join(repeated)} is listed twice",
                key="stages",
                place=override,
                valid=f"each of {', '.join(closest_first(repeated[0], declared()))} at most once",
                hint=f"'stages=[{unique}]'",
            )


def stored_config(path: str | None, name: str | None) -> Path | None:
    """The file that ``--config-path`` and ``--config-name`` name, relative to the working directory; None for ours."""
    if path is None and name is None:
        return None
    folder = Path(path).absolute() if path is not None else Path.cwd()
    if not folder.is_dir():
        raise ConfigurationError(
            f"no folder {folder}",
            key="--config-path",
            valid="a folder that exists, such as a run's .hydra (a relative path is taken from the working directory)",
            hint="--config-path RUN/.hydra --config-name config",
        )
    stem = name or "config"
    file = folder / (stem if stem.endswith((".yaml", ".yml")) else f"{stem}.yaml")
    if not file.is_file():
        found = closest_first(stem, sorted(entry.stem for entry in folder.glob("*.yaml")))
        example = f"\nTry: --config-name {found[0]}" if found else ""
        raise ConfigurationError(
            f"--config-name: got {stem!r}, no such file in {folder}; valid: {', '.join(found) or 'none'}.{example}"
        )
    return file


def config_directory(path: str | None) -> Path | None:
    """The folder of ``--config-dir``, absolute; ConfigurationError where there is none."""
    if path is None:
        return None
    folder = Path(path or "''").absolute()
    if not folder.is_dir():
        beside = [str(entry.name) for entry in sorted(folder.parent.glob("*")) if entry.is_dir()]
        choices = ", ".join(closest_first(folder.name, beside)) or "none"
        raise ConfigurationError(
            f"no folder {folder}; folders beside it: {choices}",
            key="--config-dir",
            hint="--config-dir FOLDER, with FOLDER/accel/my_chip.yaml for accel=my_chip",
        )
    return folder


def check_mappings(folders: Sequence[Path], choices: Mapping[str, Any]) -> None:
    """ConfigurationError for a chosen YAML file that holds a word alone: OmegaConf takes it for a key without a value.

    Args:
        folders: of YAML, ours aside.
        choices: group → selected option.
    """
    import yaml

    for file in (folder / group / f"{name}.yaml" for folder in folders for group, name in choices.items()):
        root = yaml.compose(file.read_bytes()) if file.is_file() else None
        if isinstance(root, yaml.ScalarNode) and root.value:
            raise ConfigurationError(
                f"got the text {shown(root.value)}",
                key=str(file),
                valid="one 'key: value' a line",
                hint=f"name: {file.stem}",
            )


def rerun_node(file: Path, base: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """A primary configuration made of a stored one, on top of our schema and our ``hydra`` section.

    Args:
        file: the stored ``config.yaml``.
        base: content of ``conf/config.yaml``.
        overrides: those of the command line; a group selected anew replaces the stored one. Of the stages that are
            selected anew those that the run had keep their options.
    """
    stored = _stored(file)
    groups = ("model", "accel", "backend", "stages")
    replaced = overridden_groups(overrides, groups)
    defaults: list[Any] = []
    for entry in base["defaults"]:
        group = next((key for key in groups if isinstance(entry, dict) and key in entry), None)
        if group is None or group in replaced or group not in stored:
            defaults.append(entry)
        elif group == "stages":
            defaults.append({"stages": _stage_names(stored["stages"] or {}, file)})
        else:
            defaults.append({group: None})
    body = {key: value for key, value in stored.items() if key not in replaced and key not in ("hydra", "defaults")}
    selected = [match[1] for override in overrides if (match := _LIST.fullmatch(override))]
    if selected and stored.get("stages"):
        names = {name.strip() for name in selected[-1].split(",")}
        options = shaped(stored["stages"], dict[str, Any], file)
        body["stages"] = {name: value for name, value in options.items() if name in names}
    if isinstance(body.get("runner"), dict):  # what was allowed once, of one directory, is not allowed of another
        body["runner"] = {key: value for key, value in body["runner"].items() if key != "overwrite"}
    return {"defaults": defaults, "hydra": base["hydra"], **body}


def _stored(file: Path) -> dict[str, Any]:
    return with_names_of_today(read_yaml(file, dict[str, Any] | None, aliases=True) or {})


def _stage_names(stages: Any, file: Path) -> list[str]:
    """The stages of a stored configuration: each becomes the name of a file, so none but ours is taken."""
    names = list(shaped(stages, dict[str, Any], file))
    for name in names:
        if name not in declared():
            raise invalid_choice("stages", name, declared(), where=str(file))
    return names


def directory_word(key: str, path: Path) -> str:
    """``KEY=PATH`` as Hydra's grammar takes it: what has more than letters and such is in quotes."""
    return f"{key}={path if re.fullmatch(r'[A-Za-z0-9_./%-]+', str(path)) else quoted(str(path))}"


def quoted(word: str) -> str:
    """A word as Hydra's grammar takes any text, and OmegaConf as no interpolation."""
    plain = re.sub(r"\\*\$\{", lambda found: "\\" * (2 * (len(found[0]) - 2)) + "\\${", word)
    escaped = re.sub(r"(\\*)'", lambda found: found[1] * 2 + "\\'", plain)
    ending = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{escaped[len(escaped) - ending :]}'"
