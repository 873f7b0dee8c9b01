"""The row of a sweep's table that a job comes to, from what it stored."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import DamagedError
from inductor_debug.models.stored import read_json, read_text
from inductor_debug.pipeline.directory import summary
from inductor_debug.pipeline.directory.names import MANIFEST, SUMMARY
from inductor_debug.pipeline.directory.rundir import run_id
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Content, Json
from inductor_debug.stages.artifacts.records import Benchmark, Numerics, ReproRecord, Violations
from inductor_debug.stages.formatting import headline

RUN = ("model", "accel", "backend", "dtype", "device", "mode", "started")
GRAPHS = ("dynamo", "forward", "backward", "breaks", "guards", "nodes")
NUMERICS = ("max_abs", "max_rel", "rmse", "max_ulp")
BENCHMARK = ("median_ms", "compile_s", "peak_memory_bytes")
FAILURES = "failures"
COMPILED = "compiled_by"
BROKEN = "broken"
WITHOUT_SCRIPT = "without_script"
APART = (FAILURES, COMPILED, BROKEN, WITHOUT_SCRIPT)
"""What a row has beside the columns of a table."""

Row = dict[str, Any]
"""Column → value; ``failures`` is a list of :class:`ReproRecord`, ``compiled_by`` what compiled it or None,
``broken`` how many of the findings are violations: the profile waives others, or they could not be decided; and
``without_script`` the rules of which some violation has no script, and is not among the failures."""


def sweep_exit_code(job_dirs: Iterable[Path]) -> int:
    """The numeric maximum of the jobs' exit codes; a job that left no result counts as crashed (3)."""
    return max((job_exit_code(Path(job)) for job in job_dirs), default=summary.EXIT_PASSED)


def job_exit_code(job: Path) -> int:
    """One job's exit code, from its ``summary.json`` or its ``configuration_error.json``."""
    result = _read(files.SUMMARY, job)
    if result is not None:
        return max(summary.EXIT_CODES[result.verdict], summary.exit_code(result.stages))
    return summary.EXIT_CRASHED if _read(files.CONFIGURATION_ERROR, job) is None else summary.EXIT_CONFIGURATION


def split_override(override: str) -> tuple[str, str]:
    """``"+accel.alignment=8"`` as ``("accel.alignment", "8")``; a deletion (``~stages.lower``) has ``"(removed)"``."""
    key, separator, value = override.partition("=")
    if override.startswith("~"):
        return key.lstrip("~"), value or "(removed)"
    return key.lstrip("+"), value if separator else ""


def row_of(sweep_dir: Path, job: Path, refused: tuple[str, list[str]] | None = None) -> Row:
    """A job's row; one that left no result has its error in ``error``.

    Args:
        sweep_dir: the sweep's directory.
        job: the job's.
        refused: where another run holds the job's directory, why, and the job's overrides.
    """
    inside = job.is_relative_to(sweep_dir)
    row: Row = {"id": run_id(job), "dir": (job.relative_to(sweep_dir) if inside else job).as_posix()}
    row |= {FAILURES: [], COMPILED: None, BROKEN: None, WITHOUT_SCRIPT: frozenset()}
    if refused is not None:
        row |= {"exit_code": summary.EXIT_CONFIGURATION, "verdict": "rejected", "error": " ".join(refused[0].split())}
        return row | _override_columns(refused[1])
    result, rejected = _read(files.SUMMARY, job), _read(files.CONFIGURATION_ERROR, job)
    row["exit_code"] = job_exit_code(job)
    if result is None:
        row["verdict"] = "rejected" if rejected else summary.CRASHED
        row["error"] = " ".join(rejected.message.split()) if rejected else f"the job left no valid {SUMMARY}"
        return row | _override_columns(rejected.overrides if rejected else _hydra_overrides(job))
    row |= {"id": result.run.id, "verdict": result.verdict, "seconds": result.run.seconds}
    bad = (summary.CRASHED, summary.TIMED_OUT, summary.FAILED)
    row["error"] = next(
        (f"{stage.name}: {headline(stage.message or '')}" for stage in result.stages if stage.status in bad), ""
    )
    row |= _override_columns(result.run.overrides)
    row |= {f"stage.{stage.name}": stage.status for stage in result.stages}
    row["cached"] = " ".join(stage.name for stage in result.stages if stage.cached)
    violations = result.violations or Violations()
    row["violations"] = violations.total
    row[BROKEN] = _broken(violations, row.get("stage.constrain"))
    row |= {f"violations.{rule}": count for rule, count in sorted((violations.by_rule or {}).items())}
    numerics, benchmark = result.numerics or Numerics(), result.benchmark or Benchmark()
    row |= {"numerics": numerics.verdict} | {key: getattr(numerics, key) for key in NUMERICS}
    for name, side in (("reference", benchmark.reference), ("test", benchmark.test)):
        row |= {f"{name}.{key}": getattr(side, key) for key in BENCHMARK}
    row |= {"speedup": benchmark.speedup, "established": benchmark.established}
    graphs = {} if result.graphs is None else asdict(result.graphs)
    row |= {f"graphs.{key}": graphs.get(key) for key in GRAPHS}
    row |= {key: getattr(result.run, key) for key in RUN} | {
        "digest": _digest(job),
        FAILURES: list(result.repros or []),
        COMPILED: result.compiled_by,
    }
    row[WITHOUT_SCRIPT] = _without_script(violations, row[FAILURES])
    return row


def _broken(violations: Violations, status: str | None) -> int | None:
    """Findings that are neither waived nor undecided; None where nothing was checked, or none of them is known to be
    while the fit is not established either: an undecided one, or code that no rule saw."""
    known = violations.by_severity
    if violations.total is None or known is None:
        return violations.total
    broken = known.get("error", 0) + known.get("warning", 0)
    fits = status == summary.PASSED and not known.get("undecided")
    return broken if broken or fits else None


def _without_script(violations: Violations, failures: Iterable[ReproRecord]) -> frozenset[str]:
    """Rules with more findings than scripts stand for, where the rest are not all waived or undecided. What a profile
    only warns of has no script."""
    shown = Counter[str]()
    for failure in failures:
        shown[rule_of(failure)] += failure.violations
    known = violations.by_severity or {}
    if known.get("error", 0) + known.get("warning", 0) <= shown.total() - shown[""]:
        return frozenset()
    return frozenset(rule for rule, count in (violations.by_rule or {}).items() if count > shown[rule])


def rule_of(failure: ReproRecord) -> str:
    """The rule of the profile that a failure breaks; empty for any other failure."""
    kind, _, rule = failure.failure_class.partition(":")
    return rule if kind == "violation" else ""


def may_be_in(row: Row, failure: ReproRecord) -> bool:
    """Whether a failure that a row does not tell may be there all the same: a violation that got no script."""
    return rule_of(failure) in row.get(WITHOUT_SCRIPT, ()) and failure.fingerprint not in failures_in(row)


def failures_in(row: Row) -> dict[str, ReproRecord]:
    """Fingerprint → one of the failures of a row that have it."""
    return {failure.fingerprint: failure for failure in row[FAILURES] if failure.fingerprint}


def _digest(job: Path) -> str | None:
    try:
        found = read_json(job / MANIFEST, root=job)
    except (FileNotFoundError, DamagedError):
        return None
    digest = found.get("digest") if isinstance(found, Mapping) else None
    return digest if isinstance(digest, str) else None


def _override_columns(overrides: Iterable[str]) -> dict[str, str]:
    return {f"override.{key}": value for key, value in map(split_override, overrides)}


def _hydra_overrides(job: Path) -> list[str]:
    """Overrides of a job that died before it wrote anything: Hydra's own file, a YAML list of strings."""
    try:
        lines = read_text(job / ".hydra" / "overrides.yaml", "yaml", job).splitlines()
    except (FileNotFoundError, DamagedError):
        return []
    return [line[2:].strip().strip("'\"") for line in lines if line.startswith("- ")]


def _read(file: Json[Content], job: Path) -> Content | None:
    """What a job's file holds; None where it is missing, torn or of another schema, which is no result."""
    path = job / file.path
    try:
        found = read_json(path, root=job)
        content = file.shaped(found)
    except (FileNotFoundError, DamagedError):
        return None
    return content if path.name != SUMMARY or found.get("schema") == summary.SCHEMA else None
