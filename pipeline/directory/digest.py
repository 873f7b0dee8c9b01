"""The digest of a run: one number over what must repeat, wherever the run, the packages and the checkout are."""

import csv
import functools
import hashlib
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug import models
from inductor_debug.pipeline.directory.rundir import RunDirectory

SOURCE = "source"
"""The column, or key, that names a line: ``file:line``, or a record with ``file``, ``line``, ``code``, ``function``."""
OWN_MODELS = Path(models.__file__).parent
_LINE = re.compile(r"^(?P<file>.+):(?P<line>\d+)$")


def digest_of(artifacts: Mapping[str, str]) -> str:
    """The digest of a run, from what :func:`artifact_digests` gave for each of its stages."""
    text = json.dumps(dict(artifacts), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def artifact_digests(directory: RunDirectory, inputs: Mapping[str, list[str]]) -> dict[str, str]:
    """SHA-256 of the canonical columns of each stored artifact that is there.

    It does not depend on the run directory's path, which is replaced wherever it occurs in a value. It does not depend
    on the folder that a package is in either: see :func:`source_place`.

    Args:
        inputs: artifact → CSV columns, or JSON keys of each record; empty for the whole artifact.
    """
    content, _ = canonical(directory, inputs)
    texts = {name: json.dumps(found, sort_keys=True, separators=(",", ":")) for name, found in content.items()}
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}


def canonical(
    directory: RunDirectory, inputs: Mapping[str, list[str]], own_models: Path = OWN_MODELS
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """What :func:`artifact_digests` covers, by artifact, and the inputs of the artifacts that are there.

    Args:
        own_models: the folder of our models in the code that made the run.
    """
    found: dict[str, Any] = {}
    for name in sorted(inputs):
        try:
            text = directory.read_text(name)
        except FileNotFoundError:
            continue
        text = text.replace(str(directory.path), "<run>")
        found[name] = _canonical(name, text, list(inputs[name]), own_models)
    return found, {name: list(inputs[name]) for name in found}


def _canonical(name: str, text: str, columns: list[str], own_models: Path) -> Any:
    if name.endswith(".csv"):
        rows = list(csv.DictReader(io.StringIO(text)))
        return [[[column, _value(column, row.get(column), own_models)] for column in columns or row] for row in rows]
    if name.endswith(".json"):
        return _selected(json.loads(text), columns, own_models)
    return text


def _selected(value: Any, keys: list[str], own_models: Path) -> Any:
    """``value`` with only ``keys`` left in its records: the dict itself, or the dicts in the lists it holds."""
    if not keys:
        return value
    if isinstance(value, list):
        return [_selected(item, keys, own_models) for item in value]
    if not isinstance(value, dict):
        return value
    if any(key in value for key in keys):
        return {key: _value(key, value.get(key), own_models) for key in keys}
    return {key: _selected(item, keys, own_models) for key, item in value.items() if isinstance(item, (list, dict))}


def _value(key: str, value: Any, own_models: Path) -> Any:
    if key != SOURCE or not value:
        return value
    if isinstance(value, str):
        match = _LINE.match(value)
        return (
            value if match is None else ":".join(map(str, source_place(match["file"], int(match["line"]), own_models)))
        )
    file, *line = source_place(value["file"], value["line"], own_models)
    return value | {"file": file, "line": line} | ({} if line else {"code": ""})


def source_place(file: str, line: int, own_models: Path = OWN_MODELS) -> tuple[str] | tuple[str, int]:
    """A line of source by its file's path below the folder that its package is in; of our own models the file alone.

    Our models are edited between two versions of this tool, and no such edit changes what a run found.
    """
    place, own = _file_place(file, own_models)
    return (place,) if own else (place, line)


@functools.cache
def _file_place(file: str, own_models: Path) -> tuple[str, bool]:
    """A file's path as the digest has it, and whether it is of our own models."""
    path, own = Path(file), own_models.resolve()
    if path.resolve().is_relative_to(own):
        return f"models/{path.resolve().relative_to(own).as_posix()}", True
    return path.relative_to(_above_package(path.parent)).as_posix(), False


@functools.cache
def _above_package(folder: Path) -> Path:
    return _above_package(folder.parent) if (folder / "__init__.py").is_file() else folder
