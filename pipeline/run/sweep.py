"""A sweep's table and exit code, from what its jobs stored."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import DamagedError
from inductor_debug.models.stored import read_json, read_text
from inductor_debug.pipeline.directory import summary
from inductor_debug.pipeline.directory.names import SUMMARY
from inductor_debug.pipeline.directory.rundir import run_id
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import Content, Json
from inductor_debug.stages.artifacts.records import Benchmark, Numerics, Violations
from inductor_debug.stages.encoding import write_atomically

TABLE = "sweep.csv"
_NUMERICS = ("max_abs", "max_rel", "rmse", "max_ulp")
_BENCHMARK = ("median_ms", "compile_s", "peak_memory_bytes")


def write_sweep_table(
    sweep_dir: Path, job_dirs: Iterable[Path], refused: Mapping[Path, tuple[str, list[str]]] | None = None
) -> Path:
    """Write ``sweep.csv``: one row a job, in the order given; a job that left no result has its error in ``error``.

    Columns: ``id``, ``dir`` (relative to the sweep), ``override.KEY`` (those that differ first), ``verdict``,
    ``exit_code``, ``error``, ``seconds``, ``stage.NAME`` (status), ``violations``, ``numerics``,
    ``max_abs``, ``max_rel``, ``rmse``, ``max_ulp``, ``reference.*`` and ``test.*`` (median in ms,
    compile time in s, peak memory in bytes), ``speedup``.

    Args:
        sweep_dir: where it is written.
        job_dirs: the jobs' directories.
        refused: of the jobs whose directory another run holds, why, and their overrides.

    Returns:
        The table's path.
    """
    rows = [_row(Path(sweep_dir), Path(job), (refused or {}).get(Path(job))) for job in job_dirs]
    columns = _ordered_columns(rows)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path = Path(sweep_dir) / TABLE
    write_atomically(path, buffer.getvalue().encode())
    return path


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


def _row(sweep_dir: Path, job: Path, refused: tuple[str, list[str]] | None = None) -> dict[str, Any]:
    inside = job.is_relative_to(sweep_dir)
    row: dict[str, Any] = {"id": run_id(job), "dir": (job.relative_to(sweep_dir) if inside else job).as_posix()}
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
    row["error"] = next((f"{stage.name}: {stage.message}" for stage in result.stages if stage.status in bad), "")
    row |= _override_columns(result.run.overrides)
    row |= {f"stage.{stage.name}": stage.status for stage in result.stages}
    row["violations"] = (result.violations or Violations()).total
    numerics, benchmark = result.numerics or Numerics(), result.benchmark or Benchmark()
    row |= {"numerics": numerics.verdict} | {key: getattr(numerics, key) for key in _NUMERICS}
    for name, side in (("reference", benchmark.reference), ("test", benchmark.test)):
        row |= {f"{name}.{key}": getattr(side, key) for key in _BENCHMARK}
    return row | {"speedup": benchmark.speedup, "established": benchmark.established}


def _override_columns(overrides: Iterable[str]) -> dict[str, str]:
    return {f"override.{key}": value for key, value in map(split_override, overrides)}


def _hydra_overrides(job: Path) -> list[str]:
    """Overrides of a job that died before it wrote anything: Hydra's own file, a YAML list of strings."""
    try:
        lines = read_text(job / ".hydra" / "overrides.yaml", "yaml", job).splitlines()
    except (FileNotFoundError, DamagedError):
        return []
    return [line[2:].strip().strip("'\"") for line in lines if line.startswith("- ")]


def _ordered_columns(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Overrides that differ between the jobs come right after the id, the rest in the order of the fullest row."""
    every = list(dict.fromkeys(key for row in sorted(rows, key=len, reverse=True) for key in row))
    overrides = [key for key in every if key.startswith("override.")]
    overrides.sort(key=lambda key: len({row.get(key) for row in rows}) == 1)
    head = ["id", "dir", *overrides, "verdict", "exit_code", "error", "seconds"]
    return head + [key for key in every if key not in head]


def _read(file: Json[Content], job: Path) -> Content | None:
    """What a job's file holds; None where it is missing, torn or of another schema, which is no result."""
    path = job / file.path
    try:
        found = read_json(path, root=job)
        content = file.shaped(found)
    except (FileNotFoundError, DamagedError):
        return None
    return content if path.name != SUMMARY or found.get("schema") == summary.SCHEMA else None
