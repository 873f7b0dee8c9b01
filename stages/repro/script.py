"""A program and a check as one plain-torch file."""

from collections.abc import Iterable

from inductor_debug.stages.repro.check import COULD_NOT_RUN, NOT_REPRODUCED, REPRODUCED, Check
from inductor_debug.stages.repro.program import MadeTensor, Operand, Program

_HEAD = '''"""{title}

{notes}

Needs torch alone.

    python FILE                       measures the property
    python FILE --device cuda:0       the same on another device
    python FILE --backend inductor    also compiles it with a backend: one that torch knows, or package.module:callable

Exit codes: {reproduced} the violation reproduces, {not_reproduced} it does not, 2 a wrong command line,
{could_not_run} the script could not run (or the backend could not).
"""

import argparse
import builtins
import fnmatch
import importlib
import math
import operator
import sys
import traceback

import torch
from torch.utils._python_dispatch import TorchDispatchMode

TARGET = {target!r}
SEED = 0


def make(shape, stride, dtype, device, offset=0, low=0, high=2):
    """A tensor with these strides in a storage of its own: floats from [0, 1), integers from [low, high)."""
    length = offset + sum((size - 1) * step for size, step in zip(shape, stride)) + 1 if 0 not in shape else 0
    generator = torch.Generator().manual_seed(SEED)
    if dtype.is_floating_point or dtype.is_complex:
        wide = dtype if dtype in (torch.float64, torch.complex64, torch.complex128) else torch.float32
        storage = torch.rand(length, dtype=wide, generator=generator)
    else:
        storage = torch.randint(low, high, (length,), dtype=torch.int64, generator=generator)
    return torch.as_strided(storage.to(dtype).to(device), shape, stride, offset)


def tensors(value):
    """Every tensor of a nested value, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [found for item in items for found in tensors(item)]


def denied(patterns, called):
    """Whether one of a deny list's names or patterns is that of one of these calls."""
    names = set()
    for name in called:
        parts = name.split(".")
        names |= {{name, parts[-1]}}
        if parts[0] in ("torch", "_operator") or len(parts) == 1:  # a Python callable or a method
            spaces = {{"linalg": "linalg_", "special": "special_", "fft": "fft_"}}
            own = "".join(spaces.get(part, "") for part in parts[1:-1]) + parts[-1]
            names |= {{own, f"aten.{{own}}", f"aten.{{own}}.default", f"torch.{{own}}", f"torch.nn.functional.{{own}}"}}
        else:
            names |= {{".".join(parts[:2]), parts[1]}}
            if parts[1].endswith("_") and not parts[1].endswith("__"):  # what it is where nothing is done in place
                parts[1] = parts[1][:-1]
                names |= {{".".join(parts[:2]), parts[1], ".".join(parts)}}
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


class Dispatched(TorchDispatchMode):
    """Notes which operators torch dispatches."""

    def __init__(self):
        super().__init__()
        self.called = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.called.append(str(func))
        return func(*args, **(kwargs or {{}}))


def make_inputs(device=None):
'''

_TAIL = '''

def measure(values, called):
    """What the rule looks at, and whether it is violated."""
    found = {measured}
    return found, {violated}


def compiled_with(name):
    module, _, attribute = name.partition(":")
    backend = getattr(importlib.import_module(module), attribute) if attribute else name
    return torch.compile(program, backend=backend)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="where the operands live; default: where they lived")
    parser.add_argument("--backend", help="compile the program with it too: a name, or package.module:callable")
    options = parser.parse_args()
    with torch.no_grad():
        inputs = make_inputs(options.device)
        with Dispatched() as dispatched:
            results = program(*inputs.values())
        found, violated = measure({{**inputs, **results}}, dispatched.called)
        if options.backend:
            compare(results, compiled_with(options.backend)(*make_inputs(options.device).values()), options.backend)
    print(f"{{'VIOLATION' if violated else 'FITS'}} {rule} measured={{found}} limit={limit}")
    return {reproduced} if violated else {not_reproduced}


def compare(expected, got, backend):
    """One line a tensor: how far the backend's result is from torch's."""
    for left, right in zip(tensors(expected), tensors(got), strict=True):
        same = left.shape == right.shape and left.dtype == right.dtype
        worst = (left.to(torch.complex128) - right.to(torch.complex128)).abs().max().item() if left.numel() else 0.0
        print(f"BACKEND {{backend}} same_shape_and_dtype={{same}} max_abs_difference={{worst}}")


if __name__ == "__main__":
    try:
        code = main()
    except Exception:  # whatever torch or the backend raises: not to be taken for the violation
        traceback.print_exc()
        code = {could_not_run}
    sys.exit(code)
'''


def script(program: Program, check: Check, *, title: str, notes: Iterable[str] = ()) -> str:
    """The text of a standalone script: operands, calls, and the check on what they give.

    Args:
        program: what to run.
        check: what to look for; its expressions become the script's ``measure``.
        title: the first line of the script's docstring.
        notes: further lines of it, e.g. where the operation stands in the model.
    """
    lines = [*notes, *_fixed(program)]
    head = _HEAD.format(
        title=_plain(title), notes="\n".join(_plain(line) for line in lines), target=", ".join(program.targets),
        reproduced=REPRODUCED, not_reproduced=NOT_REPRODUCED, could_not_run=COULD_NOT_RUN,
    )  # fmt: skip
    tail = _TAIL.format(
        measured=check.measured, violated=check.violated, rule=check.rule, limit=_braces(check.limit),
        reproduced=REPRODUCED, not_reproduced=NOT_REPRODUCED, could_not_run=COULD_NOT_RUN,
    )  # fmt: skip
    return head + _inputs(program) + _function(program) + tail


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
    lines = ['    """The operands by name."""', "    return {"]
    for operand in program.operands:
        lines.append(f"        {operand.name!r}: {_operand(operand)},")
    return "\n".join([*lines, "    }"]) + "\n"


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
