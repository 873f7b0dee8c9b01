"""What an error speaks of, which tells more than what it says: "NoneType has no attribute shape" names nothing."""

import re
import traceback
from pathlib import Path
from typing import Any

import torch

from inductor_debug.models.errors import wrapped

_LINES = 3
"""Innermost lines of a traceback, torch's own apart, that an error is told by."""
_TORCH = str(Path(torch.__file__).parent)


def identifiers_in(error: BaseException) -> list[str]:
    """The identifiers in an error, and in the lines that it came from, the innermost first."""
    lines = [frame.line or "" for frame in _own_frames(error)[-_LINES:]]
    return re.findall(r"\w+", " ".join([type(error).__name__, str(error), *lines[::-1]]))


def place_of(error: BaseException) -> str:
    """``FILE:LINE: CODE`` of the innermost line that an error came from, torch's own apart."""
    frame = _own_frames(error)[-1]
    return f"{frame.filename}:{frame.lineno}: {frame.line}"


def missing_package(error: BaseException) -> str | None:
    """The package that an error says is not installed; None where it says no such thing."""
    for item in wrapped(error):
        if isinstance(item, ImportError):
            said = re.search(r"requires the (\S+) library|No module named '(\w+)", str(item))
            return said and (said[1] or said[2])
    return None


def fields_spoken_of(config: Any, error: BaseException) -> list[str]:
    """Fields of a transformers configuration that an error or its lines name, the innermost first; dotted inside."""
    names, found = identifiers_in(error), dict[str, str]()
    for name, value in config.to_dict().items():
        if isinstance(value, dict) and "model_type" in value:
            found |= {f"{name}.{inner}": inner for inner in value}
        else:
            found[name] = name
    spoken = [name for name, last in found.items() if last in names and last != "model_type"]
    return sorted(spoken, key=lambda name: names.index(found[name]))


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if not frame.filename.startswith(_TORCH)] or list(frames)
