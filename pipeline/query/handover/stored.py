"""A stored reproduction: its record in summary.json, and its script, read without running it."""

import ast
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import DamagedError
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.directory.rundir import run_id
from inductor_debug.pipeline.directory.store import HYDRA
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.records import ReproRecord
from inductor_debug.stages.minify.config import asked_of
from inductor_debug.stages.minify.failures import ASKED
from inductor_debug.stages.repro import Script
from inductor_debug.stages.stored_run import StoredRun

VIOLATION = "violation"
"""What the class of a violated rule starts with."""
_ANSWER = re.compile(r"^(?:FOUND|VIOLATION|FITS) .*$", re.MULTILINE)


@dataclass(frozen=True)
class StoredRepro:
    """One of ``repros`` of a stored run. Its script is a stranger's text: it is parsed, and nothing of it is called."""

    run: StoredRun
    record: ReproRecord

    @property
    def name(self) -> str:
        """The script's file name."""
        return self.record.path.rpartition("/")[2]

    @property
    def is_violation(self) -> bool:
        """Whether it shows that a rule is broken, not that a compiler fails."""
        return self.record.failure_class.partition(":")[0] == VIOLATION

    @property
    def decides(self) -> str:
        """The command that alone tells whether the script shows the failure; empty where the script itself does."""
        if self.record.failure != ASKED:
            return ""
        stages = None
        with suppress(FileNotFoundError):
            stages = StoredFolder(self.run.folder).read_yaml(HYDRA, dict[str, Any]).get("stages")
        minify = stages.get("minify") if isinstance(stages, Mapping) else None
        words = minify.get("command") if isinstance(minify, Mapping) else None
        given = [str(word) for word in words] if isinstance(words, list) else []
        return shlex.join(asked_of(given, str(self.run.folder / self.record.path)))

    @property
    def found_in(self) -> str:
        """The run and the script, as a table and a message show them."""
        return f"{run_id(self.run.folder)}/{self.record.path}"

    @cached_property
    def text(self) -> str:
        """The script.

        Raises:
            DamagedError: it is not there, or not as the run stored it.
        """
        path = self.record.path
        if not files.REPRO.is_path(path) or path.count("/") != 1:
            raise self.damaged(f"repros has the path {path!r}", "a file in repros/")
        try:
            return self.run.artifacts.read_text(path)
        except FileNotFoundError:
            raise self.damaged(f"there is no {path}", "a run with the scripts that its summary names") from None

    @cached_property
    def tree(self) -> ast.Module:
        """The script, parsed; DamagedError where it is no Python."""
        try:
            return ast.parse(self.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self.damaged(f"{self.record.path} is no Python ({type(error).__name__})") from error

    def damaged(self, what: str, valid: str = "a script as this tool writes it") -> DamagedError:
        """An error about this script: ``what`` is wrong."""
        shown = visible(str(self.run.folder))
        return DamagedError(visible(what), key=shown, valid=valid, hint=self.run.rerun())

    @property
    def head(self) -> list[str]:
        """Lines of its docstring: the title, then the notes, up to how it is used, which is indented."""
        lines = (ast.get_docstring(self.tree) or "").splitlines()
        end = next((at for at, line in enumerate(lines) if line[:1].isspace()), len(lines))
        return [line.strip() for line in lines[:end] if line.strip()]

    @property
    def title(self) -> str:
        """What fails, in one line."""
        return next(iter(self.head), self.record.failure).removesuffix(".")

    @property
    def data(self) -> str:
        """Name of the file of numbers that it reads beside it; empty for none.

        Raises:
            DamagedError: it names one elsewhere.
        """
        node = self._data
        name = node.value.value if node is not None and isinstance(node.value, ast.Constant) else ""
        if not isinstance(name, str) or name != Path(name).name:
            raise self.damaged(f"{self.record.path} reads {name!r}", "a file beside it")
        return name

    @property
    def _data(self) -> ast.Assign | None:
        named = (node for node in self.tree.body if isinstance(node, ast.Assign))
        return next((node for node in named if ast.unparse(node.targets[0]) == "DATA"), None)

    @property
    def kernel(self) -> str:
        """What the backend generates for the program; empty where that is not stored."""
        found = files.MINIFIED.read(self.run.artifacts)
        if found is None or found.path != self.record.path or not found.kernel:
            return ""
        if not files.REPRO.is_path(found.kernel) or found.kernel.count("/") != 1:
            raise self.damaged(f"the kernel has the path {found.kernel!r}", "a file in repros/")
        try:
            return self.run.artifacts.read_text(found.kernel)
        except FileNotFoundError:
            raise self.damaged(f"there is no {found.kernel}", "a run with the kernels that it names") from None

    def reading(self, data: str) -> str:
        """The script, with another name of the file of numbers."""
        node = self._data
        return self.text if node is None else self._with_lines(node, [f"DATA = {data!r}"])

    def _with_lines(self, node: ast.stmt, made: list[str]) -> str:
        """The script with other lines in the place of a statement's."""
        lines = self.text.splitlines()
        return "\n".join([*lines[: node.lineno - 1], *made, *lines[node.end_lineno :]]) + "\n"

    def numbers(self) -> bytes:
        """That file's content."""
        path = files.REPRO.at(self.data)
        try:
            return self.run.artifacts.read_bytes(path)
        except FileNotFoundError:
            raise self.damaged(f"there is no {path}", "a run with the files that its scripts read") from None

    @property
    def _compiled(self) -> ast.FunctionDef | None:
        """The function that compiles the program; None in the script of a violation."""
        found = (node for node in self.tree.body if isinstance(node, ast.FunctionDef) and node.name == "compiled")
        return next(found, None)

    def _compile_call(self) -> ast.Call | None:
        nodes = [] if self._compiled is None else ast.walk(self._compiled)
        calls = (node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.compile")
        return next(calls, None)

    @property
    def backend(self) -> str:
        """The name by which torch knows the backend; empty where it is made of an import, or nothing is compiled."""
        call = self._compile_call()
        given = next((word.value for word in call.keywords if word.arg == "backend"), None) if call else None
        return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else ""

    @property
    def packages(self) -> tuple[str, ...]:
        """Modules that the backend is imported from."""
        nodes = [] if self._compiled is None else list(ast.walk(self._compiled))
        named = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        named += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        return tuple(dict.fromkeys(named))

    def through(self, backend: str) -> str:
        """The script with another backend of torch's in the place of its own, and without that one's options."""
        call, function = self._compile_call(), self._compiled
        if call is None or function is None:
            raise self.damaged(f"{self.record.path} compiles nothing", "the script of a compiler's failure")
        kept = [ast.unparse(word) for word in call.keywords if word.arg not in ("backend", "options", "mode")]
        words = [*map(ast.unparse, call.args), f"backend={backend!r}", *kept]
        made = ["def compiled():", f"    return torch.compile({', '.join(words)})"]
        return self._with_lines(function, made)

    def script(self, text: str = "") -> Script:
        """What is run: its own text, or another that reads the same numbers."""
        if self.data:
            self.numbers()  # as the run stored them
        beside = (self.run.folder / files.REPRO.at(self.data),) if self.data else ()
        return Script(self.name, text or self.text, "", beside=beside, packages=self.packages)


def answers(output: str) -> list[str]:
    """The lines in which a script says what it found."""
    return _ANSWER.findall(output)
