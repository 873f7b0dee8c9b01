"""``inductor-debug check``: stored captures against profiles, without running anything again.

Imports torch only for names of operations that neither the captures nor our profiles hold.
"""

import datetime
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import ConfigurationError, RunDirectoryError, UserError, invalid_choice
from pipeline import store
from pipeline.arguments import config_directory
from pipeline.folders import made
from pipeline.imports import append_working_directory
from pipeline.rundir import MANIFEST, write_atomically
from stages.constrain.config import AccelConfig
from stages.encoding import encode
from stages.graphs import GraphRecord
from stages.wording import breaks_in_words

if TYPE_CHECKING:
    import pandas

    from stages.constrain import Profile

GRAPHS = "capture/graphs"
BREAKS = "capture/breaks.json"
_HYDRA = Path(".hydra") / "config.yaml"


def read_graphs(run: Path) -> list[GraphRecord]:
    """The captured graphs of a run; RunDirectoryError where it has none, or they can't be read."""
    files = sorted((run / GRAPHS).glob("*.json"))
    if not files:
        store.read_summary(run)  # says that it is no run, where it is none
        raise RunDirectoryError(
            f"{run}: holds no {GRAPHS}/*.json, so nothing can be checked; valid: a run with the stage capture.\n"
            f"Try: inductor-debug rerun {run} stages=[capture]"
        )
    try:
        return [GraphRecord.from_json(json.loads(file.read_bytes())) for file in files]
    except (ValueError, KeyError, TypeError) as error:
        raise RunDirectoryError(
            f"{run}: {GRAPHS} can't be read: {error!r}.\nTry: inductor-debug rerun {run} stages=[capture]"
        ) from error


def read_breaks(run: Path) -> list[dict[str, Any]]:
    """The graph breaks of a run; RunDirectoryError where they can't be read."""
    try:
        breaks: list[dict[str, Any]] = json.loads((run / BREAKS).read_bytes())
    except FileNotFoundError:  # a capture that stored none
        return []
    except ValueError as error:
        raise RunDirectoryError(
            f"{run}: {BREAKS} can't be read: {error!r}.\nTry: inductor-debug rerun {run} stages=[capture]"
        ) from error
    return breaks


@dataclass(frozen=True)
class Asked:
    """What a capture is checked against, as the command line says it.

    Attributes:
        accel: a profile's name or file; None for the run's own.
        overrides: ``FIELD=VALUE`` words.
        config_dir: a folder of the user's, whose ``accel/NAME.yaml`` are profiles too.
    """

    accel: str | None = None
    overrides: Sequence[str] = ()
    config_dir: Path | None = None

    @classmethod
    def of(cls, words: Sequence[str], accel: str | None, config_dir: Path | None) -> "Asked":
        """From ``FIELD=VALUE`` words, of which ``accel=NAME`` is the same as ``--accel NAME``."""
        named = [word.partition("=")[2] for word in words if word.startswith("accel=")]
        names = list(dict.fromkeys([*named, *([] if accel is None else [accel])]))
        if len(names) > 1:
            raise UserError(f"check: got the profiles {', '.join(names)}; valid: one.\nTry: accel={names[0]}")
        others = [word for word in words if not word.startswith("accel=")]
        return cls(names[0] if names else None, others, config_dir)


@dataclass(frozen=True)
class Against:
    """What a capture is checked against.

    Attributes:
        config: the profile. base: what the run's backend declared, which ``config`` edits; None for nothing.
        note: what a reader must know about that; empty for nothing.
    """

    config: AccelConfig
    base: "Profile | None" = None
    note: str = ""


def against(run: Path, asked: Asked) -> Against:
    """The profile that is asked for, or the run's own: with ``accel=none`` what its backend declares.

    The profile ``mock`` is what MOCK_* make of it: those of this process where it is asked for by name; of the run's
    own those that were in force there, so that a check finds what the run found.

    Raises:
        ConfigurationError: there is no such profile, or a value of it or of a variable MOCK_* can't be read.
    """
    from stages.constrain import load_config
    from stages.constrain.profile import apply_environment

    append_working_directory()  # a custom rule of the user's may be there
    if asked.config_dir is not None:
        config_directory(str(asked.config_dir))
    changes = _changes(asked.overrides)
    if asked.accel is not None:
        named = load_config(_named(asked.accel, asked.config_dir), **changes)
        return Against(apply_environment(named, os.environ))
    config = _own_profile(run, {})
    then = _variables(run) if config.name == "mock" else {}
    config = _own_profile(run, changes, apply_environment(config, then))
    return Against(config, *(_declared(run) if config.name == "none" else (None, _told(then, config.name))))


def _variables(run: Path) -> dict[str, str]:
    """The variables MOCK_* that a run had; RunDirectoryError where its manifest can't be read."""
    from stages.constrain.profile import PREFIX

    try:
        environment = json.loads((run / MANIFEST).read_bytes())["environment"]
        return {name: str(value) for name, value in environment.items() if name.startswith(PREFIX)}
    except FileNotFoundError:  # nothing says that there were any
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(
            f"{run / MANIFEST}: can't be read: {error!r}, so the variables MOCK_* of the run are not known.\n"
            "Try: accel=mock"
        ) from error


def _told(then: Mapping[str, str], name: str) -> str:
    """Which variables MOCK_* are in force, where the run had some or this process has others."""
    from stages.constrain.profile import RULE_VARIABLES

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
    for word in overrides:
        try:
            found = OmegaConf.merge(found, OmegaConf.from_dotlist([word.removeprefix("accel.")]))
        except YAMLError as error:
            raise ConfigurationError(
                f"check: got {word!r}, whose value can't be read; valid: YAML.\nTry: quotes, as in denied=['*']"
            ) from error
    changes = OmegaConf.to_object(found)
    assert isinstance(changes, dict)
    return {str(key): value for key, value in changes.items()}


def _named(accel: str, config_dir: Path | None) -> str | Path:
    """A name or file as ``load_config`` takes it, a file of the user's folder by its name."""
    if config_dir is None:
        return accel
    from stages.constrain.profile import profile_names

    folder = config_directory(str(config_dir))
    own = {file.stem: file for file in sorted((folder / "accel").glob("*.yaml"))} if folder else {}
    if accel not in own and accel not in profile_names() and not Path(accel).suffix:
        raise invalid_choice("accel", accel, [*own, *profile_names()], where=f"{config_dir} and conf")
    return own.get(accel, accel)


def _own_profile(run: Path, changes: dict[str, Any], config: AccelConfig | None = None) -> AccelConfig:
    """A run's own profile, or ``config`` in its place, with fields replaced."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from stages.constrain.profile import with_overrides

    try:
        stored = OmegaConf.load(run / _HYDRA).accel if config is None else OmegaConf.structured(config)
        merged = OmegaConf.merge(OmegaConf.structured(AccelConfig), stored)
        found = OmegaConf.to_object(with_overrides(merged, changes))
    except ConfigurationError:
        raise  # of an override, not of the file
    except (OSError, YAMLError, AttributeError, OmegaConfBaseException) as error:
        raise UserError(
            f"check: {run / _HYDRA} has no profile that can be read: {error}\nTry: accel=strict16"
        ) from error
    assert isinstance(found, AccelConfig)
    return found


def _declared(run: Path) -> "tuple[Profile | None, str]":
    """What the run's backend declared, and what to say about it."""
    from stages.constrain.profile import read_profile
    from stages.constrain.rulebook import DECLARES_NOTHING
    from stages.constrain.stage import DECLARED

    backend, again = store.row(run)["backend"], f"Try: inductor-debug rerun {run} stages=[capture,constrain]"
    file = run / DECLARED
    if not file.is_file():
        known = backend is None or backend in DECLARES_NOTHING or (run / "constrain").is_dir()
        missing = f"the rules that the backend {backend} may declare are not checked"
        return None, "" if known else f"note: {missing}: the stage constrain, which stores them, did not run.\n{again}"
    try:
        stored = json.loads(file.read_bytes())
        own = "; what its own check would find is not known here" if stored["own_check"] else ""
        return read_profile(stored), f"note: the rules are those that the backend {backend} declares{own}"
    except (ValueError, KeyError, TypeError) as error:
        raise RunDirectoryError(f"{file}: can't be read: {error!r}.\n{again}") from error


def _valid(found: Against, graphs: Iterable[GraphRecord]) -> "tuple[Profile, str]":
    """The validated profile, and a note where torch had to say whether its operations exist, which takes seconds.

    Raises:
        ConfigurationError: a value, or the name of an operation, is not valid.
    """
    from stages.constrain import validate_profile
    from stages.constrain.known_names import confirm_names

    profile = validate_profile(found.config, {}, base=found.base)
    told = confirm_names(profile, graphs)
    return profile, "\n".join(filter(None, (found.note, told and f"note: {told}")))


def new_folder(name: str) -> Path:
    """``outputs/DATE/TIME-name``, made now."""
    now = datetime.datetime.now()
    folder = store.OUTPUTS / f"{now:%Y-%m-%d}" / f"{now:%H-%M-%S-%f}-{name}"
    return made(folder, "--out")


@dataclass(frozen=True)
class Checked:
    """What ``check`` made: the table, the folder it is stored in, and a note for the reader or nothing.

    Attributes:
        failed: a strict profile is broken.
        lines: the source lines that would repay a change most, as the report shows them.
    """

    table: "pandas.DataFrame"
    folder: Path
    note: str = ""
    failed: bool = False
    lines: Sequence[Mapping[str, Any]] = ()


def once(run: Path, asked: Asked, out: Path | None) -> Checked:
    """Neither ``--grid`` nor ``--models``: every violation, and what they come to by rule, as the stage stores them."""
    from stages.constrain import check
    from stages.constrain.stage import SUMMARY, TABLE, judged, message_of
    from stages.constrain.summary import by_rule, top_lines

    run = store.existing(run)
    graphs, found = read_graphs(run), against(run, asked)
    profile, note = _valid(found, graphs)
    violations = check(graphs, profile)
    folder, table = _made(out, "check"), by_rule(violations, graphs)
    for name, content in ((TABLE, violations.table), (SUMMARY, table)):
        file = folder / Path(name).name
        write_atomically(file, encode(file.name, content))
    looked = bool(violations.profile.rules)
    failed, outside = judged(violations, read_breaks(run), looked)
    message = "; ".join(filter(None, (message_of(violations, looked), outside)))
    nodes = itertools.chain.from_iterable(graph.nodes for graph in graphs)
    code = {str(node.source): node.source.code for node in nodes if node.source}
    lines = top_lines(map(vars, violations), code)
    return Checked(table, folder, "\n".join(filter(None, (message, note))), failed, lines)


def grid(run: Path, asked: Asked, words: Sequence[str], out: Path | None) -> Checked:
    """``--grid``: one table and one picture, in ``out`` or a new folder."""
    from stages.constrain.grid import check_grid, draw_grid, parse_grid

    run = store.existing(run)
    graphs = read_graphs(run)
    points, found = parse_grid(words), against(run, asked)
    _, note = _valid(found, graphs)
    table = check_grid(graphs, found.config, points, found.base)
    folder = _made(out, "grid")
    name = found.base.name if found.base else found.config.name
    title = f"{run.name} against {name}: {len(table):,} points of {', '.join(points)}"
    write_atomically(folder / "grid.csv", encode("grid.csv", table))
    write_atomically(folder / "grid.png", draw_grid(table, points, title))
    return Checked(table, folder, _with_breaks(note, [run]))


def models(runs: Sequence[Path], asked: Asked, out: Path | None) -> Checked:
    """``--models``: what a chip must support to run all of the runs' models."""
    from stages.constrain.coverage import coverage

    located = [store.existing(run) for run in runs]
    graphs = {_model_name(run, index): read_graphs(run) for index, run in enumerate(located)}
    found = against(located[0], asked)
    profile, note = _valid(found, itertools.chain.from_iterable(graphs.values()))
    table = coverage(graphs, profile)
    folder = _made(out, "coverage")
    write_atomically(folder / "coverage.csv", encode("coverage.csv", table))
    return Checked(table, folder, _with_breaks(note, located))


def _with_breaks(note: str, runs: Iterable[Path]) -> str:
    """A note with what the graphs of each run do not hold, and so no rule saw."""
    found = [(run, breaks_in_words(read_breaks(run))) for run in runs]
    told = [f"note: {run}: what runs outside the graphs is not counted ({words})" for run, words in found if words]
    return "\n".join(filter(None, (note, *told)))


def _made(out: Path | None, name: str) -> Path:
    if out is None:
        return new_folder(name)
    return made(out, "--out")


def _model_name(run: Path, index: int) -> str:
    """Model, mode and, to keep two runs of one model apart, the run's place in the list; a custom one's builder too."""
    row = store.row(run)
    if not row["model"]:
        return f"{index}:{run.name}"
    target = store.build_target(run) if row["model"] == "custom" else ""
    return f"{index}:{'-'.join(filter(None, (row['model'], target, row['mode'])))}"
