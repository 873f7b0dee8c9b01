"""What the user's code took from its surroundings while a process ran: files, packages and variables.

Known are the modules that were imported, the files that Python opened for reading, and the environment variables that
code outside of installed packages looked up. Not seen are files that native code opens by itself, and what comes over
the network.
"""

import functools
import os
import re
import site
import sys
import sysconfig
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from pathlib import Path
from typing import Any

import inductor_debug
from inductor_debug.pipeline.cache import key
from inductor_debug.pipeline.cache.folders import VARIABLES
from inductor_debug.pipeline.cache.key import ABSENT, content_of
from inductor_debug.pipeline.config.fingerprint import digest
from inductor_debug.pipeline.directory import file_digest

_SYSTEM = ("/proc/", "/sys/", "/dev/")
_LIBRARIES = ("/usr/", "/lib", "/SYSV", "/memfd:", "/dev/", "/anon_hugepage")
_EVENTS = ("open", "sqlite3.connect", "ctypes.dlopen", "os.listdir", "os.scandir")
_MARKS = "INDUCTOR_DEBUG_"
_LOADED = time.time()
"""Before the modules were imported that a process shares with the one that it was forked from."""
_PASS_ON = ("collections", "glob", "ntpath", "os", "pathlib", "posixpath")
"""Python's own modules that look a variable up, or list a folder, for who calls them."""
_LOOKERS = (__file__, key.__file__, file_digest.__file__, f"{os.sep}matplotlib{os.sep}font_manager.py")
"""Who opens files and takes nothing of them: whether an earlier result stands; a list of fonts of which the pictures
use matplotlib's own."""


@functools.cache
def _installed() -> tuple[str, ...]:
    """Folders of Python's own modules and of installed packages: any on the path that holds a package's metadata."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    found = {path for path in sys.path if next(Path(path).glob("*.dist-info"), None) is not None}
    folders = {*found, *(sysconfig.get_path(name) for name in names), *site.getsitepackages()}
    return tuple(sorted({f"{place}{os.sep}" for folder in folders for place in (folder, os.path.realpath(folder))}))


@functools.cache
def _ours() -> tuple[str, ...]:
    """Folders of this package, which may be links."""
    root = Path(inductor_debug.__file__).resolve().parent
    folders = (root, *(inner for inner in root.iterdir() if inner.is_dir()))
    return tuple({f"{place}{os.sep}" for folder in folders for place in (folder, os.path.realpath(folder))})


class Seen:
    """Notes what is taken from when it is made; there is one in a process, for its hooks stay.

    Args:
        apart: folders whose files do not count: caches, and the run's own.
    """

    def __init__(self, apart: Iterable[str]) -> None:
        self._apart = tuple(f"{place}{os.sep}" for folder in apart for place in (folder, os.path.realpath(folder)))
        self._began, self._environment = time.time(), dict(os.environ)
        self._imported_before = _module_files()
        self._path = list(sys.path)
        _installed(), _ours()  # on the path as it is now, and before the hook hears of it
        self._opened: set[str] = set()
        self._relative: set[str] = set()
        self._variables: set[str] = set()
        sys.addaudithook(self._note_opened)
        kind: Any = type(os.environ)
        original = kind.__getitem__

        @functools.wraps(original)
        def looked_up(environ: Any, name: Any) -> Any:
            if environ is os.environ and _is_users(sys._getframe(1)):
                self._variables.add(name)
            return original(environ, name)

        kind.__getitem__ = looked_up

    def _note_opened(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or not isinstance(arguments[0], str):
            return
        if event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
            return
        if event in ("os.listdir", "os.scandir") and not _is_users(sys._getframe(1)):
            return
        if sys._getframe(1).f_code.co_filename.endswith(_LOOKERS):
            return
        path = os.path.abspath(arguments[0])
        if os.path.isabs(arguments[0]):
            self._opened.add(path)
        elif os.path.exists(path) or (event == "open" and arguments[0][:1] != "<" and arguments[0] not in sys.path):
            self._relative.add(path)  # no library by its name, source without a file, nor a mark on Python's path

    def files(self) -> dict[str, str]:
        """Path → content of each of the user's files that was imported, opened or mapped, and of each folder that the
        user's code listed; or that it is not there. A link has the content of what it leads to."""
        known = {path for path in {*_module_files(), *_mapped()} if os.path.isabs(path)}
        opened = {*self._opened, *self._relative}
        maybe = filter(self._counts, {*opened, *known})
        there = sorted(path for path in maybe if path in opened or os.path.exists(path))
        return {path: content_of(path) for path in there if self._counts(os.path.realpath(path))}

    def edited(self, files: Iterable[str]) -> list[str]:
        """Those of the files that were written since they may have been read: what was taken is not what is there."""
        since = {path: _LOADED if path in self._imported_before else self._began for path in files}
        return [path for path, began in since.items() if os.path.exists(path) and os.stat(path).st_ctime >= began]

    def _counts(self, path: str) -> bool:
        apart = (*_installed(), *_ours(), *self._apart, *_SYSTEM)
        return not path.startswith(apart) and not path.endswith(".pyc")

    def modules(self) -> dict[str, str]:
        """Top-level module that was imported → where Python finds it, if it does without the code's help."""
        names = {name.partition(".")[0] for name in list(sys.modules)} - sys.stdlib_module_names
        found = {name: location_of(name, self._path) for name in sorted(names)}
        return {name: place for name, place in found.items() if place and not f"{place}{os.sep}".startswith(_ours())}

    def cwd(self) -> str:
        """The working directory, where something that counts was reached by a path relative to it; else empty."""
        counted = filter(self._counts, self._relative)
        return os.getcwd() if any(self._counts(os.path.realpath(path)) for path in counted) else ""

    def variables(self) -> dict[str, str]:
        """Variable that the user's code looked up → what stands for the value that it had before the code could set it
        (:func:`content_of_variable`)."""
        own = (*VARIABLES, "PYTHONHASHSEED", "MPLBACKEND")
        looked_up = (name for name in sorted(self._variables) if name not in own and not name.startswith(_MARKS))
        return {name: content_of_variable(name, self._environment) for name in looked_up}


def content_of_variable(name: str, environment: Mapping[str, str]) -> str:
    """SHA-256 of an environment variable's value, which may be a secret; or that it is not there."""
    value = environment.get(name)
    return ABSENT if value is None else digest(value)


def _module_files() -> set[str]:
    found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {path for path in found if isinstance(path, str)}


def _mapped() -> set[str]:
    """Files outside of the system and Python that are mapped into memory: libraries, and weights of safetensors."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return set()
    paths = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return {
        path for path in paths if path.startswith("/") and not path.startswith((*_LIBRARIES, f"{sys.base_prefix}/"))
    }


def location_of(name: str, path: list[str] | None = None) -> str:
    """The file or folders that ``import name`` would take; empty where it finds none.

    Args:
        name: of a top-level module.
        path: in the place of ``sys.path``.
    """
    for finder in sys.meta_path:
        if finder is PathFinder:
            spec = PathFinder.find_spec(name, sys.path if path is None else path)
        elif hasattr(finder, "find_spec") and finder not in (BuiltinImporter, FrozenImporter):
            spec = finder.find_spec(name, None)
        else:
            continue
        if spec is not None:
            places = [spec.origin] if spec.has_location and spec.origin else (spec.submodule_search_locations or [])
            return os.pathsep.join(map(os.path.realpath, places))
    return ""


def distributions() -> dict[str, list[str]]:
    """Top-level module → names of its distributions. Read once in each state of the folders that hold packages."""
    return _distributions(installed_state())


@functools.cache
def _distributions(_: tuple[int, ...]) -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())


def installed_state() -> tuple[int, ...]:
    """Of the folders that hold packages, when something was put into each or taken out of it, in ns."""
    return tuple(os.stat(folder).st_mtime_ns for folder in _installed() if os.path.isdir(folder))


def imported_packages() -> dict[str, str]:
    """Name → version of each installed distribution that a module was imported from."""
    tops = {name.partition(".")[0] for name in list(sys.modules)}
    tops, known = {name for name in tops if _is_installed(sys.modules.get(name))}, distributions()
    versions = versions_of({name for top in tops for name in known.get(top, ())})
    return {name: version for name, version in versions.items() if version != ABSENT}


def installed_names() -> frozenset[str]:
    """Distributions and their versions, as the folders that hold packages list them now."""
    folders = [folder for folder in _installed() if os.path.isdir(folder)]
    return frozenset(name for folder in folders for name in os.listdir(folder) if name.endswith(".dist-info"))


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Name → version of distributions, as they are installed; what a package brings inside itself is a part of it."""
    state = installed_state()
    return {name: _version_of(name, state) for name in sorted(names)}


@functools.cache
def _version_of(name: str, state: tuple[int, ...]) -> str:
    known = next(iter(metadata.distributions(name=name, path=list(_with_packages(state)))), None)
    if known is None:
        return ABSENT
    head = (known.read_text("METADATA") or "").partition("\n\n")[0]  # parsing all of it takes a millisecond
    found = re.search(r"^Version:[ \t]*(\S+)", head, re.MULTILINE)
    return known.version if found is None else found[1]


@functools.cache
def _with_packages(_: tuple[int, ...]) -> tuple[str, ...]:
    """Those of the folders in which something is installed, each once: most names lead to the same ones."""
    found = dict.fromkeys(os.path.realpath(folder) for folder in _installed())
    return tuple(path for path in found if next(iter(metadata.distributions(path=[path])), None) is not None)


def _is_installed(module: Any) -> bool:
    folders = getattr(module, "__path__", None)  # of a namespace it is no list
    places = [getattr(module, "__file__", None), *(folders or ())]
    return any(isinstance(place, str) and place.startswith(_installed()) for place in places)


def _is_users(frame: Any) -> bool:
    """Whether the user's code looks a variable up or lists a folder, itself or by ``os.getenv``, ``glob`` and such."""
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _PASS_ON:
        frame = frame.f_back
    return frame is not None and _is_users_file(frame.f_code.co_filename)


@functools.cache
def _is_users_file(file: str) -> bool:
    return os.path.isabs(file) and not os.path.realpath(file).startswith((*_installed(), *_ours()))
