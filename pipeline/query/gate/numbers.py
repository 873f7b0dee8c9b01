"""Whether the numbers are as right as they were: verdicts, errors in noise floors, and errors of single operations."""

import re
from collections import defaultdict
from pathlib import PurePosixPath

from inductor_debug.pipeline.query.gate.judgement import Scales, number
from inductor_debug.pipeline.query.gate.limits import VERDICTS
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Row
from inductor_debug.stages.stored_run import StoredRun

UNTESTED = ("not_exercised", "not_established")
"""Neither says anything of the numbers, so that neither is better."""
FLOOR = 1.0
"""An error of one noise floor: below it is noise."""
WRONG = ("wrong", "slope")
SEEN = ("right", *WRONG)
"""States of an operation, as of :class:`~stages.artifacts.localization.NodeRow`."""
Operation = tuple[str, str, str, str]
_FURTHER = re.compile(r"(?: ?\((?:draw|run) \d+(?: again)?\))+$")
"""Ends the path of a tensor of a further draw of inputs, or of the test side's further run."""


def hold_numbers(scales: Scales, a: StoredRun, b: StoredRun) -> None:
    """Hold B's verdicts and errors, by tensor and by operation."""
    first, second = (run.head.numerics.verdict if run.head.numerics else None for run in (a, b))
    tables = [files.OUTPUTS.read(run.artifacts) for run in (a, b)]
    before, now = (_by_tensor(rows or []) for rows in tables)
    tested = second is None or not _says_nothing(second)
    changed = [_hold_tensor(scales, name, row, now.get(name), tested) for name, row in before.items()]
    if first is not None and not _says_nothing(first):
        changed += [_hold_new(scales, name, row) for name, row in now.items() if name not in before]
    limit = scales.limit("verdict")
    if limit is None or not tested or not (moved := _moved(first, second, limit)) or moved not in changed:
        _hold_verdict(scales, "numerics", first, second)  # else it is that of a tensor, and no further one
    _hold_operations(scales, a, b)


def tensor_name(row: Row) -> str:
    """``gradient head.weight``; of one that is all of its kind the kind alone."""
    return _named(str(row["kind"]), str(row["path"]))


def _named(kind: str, path: str) -> str:
    return kind if path in (kind, "") else f"{kind} {path}"


def _by_tensor(rows: list[Row]) -> dict[str, Row]:
    """Tensor → its worst row: one of a further draw, or of a further run, is there only where it failed."""
    found: dict[str, Row] = {}
    for row in rows:
        name = _named(str(row["kind"]), _FURTHER.sub("", str(row["path"])))
        found[name] = max(found.get(name, row), row, key=_severity)
    return found


def _severity(row: Row) -> tuple[int, float]:
    return rank(row["verdict"]), _error(row, "ratio") or 0.0


def _hold_new(scales: Scales, name: str, row: Row) -> int:
    """Hold a tensor of which A has no row, as of a step that raised; how the verdict moved."""
    limit, verdict = scales.limit("verdict"), str(row["verdict"])
    if limit is None or rank(verdict) <= rank(limit):
        return 0
    scales.worse("verdict", name, None, verdict, "A has no such failure")
    return 1


def rank(verdict: str | None) -> int:
    """Where a verdict stands, 0 the best; one that is not ours says nothing of the numbers."""
    known = verdict if verdict in VERDICTS and verdict not in UNTESTED else UNTESTED[0]
    return VERDICTS.index(known)


def _says_nothing(verdict: str | None) -> bool:
    return rank(verdict) == rank(UNTESTED[0])


def _moved(a: str | None, b: str | None, limit: str) -> int:
    """1 where a verdict got worse, -1 where it got better, 0 for neither."""
    before, now, least = rank(a), rank(b), rank(limit)
    return (now > max(before, least)) - (before > max(now, least))


def _hold_verdict(scales: Scales, what: str, a: str | None, b: str | None, tested: bool = True) -> int:
    """Hold a verdict; how it moved. B's is no better where nothing of B was ``tested``: torch may have computed it."""
    limit = scales.limit("verdict")
    if limit is None or scales.lacks("verdict", what, a, b):
        return 0
    moved = _moved(a, b, limit)
    if moved > 0:
        scales.worse("verdict", what, a, b, "a worse verdict")
    elif moved < 0 and (_says_nothing(b) or not tested):
        scales.unknown("verdict", what, a, b, "nothing is known of B's numbers", fails=False)
    elif moved < 0:
        scales.better("verdict", what, a, b, "a better verdict")
    return moved


def _hold_tensor(scales: Scales, name: str, before: Row, now: Row | None, tested: bool) -> int:
    """Hold a tensor's verdict, else its error; how the verdict moved."""
    if now is None and tested and rank(before["verdict"]) > rank("within_tolerance"):
        return 0  # what fails no more has no row, as of a step that raised
    if now is None:
        key = "error" if scales.limit("verdict") is None else "verdict"
        scales.lacks(key, name, before["verdict"], None)
        return 0
    if moved := _hold_verdict(scales, name, str(before["verdict"]), str(now["verdict"]), tested):
        return moved  # its error says no more
    for column, noise in (("ratio", FLOOR), ("rmse", 0.0)):
        a, b = (_error(row, column) for row in (before, now))
        if a is not None and b is not None:
            told = "error in noise floors" if column == "ratio" else "RMS error"
            scales.amount("error", f"{name}: {told}", a, b, noise=noise)
            return 0
    if _error(before, "ratio") is not None:
        scales.lacks("error", f"{name}: error in noise floors", _error(before, "ratio"), None)
    return 0


def _error(row: Row, column: str) -> float | None:
    """A row's error; 0 where bits are equal."""
    return 0.0 if row["verdict"] == "exact" else number(row.get(column))


def _hold_operations(scales: Scales, a: StoredRun, b: StoredRun) -> None:
    if scales.limit("local_error") is None:
        return
    before, now = (files.NODES.read(run.artifacts) for run in (a, b))
    if before is None:  # what made B look is judged by its verdict
        wrong = defaultdict(list)
        for row in now or []:
            if row["state"] in WRONG:
                wrong[_target(row)].append(_place(_operation(row)))
        for target, places in wrong.items():
            change = f"wrong for what their kernels received, first in {places[0]}; {_not_looked_at('A', a)}"
            scales.worse("local_error", f"values that end in {target}", None, f"{len(places)} wrong", change)
        return
    if now is None:
        scales.unknown("local_error", "errors of operations", len(before), None, _not_looked_at("B", b),
                       fails=not _passed(b))  # fmt: skip
        return
    sides = [_by_operation(rows) for rows in (before, now)]
    for operation in dict.fromkeys([*sides[0], *sides[1]]):
        _hold_operation(scales, operation, *(side.get(operation, []) for side in sides))


def _passed(run: StoredRun) -> bool:
    return run.head.numerics is not None and rank(run.head.numerics.verdict) < rank(UNTESTED[0])


def _not_looked_at(side: str, run: StoredRun) -> str:
    if _passed(run):
        return f"{side}'s results are right, and so its operations were not looked at"
    return f"{side}'s operations were not looked at"


def _hold_operation(scales: Scales, operation: Operation, before: list[Row], now: list[Row]) -> None:
    what = f"operation {_name(operation)}"
    wrong = [sum(row["state"] in WRONG for row in rows) for rows in (before, now)]
    if before and not now:
        was = f"{wrong[0]} wrong" if wrong[0] else "right"
        scales.unknown("local_error", what, was, None, "B's was not seen: another kernel may hold it", fails=False)
    elif wrong[0] != wrong[1]:
        keep = scales.worse if wrong[1] > wrong[0] else scales.better
        keep(
            "local_error",
            what,
            f"{wrong[0]} wrong",
            f"{wrong[1]} wrong",
            f"{wrong[1] - wrong[0]:+d} wrong",
        )
    elif before and now:
        a, b = (max((number(row["ratio"]) or 0.0 for row in rows), default=0.0) for rows in (before, now))
        scales.amount("local_error", f"{what}: error in noise floors", a, b, noise=FLOOR)


def _by_operation(rows: list[Row]) -> dict[Operation, list[Row]]:
    """The values that were seen, by what computed them: no node's name and no line's number, which any edit changes."""
    found = defaultdict(list)
    for row in rows:
        if row["state"] in SEEN:
            found[_operation(row)].append(row)
    return dict(found)


def _operation(row: Row) -> Operation:
    kind = str(row["graph"]).rpartition(".")[2]
    file = PurePosixPath(str(row["source"] or "").rpartition(":")[0]).name
    return kind, _target(row), str(row["module"] or ""), file


def _target(row: Row) -> str:
    """An operator's name; of what Python itself computes, as one of several results, the name of the model's call."""
    target, original = str(row["target"] or ""), str(row["original"] or "")
    own = target.removeprefix("<built-in function ")
    return original if own != target and original else own.removesuffix(">")


def _name(operation: Operation) -> str:
    return f"{operation[1]} in {_place(operation)}"


def _place(operation: Operation) -> str:
    kind, _, module, file = operation
    return f"{module or file or 'no module'} ({kind})"
