"""The report's data as one HTML file that opens offline."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import counted, human_bytes, percent, place, stage_note
from inductor_debug.stages.report.collect import VERDICTS
from inductor_debug.stages.report.sections import sections

NUMBER = re.compile(r"-?(\d*\.\d+(e[+-]?\d+)?|\d+e[+-]?\d+)")


def render(data: Mapping[str, Any], artifacts: Artifacts) -> str:
    """HTML of :func:`~stages.report.collect.collect`'s data. Every string in it is escaped.

    Args:
        data: what to show.
        artifacts: what it was collected from, for plots and pictures.
    """
    shown = sections()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True, loader=jinja2.FunctionLoader(_source))  # fmt: skip
    environment.filters["cell"] = cell
    environment.filters["bytes"] = human_bytes
    environment.filters["place"] = place
    environment.filters["percent"] = percent
    environment.filters["counted"] = counted
    beside: dict[str, Any] = {}
    for key, section in shown.items():
        beside |= section.page(data[key], artifacts)
    return environment.get_template("template.html").render(
        data,
        **beside,
        sections=[str(section.template) for section in shown.values()],
        words=VERDICTS,
        note=lambda name: stage_note(data["stages"], name) + ".",
    )


def _source(name: str) -> str:
    """A template: a section's by its path, the page and its macros by their names."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


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
