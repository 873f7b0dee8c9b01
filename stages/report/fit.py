"""The report's part on the profile: what was found, at which lines, and what was not looked at. Free of torch."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from stages.contract import Artifacts
from stages.report.reading import Row, read_table
from stages.wording import counted

TABLE = "constrain/violations.csv"
LINES = 20
SUGGESTIONS = 3
"""So many different suggestions for one line are given in full."""


def violations(artifacts: Artifacts, summary: Mapping[str, Any], max_rows: int) -> Row | None:
    """The section's data; ``total`` is None where the profile has no rules, so that nothing was checked."""
    rows = read_table(artifacts, TABLE)
    if rows is None:
        return None
    stored = summary.get("violations") or {}
    by = {f"by_{key}": dict(Counter(row[key] for row in rows)) for key in ("rule", "effect", "severity")}
    return {
        **by,
        "total": len(rows) if rows or stored.get("total") is not None else None,
        "strict": stored.get("strict"),
        "top_lines": top_lines(rows, _code(artifacts) if rows else {}),
        "rows": rows[:max_rows],
        "rows_total": len(rows),
        "file": TABLE,
    }


def top_lines(rows: list[Row], code: Mapping[str, str]) -> list[Row]:
    """Source lines that would repay a change most: by bytes that the findings there cost, then by their number."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["severity"] != "waived":
            groups[row["source"]].append(row)
    lines: list[Row] = [
        {
            "source": source or "(no source line recorded)",
            "code": code.get(source, ""),
            "findings": len(group),
            "rules": ", ".join(sorted({row["rule"] for row in group})),
            "cost_bytes": sum(int(row["cost_bytes"]) for row in group if row["cost_bytes"]),
            "suggestion": suggestions(Counter(row["suggestion"] for row in group)),
        }
        for source, group in groups.items()
    ]
    return sorted(lines, key=lambda line: (-line["cost_bytes"], -line["findings"], line["source"]))[:LINES]


def suggestions(counts: Counter[str]) -> str:
    """What to try for a line's findings: one suggestion, each of a few with its findings, or the most common."""
    ordered = counts.most_common()
    if len(ordered) == 1:
        return ordered[0][0]
    each = [f"{text} ({counted(number, 'finding')})" for text, number in ordered]
    if len(each) <= SUGGESTIONS:
        return "; ".join(each)
    return f"{len(each)} different changes, most common: {each[0]}"


def finding(found: Mapping[str, Any] | None, accel: str, breaks: str) -> str | None:
    """One sentence for the top of the report; None where there is no table.

    Args:
        found: what :func:`violations` gave.
        accel: the profile's name.
        breaks: Dynamo's breaks in words, empty for none.
    """
    if found is None:
        return None
    if found["total"] is None:
        return f"Fit: nothing was checked: the profile {accel} has no rules."
    by_rule = ", ".join(f"{rule} {count}" for rule, count in found["by_rule"].items())
    mode = "strict" if found.get("strict") else "warning"
    outside = f"; what runs outside the graphs was not checked ({breaks})" if breaks else ""
    return f"Fit: {counted(found['total'], 'finding')} in {mode} mode{f' ({by_rule})' if by_rule else ''}{outside}."


def reproductions(repros: Sequence[Mapping[str, Any]]) -> str | None:
    """One sentence for the top of the report; None where there is none.

    Args:
        repros: ``repros`` of summary.json.
    """
    if not repros:
        return None
    verified = sum(bool(row.get("verified")) for row in repros)
    return f"Reproductions: {counted(len(repros), 'script')} in repros/, {verified} verified in a fresh process."


def _code(artifacts: Artifacts) -> dict[str, str]:
    """``file:line`` → the code there, from the captured graphs."""
    found = {}
    for name in artifacts.names("capture/graphs/"):
        if name.endswith(".json"):
            for node in artifacts.read_json(name)["nodes"]:
                source = node.get("source")
                if source:
                    found[f"{source['file']}:{source['line']}"] = source.get("code", "")
    return found
