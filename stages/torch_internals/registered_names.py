"""Names in torch's registry of backends, read from torch's sources: importing it takes seconds.

Relies on ``torch/_dynamo/backends`` and ``torch/_dynamo/repro`` registering with a decorator ``register_…backend``, or
with a call of it, and on the entry-point group ``torch_dynamo_backends``.
"""

import ast
import functools
import importlib.util
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

_PLACES = ("backends", "repro")


@functools.cache
def registered_names() -> tuple[str, ...]:
    """What ``torch.compile(backend=NAME)`` takes, for a message."""
    spec = importlib.util.find_spec("torch")
    root = Path(spec.origin).parent / "_dynamo" if spec and spec.origin else Path()
    files = [file for place in _PLACES for file in sorted((root / place).glob("*.py"))] if spec else []
    names = {point.name for point in entry_points(group="torch_dynamo_backends")}
    for file in files:
        names.update(_names_in(ast.parse(file.read_bytes())))
    return tuple(sorted(names))


def _names_in(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if _registers(decorator):
                    yield _given_name(decorator) or node.name
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _registers(node.value):
            yield from filter(None, [_given_name(node.value)])


def _registers(node: ast.expr) -> bool:
    """Whether it is ``register_backend``, or a call of it."""
    function = node.func if isinstance(node, ast.Call) else node
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    return name.startswith("register_") and name.endswith("backend")


def _given_name(node: ast.expr) -> str:
    keywords = node.keywords if isinstance(node, ast.Call) else []
    given = next((word.value for word in keywords if word.arg == "name"), None)
    return str(given.value) if isinstance(given, ast.Constant) else ""
