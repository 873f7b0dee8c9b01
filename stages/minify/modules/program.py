"""A program as a tree of Python: definitions, ``def model()``, ``def calls()``."""

import ast
import collections
import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from inductor_debug.models.torch_private import pytree
from inductor_debug.stages.minify.modules.recorded import EXACT, Received, copied, kept_generator

MADE = ("model", "calls")
"""Functions that make what a program runs on."""

KEPT = {"forward", "__call__", "__init__"}

Function = ast.FunctionDef


def program(definitions: Sequence[ast.stmt], model: ast.stmt, calls: Sequence[str]) -> ast.Module:
    """A program, without what nothing in it needs."""
    lines = ["def calls():", "    torch.manual_seed(0)", "    return [", *(f"{call}," for call in calls), "    ]"]
    body = [*copy.deepcopy(definitions), model, *ast.parse("\n".join(lines)).body]
    return tidied(ast.Module(body, []))


def text(tree: ast.Module) -> str:
    """Its source; a call a line."""
    lines = []
    for node in ast.fix_missing_locations(tree).body:
        if isinstance(node, Function) and node.name == "calls":
            items = [ast.unparse(item) for item in calls_of(tree).elts]
            given = "".join(f"\n        {item}," for item in items) + "\n    "
            given = f"{items[0]} for _ in range({len(items)})" if len(items) > 1 == len(set(items)) else given
            rest = [f"    {ast.unparse(item)}\n" for item in node.body[:-1]]
            lines.append(f"def calls():\n{''.join(rest)}    return [{given}]")
        else:
            lines.append(ast.unparse(node))
    imports = [line for line in lines if line.startswith("import ")]
    constants = [line for line, node in zip(lines, tree.body, strict=True) if isinstance(node, ast.Assign)]
    rest = [line for line in lines if line not in imports and line not in constants]
    return "\n\n\n".join(filter(None, ["\n".join(constants), *rest]))


def imports(tree: ast.Module) -> list[str]:
    """Modules that it imports, beside torch."""
    named = [item.name for node in tree.body if isinstance(node, ast.Import) for item in node.names]
    read = {node.value.id for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}  # fmt: skip
    return sorted({*named, *({"types", "functools"} & read)} - {"torch"})


def calls_of(tree: ast.Module) -> ast.List:
    """The calls, as the list that ``calls()`` gives."""
    last = made(tree, "calls").body[-1]
    assert isinstance(last, ast.Return) and isinstance(last.value, ast.List)
    return last.value


def made(tree: ast.Module, name: str) -> Function:
    """``def model()`` or ``def calls()``."""
    return next(node for node in tree.body if isinstance(node, Function) and node.name == name)


def functions(tree: ast.Module) -> Iterator[Function]:
    """The functions and methods that compute."""
    for node in tree.body:
        if isinstance(node, Function) and node.name not in MADE:
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from (item for item in node.body if isinstance(item, Function) and item.name != "__init__")


def statements(tree: ast.Module) -> int:
    """How many statements of its functions compute something."""
    count = 0
    for function in functions(tree):
        for node in ast.walk(function):
            trivial = isinstance(node, ast.Pass | ast.Global | ast.Nonlocal) or node is function
            trivial |= isinstance(node, ast.Return) and isinstance(node.value, ast.Name | None)
            count += isinstance(node, ast.stmt) and not trivial
    return count


def tidied(tree: ast.Module) -> ast.Module:
    """Without definitions, methods and attributes that nothing reads; ``tree`` itself, changed."""
    before = ""
    while before != (before := ast.dump(tree)):
        _drop_attributes(tree)
        _drop_methods(tree)
        _drop_names(tree)
    return tree


def target(node: ast.stmt) -> ast.expr | None:
    """What a statement of ``def model()`` completes: an attribute, or the module of a buffer."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        return node.targets[0]
    match node:
        case ast.Expr(ast.Call(func=ast.Attribute(value=owner, attr="register_buffer"), args=[ast.Constant(name), *_])):
            return ast.Attribute(owner, str(name), ast.Store())
    return None


def _drop_attributes(tree: ast.Module) -> None:
    read = _read(tree)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    function, kinds = made(tree, "model"), dict[str, str]()
    kept: list[ast.stmt] = []
    for node in function.body:
        place = target(node)
        if isinstance(node, ast.Assign):
            _note(ast.unparse(node.targets[0]), node.value, kinds)
        if isinstance(place, ast.Attribute):
            owner = ast.unparse(place.value)
            if owner not in kinds or kinds[owner] == "torch.nn.Identity" or (
                place.attr not in read and _plain(kinds[owner], classes) and place.attr != "training"
            ):  # fmt: skip
                kinds.pop(ast.unparse(place), None)
                continue
        if isinstance(node, ast.Global) and not set(node.names) & read:
            continue
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (
            node.targets[0].id != "model" and node.targets[0].id not in read
        ):  # fmt: skip
            continue
        kept.append(node)
    function.body = kept


def _note(path: str, value: ast.expr, kinds: dict[str, str]) -> None:
    """The classes of the modules that an expression makes, by their path."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and (
        value.func.attr == "to" and isinstance(value.func.value, ast.Call)
    ):  # fmt: skip
        value = value.func.value
    kinds[path] = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    inner: Sequence[tuple[Any, ast.expr]] = ()
    if isinstance(value, ast.List | ast.Tuple):
        inner = list(enumerate(value.elts))
    elif isinstance(value, ast.Call):
        first = value.args[0] if value.args else None
        items = first.elts if isinstance(first, ast.List) else value.args
        inner = list(enumerate(items))
        if isinstance(first, ast.Dict):
            inner = [(key.value, item) for key, item in zip(first.keys, first.values, strict=True)
                     if isinstance(key, ast.Constant)]  # fmt: skip
    for key, item in inner:
        if isinstance(item, ast.Call):
            _note(f"{path}[{key!r}]", item, kinds)


def _plain(kind: str, classes: dict[str, ast.ClassDef]) -> bool:
    """Whether a class is the script's, over no module of torch's but ``Module``: its source tells what it reads."""
    if kind not in classes:
        return False
    return all(base == "torch.nn.Module" or _plain(base, classes) for base in map(ast.unparse, classes[kind].bases))


def _read(tree: ast.Module) -> set[str]:
    """Names, names of attributes and texts that its functions read."""
    found: set[str] = set()
    for item in tree.body:
        if not (isinstance(item, Function) and item.name in MADE):
            found |= _names_in(item)
    return found


def _names_in(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def _drop_methods(tree: ast.Module) -> None:
    uses = collections.Counter(name for function in functions(tree) for name in _names_in(function))
    uses.update(name for node in tree.body if not isinstance(node, Function) for name in _read(ast.Module([node], []))
                if not isinstance(node, ast.ClassDef))  # fmt: skip
    for cls in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for item in list(cls.body):
            name = item.name if isinstance(item, Function) else ast.unparse(item.targets[0]) if (
                isinstance(item, ast.Assign)) else ""  # fmt: skip
            if not name or name in KEPT or name.startswith("__"):
                continue
            if uses[name] == (isinstance(item, Function) and name in _names_in(item)):
                cls.body.remove(item)
        cls.body = cls.body or [ast.Pass()]


def _drop_names(tree: ast.Module) -> None:
    read = [{ast.unparse(item) for item in ast.walk(node) if isinstance(item, ast.Name | ast.Attribute)}
            for node in tree.body]  # fmt: skip
    uses = collections.Counter(name for names in read for name in names)
    for node, own in zip(list(tree.body), read, strict=True):
        match node:
            case ast.Import():
                names = {node.names[0].name}
            case ast.Assign():
                names = {ast.unparse(node.targets[0])}
            case ast.FunctionDef() | ast.ClassDef():
                names = {node.name} - set(MADE)
            case _:
                continue
        if names and names != {"torch"} and all(uses[name] == (name in own) for name in names):
            tree.body.remove(node)


def strange(tree: ast.Module, tensors: dict[str, torch.Tensor], original: torch.nn.Module, seen: Sequence[Received],
            ) -> str:  # fmt: skip
    """Why a program's module is not the one that it was made from; empty where it computes the same.

    Args:
        tree: the program.
        tensors: those that it reads from a file.
        original: the module as it was before the calls.
        seen: what it received and gave.
    """
    source = "\n".join(["import torch", *(f"import {name}" for name in imports(tree)), text(tree)])
    scope: dict[str, Any] = {"__name__": "rebuilt", "stored": tensors.__getitem__, "filled": lambda made: made}
    try:
        exec(compile(source, "rebuilt", "exec"), scope)
        with torch.no_grad(), kept_generator():
            module = scope["model"]()
            numbers = {**original.state_dict(), **dict(original.named_buffers())}
            for name, value in {**module.state_dict(), **dict(module.named_buffers())}.items():
                value.copy_(numbers[name])
            for call in seen:
                torch.set_rng_state(call.generator)
                args, kwargs = copied((call.args, call.kwargs))
                if not _alike(module(*args, **kwargs), call.output):
                    return "made anew, it computes something else"
    except Exception as error:  # noqa: BLE001 - whatever a user's code raises
        return f"made anew, it raises {type(error).__name__}: {error}"
    return ""


def _alike(got: Any, wanted: Any) -> bool:
    one, other = (
        [item for item in pytree.tree_leaves(value) if isinstance(item, torch.Tensor)] for value in (got, wanted)
    )
    return len(one) == len(other) and all(_close(x, y) for x, y in zip(one, other, strict=True))


def _close(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return False
    one, other = got.double(), wanted.double()
    size = float(other.abs().nan_to_num(posinf=0.0).max()) if other.numel() else 0.0
    return torch.allclose(one, other, rtol=EXACT, atol=EXACT * size, equal_nan=True)
