"""Submodules replaced by what they gave."""

import ast
import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from inductor_debug.models.torch_private import pytree
from inductor_debug.stages.minify.modules.inline import MODULE
from inductor_debug.stages.minify.modules.program import made, target
from inductor_debug.stages.minify.modules.recorded import Arguments, running
from inductor_debug.stages.minify.modules.values import Values
from inductor_debug.stages.repro import NotReproducible

GIVEN = {
    "Given": "self.value.clone()",
    "GivenAll": "torch.utils._pytree.tree_map_only(torch.Tensor, torch.clone, self.value)",
}
"""What the classes give that stand for submodules, of one tensor and of others. They compute, since Dynamo compiles no
frame in which nothing does."""


@dataclass(frozen=True)
class Stub:
    """What may stand for a submodule.

    Attributes:
        path: of it in the source of ``model()``.
        value: source of what it gave, or of the tensors in it; empty where nothing may stand for it.
        kind: class that gives it, of :data:`GIVEN`.
        inside: path of the module that calls it, directly or through containers.
    """

    path: str
    value: str
    kind: str
    inside: str


def stubs(module: MODULE, calls: Sequence[Arguments], within: str, places: Mapping[int, str]) -> list[Stub]:
    """What may stand for the submodules of a part that gave tensors of the same layout in all calls.

    Args:
        module: the model, left as found.
        calls: of it.
        within: path of the part.
        places: path in the source of ``model()``, by the address of a module.
    """
    part = module.get_submodule(within)
    names = {name: places[id(item)] for name, item in part.named_modules() if id(item) in places}
    seen: dict[str, list[Any]] = {}
    with running(module, calls) as ran:
        for name, item in ran.get_submodule(within).named_modules():
            if name in names:
                item.register_forward_hook(lambda _, args, output, name=name: seen.setdefault(name, []).append(output))
    found = []
    for name in filter(None, seen):
        around = name.rpartition(".")[0]
        while around not in seen and around:
            around = around.rpartition(".")[0]
        found.append(Stub(names[name], *_source(seen[name]), names[around]))
    return found


def _source(outputs: Sequence[Any]) -> tuple[str, str]:
    """Source of an output, or of the tensors in it if that is an object, and the class that gives it.

    Both are empty where the outputs are not alike, or can't be written.
    """
    if len({repr(pytree.tree_map(_layout, output)) for output in outputs}) == 1:
        values = Values(_refused, lambda name: True, stored=False)
        tensors = [item for item in pytree.tree_leaves(outputs[0]) if isinstance(item, torch.Tensor)]
        for output in (outputs[0], tensors[0] if len(tensors) == 1 else tuple(tensors)):
            with suppress(NotReproducible):
                source = values.source(output, "given")
                return source, "Given" if isinstance(output, torch.Tensor) else "GivenAll"
    return "", ""


def _layout(value: Any) -> Any:
    return (value.shape, value.stride(), value.dtype) if isinstance(value, torch.Tensor) else value


def _refused(value: Any) -> str:
    raise NotReproducible(f"a {type(value).__qualname__} is no tensor")


def replaced(tree: ast.Module, chosen: Iterable[Stub]) -> ast.Module | None:
    """A program in which some submodules give a constant; None where it has something else of that name."""
    tree, chosen = copy.deepcopy(tree), list(chosen)
    for kind in dict.fromkeys(stub.kind for stub in chosen):
        standing = _class(kind)
        known = [node for node in tree.body if getattr(node, "name", "") == kind]
        if any(ast.dump(node) != ast.dump(standing) for node in known):
            return None
        if not known:
            tree.body.insert(tree.body.index(made(tree, "model")), standing)
    function = made(tree, "model")
    for stub in chosen:
        making = ast.parse(f"{stub.kind}()", mode="eval").body
        function.body = [node for node in function.body if not _is_of(node, stub.path)]
        if not any(_put(node, stub.path, making) for node in function.body):
            return None
        function.body[-1:-1] = ast.parse(f"{stub.path}.value = {stub.value}").body
    return tree


def _class(kind: str) -> ast.stmt:
    source = f"class {kind}(torch.nn.Module):\n    def forward(self, *args, **kwargs):\n        return {GIVEN[kind]}"
    return ast.parse(source).body[0]


def _is_of(node: ast.stmt, path: str) -> bool:
    """Whether a statement completes a module, or one within it."""
    goal = target(node)
    return goal is not None and ast.unparse(goal).startswith((f"{path}.", f"{path}["))


def _put(node: ast.stmt, path: str, making: ast.expr) -> bool:
    """Have a statement make what stands for a submodule, if it is the one that makes that."""
    if not isinstance(node, ast.Assign):
        return False
    here = ast.unparse(node.targets[0])
    if here == path:
        node.value = making
        return True
    return path.startswith(f"{here}[") and _put_within(node.value, here, path, making)


def _put_within(value: ast.expr, here: str, path: str, making: ast.expr) -> bool:
    """The same within the expression of a container."""
    first = value.args[0] if isinstance(value, ast.Call) and value.args else value
    held: Sequence[tuple[str, list[ast.expr], int]] = ()
    if isinstance(first, ast.Dict):
        held = [(ast.unparse(key), first.values, place) for place, key in enumerate(first.keys) if key is not None]
    else:
        items = first.elts if isinstance(first, ast.List | ast.Tuple) else getattr(value, "args", [])
        held = [(str(place), items, place) for place in range(len(items))]
    for key, items, place in held:
        inner = f"{here}[{key}]"
        if inner == path:
            items[place] = making
            return True
        if path.startswith(f"{inner}[") and _put_within(items[place], inner, path, making):
            return True
    return False
