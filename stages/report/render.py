"""The report's data as one HTML file that opens offline. Free of torch."""

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from inductor_debug.stages.formatting import counted, human_bytes, place, stage_note
from inductor_debug.stages.report.collect import VERDICTS
from inductor_debug.stages.report.pictures import Picture

NUMBER = re.compile(r"-?(\d*\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+)")
TEMPLATE = Path(__file__).with_name("template.html")


def render(data: Mapping[str, Any], plots: Mapping[str, bytes], pictures: Sequence[Picture] = ()) -> str:
    """HTML of :func:`~stages.report.collect.collect`'s data.

    Args:
        data: what to show. Every string is escaped.
        plots: name → PNG, embedded in the file.
        pictures: of graphs; their SVG is embedded as it is.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True)  # fmt: skip
    environment.filters["cell"] = cell
    environment.filters["bytes"] = human_bytes
    environment.filters["place"] = place
    environment.filters["percent"] = percent
    environment.filters["counted"] = counted
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    images = {name: f"data:image/png;base64,{base64.b64encode(png).decode()}" for name, png in plots.items()}
    return template.render(
        data,
        images=images,
        pictures=pictures,
        words=VERDICTS,
        note=lambda name: stage_note(data["stages"], name) + ".",
    )


def cell(value: Any) -> str:
    """A table's cell: floats to five digits, what is missing as a dash."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return f"{float(value):.5g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {cell(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(item) for item in value)
    return str(value)


def percent(value: Any) -> str:
    """A share as percent; a dash where unknown."""
    try:
        share = 100 * float(value)
    except (TypeError, ValueError):
        return "–"
    return f"{share:.0f} %" if abs(share) >= 1000 else f"{share:.3g} %"
