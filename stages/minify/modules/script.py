"""A module and its inputs, and the failure that they show, as a script as a person would write it."""

import ast
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import Template

from inductor_debug.stages.minify.failures import CHILD, DEFECT, ERROR, STORM, Failure
from inductor_debug.stages.minify.modules.program import imports, text
from inductor_debug.stages.minify.script import PARTS, Compiler, parts_of, plain, with_imports
from inductor_debug.stages.repro.check import COULD_NOT_RUN, NOT_REPRODUCED, REPRODUCED
from inductor_debug.stages.torch_internals.recompile_cause import recompile_cause

EAGER = Compiler("'eager'")
"""Dynamo alone: what shows with it is Dynamo's."""

_HERE = Path(__file__).parent
_NEEDS = {
    STORM: ["cause", "again"], DEFECT: ["off", "compared"], ERROR: ["where"],
    "any": ["off", "compared", "where", "cause", "again"],
}  # fmt: skip


@dataclass(frozen=True)
class Way:
    """How a module is compiled and looked at.

    Attributes:
        compiler: what it is compiled with.
        dynamic, fullgraph: as of ``torch.compile``.
        factor: error over that of eager above which a result is wrong.
        limit_s: after how many seconds a compilation is taken to hang.
        least: calls that compile again from which on it is a storm.
    """

    compiler: Compiler
    dynamic: bool | None = None
    fullgraph: bool = False
    factor: float = 4.0
    limit_s: float = 60.0
    least: int = 2

    @property
    def arguments(self) -> str:
        """Source of the arguments of ``torch.compile`` after the module."""
        given = [f"backend={self.compiler.backend}"]
        given += [] if self.dynamic is None else [f"dynamic={self.dynamic}"]
        given += ["fullgraph=True"] if self.fullgraph else []
        given += [f"options={dict(self.compiler.options)!r}"] if self.compiler.options else []
        return ", ".join(given)


def script(
    tree: ast.Module, way: Way, kind: str = "any", failure: Failure | None = None, *, data: str, title: str = "",
    notes: Sequence[str] = (),
) -> str:  # fmt: skip
    """The text of a script.

    Args:
        tree: the program.
        way: how it is compiled.
        kind: of failure that is looked for, or ``any``.
        failure: that the script looks for; None for one that says what it finds, and runs in a process of its own.
        data: name of the safetensors file beside the script that has the numbers of tensors; without ``failure`` the
            folder that has a file for each.
        title: first line of the docstring.
        notes: further lines of it.
    """
    source, parts = text(tree), _parts()
    child = kind in CHILD
    helpers = [] if "stored(" not in source and "filled(" not in source else ["kept" if failure is None else "stored"]
    helpers += ["filled"] if "filled(" in source else []
    helpers += _NEEDS.get(kind, [])
    values = {
        "data": repr(data), "factor": f"{way.factor:g}", "share": "0.0", "least": str(way.least),
        "reproduced": str(REPRODUCED), "not_reproduced": str(NOT_REPRODUCED), "could_not_run": str(COULD_NOT_RUN),
    }  # fmt: skip
    own = imports(tree)
    more = [f"import {name}" for name in own if name.startswith("torch")]
    more += ["from torch._dynamo.utils import guard_failures"] if "again" in helpers else []
    more += [f"from torch.utils._pytree import {'tree_leaves, tree_map' if 'off' in helpers else 'tree_leaves'}"]
    expected = "" if failure is None else failure.text
    main = "any" if failure is None else "child" if child else "here"
    beside = {name for name in own if not name.startswith("torch")} - {"argparse", "sys", "traceback"}
    return with_imports(partial(
        Template((_HERE / "script.template").read_text(encoding="utf-8")).substitute, values,
        title=plain(title or "A module that a compiler gets wrong."),
        notes="\n".join(map(plain, notes)) or "Part of a model.", expected=plain(expected),
        here=parts["usage child"] if child else "",
        more_imports="".join(f"{line}\n" for line in more),
        own_imports="".join(f"    {line}\n\n" for line in way.compiler.imports),
        constants="".join([f"EXPECTED = {expected!r}\n" if failure is not None else "",
                           f"LIMIT_S = {way.limit_s:g}\n" if child else ""]),
        helpers="".join(Template(parts[name]).safe_substitute(values) + "\n\n\n" for name in helpers),
        program=source, compile=way.arguments,
        found=Template(parts[f"found {'crash' if child else kind}"]).safe_substitute(values),
        main=Template(parts[f"main {main}"]).substitute(values),
    ), beside)  # fmt: skip


def _parts() -> dict[str, str]:
    """The sections of the files of parts, by their titles; those of modules before those of graphs."""
    return {"cause": inspect.getsource(recompile_cause).strip()} | parts_of(PARTS) | parts_of(_HERE / "parts.template")
