"""Private names of torch's are used in two rooms alone, as a walk of every module's syntax tree tells."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("models", "stages", "pipeline", "inductor_debug")
ROOMS = ("models/torch_private.py", "stages/torch_internals/")
PYTHONS = {"_asdict", "_exit", "_fields", "_getframe", "_run_exitfuncs"}
"""Python's own names with an underscore that this package uses."""


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def dotted(node: ast.AST) -> list[str]:
    """``["torch", "_ops", "OpOverload"]`` of ``torch._ops.OpOverload``; empty where no name begins it."""
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Attribute(value=value, attr=name):
            before = dotted(value)
            return [*before, name] if before else []
    return []


def defined(tree: ast.AST) -> set[str]:
    """Private names that a module makes: functions, classes, and what it assigns to."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return set(filter(private, found))


@cache
def trees() -> dict[str, ast.Module]:
    """Every module by its path within the checkout."""
    found = {str(path.relative_to(ROOT)): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    return {name: ast.parse(path.read_text()) for name, path in sorted(found.items())}


@cache
def ours() -> frozenset[str]:
    return frozenset().union(*map(defined, trees().values()))


def imports_torch(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=[ast.alias(name=name), *_]) | ast.ImportFrom(module=str(name)):
                if name.partition(".")[0] == "torch":
                    return True
    return False


def used(tree: ast.AST, known: frozenset[str] = frozenset()) -> Iterator[str]:
    """Private names of torch's that a module uses.

    In a module that imports torch an attribute with an underscore that nobody here defines is torch's too, whatever
    object it is of. Operators (``torch.ops.aten._softmax``) are public by any name.
    """
    has_torch = imports_torch(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                modules = [f"{module}.{alias.name}" for alias in names]
            case ast.Call(func=function, args=[ast.Constant(value=str(module)), *_]) if dotted(function)[-1:] in (
                ["import_module"],
                ["__import__"],
            ):
                modules = [module]
            case ast.Attribute(attr=name):
                names_of = dotted(node)
                operator = "aten" in names_of or names_of[:2] == ["torch", "ops"]
                if private(name) and name not in known | PYTHONS and not operator and has_torch:
                    yield name
                continue
            case _:
                continue
        yield from (name for name in modules if name.startswith("torch.") and any(map(private, name.split("."))))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch._dynamo", ["torch._dynamo"]),
        ("def f():\n    from torch._inductor import config", ["torch._inductor.config"]),
        ("from torch.utils import _pytree as pytree", ["torch.utils._pytree"]),
        ("from torch.overrides import _pop_mode_temporarily", ["torch.overrides._pop_mode_temporarily"]),
        ("importlib.import_module('torch._inductor.config')", ["torch._inductor.config"]),
        ("import torch\nisinstance(x, torch._ops.OpOverload)", ["_ops"]),
        ("from torch import Tensor\ntensor.untyped_storage()._cdata", ["_cdata"]),
        ("import torch\ntorch.ops.aten._softmax(x); aten._to_copy", []),
        ("import torch\nself._own; torch.compile(x); type(x)._fields", []),
        ("import omegaconf\nconfiguration._get_node('x')", []),
        ("text = 'from torch._inductor import config'", []),
    ],
)
def test_private_names_are_recognised(text: str, found: list[str]) -> None:
    assert list(used(ast.parse(text), frozenset({"_own"}))) == found


@pytest.mark.parametrize("file", [name for name in trees() if not name.startswith(ROOMS)])
def test_private_torch_is_used_in_its_rooms_alone(file: str) -> None:
    assert list(used(trees()[file], ours())) == []


def test_the_rooms_hold_what_is_private() -> None:
    rooms = [name for name in trees() if name.startswith(ROOMS)]
    assert sum(1 for name in rooms if list(used(trees()[name], ours()))) > len(rooms) // 2
