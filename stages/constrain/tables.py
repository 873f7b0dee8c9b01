"""What the findings come to: by rule and effect, and the source lines that are rejected or cost most."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inductor_debug.stages.artifacts.tables import RuleRow, ViolationRow
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.graphs.records import GraphRecord, kind_of
from inductor_debug.stages.rules.affected import AffectedOperations
from inductor_debug.stages.rules.findings import by_finding, severity_of
from inductor_debug.stages.rules.violation import Violation
from inductor_debug.stages.rules.violations import Violations

LINES = 10
SUGGESTIONS = 3
"""So many different suggestions for one line are given in full."""
AnyViolation = Violation | ViolationRow
LAYERS = "/torch/nn/modules/"
"""Part of the path of a line that stands in where the model is a layer of torch's, or an ``nn.Sequential`` of them."""


def by_rule(violations: Violations, graphs: Iterable[GraphRecord]) -> list[RuleRow]:
    """One row for each rule and effect with findings, the most findings first."""
    affected = AffectedOperations(graphs)
    totals = affected.totals()
    groups: dict[tuple[str, str], list[Violation]] = defaultdict(list)
    for row in violations:
        groups[row.rule, row.effect].append(row)
    rows = [_row(rule, effect, group, affected, totals) for (rule, effect), group in groups.items()]
    return sorted(rows, key=lambda row: (-row.findings, row.rule, row.effect))


def _row(
    rule: str, effect: str, group: list[Violation], affected: AffectedOperations, totals: tuple[int, int, int]
) -> RuleRow:
    findings = by_finding(group, lambda row: row.finding)
    severities = Counter(severity_of(row.severity for row in rows) for rows in findings)
    counting = [row for row in group if row.severity != "waived"]
    places, cost = affected.of(counting)
    nodes, flops = (None, None) if places is None else (len(places), affected.flops(places))
    return RuleRow(
        rule=rule,
        effect=effect,
        findings=len(findings) - severities["waived"],
        waived=severities["waived"],
        undecided=severities["undecided"],
        nodes=nodes,
        nodes_share=_share(nodes, totals[0]),
        cost_bytes=cost,
        bytes_share=_share(cost, totals[1]),
        flops=flops,
        flops_share=_share(flops, totals[2]),
    )


def _share(part: int | None, total: int) -> float | None:
    return None if part is None or not total else part / total


@dataclass(frozen=True)
class LineCost:
    """What the findings at one source line come to: see :func:`top_lines`."""

    source: str
    code: str
    findings: int
    rules: str
    cost_bytes: int
    flops_share: float | None
    suggestion: str
    rejected: int


def top_lines(rows: Iterable[AnyViolation], code: Mapping[str, str]) -> list[LineCost]:
    """The :data:`LINES` worst source lines: those that the chip rejects first, then by the bytes that their findings
    cost, by the share of FLOPs, and by their number. A line of torch's own layers is one for each module.

    Args:
        rows: as they are found, or of ``violations.csv``.
        code: ``file:line`` → what stands there.
    """
    groups: dict[tuple[str, str], list[AnyViolation]] = defaultdict(list)
    for row in rows:
        if row.severity != "waived":
            layer = row.module if LAYERS in row.source else ""  # the line says nothing of the user's model
            groups[row.source, layer].append(row)
    lines = [
        _line(source, group, ": ".join(filter(None, (layer and f"module {layer}", code.get(source, "")))))
        for (source, layer), group in groups.items()
    ]
    lines.sort(
        key=lambda line: (not line.rejected, -line.cost_bytes, -(line.flops_share or 0), -line.findings, line.source)
    )
    return lines[:LINES]


def _line(source: str, group: list[AnyViolation], code: str) -> LineCost:
    findings = by_finding(group, lambda row: row.finding)
    tried = Counter(text for rows in findings for text in {row.suggestion for row in rows})
    rules = ", ".join(sorted({f"{row.rule} ({row.effect})" for row in group}))
    shown = source or "(no source line recorded)"
    broken = [row for row in group if row.effect == "reject" and row.severity != "undecided"]
    rejected = len(by_finding(broken, lambda row: row.finding))
    return LineCost(shown, code, len(findings), rules, _cost(group), _flops_share(group), suggestions(tried), rejected)


def _cost(group: list[AnyViolation]) -> int:
    """Bytes that a line costs, in the picture of it (Dynamo's, or AOTAutograd's) in which that is more."""
    pictures: Counter[bool] = Counter()
    for row in group:
        pictures[kind_of(row.graph) == "dynamo"] += row.cost_bytes or 0
    return max(pictures.values())


def _flops_share(group: list[AnyViolation]) -> float | None:
    """Share of its graph's FLOPs that a line's operations take to the host, or lose; each operation once.

    Of several graphs the largest share: Dynamo's is another picture of AOTAutograd's.
    """
    shares: dict[str, dict[str, float]] = defaultdict(dict)
    for row in group:
        if row.cost_share and (row.effect == "fallback" or row.rule == "operation"):
            share, nodes = row.cost_share, shares[row.graph]
            if row.rule == "dynamic_shape":  # of several symbols' operations, which may be the same
                nodes["symbols"] = max(share, nodes.get("symbols", 0.0))
            else:
                nodes[f"node {row.node}"] = share
    return max((min(1.0, sum(nodes.values())) for nodes in shares.values()), default=None)


def suggestions(counts: Counter[str]) -> str:
    """What to try for a line's findings: one suggestion, each of a few with its findings, or the most common."""
    ordered = counts.most_common()
    if len(ordered) == 1:
        return ordered[0][0]
    each = [f"{text} ({counted(number, 'finding')})" for text, number in ordered]
    if len(each) <= SUGGESTIONS:
        return "; ".join(each)
    return f"{len(each)} different changes, most common: {each[0]}"
