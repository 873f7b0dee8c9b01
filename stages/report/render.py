"""The report's data as one HTML file that opens offline."""

from collections.abc import Mapping
from typing import Any

from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.report.contents import is_empty
from inductor_debug.stages.report.html import environment_of, write_page
from inductor_debug.stages.report.sections import sections


def render(data: Mapping[str, Any], artifacts: Artifacts) -> str:
    """HTML of :func:`~stages.report.collect.collect`'s data.

    Args:
        data: what to show.
        artifacts: what it was collected from, for plots and pictures.
    """
    shown = sections()
    beside: dict[str, Any] = {"kernel_sources": {}}
    for key, item in shown.items():
        beside |= item.section.page(data[key], artifacts)
    beside["templates"] = {key: str(item.section.template) for key, item in shown.items()}
    excerpts = (data.get("source") or {}).get("excerpts") or []
    environment = environment_of(excerpts, beside["kernel_sources"], address=data["address"])
    scripts = [script for key, item in shown.items() if not is_empty(data[key]) for script in item.section.scripts]
    return write_page("run.html", environment, data, beside, scripts=scripts)
