"""What makes two failures the same one, from run to run, and across a sweep of dtypes, sizes, alignments and devices.

::

    fingerprint("defect", "inductor", "torch.ops.aten.relu.default")   # what a program shows, through what, of what
    fingerprint("alignment", "torch.conv2d", "pad")                    # a rule, what breaks it, what comes of that
"""

import ast
import hashlib

DIGITS = 12
"""Hexadecimal digits of a fingerprint."""


def fingerprint(*parts: str) -> str:
    """:data:`DIGITS` hexadecimal digits, the same for the same parts in their order."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:DIGITS]


def operations_of(script: str) -> tuple[str, ...]:
    """What the function ``program`` of a script calls, in order, as the script names it: arguments are left out.

    Raises:
        SyntaxError: the text is no Python.
    """
    found = (node for node in ast.parse(script).body if isinstance(node, ast.FunctionDef) and node.name == "program")
    values = (line.value for function in found for line in function.body if isinstance(line, ast.Assign))
    return tuple(ast.unparse(value.func) if isinstance(value, ast.Call) else "getitem" for value in values)
