"""``inductor-debug export``: a run in one file to send, without the folders and the name of the machine."""

import contextlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.names import CONFIGURATION_ERROR, MANIFEST, SUMMARY
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.stored_run import StoredRun

NAMES = (
    SUMMARY, MANIFEST, CONFIGURATION_ERROR, files.REPORT_PAGE.path, files.REPORT.path, files.VIOLATIONS.path,
    files.OUTPUTS.path, files.DIAGNOSIS.path, files.NODES.path, files.NOT_COMPILED.path, files.BISECTION.path,
    files.MINIFIED.path,
)  # fmt: skip
"""What goes with the reproductions, of what a run has. Weights, inputs and the machine's environment stay."""
_PACKAGES = re.compile(r"[^\s\"'(,:=]*/(?:site|dist)-packages/")
_TEXT = (".py", ".txt", ".json", ".csv", ".html", ".md", ".log")
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file, so that the same run gives the same bytes."""


def bundle(run: StoredRun) -> bytes:
    """A zip archive with one folder, called as the run is."""
    shorten, top = _shortener(run), run.folder.resolve().name
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _kept(run):
            if name.endswith(_TEXT):
                content = _shortened(name, content, shorten)
            archive.writestr(zipfile.ZipInfo(f"{top}/{name}", _DATE), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _kept(run: StoredRun) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file that goes along."""
    repros = [name for name in run.names if name.startswith(files.REPRO.folder)]
    for name in sorted({*NAMES, *repros}):
        with contextlib.suppress(FileNotFoundError):
            yield name, run.artifacts.read_bytes(name)


def _shortened(name: str, content: bytes, shorten: Callable[[str], str]) -> bytes:
    text = content.decode(errors="replace")
    if name == MANIFEST:
        text = json.dumps(_anonymous(json.loads(text)), indent=1)
    return shorten(text).encode()


def _anonymous(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest without the machine's name and its environment, which holds paths of its user."""
    kept = {key: value for key, value in manifest.items() if key not in ("environment", "working_directory")}
    machine = manifest.get("machine")
    if isinstance(machine, dict):
        kept["machine"] = {key: value for key, value in machine.items() if key != "hostname"}
    return kept


def _shortener(run: StoredRun) -> Callable[[str], str]:
    """Replaces the run's folder, where it was started, its repositories and the user's home; the longest first."""
    known: dict[str, str] = {str(run.folder.resolve()): "RUN"}
    try:
        manifest = StoredFolder(run.folder).read_json(MANIFEST)
    except FileNotFoundError:
        manifest = {}
    for name, path in _roots(manifest):
        known.setdefault(path, name)
    known.setdefault(str(Path.home()), "~")
    ordered = sorted((path for path in known if path not in ("", "/")), key=len, reverse=True)
    pattern = re.compile("|".join(rf"{re.escape(path)}(?=[/\"'\s,:;)\]]|$)" for path in ordered))

    def shorten(text: str) -> str:
        return pattern.sub(lambda match: known[match[0]], _PACKAGES.sub("", text))

    return shorten


def _roots(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "WORK", str(manifest.get("working_directory") or "")
    for name, repository in (manifest.get("git") or {}).items():
        if isinstance(repository, Mapping):
            yield name.upper(), str(repository.get("root") or "")
