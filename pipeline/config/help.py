"""The answer to ``--help``: every group with its choices and every key. Reads file names only, so it is quick."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inductor_debug.pipeline.config.schema import Config
from inductor_debug.stages.backends.plugins import conf_folders, distribution, installed_adapters
from inductor_debug.stages.registry import declared

CONF = Path(__file__).resolve().parents[2] / "conf"
GROUPS = ("model", "accel", "backend", "experiment", "cluster")


def options(group: str, extra: Path | None = None) -> list[str]:
    """Names of a group's YAML files: ours, those of ``--config-dir`` and of packages; for ``backend`` adapters too."""
    folders = [folder / group for folder in (CONF, extra, *conf_folders()) if folder is not None]
    names = {file.stem for folder in folders for file in folder.glob("*.yaml")}
    return sorted(names | set(installed_adapters() if group == "backend" else ()))


def installed() -> str:
    """The backends that installed packages add, each with its package; how to add one where there is none."""
    found = [f"{name} ({distribution(points[0])})" for name, points in installed_adapters().items()]
    return f"installed backends: {', '.join(found) or 'none'} (docs/how-to/add-a-backend.md: write one)"


def help_text(extra: Path | None = None) -> str:
    """The whole text; ``extra`` is the folder of ``--config-dir``."""
    groups = "\n".join(f"  {group:<13} {', '.join(options(group, extra))}" for group in GROUPS)
    keys = "\n".join(f"  {key:<36} {value}" for key, value in _keys(Config(), ""))
    stage_keys = "\n".join(
        f"  {key:<36} {value}"
        for stage in declared().values()
        for key, value in _keys(stage.options(), f"stages.{stage.name}.")
    )
    return (
        Path(__file__)
        .with_name("help.txt")
        .read_text(encoding="utf-8")
        .format(groups=groups, installed=installed(), stages=", ".join(declared()), keys=f"{keys}\n{stage_keys}")
    )


def _keys(node: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for item in dataclasses.fields(node):
        value = getattr(node, item.name)
        if dataclasses.is_dataclass(value):
            yield from _keys(value, f"{prefix}{item.name}.")
        elif item.name != "name" and f"{prefix}{item.name}" != "stages":
            yield f"{prefix}{item.name}", "null" if value is None else str(value)
