"""``inductor-debug export``: a run in one file to send, without the folders and the name of the machine."""

import contextlib
import hashlib
import html
import io
import itertools
import json
import posixpath
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

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
_LINK = re.compile(r'<a href="([^"#:]+)"[^>]*>(.*?)</a>', re.DOTALL)
"""Of the page to a file of the run."""
_ON_PAGE = {
    "The links work while the page lies there.": "This is an export of the run: a file that it holds has a link here.",
    "What to type next": "What to type next, where the run was made",
    "To run it again": "To run it again, where it was made",
}
"""Sentences of the page that are not so of an export."""


def bundle(run: StoredRun) -> bytes:
    """A zip archive with one folder, called as the run is; unpacked it is a run that can be read."""
    manifest = _manifest(run)
    shorten, top = _shortener(run.folder, manifest), run.folder.resolve().name
    host = str((manifest.get("machine") or {}).get("hostname") or "")
    packed = {name: _shortened(name, content, shorten, host) if name.endswith(_TEXT) else content
              for name, content in _kept(run)}  # fmt: skip
    page, data = files.REPORT_PAGE.path, files.REPORT.path
    if page in packed:
        packed[page] = _exported_page(packed[page].decode(), packed).encode()
    if data in packed:
        packed[data] = _exported_data(packed[data].decode()).encode()
    if manifest:
        told = json.dumps(_anonymous(manifest, packed), indent=1).encode()
        packed[MANIFEST] = _shortened(MANIFEST, told, shorten, host)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(packed.items()):
            archive.writestr(zipfile.ZipInfo(f"{top}/{name}", _DATE), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _exported_page(page: str, packed: Collection[str]) -> str:
    """The page, whose links lead to what is packed alone, and whose commands are for where the run was made."""
    for told, instead in _ON_PAGE.items():
        page = page.replace(f">{told}<", f">{instead}<").replace(f" {told}<", f" {instead}<")
    return linked_to(page, packed)


def linked_to(page: str, names: Collection[str]) -> str:
    """A run's page without links to files, but for those of ``names``: relative to the run's folder."""

    def link(found: re.Match[str]) -> str:
        file = posixpath.join(posixpath.dirname(files.REPORT_PAGE.path), unquote(html.unescape(found[1])))
        return found[0] if posixpath.normpath(file) in names else found[2]

    return _LINK.sub(link, page)


def _exported_data(text: str) -> str:
    """The page's data, whose commands say where to type them."""
    data = json.loads(text)
    entries = [data, *(data.get("contents") or [])]
    for entry, key in itertools.product(entries, ("then", "reproduce")):
        if entry.get(key):
            entry[key] = [f"where the run was made: {command}" for command in entry[key]]
    return json.dumps(data, indent=1)


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
