"""``inductor-debug export``: a run in one file to send, without the folders and the name of the machine."""

import contextlib
import hashlib
import html
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from inductor_debug.pipeline.directory.names import CONFIGURATION_ERROR, LOG, MANIFEST, SUMMARY
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.stored_run import StoredRun

NAMES = (
    SUMMARY, CONFIGURATION_ERROR, LOG, files.REPORT_PAGE.path, files.REPORT.path, files.VIOLATIONS.path,
    files.BY_RULE.path, files.OUTPUTS.path, files.DIAGNOSIS.path, files.NODES.path, files.NOT_COMPILED.path,
    files.BISECTION.path, files.MINIFIED.path,
)  # fmt: skip
"""What goes with the reproductions, of what a run has. Weights, inputs and the machine's environment stay."""
_TEXT = (".py", ".txt", ".json", ".csv", ".html", ".md", ".log")
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file, so that the same run gives the same bytes."""
_BEGIN = r"(?:(?<=-[IL])|(?<![\w/+.~-]))"
"""Where a path may begin: behind no part of a name, but behind a compiler's -I and -L."""
_PACKAGES = re.compile(_BEGIN + r"/[^\s\"'(),:;=<>&]*?/(?:site|dist)-packages/")
"""A folder of packages."""
_HOMES = re.compile(_BEGIN + r"/(?:home|Users)/[^/\s\"'(),:;=<>&\\]+")


def bundle(run: StoredRun) -> bytes:
    """A zip archive with one folder, called as the run is; unpacked it is a run that can be read."""
    manifest = _manifest(run)
    shorten, top = _shortener(run.folder, manifest), run.folder.resolve().name
    host = str((manifest.get("machine") or {}).get("hostname") or "")
    packed = {name: _shortened(name, content, shorten, host) if name.endswith(_TEXT) else content
              for name, content in _kept(run)}  # fmt: skip
    if manifest:
        told = json.dumps(_anonymous(manifest, packed), indent=1).encode()
        packed[MANIFEST] = _shortened(MANIFEST, told, shorten, host)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(packed.items()):
            archive.writestr(zipfile.ZipInfo(f"{top}/{name}", _DATE), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _manifest(run: StoredRun) -> Mapping[str, Any]:
    try:
        found = run.artifacts.read_json(MANIFEST)
    except FileNotFoundError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _kept(run: StoredRun) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file that goes along."""
    repros = [name for name in run.names if name.startswith(files.REPRO.folder)]
    for name in sorted({*NAMES, *repros}):
        with contextlib.suppress(FileNotFoundError):
            yield name, run.artifacts.read_bytes(name)


def _shortened(name: str, content: bytes, shorten: Callable[[str], str], host: str) -> bytes:
    text = shorten(content.decode(errors="replace"))
    if host and not name.endswith(".py"):  # in a script the word may be a name
        text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "HOST", text)
    return text.encode()


def _anonymous(manifest: Mapping[str, Any], packed: Mapping[str, bytes]) -> dict[str, Any]:
    """A manifest of what is packed, without the machine's name and its environment, which holds paths of its user."""
    kept = {key: value for key, value in manifest.items() if key not in ("environment", "working_directory", "command")}
    machine = manifest.get("machine")
    if isinstance(machine, Mapping):
        kept["machine"] = {key: value for key, value in machine.items() if key != "hostname"}
    if manifest.get("files"):
        kept["files"] = {name: hashlib.sha256(content).hexdigest() for name, content in packed.items()}
    return kept


def _shortener(folder: Path, manifest: Mapping[str, Any]) -> Callable[[str], str]:
    """Replaces the run's folder, where it was started, its repositories and homes of users; the longest first.

    A path stands in a file as it is, or as JSON or HTML has it.
    """
    known: dict[str, str] = {str(folder.resolve()): "RUN"}
    for name, path in _roots(manifest):
        known.setdefault(path, name)
    known.setdefault(str(Path.home()), "~")
    spelled = {spelling: short for path, short in known.items() if path not in ("", "/")
               for spelling in (path, json.dumps(path)[1:-1], html.escape(path))}  # fmt: skip
    ordered = "|".join(re.escape(path) for path in sorted(spelled, key=len, reverse=True))
    pattern = re.compile(rf"{_BEGIN}(?:{ordered})(?![\w-])")

    def shorten(text: str) -> str:
        text = pattern.sub(lambda match: spelled[match[0]], _PACKAGES.sub("", text))
        return _HOMES.sub("~", text)

    return shorten


def _roots(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "WORK", str(manifest.get("working_directory") or "")
    for name, repository in (manifest.get("git") or {}).items():
        if isinstance(repository, Mapping):
            yield name.upper(), str(repository.get("root") or "")
