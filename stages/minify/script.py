"""A program and the failure that it shows, as a script as a person would write it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from inductor_debug.stages.minify.candidate import Candidate, Stored, TensorGiven
from inductor_debug.stages.minify.failures import CHILD, DEFECT, ERROR, Failure
from inductor_debug.stages.minify.source import function_source, inputs_source
from inductor_debug.stages.repro.check import COULD_NOT_RUN, NOT_REPRODUCED, REPRODUCED

_SKELETON = Path(__file__).with_name("script.template")
_PARTS = Path(__file__).with_name("script_parts.template")


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


def script(
    candidate: Candidate, compiler: Compiler, failure: Failure | None = None, *, data: str, title: str = "",
    notes: Sequence[str] = (), factor: float = 4.0, limit_s: float = 60.0,
) -> str:  # fmt: skip
    """The text of a script.

    Args:
        candidate: the program.
        compiler: what it is compiled with.
        failure: what the script looks for; None for one that says what it finds, and runs in a process of its own.
        data: name of the safetensors file beside the script that has the numbers of tensors; without ``failure`` the
            folder that has a file for each.
        title: first line of the docstring.
        notes: further lines of it.
        factor: error over that of eager above which a result is wrong.
        limit_s: after how many seconds a compilation is taken to hang.

    Raises:
        NotReproducible: part of the program can't be written.
    """
    kind = "any" if failure is None else failure.kind
    child = kind in CHILD
    tensors = [item for item in candidate.given if isinstance(item, TensorGiven)]
    stored = any(isinstance(item.values, Stored) for item in tensors)
    given = inputs_source(candidate)
    helpers = ["laid_out"] if tensors else []
    helpers += ["fixed"] if " fixed(" in given else []
    helpers += [] if not stored else ["kept"] if failure is None else ["stored"]
    helpers += {DEFECT: ["exact", "off"], ERROR: ["where"], "any": ["exact", "off", "where"]}.get(kind, [])
    parts, program = _parts(), function_source(candidate)
    values = {
        "data": repr(data), "factor": f"{factor:g}",
        "share": "0.0" if candidate.operations == 1 else "0.01", "reproduced": str(REPRODUCED),
        "not_reproduced": str(NOT_REPRODUCED), "could_not_run": str(COULD_NOT_RUN),
    }  # fmt: skip
    imports = {"operator": "operator." in program, "math": "math." in program or "off" in helpers,
               "json": "stored" in helpers, "os": stored or "where" in helpers,
               "subprocess": child}  # fmt: skip
    dispatch = [
        "from torch.utils._python_dispatch import TorchDispatchMode",
        "from torch.utils._pytree import tree_map",
    ]
    expected = "" if failure is None else failure.text
    return Template(_SKELETON.read_text(encoding="utf-8")).substitute(
        values, title=_plain(title or "A program that a compiler gets wrong."),
        notes="\n".join(map(_plain, notes)) or "Part of a graph.", expected=_plain(expected),
        here=parts["usage child"] if child else "",
        imports="".join(f"import {name}\n" for name in sorted(imports) if imports[name]),
        more_imports="".join(f"{line}\n" for line in (dispatch if "exact" in helpers else [])),
        own_imports="".join(f"    {line}\n\n" for line in compiler.imports),
        constants="".join([f"EXPECTED = {expected!r}\n" if failure is not None else "",
                           f"LIMIT_S = {limit_s:g}\n" if child else ""]),
        helpers="".join(Template(parts[name]).safe_substitute(values) + "\n\n\n" for name in helpers),
        inputs=given, program=program, compile=compiler.arguments(candidate.dynamic),
        found=Template(parts["found crash" if child else f"found {kind}"]).safe_substitute(values),
        main=Template(parts[f"main {'any' if failure is None else 'child' if child else 'here'}"]).substitute(values),
    )  # fmt: skip


def _parts() -> dict[str, str]:
    """The sections of the file of parts, by their titles."""
    parts: dict[str, str] = {}
    for section in _PARTS.read_text(encoding="utf-8").split("#= ")[1:]:
        title, _, text = section.partition("\n")
        parts[title.strip()] = text.strip("\n")
    return parts


def _plain(text: str) -> str:
    """Text that can stand in a docstring."""
    return text.replace("\\", "/").replace('"""', "'''").strip()
