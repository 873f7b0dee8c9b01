"""The rows of the corpus of failures as text: a line each, a table in Markdown, and what they come to."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from minified_corpus import Plant

Row = dict[str, Any]

FEW = 3
"""Operations that a smallest script has at most, in the median."""
LARGE = 20 << 10
"""Bytes above which a script is large."""


def line(row: Row) -> str:
    """One row, as it comes."""
    head = f"{row['case']}, {row['by']}: "
    if "raised" in row:
        return f"{head}RAISED {row['raised']}"
    if row["by"] != "ours":
        return head + _theirs(row) + f", {row.get('failure') or 'nothing'}"
    said = ["CLASS"] * (bool(row["failure"]) and not row["alike"]) + ["NOTHING"] * (not row["failure"])
    said += [f"UNVERIFIED ({row['reason'][-200:]})"] * (bool(row["failure"]) and not row["verified"])
    said += ["TIME"] * (bool(row["failure"]) and not row["minimal"]) + ["LARGE"] * (row["bytes"] > LARGE)
    said += ["MANY"] * (row["operations"] > FEW) + ["told where"] * row["at"]
    return (f"{head}{row['operations']} of {row['before']} operations, {row['executed']} executed, "
            f"{row['seconds']:.0f} s, {row['bytes']:,} bytes, {row['failure'] or row['message']} "
            f"{', '.join(said)}".rstrip())  # fmt: skip


def _theirs(row: Row) -> str:
    if "queries" not in row:
        return str(row.get("why") or row.get("raised"))
    why = f", {row['why']}" if row["why"] else ""
    return f"{row['operations']} operations, {row['queries']} queries, {row['seconds']:.0f} s{why}"


def table(rows: Sequence[Row], plants: Sequence[Plant]) -> str:
    """Markdown: a row a failure, a row a class, and the comparison.

    Args:
        rows: the last one of a search counts.
        plants: those that are told of.
    """
    found = {(row["case"], row["by"]): row for row in rows}
    head = ["planted", "model", "graphs", "left", "executed", "s", "script", "torch's: left", "executed", "s"]
    lines = [_cells(head), _cells(["---"] * len(head))]
    lines += [_cells(_row(plant, found)) for plant in plants if (plant.name, "ours") in found]
    lines += ["", *_classes(found, plants), "", *_compared(found, plants), ""]
    return "\n".join([*lines, *_alone(found, plants)])


def _cells(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _row(plant: Plant, found: dict[tuple[str, str], Row]) -> list[object]:
    ours, theirs = found[plant.name, "ours"], found.get((plant.name, "torch"), {})
    sizes = ", symbolic" if plant.symbolic else ""
    cells: list[object] = [plant.kind, f"{plant.model}, {plant.size}", f"{plant.mode}{sizes}"]
    if "raised" in ours:
        return [*cells, f"raised {ours['raised'].partition(':')[0]}", *[""] * 6]
    notes = [] if ours["minimal"] else ["time was up"]
    notes += ["not verified"] * (bool(ours["failure"]) and not ours["verified"])
    notes += [f"another: {ours['failure']}"] * (bool(ours["failure"]) and not ours["alike"])
    notes += ["told where"] * ours["at"]
    left = f"{ours['operations']} of {ours['before']}" if ours["failure"] else "no script"
    cells += [", ".join([left, *notes]) if ours["failure"] else left, ours["executed"], f"{ours['seconds']:.0f}",
              f"{ours['bytes']:,}"]  # fmt: skip
    if "queries" not in theirs:
        return [*cells, theirs.get("why") or theirs.get("raised", ""), "", ""]
    why = f", {theirs['why']}" if theirs["why"] else ""
    return [*cells, f"{theirs['operations'] if theirs['failure'] else 'none'}{why}", theirs["queries"],
            f"{theirs['seconds']:.0f}"]  # fmt: skip


def _classes(found: dict[tuple[str, str], Row], plants: Sequence[Plant]) -> list[str]:
    head = ["class", "failures", "with a script", "verified", "of the same class", "operations left", "executed", "s",
            "largest script"]  # fmt: skip
    lines = [_cells(head), _cells(["---"] * len(head))]
    for of in [*dict.fromkeys(plant.of for plant in plants), ""]:
        rows = [row for plant in plants if plant.of == (of or plant.of) and (row := found.get((plant.name, "ours")))]
        done = [row for row in rows if row.get("failure")]
        lines.append(_cells([
            of or "all", len(rows), len(done), sum(row["verified"] for row in done), sum(row["alike"] for row in done),
            f"{_median(done, 'operations')}, at most {max(row['operations'] for row in done)}" if done else "",
            _median(done, "executed"), _median(done, "seconds"),
            f"{max((row['bytes'] for row in done), default=0):,}",
        ]))  # fmt: skip
    return lines


def _median(rows: Sequence[Row], name: str) -> str:
    return f"{statistics.median(row[name] for row in rows):.3g}" if rows else ""


def _compared(found: dict[tuple[str, str], Row], plants: Sequence[Plant]) -> list[str]:
    """The tool beside torch's minifier, of the failures that both were given."""
    pairs = [(ours, theirs) for plant in plants if (ours := found.get((plant.name, "ours")))
             and (theirs := found.get((plant.name, "torch"))) and "queries" in theirs]  # fmt: skip
    if not pairs:
        return []
    alike = [(ours, theirs) for ours, theirs in pairs if theirs["alike"]]
    ended = [(ours, theirs) for ours, theirs in pairs if not theirs["why"] and ours.get("minimal")]
    said = [
        f"Beside torch's minifier in {len(pairs)}. It took a part of the same class in {len(alike)}: of these the tool "
        f"has more operations in {_count(alike, lambda ours, theirs: _left(ours) > theirs['operations'])}, fewer in "
        f"{_count(alike, lambda ours, theirs: _left(ours) < theirs['operations'])}.",
        f"torch's took none of the class in {len(pairs) - len(alike)}. Its time was up in "
        f"{_count(pairs, lambda _, theirs: theirs['why'] == 'time was up')}, and it raised in "
        f"{_count(pairs, lambda _, theirs: theirs['why'] not in ('', 'time was up'))}. It asked for a part that shows "
        f"another failure in {_count(pairs, lambda _, theirs: theirs['others'] > 0)}.",
        "Executed in the median: " + _executed([(ours, theirs) for ours, theirs in pairs if "executed" in ours]) + ".",
        f"Both came to an end in {len(ended)}: " + _executed(ended) + ".",
    ]
    return ["\n".join(said)]


def _executed(pairs: Sequence[tuple[Row, Row]]) -> str:
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return f"{_median(ours, 'executed')} by the tool, {_median(theirs, 'queries')} asked for by torch's minifier"


def _left(ours: Row) -> float:
    return float(ours["operations"]) if ours.get("failure") else float("inf")


def _count(pairs: Sequence[tuple[Row, Row]], holds: Callable[[Row, Row], bool]) -> int:
    return sum(holds(*pair) for pair in pairs)


def _alone(found: dict[tuple[str, str], Row], plants: Sequence[Plant]) -> list[str]:
    rows = [row for plant in plants if (row := found.get((plant.name, "torch alone"))) and "queries" in row]
    if not rows:
        return []
    other = sum(bool(row["failure"]) and not row["alike"] for row in rows)
    return [f"By torch's own test, which takes any failure, its result was another failure in {other} of {len(rows)}."]
