"""The report's part on an emulated profile: what was emulated, what it did wrong, what runs on the host."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.emulation.kinds import DEFECTS, KINDS
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection, State, capped

HOST = "fallback"


def emulation(artifacts: Artifacts, max_rows: int) -> Row | None:
    """The section's data; None where nothing was emulated.

    ``findings`` and ``fallbacks`` are tables, defects first; ``kinds`` says of each kind what it means and of how many
    nodes it was found, ``numerics`` what the profile states.
    """
    facts, cells = files.EMULATION_FACTS.read(artifacts), files.EMULATION.cells(artifacts)
    if facts is None or cells is None:
        return None
    rows, order = files.EMULATION.read(artifacts) or [], list(KINDS)
    found = [row for row in cells if row["kind"] != HOST]
    return {
        "profile": facts.profile,
        "numerics": {key: value for key, value in facts.numerics.items() if value not in (None, False, {}, [])},
        "warns": facts.warns,
        "counts": facts.findings,
        "kinds": [{"kind": kind, "nodes": count, "what": KINDS[kind]} for kind, count in facts.findings.items()],
        "findings": capped(found, files.EMULATION, max_rows, order=lambda row: order.index(row["kind"])),
        "fallbacks": capped([row for row in cells if row["kind"] == HOST], files.EMULATION, max_rows),
        "host_bytes": sum(row["bytes"] or 0 for row in rows if row["kind"] == HOST),
    }


class EmulationSection(ReportSection):
    """What did the emulation find?"""

    title = "What did the emulation find?"
    template = Path(__file__).with_name("emulation_section.html")

    def collect(self, run: ReportedRun) -> Row | None:
        return emulation(run.artifacts, run.max_rows)

    def answer(self, data: Row | None, report: Mapping[str, Any]) -> Answer | None:
        if data is None:
            return None
        counts = dict(data["counts"])
        host = counts.pop(HOST, 0)
        told = ", ".join(f"{counted(count, 'node')} with {kind}" for kind, count in counts.items()) or "no finding"
        defects = [kind for kind in DEFECTS if kind in counts]
        kept = " (recorded alone: the profile says strict: false)" if defects and data["warns"] else ""
        state: State = "told" if not defects else "warn" if data["warns"] else "bad"
        return Answer(state, f"{sum(counts.values())} found" if counts else "nothing",
                      f"The emulation found {told}{kept}; {counted(host, 'operation')} on the host.",
                      "computes wrong values in the profile's own formats" if state == "bad" else "")  # fmt: skip

    def not_established(self, data: Row | None, report: Mapping[str, Any]) -> list[str]:
        count = (data or {}).get("counts", {}).get("not_emulated", 0)
        return [f"{counted(count, 'operation')} of which part of the numerics was not emulated."] if count else []
