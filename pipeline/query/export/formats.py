"""The formats of ``report``: what each is made from, and how it is written."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import UserError
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.names import SUMMARY
from inductor_debug.pipeline.query import open_run
from inductor_debug.pipeline.query.export.junit import junit
from inductor_debug.pipeline.query.export.markdown import markdown
from inductor_debug.pipeline.query.export.model_explorer import model_explorer
from inductor_debug.pipeline.query.export.sarif import sarif
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.encoding import write_atomically
from inductor_debug.stages.stored_run import StoredRun

TRACE = "profile/trace.json.gz"
Content = str | bytes | Mapping[str, str]


class Format(StrEnum):
    """What ``report`` gives."""

    HTML = "html"
    JSON = "json"
    MARKDOWN = "markdown"
    SARIF = "sarif"
    JUNIT = "junit"
    PERFETTO = "perfetto"
    MODEL_EXPLORER = "model-explorer"


@dataclass(frozen=True)
class Made:
    """How a format is made.

    Attributes:
        content: of runs: a text, or name → text of several files.
        suffix: of its file; empty for a folder of several.
        many: whether it takes several runs, as those of a sweep.
    """

    content: Callable[[Sequence[StoredRun]], Content]
    suffix: str
    many: bool = False


def _dumped(content: Any) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _report(run: StoredRun) -> Mapping[str, Any]:
    if not run.has(files.REPORT):
        raise run.lacks("report", "report", "+stages=report")
    found: Mapping[str, Any] = run.artifacts.read_json(files.REPORT.path)
    return found


def _page(run: StoredRun) -> str:
    if not run.has(files.REPORT_PAGE.path):
        raise run.lacks("report", "report", "+stages=report")
    return run.text(files.REPORT_PAGE.path)


def _trace(run: StoredRun) -> str:
    """The trace of the profiler, which ui.perfetto.dev and chrome://tracing open."""
    if not run.has(TRACE):
        raise run.lacks("trace", "profile", "+stages=profile")
    return gzip.decompress(run.artifacts.read_bytes(TRACE)).decode()


MADE: Mapping[Format, Made] = {
    Format.HTML: Made(lambda runs: _page(runs[0]), "html"),
    Format.JSON: Made(lambda runs: _dumped(_report(runs[0])), "json"),
    Format.MARKDOWN: Made(lambda runs: markdown(_report(runs[0])), "md"),
    Format.SARIF: Made(lambda runs: _dumped(sarif(runs)), "sarif", many=True),
    Format.JUNIT: Made(junit, "xml", many=True),
    Format.PERFETTO: Made(lambda runs: _trace(runs[0]), "trace.json"),
    Format.MODEL_EXPLORER: Made(
        lambda runs: {name: _dumped(content) for name, content in model_explorer(runs[0]).items()}, ""
    ),
}


def runs_at(folder: Path, many: bool) -> list[StoredRun]:
    """The run of a folder, or those below it that have a result.

    Args:
        folder: a run's, or one that holds runs.
        many: whether several are taken.

    Raises:
        UserError: it holds none, or several where one alone is taken.
    """
    found = store.existing(folder)
    if StoredFolder(found).has(SUMMARY) or not (below := store.find_runs(found)):
        return [open_run(found)]
    if not many:
        raise UserError(f"report: {folder} holds {len(below)} runs; valid: one run, or --format sarif or junit.\n"
                        f"Try: inductor-debug report {below[0]}")  # fmt: skip
    return [open_run(run) for run in below if StoredFolder(run).has(SUMMARY)] or [open_run(below[0])]


def made(folder: Path, format: Format) -> tuple[str, Content]:
    """The name that its file or folder has by default, and the content.

    Args:
        folder: of a run, or one that holds runs.
        format: what is wanted.
    """
    how = MADE[format]
    runs = runs_at(folder, how.many)
    name = store.existing(folder).resolve().name
    return f"{name}.{how.suffix}" if how.suffix else f"{name}-{format.value}", how.content(runs)


def write(content: Content, out: Path) -> list[Path]:
    """Write a file, or the files of a folder; their paths.

    Raises:
        UserError: it can't be written.
    """
    parts: dict[Path, str | bytes] = {out: content} if isinstance(content, str | bytes) else {
        out / name: text for name, text in content.items()}  # fmt: skip
    for path, text in parts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode() if isinstance(text, str) else text)
        except OSError as error:
            raise UserError(f"got {path}, which can't be written ({error.strerror})", key="--out", valid="a path",
                            hint="--out FILE in a folder of yours") from error  # fmt: skip
    return list(parts)
