"""Reproductions of a strict profile's violations: which get a script, and what each script measures."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inductor_debug.stages.accelerators.profile import Profile
from inductor_debug.stages.artifacts.files import REPRO
from inductor_debug.stages.artifacts.records import ReproRecord
from inductor_debug.stages.file_names import file_name
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.graphs.operation_names import WILD, Operation, in_place_packets, normal
from inductor_debug.stages.graphs.records import NO_LINE, GraphRecord, NodeRecord, TensorRecord, is_torchs
from inductor_debug.stages.repro import (
    Check,
    GraphIndex,
    NotReproducible,
    Program,
    Script,
    Verification,
    script,
    verify,
)
from inductor_debug.stages.repro.fingerprint import fingerprint
from inductor_debug.stages.rules.checked_tensors import operands_of
from inductor_debug.stages.rules.measures import measure_of
from inductor_debug.stages.rules.operations import allow_list
from inductor_debug.stages.rules.violation import Violation
from inductor_debug.stages.rules.violations import Violations

MAX_SCRIPTS = 20
"""Scripts written for one check; the rest is counted."""
MAX_VERIFIED = 4
"""Scripts run in a fresh process for one check; each costs an import of torch."""
READERS = 3
"""Operations that a reproduction of a placeholder's violation calls on it."""
GIVEN = ("placeholder", "get_attr")


NOT_RUN = Verification(False, "not run")


@dataclass(frozen=True)
class Repro:
    """One script, or the reason why there is none.

    Attributes:
        name: file name without a folder.
        rows: the violations that it stands for, one of each finding: one rule, one target, one signature.
        text: the script; empty where none can be written.
        line: what it prints where the violation reproduces.
        nodes: operations in it.
        nbytes: of its tensors.
        verification: what became of running it.
    """

    name: str
    rows: tuple[Violation, ...]
    text: str = ""
    line: str = ""
    nodes: int = 0
    nbytes: int = 0
    verification: Verification = NOT_RUN

    @property
    def record(self) -> ReproRecord:
        """An entry of ``repros`` of summary.json."""
        first = self.rows[0]
        return ReproRecord(
            path=REPRO.at(self.name), failure_class=f"violation:{first.rule}", nodes=self.nodes,
            verified=self.verification.verified, reason=self.verification.reason, target=first.target,
            graph=first.graph, node=first.node, source=first.source, violations=len(self.rows),
            failure=f"{_kind(first)} ({first.effect})",
            fingerprint=fingerprint(first.rule, first.target, first.effect),
        )  # fmt: skip


@dataclass(frozen=True)
class Repros:
    """What a check's violations left.

    Attributes:
        scripts: those with a text, the verified first in each rule.
        without: groups that no script can hold, with the reason.
        left_out: what groups beyond the bound are, ``alignment of aten.add.Tensor`` each.
        undecided: findings that can't be reproduced, for nothing is known to be violated.
    """

    scripts: tuple[Repro, ...] = ()
    without: tuple[Repro, ...] = ()
    left_out: tuple[str, ...] = ()
    undecided: int = 0

    @property
    def files(self) -> dict[str, str]:
        """File name → script."""
        return {item.name: item.text for item in self.scripts}

    @property
    def summary(self) -> list[ReproRecord]:
        """``repros`` of summary.json."""
        return [item.record for item in self.scripts]

    def __str__(self) -> str:
        return self.describe("repros")

    def describe(self, folder: str) -> str:
        """How many there are in a folder, how many are verified, and what has none."""
        if not self.scripts and not self.without:
            return f"no reproduction: {counted(self.undecided, 'finding')} undecided, and nothing known to be violated"
        verified = sum(item.verification.verified for item in self.scripts)
        parts = [f"{counted(len(self.scripts), 'reproduction')} in {folder}/, {verified} run and seen to show it"]
        if self.left_out:
            kinds = counted(len(self.left_out), "further kind")
            parts.append(f"{kinds} of violation without one, for no more are written: "
                         f"{_listed(self.left_out)}")  # fmt: skip
        if self.without:
            reasons = dict.fromkeys(item.verification.reason for item in self.without)
            parts.append(f"{counted(len(self.without), 'kind')} of violation can't be written: {'; '.join(reasons)}")
        return "; ".join(parts)


def _listed(names: Iterable[str]) -> str:
    """Names in their order, each with how often it is there where that is more than once."""
    counts = Counter(names)
    return ", ".join(name if count == 1 else f"{name} ({count})" for name, count in counts.items())


@dataclass
class _Group:
    graph: GraphIndex
    rows: list[Violation] = field(default_factory=list)


def write_repros(
    graphs: Iterable[GraphRecord], violations: Violations, *, limit: int = MAX_SCRIPTS, verified: int = MAX_VERIFIED
) -> Repros:
    """One script for each distinct (rule, target, signature) among the findings, some of them run.

    Args:
        graphs: those that were checked.
        violations: what was found; rows that are waived, undecided or warnings get no script.
        limit: scripts written at most; each rule gets its first before any gets a second.
        verified: scripts run at most, each in a fresh process.
    """
    by_id = {graph.id: GraphIndex(graph) for graph in graphs}
    groups: dict[Any, _Group] = {}
    without: dict[str, list[Violation]] = {}
    for finding in violations.findings:
        rows = [row for row in finding if row.severity == "error"]
        reasons: list[str] = []
        for row in rows:  # one picture of a finding that can be reproduced is enough
            try:
                key = _key(by_id[row.graph], row, allow_list(violations.profile, row))
            except NotReproducible as error:
                reasons.append(f"{row.rule}: {error}")
                continue
            groups.setdefault(key, _Group(by_id[row.graph])).rows.append(row)
            break
        else:
            if rows:
                without.setdefault(reasons[0], []).append(rows[0])
    ordered = _by_turns(groups.values())
    names: set[str] = set()
    scripts = [_written(group, names, violations.profile) for group in ordered[:limit]]
    found = verify([Script(item.name, item.text, item.line, item.nbytes) for item in scripts[:verified]])
    found += [Verification(False, f"not run: only the first {verified} were")] * (len(scripts) - len(found))
    return Repros(
        tuple(replace(item, verification=seen) for item, seen in zip(scripts, found, strict=True)),
        tuple(Repro("", tuple(rows), verification=Verification(False, why)) for why, rows in without.items()),
        tuple(_kind(group.rows[0]) for group in ordered[limit:]),
        violations.by_severity.get("undecided", 0),
    )


def _kind(row: Violation) -> str:
    return f"{row.rule} of {row.target}"


def _by_turns(groups: Iterable[_Group]) -> list[_Group]:
    """The first group of each rule, then the second of each, …"""
    by_rule: dict[str, list[_Group]] = {}
    for group in groups:
        by_rule.setdefault(group.rows[0].rule, []).append(group)
    longest = max(map(len, by_rule.values()), default=0)
    return [members[turn] for turn in range(longest) for members in by_rule.values() if turn < len(members)]


def _key(graph: GraphIndex, row: Violation, allowed: Sequence[str]) -> tuple[Any, ...]:
    """What two violations have in common that one script shows both."""
    program, value_source = _program(graph, row, anonymous=True)
    check = check_of(graph, row, value_source, allowed)
    return (row.rule, program.targets, row.operand, program.signature, check)


def _program(graph: GraphIndex, row: Violation, *, anonymous: bool = False) -> tuple[Program, str]:
    """The program in which a row's violation shows, and the source of the value that it is about."""
    node = _node(graph, row)
    if node.op in GIVEN:
        readers = graph.readers.get(node.name, [])
        for count in range(min(READERS, len(readers)), -1, -1):  # what can't be written is left out
            try:
                program = Program.of(graph, readers[:count], given=[node.name], anonymous=anonymous)
            except NotReproducible:
                if count == 0:
                    raise
                continue
            return program, f"values[{program.names[node.name]!r}]"
    program = Program.of(graph, [node.name], anonymous=anonymous)
    name = dict(operands_of(node)).get(row.operand, node.name)
    return program, f"values[{program.names[name]!r}]"


def _node(graph: GraphIndex, row: Violation) -> NodeRecord:
    if row.node not in graph.nodes:
        raise NotReproducible("it is about the whole graph, not about one operation")
    return graph.nodes[row.node]


def _judged(graph: GraphIndex, row: Violation) -> tuple[TensorRecord, int]:
    """The tensor that a row is about, and its position among its node's."""
    node = _node(graph, row)
    if node.op not in GIVEN:
        node = graph.nodes[dict(operands_of(node)).get(row.operand, node.name)]
    output = re.fullmatch(r"output\[(\d+)\]", row.operand)
    index = int(output[1]) if output is not None else 0
    if index >= len(node.outputs):
        raise NotReproducible(f"{node.name} has no recorded tensor")
    return node.outputs[index], index


def check_of(graph: GraphIndex, row: Violation, value_source: str, allowed: Sequence[str] = ()) -> Check:
    """What a script measures to show a row's violation.

    Args:
        graph: the row's graph.
        row: the violation.
        value_source: source text of the value that the row is about.
        allowed: the allow list that the row is about, see :func:`allow_list`.

    Raises:
        NotReproducible: the row is about no tensor and no operation, or measures what no script can.
    """
    if row.rule == "operation":
        return _operation(graph.nodes[row.node], row, value_source, allowed)
    tensor, index = _judged(graph, row)
    one = f"tensors({value_source})[{index}]"
    return measure_of(row, tensor, one, graph.graph.symbols)


def _operation(node: NodeRecord, row: Violation, value_source: str, allowed: Sequence[str]) -> Check:
    """Of an aten operator the dispatched call itself; a Python callable is denied by name or by what it dispatches.

    One that is asked to work in place has that name as well, where it did: torch may dispatch another.
    """
    if allowed:
        known = [name for pattern in allowed for name in _names(pattern)]
        other = f"[name for name in called if not denied({known!r}, [name])]"
        python = Operation.of_target(row.target, method="." not in row.target).python
        first = "TARGET" if python else f"next(iter({other}), 'nothing that is not allowed')"
        return Check(row.rule, first, f"bool({other})", row.target, row.limit)
    patterns = _names(row.limit)
    if Operation.of_target(row.target, method="." not in row.target).python:
        names = ["TARGET", "*called"]
        if packets := sorted(f"aten.{name}" for name in in_place_packets(node)):
            names.append(f"*({packets!r} if {value_source}._version else ())")
        return Check(row.rule, "TARGET", f"denied({patterns!r}, [{', '.join(names)}])", row.target, row.limit)
    first = f"next((name for name in called if denied({patterns!r}, [name])), 'nothing that is denied')"
    return Check(row.rule, first, f"denied({patterns!r}, called)", row.target, row.limit)


def _names(pattern: str) -> list[str]:
    """An entry of a deny or an allow list, and of a Python callable the operators that it names too."""
    pattern = normal(pattern)
    if not pattern.startswith("torch.") or any(character in pattern for character in WILD):
        return [pattern]
    return [pattern, *sorted(Operation.of_target(pattern).names - {pattern})]


def _written(group: _Group, names: set[str], profile: Profile) -> Repro:
    row = group.rows[0]
    program, value_source = _program(group.graph, row)
    check = check_of(group.graph, row, value_source, allow_list(profile, row))
    line = group.graph.nodes[row.node].source
    code = f": {line.code}" if line is not None and line.code else ""
    from_where = f", from {row.source}{code}" if row.source else ""
    from_where = f", {NO_LINE}" if is_torchs(row.source) else from_where
    notes = [
        row.message,
        f"It stands in {row.graph} as {row.node}" + (f", module {row.module}" if row.module else "")
        + from_where,
        f"Rule {row.rule}: measured {check.expected}, limit {check.limit}. The script stands for "
        f"{counted(len(group.rows), 'violation')} of this kind.",
    ]  # fmt: skip
    text = script(program, check, title=f"{row.target} breaks the rule {row.rule}.", notes=notes)
    return Repro(_file_name(row, names), tuple(group.rows), text, check.line, len(program.calls), program.nbytes)


def _file_name(row: Violation, taken: set[str]) -> str:
    wanted = f"{row.rule}-{row.graph}-{row.node}"
    name, number = file_name(wanted, ".py"), 2
    while name in taken:
        name, number = file_name(f"{wanted}-{number}", ".py"), number + 1
    taken.add(name)
    return name
