"""``inductor-debug check``: stored captures against profiles, without running anything again. Imports no torch."""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import RunDirectoryError, UserError
from pipeline import store
from pipeline.rundir import write_atomically
from stages.constrain.config import AccelConfig
from stages.encoding import encode
from stages.graphs import GraphRecord

if TYPE_CHECKING:
    import pandas

GRAPHS = "capture/graphs"
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


def profile_of(run: Path, accel: str | None, overrides: Sequence[str]) -> AccelConfig:
    """The profile called ``accel``, or the run's own, with ``FIELD=VALUE`` words applied."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from stages.constrain import load_config

    for word in overrides:
        if "=" not in word:
            raise UserError(f"check: got {word!r}; valid: FIELD=VALUE of the profile.\nTry: alignment=16")
    changes = OmegaConf.to_object(OmegaConf.from_dotlist([word.removeprefix("accel.") for word in overrides]))
    assert isinstance(changes, dict)
    fields: dict[str, Any] = {str(key): value for key, value in changes.items()}
    if accel is not None:
        return load_config(accel, **fields)
    try:
        stored = OmegaConf.load(run / _HYDRA).accel
        merged = OmegaConf.merge(OmegaConf.structured(AccelConfig), stored, fields)
        config = OmegaConf.to_object(merged)
    except (OSError, YAMLError, AttributeError, OmegaConfBaseException) as error:
        raise UserError(
            f"check: {run / _HYDRA} has no profile that can be read with {list(overrides)}: {error}\n"
            "Try: --accel strict16"
        ) from error
    assert isinstance(config, AccelConfig)
    return config


def new_folder(name: str) -> Path:
    """``outputs/DATE/TIME-name``, made now."""
    now = datetime.datetime.now()
    folder = store.OUTPUTS / f"{now:%Y-%m-%d}" / f"{now:%H-%M-%S-%f}-{name}"
    folder.mkdir(parents=True)
    return folder


def grid(
    run: Path, accel: str | None, words: Sequence[str], overrides: Sequence[str], out: Path | None
) -> tuple["pandas.DataFrame", Path]:
    """``--grid``: one table and one picture, in ``out`` or a new folder; returns the table and the folder."""
    from stages.constrain.grid import check_grid, draw_grid, parse_grid

    run = store.locate(run)
    points = parse_grid(words)
    graphs, config = read_graphs(run), profile_of(run, accel, overrides)
    table = check_grid(graphs, config, points)
    folder = _made(out, "grid")
    title = f"{run.name} against {config.name}: {len(table):,} points of {', '.join(points)}"
    write_atomically(folder / "grid.csv", encode("grid.csv", table))
    write_atomically(folder / "grid.png", draw_grid(table, points, title))
    return table, folder


def models(
    runs: Sequence[Path], accel: str | None, overrides: Sequence[str], out: Path | None
) -> tuple["pandas.DataFrame", Path]:
    """``--models``: what a chip must support to run all of the runs' models; returns the table and its folder."""
    from stages.constrain import validate_profile
    from stages.constrain.coverage import coverage

    located = [store.locate(run) for run in runs]
    graphs = {_model_name(run, index): read_graphs(run) for index, run in enumerate(located)}
    table = coverage(graphs, validate_profile(profile_of(located[0], accel, overrides), {}))
    folder = _made(out, "coverage")
    write_atomically(folder / "coverage.csv", encode("coverage.csv", table))
    return table, folder


def _made(out: Path | None, name: str) -> Path:
    if out is None:
        return new_folder(name)
    out.mkdir(parents=True, exist_ok=True)
    return out


def _model_name(run: Path, index: int) -> str:
    """Model, mode and, to keep two runs of one model apart, the run's place in the list."""
    row = store.row(run)
    return f"{index}:{row['model']}-{row['mode']}" if row["model"] else f"{index}:{run.name}"
