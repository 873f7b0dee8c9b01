"""A reproduction as a bug report in Markdown, addressed to the layer that owns the failure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from inductor_debug.models.visible import visible
from inductor_debug.pipeline.directory.names import MANIFEST
from inductor_debug.pipeline.query.handover.owner import Owner, sentences
from inductor_debug.pipeline.query.handover.stored import StoredRepro
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.formatting import short
from inductor_debug.stages.report.collect import typed

NOT_RECORDED = "not recorded"

EXPECTED = {
    "defect": "The compiled program is at most 4 times as far from float64 as eager mode is.",
    "error": "The program compiles and runs, as it does in eager mode.",
    "signal": "The program compiles and runs, as it does in eager mode; the process goes on.",
    "hang": "The program compiles and runs in seconds, as it does in eager mode.",
}
"""What is expected, by the first word of the failure."""


def bug_report(repro: StoredRepro, owner: Owner, data: str = "") -> str:
    """The report: what, to whom, versions, commands, expected, got, what was ruled out, the script, and
    what the backend generates for it.

    Args:
        repro: the reproduction.
        owner: whom it is addressed to.
        data: name of the file of numbers that goes with the report; empty for none.
    """
    parts = [f"# {_line(repro.title)}", f"For **{_line(owner.layer)}**: {_addressed(owner)}"]
    parts += ["## What", _items(_what(repro))]
    parts += ["## Versions", _versions(repro)]
    parts += ["## Commands", _fenced("\n".join(_commands(repro)), "sh"), _exit_codes(data)]
    parts += ["## Expected", _expected(repro), "## Got", _items(_got(repro, owner))]
    parts += ["## What was ruled out", _items(sentences(owner.ruled_out)) or "Nothing was."]
    parts += ["## What is not known", _items(sentences(owner.open)) or "Nothing that was asked."]
    if owner.steps:
        parts += ["## The program through each layer", _steps(owner)]
    parts += ["## Script", _fenced(repro.reading(data), "python")]
    if repro.kernel:
        parts += ["## What the backend generates for it", _fenced(repro.kernel, "")]
    return "\n\n".join(parts) + "\n"


def _addressed(owner: Owner) -> str:
    if not owner.established:
        return "not established. It is the last layer that the program goes through."
    return f"{_line('; '.join(owner.because))}."


def _what(repro: StoredRepro) -> Iterator[str]:
    record = repro.record
    yield f"failure: {record.failure or record.failure_class}"
    if record.fingerprint:
        met = f"; met before in {record.met_in}" if record.met_in else ""
        yield f"fingerprint: {record.fingerprint}{met}"
    yield from repro.head[1:]
    yield "the script was run in a fresh process, and shows it" if record.verified else (
        f"the script is not verified: {record.reason or 'no reason is stored'}")  # fmt: skip


def _versions(repro: StoredRepro) -> str:
    """Of the run, not of this process."""
    found = repro.run.head.compiled_by
    manifest = _manifest(repro)
    versions: Mapping[str, Any] = found.versions if found is not None else _mapping(manifest, "versions")
    rows = {name: versions.get(name) or ("not installed" if name in versions else NOT_RECORDED)
            for name in dict.fromkeys(("torch", "python", "triton", *versions))}  # fmt: skip
    rows["OS"] = str(_mapping(manifest, "machine").get("platform") or NOT_RECORDED)
    device = found.device if found is not None else None
    rows["device"] = repro.run.head.run.device or NOT_RECORDED
    if device is not None:
        cpu = _mapping(manifest, "machine").get("cpu") if device.name == "cpu" else None
        more = (cpu, device.cpu_capability, device.cuda_version and f"CUDA {device.cuda_version}")
        rows["device"] = ", ".join(str(part) for part in (device.name, *more) if part)
    lines = [f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])


def _manifest(repro: StoredRepro) -> Mapping[str, Any]:
    try:
        found = repro.run.artifacts.read_json(MANIFEST)
    except FileNotFoundError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _mapping(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = found.get(key)
    return value if isinstance(value, Mapping) else {}


def _commands(repro: StoredRepro) -> list[str]:
    compiled_by = repro.run.head.compiled_by
    variables = compiled_by.variables if compiled_by is not None else {}
    return [f"python {visible(repro.name)}", f"# found by: {visible(_found_by(repro, variables))}"]


def _found_by(repro: StoredRepro, variables: Mapping[str, str]) -> str:
    return typed(jsonable(repro.run.head.run), variables)


def _exit_codes(data: str) -> str:
    beside = f" It reads `{data}`, which lies beside it." if data else ""
    return f"Exit code 0: the failure shows; 1: it does not; 3: the script could not run.{beside}"


def _expected(repro: StoredRepro) -> str:
    if repro.is_violation:
        return f"The rule {_line(repro.record.failure_class.partition(':')[2])} holds: see the limit below."
    word = (repro.record.failure or repro.record.failure_class).partition(" ")[0]
    return EXPECTED.get(word, "The program compiles and runs as it does in eager mode.")


def _got(repro: StoredRepro, owner: Owner) -> Iterator[str]:
    record = repro.record
    yield record.failure or record.failure_class
    if repro.is_violation:
        yield from (line for line in repro.head[1:] if "measured" in line.split())
    diagnosis = files.DIAGNOSIS.read(repro.run.artifacts)
    localized = diagnosis.localized if diagnosis is not None and record.failure_class == "defect" else None
    for item in localized.culprits if localized is not None else []:
        if (item.place.graph, item.place.node) == (record.graph, record.node) and item.index is not None:
            ratio = "" if item.ratio is None else f"; the error is {short(item.ratio)} times rounding noise"
            worst = f"in the model, worst at {item.index}: {item.got}, not {item.expected}"
            yield f"{worst}{ratio} ({files.DIAGNOSIS.path})"
    for step in owner.steps[:1]:
        yield f"run here with {step.backend}: {step.said}"


def _steps(owner: Owner) -> str:
    shown = {True: "yes", False: "no", None: "could not be seen"}
    own, *others = owner.steps
    lines = [f"| `{step.backend}` | {_cell(step.layer)} | {shown[step.shows]} | {_cell(step.said)} |"
             for step in (*others, own)]  # fmt: skip
    return "\n".join(["| backend | adds | shows | says |", "|---|---|---|---|", *lines])


def _items(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_line(line)}" for line in lines)


def _line(text: str) -> str:
    """A stored text as one line of Markdown, in which it starts nothing of its own."""
    return re.sub(r"([\\`*<\[#|])", r"\\\1", visible(text))


def _cell(text: Any) -> str:
    return _line(str(text))


def _fenced(text: str, language: str) -> str:
    """A block of code whose fence is longer than any in it."""
    longest = max((len(found) for found in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
