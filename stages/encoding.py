"""How a result becomes bytes: strict JSON, CSV with stable columns."""

import dataclasses
import io
import json
import math
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
