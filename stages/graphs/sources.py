"""From a stack trace to the user's line: which frame of a traceback is the model's own code."""

import functools
import inspect
import linecache
import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

import torch

from inductor_debug.models.torch_text import MACHINERY, function_name
from inductor_debug.stages.graphs.records import SourceLine

TORCH_ROOT = str(Path(torch.__file__).parent) + "/"
OURS = f"{Path(__file__).parents[2]}/"
"""This project's own package."""
_MACHINERY = tuple(TORCH_ROOT + folder for folder in MACHINERY)
MODEL_FOLDERS = {"inductor_debug": "models", "transformers": "models", "torchvision": "models"}
"""Libraries of models: package → the folder that holds the models; the rest of the package is helpers."""

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?\s*$')


@functools.lru_cache(maxsize=65536)
def parse_frames(trace: str) -> tuple[SourceLine, ...]:
    """Frames of a formatted stack trace, outermost first; ``code`` is the line that Python printed below it."""
    frames = []
    lines = trace.splitlines()
    for index, text in enumerate(lines):
        match = _FRAME.match(text)
        if match is None:
            continue
        following = lines[index + 1] if index + 1 < len(lines) else ""
        code = "" if _FRAME.match(following) else following.strip()
        frames.append(SourceLine(match["file"], int(match["line"]), code, function_name(match["function"] or "")))
    return tuple(frames)


def _library_roots() -> tuple[str, ...]:
    """Folders of libraries: the standard library's, this project's, and those of Python's path that hold packages.

    Of the latter an environment may have several: its own, that of the environment below it, and what ``PYTHONPATH``
    names of ``pip install --target``.
    """
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "purelib", "platlib")} | set(filter(_holds_packages, sys.path))
    return tuple({f"{Path(folder).absolute()}/" for folder in folders} | {OURS})


@functools.cache
def _holds_packages(folder: str) -> bool:
    """Whether an installer put packages into a folder: it records each in a folder ``NAME-VERSION.dist-info``."""
    path = Path(folder)
    return bool(folder) and (path.name in ("site-packages", "dist-packages") or any(path.glob("*.dist-info")))


def calls_of(frame: FrameType | None) -> list[SourceLine]:
    """The frames on a stack from a module's own method on, outermost first, torch's and this project's left out.

    Empty where no method of a module is on the stack: who calls the model itself is not a part of it.
    """
    found: list[SourceLine] = []
    kept = 0
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((TORCH_ROOT, OURS, "<")):
            line = linecache.getline(code.co_filename, frame.f_lineno).strip()
            found.append(SourceLine(code.co_filename, frame.f_lineno, line, function_name(code.co_name)))
            first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            kept = len(found) if isinstance(first, torch.nn.Module) else kept
        frame = frame.f_back
    return found[:kept][::-1]


class SourceFinder:
    """Finds the model's own frame in a stack.

    The innermost frame in a file of the model's own wins. Such a file is outside torch, the standard library and
    installed packages. Or it is of an installed package and defines one of the model's modules; of transformers and
    torchvision it is then in their ``models`` folder. Next comes any file outside torch, then any file but those of
    Dynamo and FX.

    Args:
        module: the model; its modules' classes tell which installed packages are the model's own.

    Attributes:
        caller: the line that called what is compiled, for nodes that no other line is known of: see :func:`calls_of`.
    """

    def __init__(self, module: torch.nn.Module | None = None) -> None:
        self.caller: SourceLine | None = None
        self._libraries = _library_roots()
        self._own = tuple(self._package_roots(module)) if module is not None else ()
        layers = module.named_modules(remove_duplicate=False) if module is not None else ()
        self._kinds = {path: type(layer) for path, layer in layers}
        self._ranks: dict[str, int] = {}
        self._found: dict[str, SourceLine | None] = {}

    @staticmethod
    def _package_roots(module: torch.nn.Module) -> Iterable[str]:
        packages = {type(child).__module__.partition(".")[0] for child in module.modules()} | set(MODEL_FOLDERS)
        for package in sorted(packages - {"torch"}):
            file = getattr(sys.modules.get(package), "__file__", None)
            if file is None:
                continue
            folder = Path(file).parent / MODEL_FOLDERS.get(package, "")
            is_package = Path(file).name == "__init__.py"
            yield f"{folder}/" if is_package else file

    def _rank(self, file: str) -> int:
        """0 the model's own code, 1 other code outside torch, 2 torch's or generated code, 3 what runs the model."""
        if file not in self._ranks:
            if file.startswith(_MACHINERY):
                rank = 3
            elif file.startswith((TORCH_ROOT, "<")):
                rank = 2
            elif file.startswith(self._own) or not file.startswith(self._libraries):
                rank = 0
            else:
                rank = 1
            self._ranks[file] = rank
        return self._ranks[file]

    def own_frame(self, frames: Iterable[SourceLine]) -> SourceLine | None:
        """The model's own innermost frame of ``frames`` (outermost first), or None where there are none."""
        best: SourceLine | None = None
        best_rank = 3
        for frame in reversed(list(frames)):
            rank = self._rank(frame.file)
            if rank < best_rank:
                best, best_rank = frame, rank
            if best_rank == 0:
                break
        return best

    def is_own(self, line: SourceLine) -> bool:
        """Whether a line is one that the model runs: of the model's own file, and not of a constructor."""
        return self._rank(line.file) == 0 and line.function != "__init__"

    def in_torch(self, line: SourceLine) -> bool:
        """Whether a line is torch's, or of generated code."""
        return self._rank(line.file) >= 2

    def find(self, trace: str | None, module: str = "", kind: type | None = None) -> SourceLine | None:
        """The user's line of a formatted stack trace; where none is in it, the function of torch's own layer.

        Dynamo leaves the frames of ``torch.nn.modules`` out of a stack. Of a layer of torch's that is a model, or is in
        an ``nn.Sequential`` that is, nothing is left of it, or frames of torch's machinery alone.

        Args:
            module: path of the layer in the model.
            kind: the layer's class, where its path is not known in the model.
        """
        if trace and trace not in self._found:
            self._found[trace] = self.own_frame(parse_frames(trace))
        line = self._found[trace] if trace else None
        if line is not None and not self.in_torch(line):
            return line
        return self.caller or self._layer(module, kind) or line

    def set_caller(self, traces: Iterable[str | None]) -> None:
        """Look for :attr:`caller` where a graph has no line of the user's. To be called while torch compiles it.

        Dynamo records the frames that it traces. Of a layer of torch's that is compiled by itself, as ``self.net =
        torch.compile(nn.Sequential(…))``, the line ``self.net(x)`` is none of these; it is on Python's stack.

        Args:
            traces: of the graph's nodes.
        """
        lines = (self.own_frame(parse_frames(trace)) for trace in traces if trace)
        if all(line is None or self.in_torch(line) for line in lines):
            self.caller = self.own_frame(calls_of(sys._getframe()))

    def _layer(self, path: str, kind: type | None) -> SourceLine | None:
        only = len(self._kinds) == 1
        found = self._kinds[path] if kind is None and path in self._kinds and (path or only) else kind
        return None if found is None else self.forward_of(found)

    def forward_of(self, kind: type) -> SourceLine | None:
        """Where ``forward`` of a layer of torch's begins; None for another class, and for a graph's own module."""
        code = getattr(inspect.unwrap(getattr(kind, "forward", kind)), "__code__", None)
        if code is None or not code.co_filename.startswith(TORCH_ROOT) or code.co_filename.startswith(_MACHINERY):
            return None
        line = linecache.getline(code.co_filename, code.co_firstlineno).strip()
        return SourceLine(code.co_filename, code.co_firstlineno, line, code.co_name)
