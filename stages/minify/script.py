"""A program and the failure that it shows, as a script as a person would write it."""

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from string import Template
from typing import Any

from inductor_debug.stages.minify.candidate import Candidate, Stored, TensorGiven
from inductor_debug.stages.minify.failures import ASKED, CHILD, DEFECT, ERROR, Failure
from inductor_debug.stages.minify.source import function_source, inputs_source
from inductor_debug.stages.repro.check import COULD_NOT_RUN, NOT_REPRODUCED, REPRODUCED

_SKELETON = Path(__file__).with_name("script.template")
PARTS = Path(__file__).with_name("script_parts.template")


@dataclass(frozen=True)
class Compiler:
    """What a script compiles with.

    Attributes:
        backend: source of ``torch.compile(backend=…)``.
        imports: lines that it needs.
        options: given to it as ``options``.
        packages: those of ``imports`` that are not torch.
    """

    backend: str
    imports: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    packages: tuple[str, ...] = ()

    def arguments(self, dynamic: bool) -> str:
        """Source of the arguments of ``torch.compile`` after the program."""
        given = f"backend={self.backend}" + (", dynamic=True" if dynamic else "")
        return given + (f", options={dict(self.options)!r}" if self.options else "")

    @property
    def compiles_cpp(self) -> bool:
        """Whether C++ may be compiled: by TorchInductor, and by what is not torch's."""
        return self.backend == "'inductor'" or bool(self.packages)


@dataclass(frozen=True)
class Predicate:
    """A function that says whether a program shows what is looked for, ``failing(program, inputs)``.

    Attributes:
        name: of it.
        source: statements that leave it under this name.
        packages: what they import beside torch.
    """

    name: str
    source: str
    packages: tuple[str, ...] = ()


_STANDARD = ("collections", "functools", "json", "math", "operator", "os", "re", "subprocess", "types")


@dataclass(frozen=True)
class About:
    """What a script says of itself that is handed over.

    Attributes:
        data: name of the safetensors file beside it that has the numbers of tensors.
        title: first line of the docstring.
        notes: further lines of it.
        limit_s: after how many seconds a compilation is taken to hang.
    """

    data: str
    title: str
    notes: Sequence[str] = ()
    limit_s: float = 60.0


def script(
    candidate: Candidate, by: Compiler | Predicate, failure: Failure | None = None, *, data: str = "",
    about: About | None = None, factor: float = 4.0,
) -> str:  # fmt: skip
    """The text of a script.

    Args:
        candidate: the program.
        by: what it is compiled with, or asked.
        failure: what the script looks for; None for one that says what it finds, in its own process.
        data: of a script that is not handed over, the folder that has a file for each tensor's numbers.
        about: of one that is.
        factor: error over that of eager above which a result is wrong.

    Raises:
        NotReproducible: part of the program can't be written.
    """
    kind = ASKED if isinstance(by, Predicate) else "any" if failure is None else failure.kind
    child = kind in CHILD
    said = About(data, "A program that is tried.") if about is None else about
    tensors = [item for item in candidate.given if isinstance(item, TensorGiven)]
    stored = any(isinstance(item.values, Stored) for item in tensors)
    given = inputs_source(candidate)
    run = "run" if candidate.training else "again" if candidate.times > 1 else ""
    helpers = ["laid_out"] if tensors else []
    helpers += ["fixed"] if " fixed(" in given else []
    helpers += [] if not stored else ["kept"] if about is None else ["stored"]
    helpers += [run] if run else []
    compared = ["exact", "wide", "off"] if run else ["exact", "off"]
    helpers += {DEFECT: compared, ERROR: ["where"], "any": [*compared, "where"]}.get(kind, [])
    parts, program = parts_of(PARTS), function_source(candidate)
    values = {
        "data": repr(said.data), "factor": f"{factor:g}", "times": str(candidate.times),
        "share": "0.0" if candidate.operations == 1 else "0.01", "reproduced": str(REPRODUCED),
        "not_reproduced": str(NOT_REPRODUCED), "could_not_run": str(COULD_NOT_RUN),
        "eager": _called("program", "inputs()", run), "compiled": _called("compiled()", "inputs()", run),
        "function": _called("function", "inputs()", run), "exact": _called("program", "given", run),
        "given": "wide(inputs())" if run else "inputs()",
        "mode": "enable_grad" if candidate.training else "no_grad",
    }  # fmt: skip
    dispatch = [
        "from torch.utils._python_dispatch import TorchDispatchMode",
        "from torch.utils._pytree import tree_map",
    ]
    main = "here" if kind == ASKED else "any" if failure is None else "child" if child else "here"
    expected = ASKED if isinstance(by, Predicate) else "any failure" if failure is None else failure.text
    return with_imports(partial(
        Template(_SKELETON.read_text(encoding="utf-8")).substitute,
        values | {"found": Template(parts["found crash" if child else f"found {kind}"]).safe_substitute(values),
                  "main": Template(parts[f"main {main}"]).substitute(values)},
        title=plain(said.title), notes="\n".join(map(plain, said.notes)) or "Part of a graph.",
        expected=plain(expected), here=parts["usage child"] if child else "",
        more_imports="".join(f"{line}\n" for line in (dispatch if "exact" in helpers else [])),
        constants="".join([f"EXPECTED = {expected!r}\n" if main != "any" else "",
                           f"LIMIT_S = {said.limit_s:g}\n" if child else ""]),
        helpers="".join(Template(parts[name]).safe_substitute(values) + "\n\n\n" for name in helpers),
        inputs=given, program=program,
        by=by.source if isinstance(by, Predicate) else _compiled(by, candidate.dynamic),
    ))  # fmt: skip


def with_imports(made: Callable[..., str], beside: Iterable[str] = ()) -> str:
    """A script that imports what it reads of Python.

    Args:
        made: the script, of ``imports``.
        beside: further modules to import.
    """
    read = {node.id for node in ast.walk(ast.parse(made(imports=""))) if isinstance(node, ast.Name)}
    names = sorted({name for name in _STANDARD if name in read} | set(beside))
    return made(imports="".join(f"import {name}\n" for name in names))


def _called(function: str, inputs: str, run: str) -> str:
    """Source of a call, which is of the helper ``run`` where there is more to it."""
    return f"run({function}, {inputs})" if run else f"{function}(*{inputs})"


def _compiled(compiler: Compiler, dynamic: bool) -> str:
    imports = "".join(f"    {line}\n\n" for line in compiler.imports)
    return f"def compiled():\n{imports}    return torch.compile(program, {compiler.arguments(dynamic)})"


def parts_of(file: Path) -> dict[str, str]:
    """The sections of a file of parts, by their titles."""
    parts: dict[str, str] = {}
    for section in file.read_text(encoding="utf-8").split("#= ")[1:]:
        title, _, text = section.partition("\n")
        parts[title.strip()] = text.strip("\n")
    return parts


def plain(text: str) -> str:
    """Text that can stand in a docstring."""
    return text.replace("\\", "/").replace('"""', "'''").strip()
