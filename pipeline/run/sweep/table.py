"""``sweep.csv`` and ``sweep.parquet``, a row a job, and ``sweep.html``."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inductor_debug.pipeline.directory.rundir import run_id
from inductor_debug.pipeline.run.sweep.changes import OVERRIDE, Change, changes_of, told
from inductor_debug.pipeline.run.sweep.page import sweep_page
from inductor_debug.pipeline.run.sweep.rows import (
    APART,
    BENCHMARK,
    FAILURES,
    GRAPHS,
    NUMERICS,
    RUN,
    Row,
    failures_in,
    may_be_in,
    row_of,
)
from inductor_debug.stages.artifacts.records import ReproRecord
from inductor_debug.stages.encoding import write_atomically
from inductor_debug.stages.formatting import counted

if TYPE_CHECKING:
    import pyarrow

TABLE, DATA, PAGE = "sweep.csv", "sweep.parquet", "sweep.html"
_CHANGED = "changed"
_SHOWN = 5
"""Sentences of a kind that a command prints: on what changed, and on failures."""
_FAILURE = ("fingerprint", "failure_class", "failure", "target", "source", "path", "nodes", "verified")
"""Of a failure, what the table has."""
_SIDES = tuple(f"{side}.{key}" for side in ("reference", "test") for key in BENCHMARK)
_WHOLE = ("exit_code", "violations", *(f"graphs.{key}" for key in GRAPHS),
          *(name for name in _SIDES if name.endswith("_bytes")))  # fmt: skip
_REAL = ("seconds", "speedup", *NUMERICS, *_SIDES)
_TEXT = ("id", "dir", "sweep", "verdict", "error", "cached", "numerics", "digest", *RUN)


@dataclass(frozen=True)
class SweepTable:
    """What was written.

    Attributes:
        path: of ``sweep.csv``; ``sweep.parquet`` and ``sweep.html`` lie beside it.
        told: for a person: what changed from job to job, and which failure is in how many.
    """

    path: Path
    told: list[str]


def write_sweep_table(
    sweep_dir: Path, job_dirs: Iterable[Path], refused: Mapping[Path, tuple[str, list[str]]] | None = None
) -> SweepTable:
    """Write the tables: one row a job, in the order given.

    Columns: ``id``, ``dir`` (relative to the sweep), ``override.KEY`` (those that differ first), ``verdict``,
    ``exit_code``, ``error``, ``seconds``, ``stage.NAME`` (status), ``cached`` (stages whose result is an earlier
    run's), ``violations``, ``violations.RULE``, ``numerics``, ``max_abs``, ``max_rel``, ``rmse``, ``max_ulp``,
    ``reference.*`` and ``test.*`` (median in ms, compile time in s, peak memory in bytes), ``speedup``,
    ``established``, ``graphs.*``, what ran (``model``, ``accel``, …, ``started``), ``digest``, ``failures`` and
    ``changed``.

    The parquet file has the same, with types that do not depend on the values: many sweeps are read as one table. There
    ``sweep`` names the sweep, and ``failures`` and ``changed`` are lists of records.

    Args:
        sweep_dir: where they are written.
        job_dirs: the jobs' directories.
        refused: of the jobs whose directory another run holds, why, and their overrides.
    """
    sweep_dir = Path(sweep_dir)
    rows = [row_of(sweep_dir, Path(job), (refused or {}).get(Path(job))) for job in job_dirs]
    changes = changes_of(rows)
    sentences = [told(found) for found in changes]
    columns = [*_ordered_columns(rows), FAILURES, _CHANGED]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    for row, found in zip(rows, sentences, strict=True):
        shown = " ".join(f"{failure.fingerprint}:{failure.failure_class}" for failure in failures_in(row).values())
        cells = {key: value for key, value in row.items() if key not in APART}
        writer.writerow(cells | {FAILURES: shown, _CHANGED: "; ".join(found)})
    name = run_id(sweep_dir.absolute())
    write_atomically(sweep_dir / DATA, _parquet(rows, changes, columns, name))
    write_atomically(sweep_dir / PAGE, sweep_page(name, sweep_dir, rows, changes).encode())
    path = sweep_dir / TABLE
    write_atomically(path, buffer.getvalue().encode())
    return SweepTable(path, [*_few(changes), *_failures(rows)])


def _parquet(rows: Sequence[Row], changes: Sequence[Sequence[Change]], columns: Sequence[str], sweep: str) -> bytes:
    """The rows as a parquet file.

    Args:
        rows, changes: the jobs', in the same order.
        columns: of the CSV file.
        sweep: the sweep's id.
    """
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([(name, _type(name)) for name in ("sweep", *columns)])
    records = [
        {name: _value(schema.field(name).type, row.get(name)) for name in columns if name not in (FAILURES, _CHANGED)}
        | {"sweep": sweep, _CHANGED: [asdict(change) for change in found],
           FAILURES: [{key: getattr(failure, key) for key in _FAILURE} for failure in row[FAILURES]]}
        for row, found in zip(rows, changes, strict=True)
    ]  # fmt: skip
    stored = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records, schema=schema), stored)
    return bytes(stored.getvalue())


def _type(column: str) -> "pyarrow.DataType":
    """A column's type, by its name alone; times of day are ISO 8601 text."""
    import pyarrow

    if column == FAILURES:
        kinds = {"nodes": pyarrow.int64(), "verified": pyarrow.bool_()}
        return pyarrow.list_(pyarrow.struct([(key, kinds.get(key, pyarrow.string())) for key in _FAILURE]))
    if column == _CHANGED:
        return pyarrow.list_(pyarrow.struct([(item.name, pyarrow.string()) for item in fields(Change)]))
    if column == "max_ulp":
        return pyarrow.uint64()  # of float64, from the least number to the greatest, it is above 2**63
    if column in _WHOLE or column.startswith("violations."):
        return pyarrow.int64()
    if column in _REAL:
        return pyarrow.float64()
    assert column in _TEXT or column == "established" or column.startswith((OVERRIDE, "stage.")), column
    return pyarrow.bool_() if column == "established" else pyarrow.string()


def _value(kind: "pyarrow.DataType", value: Any) -> Any:
    """A stored value in a column's type: JSON has "nan" and "inf" as texts."""
    import pyarrow

    if value is None or value == "":
        return None
    if pyarrow.types.is_floating(kind):
        return float(value)
    if pyarrow.types.is_integer(kind):
        return int(value) if float(value).is_integer() else None
    return value if pyarrow.types.is_boolean(kind) else str(value)


def _few(changes: Sequence[Sequence[Change]]) -> Iterator[str]:
    """What changed, in as many sentences as a person reads."""
    changed = [sentence for found in changes for sentence in told([change for change in found if change.column])]
    yield from changed[:_SHOWN]
    if len(changed) > _SHOWN:
        yield f"… and {counted(len(changed) - _SHOWN, 'more step')} in which something changed, in {TABLE}"


def _failures(rows: Sequence[Row]) -> Iterator[str]:
    """Each failure by its fingerprint, and in how many jobs it is."""
    found = [failures_in(row) for row in rows]
    known: dict[str, ReproRecord] = {key: failure for each in found for key, failure in each.items()}
    jobs = Counter(key for each in found for key in each)
    for key, count in jobs.most_common(_SHOWN):
        failure = known[key]
        least = "at least " if any(may_be_in(row, failure) for row in rows) else ""
        what = failure.failure or failure.failure_class
        yield f"failure {key} ({what}) in {least}{count} of {counted(len(rows), 'run')}"
    if len(known) > _SHOWN:
        yield f"… and {counted(len(known) - _SHOWN, 'more failure')}, in {TABLE}; inductor-debug repro SWEEP lists all"


def _ordered_columns(rows: Sequence[Row]) -> list[str]:
    """Overrides that differ between the jobs come right after the id, the rest in the order of the fullest row."""
    every = list(dict.fromkeys(key for row in sorted(rows, key=len, reverse=True) for key in row))
    overrides = [key for key in every if key.startswith(OVERRIDE)]
    overrides.sort(key=lambda key: len({row.get(key) for row in rows}) == 1)
    head = ["id", "dir", *overrides, "verdict", "exit_code", "error", "seconds"]
    return head + [key for key in every if key not in (*head, *APART)]
