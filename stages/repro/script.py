"""A program and a check as one plain-torch file."""

from collections.abc import Iterable
from pathlib import Path
from string import Template

from inductor_debug.stages.repro.check import COULD_NOT_RUN, NOT_REPRODUCED, REPRODUCED, Check
from inductor_debug.stages.repro.program import MadeTensor, Operand, Program

_SKELETON = Path(__file__).with_name("script.template")


def script(program: Program, check: Check, *, title: str, notes: Iterable[str] = ()) -> str:
    """The text of a standalone script: operands, calls, and the check on what they give.

    Args:
        program: what to run.
        check: what to look for; its expressions become the script's ``measure``.
        title: the first line of the script's docstring.
        notes: further lines of it, e.g. where the operation stands in the model.
    """
    lines = [*notes, *_fixed(program)]
    return Template(_SKELETON.read_text(encoding="utf-8")).substitute(
        title=_plain(title), notes="\n".join(_plain(line) for line in lines), target=repr(", ".join(program.targets)),
        program=_inputs(program) + _function(program), measured=check.measured, violated=check.violated,
        rule=check.rule, limit=_braces(check.limit),
        reproduced=REPRODUCED, not_reproduced=NOT_REPRODUCED, could_not_run=COULD_NOT_RUN,
    )  # fmt: skip


def _fixed(program: Program) -> list[str]:
    lines = []
    if program.symbols:
        sizes = ", ".join(f"{name}={value}" for name, value in sorted(program.symbols.items()))
        lines.append(f"Symbolic sizes have the values that they had in this case: {sizes}.")
    if any(tensor.dtype != "bool" and "int" in tensor.dtype for item in program.operands for tensor in item.tensors):
        lines.append("Values are drawn, not the model's; integers lie within what the operation accepts as indices.")
    else:
        lines.append("Values are drawn, not the model's: shapes, dtypes, strides and offsets are the real ones.")
    return lines


def _plain(text: str) -> str:
    """Text that can stand in a docstring."""
    return text.replace("\\", "/").replace('"""', "'''").strip()


def _braces(text: str) -> str:
    """Text that can stand in an f-string of double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("{", "{{").replace("}", "}}")
    return escaped.replace("\n", "\\n")


def _inputs(program: Program) -> str:
    if not program.operands:
        return '    """The operands by name: none."""\n    return {}\n'
    made = "".join(f"        {operand.name!r}: {_operand(operand)},\n" for operand in program.operands)
    return f'    """The operands by name."""\n    return {{\n{made}    }}\n'


def _operand(operand: Operand) -> str:
    made = [_make(tensor) for tensor in operand.tensors]
    return f"({', '.join(made)})" if operand.tuple else made[0]


def _make(tensor: MadeTensor) -> str:
    given = [repr(list(tensor.shape)), repr(list(tensor.stride)), f"torch.{tensor.dtype}"]
    given.append(f"device or {tensor.device!r}")
    if tensor.offset:
        given.append(f"offset={tensor.offset}")
    if "int" in tensor.dtype:
        given += [f"low={tensor.span[0]}", f"high={tensor.span[1]}"]
    return f"make({', '.join(given)})"


def _function(program: Program) -> str:
    arguments = ", ".join(operand.name for operand in program.operands)
    lines = ["", "", f"def program({arguments}):", '    """The operation as the graph holds it; results by name."""']
    lines += [f"    {variable} = {source}" for variable, source in program.calls]
    results = ", ".join(f"{variable!r}: {variable}" for variable, _ in program.calls)
    return "\n".join([*lines, f"    return {{{results}}}"]) + "\n"
