"""The report's section on speed: the speed-up, with what weakens it said beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.contract import Artifacts
from inductor_debug.stages.formatting import in_words, percent, short
from inductor_debug.stages.report.sections import Answer, ReportedRun, ReportSection, capped, said


class BenchmarkSection(ReportSection):
    """How fast is it?"""

    title = "How fast is it?"
    template = Path(__file__).with_name("section.html")

    def collect(self, run: ReportedRun) -> Row | None:
        """``benchmark`` of summary.json, with ``throughput`` where batch sizes were measured."""
        found = run.summary.get("benchmark") or None
        rows = files.THROUGHPUT.read(run.artifacts) if found else None
        return found if found is None or rows is None else {
            **found, "throughput": capped(rows, files.THROUGHPUT, run.max_rows)}  # fmt: skip

    def page(self, data: Row | None, artifacts: Artifacts) -> Mapping[str, Any]:
        """``width``: how wide the interval is, in words; ``interval``: where to draw it."""
        return {"width": width_told(data), "interval": _drawn(data)}

    def answer(self, data: Row | None, report: Mapping[str, Any]) -> Answer | None:
        if data is None or data.get("speedup") is None:
            return None
        wrong = bool(((report.get("numerics") or {}).get("summary") or {}).get("failed"))
        told = in_words(said(report, "benchmark"), "The code timed failed the comparison of numbers." if wrong else "")
        if speed_doubt(data):
            again = "inductor-debug rerun RUN 'stages=[benchmark,report]'"
            return Answer("unknown", "not established", told, then=(again,))
        interval = speed_interval(data)
        word = f"{short(data['speedup'])} times"
        sides = [(data.get(side) or {}).get("median_ms") for side in ("reference", "test")]
        times = f" ({short(sides[0])} ms → {short(sides[1])} ms)" if None not in sides else ""
        does = f"is {word} as fast as the reference{times}"
        if interval and interval[0] <= 1 <= interval[1]:
            word, does = "no difference", "is neither faster nor slower than the reference as far as was measured"
        return Answer("told", word, told, does)

    def not_established(self, data: Row | None, report: Mapping[str, Any]) -> list[str]:
        interval, doubt = speed_interval(data), speed_doubt(data)
        if doubt:
            return [f"How fast it is: {doubt}.", *_unknown_throughput(data)]
        lines = [f"How fast it is: {width_told(data)}."] if data and data.get("interval_reached") is False else []
        if interval and interval[0] <= 1 <= interval[1]:
            lines.append(f"Whether it is faster or slower: the speed-up's 95 % interval, {short(interval[0])} to "
                         f"{short(interval[1])}, contains 1.")  # fmt: skip
        return [*lines, *_unknown_throughput(data)]


def speed_interval(benchmark: Mapping[str, Any] | None) -> tuple[float, float] | None:
    """The speed-up's 95 % interval, where there is one."""
    found = (benchmark or {}).get("speedup_ci95")
    return (float(found[0]), float(found[1])) if found and None not in found else None


def _drawn(benchmark: Mapping[str, Any] | None) -> dict[str, float] | None:
    """Pixels of the speed-up's interval, its middle and 1, on an axis from 10 to 410; None without an interval."""
    interval = speed_interval(benchmark)
    if benchmark is None or interval is None or not benchmark.get("speedup"):
        return None
    marks = {"low": interval[0], "high": interval[1], "point": float(benchmark["speedup"]), "one": 1.0}
    least, most = min(marks.values()), max(marks.values())
    room = (most - least) * 0.1 or 0.1
    scale = 400 / (most - least + 2 * room)
    return {name: round(10 + (value - least + room) * scale, 1) for name, value in marks.items()}


WIDE = 0.1
"""Half-width of an interval up to which its ends are as far to one side as to the other, within a hundredth."""


def width_told(benchmark: Mapping[str, Any] | None) -> str:
    """How wide the speed-up's interval is, and what was wanted; empty where that is not known."""
    found = benchmark or {}
    width, wanted = found.get("half_width"), found.get("wanted_half_width")
    told = "no interval"
    if width is not None:  # a wide one is not the same on both sides
        told = (
            f"an interval of ±{percent(width)}"
            if width <= WIDE
            else f"an interval of a factor {1 + width:.3g} each way"
        )
    if wanted is None:
        return told if width is not None else ""
    end = "reached" if found.get("interval_reached") else "was not reached within the budget"
    return f"{told}; the wanted one of ±{percent(wanted)} {end}"


def speed_doubt(benchmark: Mapping[str, Any] | None) -> str:
    """Why the speed-up is not established, whatever its interval; empty where it is."""
    found = benchmark or {}
    if found.get("established") is not False:
        return ""
    return str(found.get("not_established") or "the run does not say why")


def _unknown_throughput(benchmark: Mapping[str, Any] | None) -> list[str]:
    """The batch sizes whose samples per second are not established, a line each."""
    rows = ((benchmark or {}).get("throughput") or {}).get("rows", ())
    reasons: dict[int, str] = {}
    for row in rows:
        if row.get("not_established"):
            reasons.setdefault(row["batch_size"], row["not_established"])
    return [f"Samples per second at batch size {size}: {reason}." for size, reason in reasons.items()]
