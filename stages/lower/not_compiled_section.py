"""The report's section on a compilation that failed: at which kernel, and what that computes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.formatting import closed, counted, places
from inductor_debug.stages.report.highlighting import LANGUAGES, highlighted
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection, raised

OPERATIONS = 4
"""Operations that a sentence names."""


COMPILERS = ("backend.inductor.", "backend.dynamo.", "backend.options.")
"""Beginnings of the keys of a compiler's options; ``null`` is the compiler's default."""


class NotCompiledSection(ReportSection):
    """Where did the compiler stop?"""

    title = "Where did the compiler stop?"
    template = Path(__file__).with_name("not_compiled_section.html")

    def collect(self, run: ReportedRun) -> Row | None:
        """``lower/not_compiled.json``, its lines as text."""
        record = files.NOT_COMPILED.read(run.artifacts)
        if record is None:
            return None
        facts: Row = jsonable({**vars(record), "sources": [str(line) for line in record.sources]})
        return facts

    def answer(self, data: Row | None, report: Mapping[str, Any]) -> Answer | None:
        if data is None:
            return None
        then = ("inductor-debug minify RUN", *_without_options(report["run"]))
        if not data["kernel"]:
            text = f"It stopped while it compiled {data['graph']}; at which kernel is not established."
            return Answer("bad", "kernel not known", text, then=then)
        calls = data["operations"]
        more = f" and {len(calls) - OPERATIONS} more" if len(calls) > OPERATIONS else ""
        named = f"{', '.join(calls[:OPERATIONS])}{more}"
        lines = places(data["sources"])
        where = f", from {', '.join(lines[:OPERATIONS])}" if lines else ""
        computes = f" It computes {named or 'no operation that is known'}{where}."
        one = "" if len(calls) < 2 else f" To find which of these {counted(len(calls), 'operation')} it is, run minify."
        found = raised(report, "lower")
        error, of_it = (f" ({found})", f": {closed(found)}") if found else ("", ".")
        text = f"The kernel {data['kernel']} of {data['graph']} did not compile{of_it}{computes}{one}"
        of = f" of {counted(len(calls), 'operation')}{where}" if calls else ""
        return Answer("bad", "at one kernel", text, f"stops the compiler at one kernel{of}{error}", then)

    def page(self, data: Row | None, artifacts: Artifacts) -> Mapping[str, Any]:
        """``not_compiled_code``: the kernel's file and lines; None where it is not stored."""
        file = files.LOWERED.at(data["graph"], data["file"]) if data and data["file"] else ""
        if not file or file not in artifacts.names("lower/"):
            return {"not_compiled_code": None}
        language = LANGUAGES.get(file.rpartition(".")[2], "text")
        return {"not_compiled_code": {"file": file, "lines": highlighted(artifacts.read_text(file), language)}}


def _without_options(run: Mapping[str, Any]) -> list[str]:
    """The command that runs it again without the options of a compiler that were typed, where there were some."""
    typed = [str(item).lstrip("+").partition("=") for item in run.get("overrides") or []]
    options = dict.fromkeys(key for key, _, value in typed if key.startswith(COMPILERS) and value not in ("", "null"))
    return [f"inductor-debug rerun RUN {' '.join(f'{key}=null' for key in options)}"] if options else []
