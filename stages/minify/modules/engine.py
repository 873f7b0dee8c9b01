"""Looks for the smallest module of a model, and the smallest program of it, that shows what goes wrong."""

import ast
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save

from inductor_debug.stages.formatting import counted, in_lines
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.engine import DATA, LARGE, Minified
from inductor_debug.stages.minify.failures import DEFECT, HANG, STORM, Failure
from inductor_debug.stages.minify.modules.cuts import Cuts
from inductor_debug.stages.minify.modules.inline import Inliner, is_torchs
from inductor_debug.stages.minify.modules.program import calls_of, program, statements, strange, text
from inductor_debug.stages.minify.modules.readable import with_plain_numbers
from inductor_debug.stages.minify.modules.rebuild import Builder
from inductor_debug.stages.minify.modules.recorded import Arguments, call_source, described, received
from inductor_debug.stages.minify.modules.script import EAGER, Way, script
from inductor_debug.stages.minify.modules.stubs import stubs
from inductor_debug.stages.minify.modules.trials import Trials
from inductor_debug.stages.minify.script import Compiler
from inductor_debug.stages.minify.workers import Workers
from inductor_debug.stages.repro import NotReproducible, Script, verify
from inductor_debug.stages.repro.verify import TIMEOUT_S

Progress = Callable[[str], None]


@dataclass
class Part:
    """A submodule as a program.

    Attributes:
        path: of it in the model; empty for the model.
        kind: name of its class.
        tree: the program.
        tensors: that it reads from a file.
        way: how it is compiled.
        packages: that it imports beside torch.
        places: source of each of its modules in the program, by the module's address.
    """

    path: str
    kind: str
    tree: ast.Module
    tensors: dict[str, torch.Tensor]
    way: Way
    packages: tuple[str, ...]
    places: dict[int, str]


def smallest_module(
    module: torch.nn.Module,
    calls: Sequence[Arguments],
    compiler: Compiler,
    options: MinifyConfig,
    *,
    factor: float = 4.0,
    dynamic: bool | None = None,
    fullgraph: bool = False,
    expected: Failure | None = None,
    folder: Path | None = None,
    workers: Workers | None = None,
    over: Callable[[], bool] | None = None,
    progress: Progress = lambda text: None,
) -> Minified | None:
    """The smallest module and calls that show a failure of Dynamo, of state, or of recompilations.

    Each submodule is written as source, with what it receives as the model runs by torch. Small ones are tried first,
    by Dynamo alone before the compiler. The program of the first that shows the failure is cut.

    Args:
        module: the model, left as found.
        calls: positional and keyword arguments of each call, in order; state that one leaves, the next finds.
        compiler: what the model is compiled with.
        options: how long to look.
        factor: error over that of eager above which a result is wrong.
        dynamic, fullgraph: as of ``torch.compile``.
        expected: the failure that is looked for; None for the first that is found.
        folder: where what is known of programs stays, so that a search goes on from there; None for nowhere.
        workers: run the programs, with the compiler's packages; None starts some.
        over: whether time is up; None where ``options.budget_s`` alone tells.
        progress: told of each step.

    Returns:
        None where no submodule shows the failure as a program of its own.

    Raises:
        NotReproducible: neither the model nor any submodule can be written as source, or the model can't be copied.
    """
    began = time.monotonic()

    def ended() -> bool:
        return time.monotonic() - began > options.budget_s or (over is not None and over())

    with TemporaryDirectory(prefix="minify-") as temporary:
        with nullcontext(workers) if workers else Workers(packages=compiler.packages) as running:
            trials = Trials(running, (folder or Path(temporary)) / "modules")
            least = 1 if expected is not None and expected.kind == STORM else 2
            way = Way(compiler, dynamic, fullgraph, factor, options.limit_s, least)
            search = _Search(module, calls, trials, expected, ended, progress)
            told = search.result(way)
        if told is not None:
            told.tried, told.seconds = trials.executed, time.monotonic() - began
        return told


class _Search:
    """A search through the submodules of a model."""

    def __init__(
        self, module: torch.nn.Module, calls: Sequence[Arguments], trials: Trials, expected: Failure | None,
        over: Callable[[], bool], progress: Progress,
    ) -> None:  # fmt: skip
        self.module, self.calls, self.trials, self.expected = module, calls, trials, expected
        self.over, self.progress = over, progress
        self.refused: list[str] = []
        self._inliners: list[Inliner] = []
        self.before = 0

    def result(self, way: Way) -> Minified | None:
        """The script of what is found."""
        found = self._first(way)
        if found is None:
            return None
        part, failure = found
        self.trials.hangs = failure.kind == HANG
        kind = failure.kind
        if kind == STORM:
            part.way = replace(part.way, least=self._times(part, failure))

        def shows(tree: ast.Module) -> bool:
            return self.trials.found(tree, part.way, kind) == failure

        given = stubs(self.module, self.calls, part.path, part.places)
        self._restore()
        cuts = Cuts(part.tree, shows, self.over,
                    lambda text: self.progress(f"{text}, {self.trials.executed} programs tried"), given)  # fmt: skip
        if shows(part.tree):
            cuts.cut()
        return self._told(part, cuts, failure)

    def _first(self, way: Way) -> tuple[Part, Failure] | None:
        """The first submodule that shows the failure, and computes what the model's does."""
        compilers = [EAGER] if way.compiler == EAGER or way.compiler.backend == EAGER.backend else [EAGER, way.compiler]
        written = False
        for stored in (False, True):
            for whole in (False, True):
                parts = list(self._parts(way, whole=whole, stored=stored))
                written = written or bool(parts)
                for compiler in compilers:
                    for part in parts:
                        if self.over():
                            return None
                        part.way = replace(way, compiler=compiler)
                        self.progress(f"trying {part.path or 'the model'}, a {part.kind}, with {compiler.backend}")
                        kind = "any" if self.expected is None else self.expected.kind
                        self.trials.keep(part.tensors)
                        failure = self.trials.found(part.tree, part.way, kind)
                        if failure is not None and self._is_meant(failure) and self._faithful(part):
                            return part, failure
        if not written:
            raise NotReproducible(self.refused[-1] if self.refused else "no module of the model is a user's class")
        return None

    def _parts(self, way: Way, *, whole: bool, stored: bool) -> Iterator[Part]:
        """The submodules that can be written, small ones first; of equal programs one."""
        paths = [path for path, item in self.module.named_modules() if not path or not is_torchs(type(item))]
        sizes = {path: sum(1 for _ in self.module.get_submodule(path).modules()) for path in paths}
        texts: set[str] = set()
        made: list[Part] = []
        inliners = {path: self._inliner(path, whole=whole, stored=stored) for path in paths}
        known = {path: item for path, item in inliners.items() if item is not None}
        given = self._given(known)
        for path, inliner in known.items():
            if path not in given:
                continue
            item = self.module.get_submodule(path)
            try:
                builder = Builder(inliner, stored=stored)
                function = builder.function(item)
                tree = program(inliner.body(), function, given[path])
            except NotReproducible as error:
                self.refused.append(f"{path or 'the model'}: {error}")
                continue
            if not path:
                self.before = statements(tree)
            if (source := text(with_plain_numbers(tree))) in texts:
                continue
            texts.add(source)
            tensors = inliner.values.tensors | (
                dict(item.state_dict()) if stored else {})  # fmt: skip
            made.append(
                Part(path, type(item).__qualname__, tree, tensors, way, tuple(sorted(inliner.packages)), builder.paths)
            )
        likely = self.expected.text.rpartition(" ")[2] if self.expected is not None else ""
        likely = likely if self.expected is not None and self.expected.kind == STORM else ""
        made.sort(key=lambda part: (likely not in text(part.tree), sizes[part.path]))
        yield from made

    def _inliner(self, path: str, *, whole: bool, stored: bool) -> Inliner | None:
        inliner = Inliner(whole=whole)
        try:
            inliner.add(type(item) for item in self.module.get_submodule(path).modules())
        except NotReproducible as error:
            self.refused.append(f"{path or 'the model'}: {error}")
            return None
        inliner.values.stored = stored
        self._inliners.append(inliner)
        return inliner

    def _given(self, inliners: dict[str, Inliner]) -> dict[str, list[str]]:
        """Source of the calls of each submodule."""
        if not inliners:
            return {}
        self.progress("running the model by torch, to know what its modules receive")
        found: dict[str, list[str]] = {}
        try:
            values = {path: item.values for path, item in inliners.items()}
            found = described(self.module, self.calls, values)
            if "" in inliners:
                found[""] = [call_source(args, kwargs, values[""], f"call{place}")
                             for place, (args, kwargs) in enumerate(self.calls)]  # fmt: skip
        except NotReproducible as error:
            self.refused.append(str(error))
        finally:
            self._restore()
        return found

    def _faithful(self, part: Part) -> bool:
        """Whether a part's module computes what the model's does."""
        try:
            seen = received(self.module, self.calls, part.path)
        finally:
            self._restore()
        reason = strange(part.tree, part.tensors, self.module.get_submodule(part.path), seen)
        if reason:
            self.refused.append(f"{part.path or 'the model'}: {reason}")
            self.progress(self.refused[-1])
        return not reason

    def _is_meant(self, failure: Failure) -> bool:
        """Whether a failure is the one that is looked for; a wrong number is, of whichever call."""
        return self.expected in (None, failure) or (
            self.expected is not None and failure.kind == DEFECT == self.expected.kind
        )

    def _restore(self) -> None:
        """Give variables of the user's modules the values that they had."""
        for inliner in reversed(self._inliners):
            inliner.restore()

    def _times(self, part: Part, failure: Failure) -> int:
        """How many calls must compile again: as many as do, up to three, and at least one."""
        most = part.way.least
        for least in (2, 3):
            if self.trials.found(part.tree, replace(part.way, least=least), STORM) == failure:
                most = least
        return most

    def _told(self, part: Part, cuts: Cuts, failure: Failure) -> Minified:
        """The script, run in a fresh process."""
        self.progress("running the script in a fresh process")
        way, tree = part.way, cuts.tree
        before = max(self.before, statements(part.tree), statements(tree))
        cause = failure.text.removeprefix(f"{STORM} on ")
        told = {DEFECT: f"computes wrong numbers of {part.kind}",
                STORM: f"compiles {part.kind} again, call after call, due to {cause}"}  # fmt: skip
        what = told.get(failure.kind, f"gives {failure.text} on {part.kind}")
        title = f"torch.compile with {way.compiler.backend} {what}."
        size = counted(statements(tree), "statement")
        called = counted(len(calls_of(tree).elts), "call")
        whole = counted(before, "statement")
        notes = [f"{size} and {called}, of {part.path or 'the model'}; the whole model has {whole}.",
                 f"Found with torch {torch.__version__}."]  # fmt: skip
        if part.packages and any(name in text(tree) for name in part.packages):
            notes.append(f"It imports {', '.join(part.packages)}, whose source it does not hold.")
        if way.compiler == EAGER:
            notes.append("Dynamo alone shows it: no backend takes part.")
        content = script(tree, way, failure.kind, failure, data=DATA, title=title, notes=notes)
        data = self._data(tree, part)
        with TemporaryDirectory(prefix="minify-") as folder:
            (beside := Path(folder) / DATA).write_bytes(data)
            item = Script("repro", content, f"FOUND {failure.text}", beside=(beside,), packages=way.compiler.packages)
            [checked] = verify([item], timeout_s=TIMEOUT_S + way.limit_s)
        message = f"{title} {size} of {before}, in {called}, {'shows' if size.startswith('1 ') else 'show'} it"
        message += "" if cuts.minimal else ", the fewest that were found in time"
        message += ", in a fresh process too." if checked.verified else f". Not verified: {checked.reason}."
        large = f"The script has {len(content):,} bytes." if len(content) > LARGE else ""
        return Minified(in_lines(message, large), content, data, failure.text, "", part.path, part.kind,
                        statements(tree), before, cuts.minimal, checked.verified, checked.reason)  # fmt: skip

    @staticmethod
    def _data(tree: ast.Module, part: Part) -> bytes:
        """The file of the tensors that a program reads."""
        source = text(tree)
        named = {node.args[0].value for node in ast.walk(tree) if isinstance(node, ast.Call)
                 and ast.unparse(node.func) == "stored" and isinstance(node.args[0], ast.Constant)}  # fmt: skip
        read: dict[str, Any] = {name: value for name, value in part.tensors.items()
                                if name in named or "filled(" in source}  # fmt: skip
        return save({name: value.detach().cpu().contiguous().clone() for name, value in read.items()}) if read else b""
