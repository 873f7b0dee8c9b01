"""The formats of ``report``: what each is made from, and how it is written."""

import gzip
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import DamagedError, UserError
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.query.export.junit import junit
from inductor_debug.pipeline.query.export.markdown import markdown
from inductor_debug.pipeline.query.export.model_explorer import model_explorer
from inductor_debug.pipeline.query.export.sarif import sarif
from inductor_debug.pipeline.query.runs import Runs, runs_of
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.encoding import write_atomically
from inductor_debug.stages.stored_run import StoredRun

REPORTED: Mapping[str, type] = {
    "title": str, "verdict": str, "sentence": str, "contents": list, "then": list, "reproduce": list, "versions": dict,
    "not_established": list, "repros": list,
}  # fmt: skip
"""What a report in another format is made from, of ``report/report.json``."""
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

    content: Callable[[Runs], Content]
    suffix: str
    many: bool = False


def _dumped(content: Any) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _report(run: StoredRun) -> Mapping[str, Any]:
    if not run.has(files.REPORT):
        raise run.lacks("report", "report", "+stages=report")
    found: Mapping[str, Any] = run.artifacts.read_json(files.REPORT.path)
    wrong = next((key for key, kind in REPORTED.items() if not isinstance(found.get(key), kind)), None)
    if wrong is not None:
        raise DamagedError(f"{wrong} is not there, or no {REPORTED[wrong].__name__}",
                           key=visible(str(run.folder / files.REPORT.path)), valid="the report of this version",
                           hint=run.rerun())  # fmt: skip
    return found


def _page(run: StoredRun) -> str:
    if not run.has(files.REPORT_PAGE.path):
        raise run.lacks("report", "report", "+stages=report")
    return run.text(files.REPORT_PAGE.path)


def _trace(run: StoredRun) -> str:
    """The trace of the profiler, which ui.perfetto.dev and chrome://tracing open."""
    if not run.has(files.TRACE):
        raise run.lacks("trace", "profile", "+stages=profile")
    return gzip.decompress(run.artifacts.read_bytes(files.TRACE.path)).decode()


MADE: Mapping[Format, Made] = {
    Format.HTML: Made(lambda found: _page(found.runs[0]), "html"),
    Format.JSON: Made(lambda found: _dumped(_report(found.runs[0])), "json"),
    Format.MARKDOWN: Made(lambda found: markdown(_report(found.runs[0])), "md"),
    Format.SARIF: Made(lambda found: _dumped(sarif(found)), "sarif", many=True),
    Format.JUNIT: Made(junit, "xml", many=True),
    Format.PERFETTO: Made(lambda found: _trace(found.runs[0]), "trace.json"),
    Format.MODEL_EXPLORER: Made(
        lambda found: {name: _dumped(content) for name, content in model_explorer(found.runs[0]).items()}, ""
    ),
}


def made(folder: Path, format: Format) -> tuple[str, Content]:
    """The name that its file or folder has by default, and the content.

    Args:
        folder: of a run, or one that holds runs.
        format: what is wanted.
    """
    how, found = MADE[format], runs_of([folder])
    if len(found.runs) + len(found.lost) > 1 and not how.many:
        first = shlex.quote(str(found.runs[0].folder if found.runs else next(iter(found.lost))))
        raise UserError(f"report: {folder} holds {len(found.runs) + len(found.lost)} runs; valid: one run, or --format "
                        f"sarif or junit.\nTry: inductor-debug report {first} --format {format.value}")  # fmt: skip
    name = store.existing(folder).resolve().name
    return f"{name}.{how.suffix}" if how.suffix else f"{name}-{format.value}", how.content(found)


def write(content: Content, out: Path) -> list[Path]:
    """Write a file, or the files of a folder; their paths. What is called ``.gz`` is compressed.

    Raises:
        UserError: it can't be written.
    """
    parts: dict[Path, str | bytes] = {out: content} if isinstance(content, str | bytes) else {
        out / name: text for name, text in content.items()}  # fmt: skip
    for path, text in parts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            data = text.encode() if isinstance(text, str) else text
            write_atomically(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        except OSError as error:
            raise UserError(f"got {path}, which can't be written ({error.strerror})", key="--out", valid="a path",
                            hint="--out FILE in a folder of yours") from error  # fmt: skip
    return list(parts)
