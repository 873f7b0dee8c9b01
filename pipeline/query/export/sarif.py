"""Violations, wrong operations and lines that did not compile as SARIF 2.1.0, which code review shows at the line.

Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import UserError
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.directory.summary import PASSED
from inductor_debug.pipeline.query.export.places import PACKAGES, ROOT, Line, line_of, root_of
from inductor_debug.pipeline.query.runs import Runs
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.formatting import times
from inductor_debug.stages.report.collect import typed
from inductor_debug.stages.rules.findings import by_finding, severity_of
from inductor_debug.stages.stored_run import Row, StoredRun

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
WRONG, NOT_COMPILED = "wrong-numbers", "not-compiled"
_RULES = {
    WRONG: (
        "An operation of the compiled model is wrong, given what it received.",
        "Its error is larger than rounding explains, by float64 of what the operation received in the compiled model.",
        "numerics",
    ),
    NOT_COMPILED: (
        "The compiler stopped at a kernel that computes this line.",
        "The compiler raised, was killed or ran out of time while it made the kernel, so that the model did not run.",
        "summary",
    ),
}
"""Rules that no profile has: in short, in full, and the type of analysis that lists their results."""
_BASES = {
    ROOT: "The run's repository, or the folder in which it was started.",
    PACKAGES: "The folder of installed packages.",
}
_TOLD = ("effect", "operand", "target", "graph", "node", "measured", "limit", "cost_bytes")
"""Columns of a violation that a result has as properties."""
_FINGERPRINT = "inductorDebug/v1"
_LEVELS = {"error": "error", "warning": "warning", "waived": "note"}


def sarif(found: Runs) -> dict[str, Any]:
    """The log: a SARIF run for each stored one. One without a result is an invocation that failed."""
    several = len(found.runs) + len(found.lost) > 1
    runs, lost = [], dict(found.lost)
    for run in found.runs:
        try:
            runs.append(_run(run, several))
        except UserError as error:  # a damaged table of one costs the others nothing
            if not several:
                raise
            lost[run.folder] = str(error).splitlines()[0]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [*runs, *(_lost(*item) for item in lost.items())]}


def _driver(rules: Sequence[str], accel: str = "") -> Row:
    rows = [_rule(name, accel) for name in rules]
    return {"name": "inductor-debug", "version": version("inductor-debug"), "rules": rows}


def _lost(folder: Path, reason: str) -> Row:
    told = [{"level": "error", "message": {"text": visible(reason)}}]
    return {
        "tool": {"driver": _driver([])},
        "automationDetails": {"id": f"inductor-debug/{visible(folder.name)}/"},
        "invocations": [{"executionSuccessful": False, "toolExecutionNotifications": told}],
        "results": [],
    }


def _run(run: StoredRun, several: bool) -> Row:
    results = [*_violations(run), *_wrong(run), *_stopped(run)]
    _part(results)
    ids = list(dict.fromkeys(result["ruleId"] for result in results))
    for result in results:
        result["ruleIndex"] = ids.index(result["ruleId"])
    head = run.head.run
    about = {key: getattr(head, key) for key in ("model", "accel", "backend", "dtype", "device", "mode")}
    variables = run.head.compiled_by.variables if run.head.compiled_by else {}
    ended = run.head.verdict not in ("crashed", "not_established")
    case = [*about.values(), *([run.folder.name] if several else [])]
    told = [{"level": "note", "message": {"text": visible(f"{stage.name} {stage.status}: {stage.message}")}}
            for stage in run.head.stages if stage.status != PASSED]  # fmt: skip
    invocation = {"executionSuccessful": ended, "commandLine": visible(typed(jsonable(head), variables))}
    return {
        "tool": {"driver": _driver(ids, str(head.accel))},
        "automationDetails": {"id": f"inductor-debug/{visible('/'.join(map(str, case)))}/"},
        "originalUriBaseIds": {name: {"description": {"text": text}} for name, text in _BASES.items()},
        "invocations": [invocation | ({"toolExecutionNotifications": told} if told else {})],
        "results": results,
        "properties": {**about, "verdict": run.head.verdict},
    }


def _part(results: Sequence[Row]) -> None:
    """Number those that have one fingerprint, in the order in which they stand."""
    seen: Counter[str] = Counter()
    for result in results:
        (mark,) = result["partialFingerprints"].values()
        seen[mark] += 1
        if seen[mark] > 1:
            result["partialFingerprints"] = {_FINGERPRINT: f"{mark}:{seen[mark]}"}


def _rule(name: str, accel: str) -> Row:
    """A rule with the three texts that GitHub's code scanning asks for (GH2012 of Microsoft's validator)."""
    of_profile = (
        f"The accelerator's rule {name} is broken.",
        f"The model does not keep to the rule {name} of the profile {accel}. Each result says what was found.",
        "constraints",
    )
    short, full, kind = _RULES.get(name, of_profile)
    texts = {"shortDescription": short, "fullDescription": full}
    lists = f"`inductor-debug analyze RUN --type {kind}` says what the run found."
    return {"id": name, **{key: {"text": visible(text)} for key, text in texts.items()}, "help": {"text": lists}}


def _violations(run: StoredRun) -> Iterator[Row]:
    """One result a finding, at its first line; further lines are related."""
    root = root_of(run)
    for rows in by_finding(files.VIOLATIONS.read(run.artifacts) or [], lambda row: row["finding"]):
        first, severity = rows[0], severity_of(row["severity"] for row in rows)
        text = f"{first['message']}. Try: {first['suggestion']}" if first["suggestion"] else str(first["message"])
        sources = [str(row["source"] or "") for row in rows]
        result = _result(str(first["rule"]), text, sources, str(first["module"] or ""), root)
        if severity == "undecided":
            result |= {"kind": "open", "level": "none"}
        else:
            result["level"] = _LEVELS[severity]
        if severity == "waived":
            result["suppressions"] = [{"kind": "external", "justification": "waived by the profile"}]
        told = {name: jsonable(first[name]) for name in _TOLD}
        marks = (str(first[name] or "") for name in ("rule", "effect", "module", "target", "operand"))
        yield result | {"properties": told, "partialFingerprints": _fingerprint(*marks)}


def _wrong(run: StoredRun) -> Iterator[Row]:
    diagnosis = files.DIAGNOSIS.read(run.artifacts)
    root = root_of(run)
    for item in diagnosis.localized.culprits if diagnosis is not None and diagnosis.localized else ():
        place = item.place
        kernel = f", computed by {place.kernel}" if place.kernel else ""
        size = f": its error is {times(item.ratio)} times its own noise floor" if item.ratio is not None else ""
        text = f"{place.target} ({place.node} of {place.graph}) is wrong{kernel}{size}."
        result = _result(WRONG, text, [place.source, *place.sources], place.module, root)
        told = {"graph": place.graph, "node": place.node, "kernel": place.kernel, "ratio": item.ratio,
                "index": item.index, "got": item.got, "expected": item.expected}  # fmt: skip
        marks = (WRONG, place.target, place.module)
        yield result | {"level": "error", "properties": jsonable(told), "partialFingerprints": _fingerprint(*marks)}


def _stopped(run: StoredRun) -> Iterator[Row]:
    record = files.NOT_COMPILED.read(run.artifacts)
    if record is None or not record.kernel:
        return
    text = f"The kernel {record.kernel} of {record.graph} did not compile. It computes {', '.join(record.operations)}."
    module = record.modules[0] if record.modules else ""
    result = _result(NOT_COMPILED, text, [str(line) for line in record.sources], module, root_of(run))
    marks = (NOT_COMPILED, *record.operations)
    yield result | {"level": "error", "partialFingerprints": _fingerprint(*marks)}


def _result(rule: str, text: str, sources: Sequence[str], module: str, root: str) -> Row:
    lines = list(dict.fromkeys(line for source in sources if (line := line_of(source, root)) is not None))
    first, others = (lines[0] if lines else None), lines[1:]
    logical = [{"fullyQualifiedName": visible(module), "kind": "module"}] if module else []
    result: Row = {"ruleId": rule, "message": {"text": visible(text)}}
    if first is not None or logical:
        where = {"physicalLocation": _physical(first)} if first is not None else {}
        result["locations"] = [where | ({"logicalLocations": logical} if logical else {})]
    if others:
        result["relatedLocations"] = [{"physicalLocation": _physical(line)} for line in others]
    return result


def _physical(line: Line) -> Row:
    base = {"uriBaseId": line.base} if line.base else {}
    return {"artifactLocation": {"uri": line.uri} | base, "region": {"startLine": max(line.number, 1)}}


def _fingerprint(*marks: str) -> Row:
    """What a reader tells the same finding by in a later run: nothing of it changes with a line's number."""
    return {_FINGERPRINT: hashlib.sha256("\0".join(map(str, marks)).encode()).hexdigest()[:16]}
