"""How a result becomes bytes, and a file: strict JSON, CSV with stable columns, written whole or not at all."""

import dataclasses
import io
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from inductor_debug.models.shapes import fields_of


def jsonable(value: Any) -> Any:
    """``value`` with dataclasses as dicts, tuples as lists, and NaN and infinities as "nan", "inf", "-inf"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dict(fields_of(value))
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if hasattr(value, "item"):  # a NumPy scalar
        return jsonable(value.item())
    return str(value)


def encode(name: str, content: Any) -> bytes:
    """The bytes of one artifact: a DataFrame as CSV, a str as UTF-8, bytes as they are, anything else as JSON."""
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    if name.endswith(".csv"):
        buffer = io.StringIO()
        content.to_csv(buffer, index=False, lineterminator="\n")
        return buffer.getvalue().encode()
    return (json.dumps(jsonable(content), indent=1, allow_nan=False) + "\n").encode()


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` whole or not at all: a temporary file beside it, fsync, then a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes files that only their owner can read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
