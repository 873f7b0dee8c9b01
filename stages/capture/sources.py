"""From a stack trace to the user's line: which frame of a traceback is the model's own code."""

import functools
import inspect
import linecache
import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import torch

from stages.graphs import SourceLine

TORCH_ROOT = str(Path(torch.__file__).parent) + "/"
MODEL_FOLDERS = {"transformers": "models", "torchvision": "models"}
"""Libraries of models: package → the folder that holds the models; the rest of the package is helpers."""

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?\s*$')
_RESUME = re.compile(r"^torch_dynamo_resume_in_(?P<function>.+)_at_\d+$")


def function_name(name: str) -> str:
    """The user's name of a function: Dynamo's resume functions get that of the function they resume."""
    match = _RESUME.match(name)
    return match["function"] if match else name


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
    paths = sysconfig.get_paths()
    return tuple({str(Path(paths[key])) + "/" for key in ("stdlib", "purelib", "platlib")})


class SourceFinder:
    """Finds the model's own frame in a stack.

    The innermost frame wins among, in this order: a file outside torch, the standard library and installed packages,
    or a file of an installed package that defines one of the model's modules (of transformers and torchvision their
    ``models`` folder only); then any file outside torch; then any file.

    Args:
        module: the model; its modules' classes tell which installed packages are the model's own.
    """

    def __init__(self, module: torch.nn.Module | None = None) -> None:
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
        """0 the model's own code, 1 other code outside torch, 2 torch's or generated code."""
        if file not in self._ranks:
            if file.startswith((TORCH_ROOT, "<")):
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

    def find(self, trace: str | None, module: str = "") -> SourceLine | None:
        """The user's line of a formatted stack trace; for no trace the function of torch's own layer at that path."""
        if not trace:
            return self._layer(module)
        if trace not in self._found:
            self._found[trace] = self.own_frame(parse_frames(trace))
        return self._found[trace]

    def _layer(self, path: str) -> SourceLine | None:
        only = len(self._kinds) == 1
        return self.forward_of(self._kinds[path]) if path in self._kinds and (path or only) else None

    def forward_of(self, kind: type) -> SourceLine | None:
        """Where ``forward`` of a module class begins; None for a class that is not torch's own."""
        code = getattr(inspect.unwrap(getattr(kind, "forward", kind)), "__code__", None)
        if code is None or not code.co_filename.startswith(TORCH_ROOT):
            return None
        line = linecache.getline(code.co_filename, code.co_firstlineno).strip()
        return SourceLine(code.co_filename, code.co_firstlineno, line, code.co_name)
