"""Changes after which a program reads as a person would have written it."""

import ast
import copy
from collections.abc import Callable, Iterator
from functools import partial

from inductor_debug.stages.minify.modules.edits import Block
from inductor_debug.stages.minify.modules.program import Function, functions, made, target


def without_aliases(tree: ast.Module) -> Iterator[Callable[[], ast.Module]]:
    """Without an assignment of one name to another: the later uses name the other."""
    for index, function in enumerate(functions(tree)):
        for place, node in enumerate(function.body):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and len(node.targets) == 1 and (
                isinstance(node.targets[0], ast.Name)
            ):  # fmt: skip
                yield partial(_without_alias, tree, index, place)


def _without_alias(tree: ast.Module, index: int, place: int) -> ast.Module:
    tree = copy.deepcopy(tree)
    function = list(functions(tree))[index]
    node = function.body.pop(place)
    assert isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Name)
    for later in function.body[place:]:
        for item in ast.walk(later):
            if isinstance(item, ast.Name) and item.id == node.targets[0].id:
                item.id = node.value.id
    return tree


def with_returned_values(tree: ast.Module) -> Iterator[Callable[[], ast.Module]]:
    """``y = f(x); return y`` as ``return f(x)``."""
    for index, function in enumerate(functions(tree)):
        if len(function.body) > 1 and isinstance(function.body[-1], ast.Return):
            last, given = function.body[-2], ast.unparse(function.body[-1])
            if isinstance(last, ast.Assign) and given == f"return {ast.unparse(last.targets[0])}":
                yield partial(_returned, tree, index)


def _returned(tree: ast.Module, index: int) -> ast.Module:
    tree = copy.deepcopy(tree)
    function = list(functions(tree))[index]
    last = function.body[-2]
    assert isinstance(last, ast.Assign)
    function.body[-2:] = [ast.Return(last.value)]
    return tree


def without_rest(tree: ast.Module) -> ast.Module:
    """Without parameters ``*given`` and ``**given`` that a function does not read, nor hands on but to such a one."""
    tree = copy.deepcopy(tree)
    for function in functions(tree):
        for rest in (function.args.vararg, function.args.kwarg):
            if rest is not None and all(name.id != rest.arg for name in _names(function)):
                function.args.vararg = None if rest is function.args.vararg else function.args.vararg
                function.args.kwarg = None if rest is function.args.kwarg else function.args.kwarg
    return tree


def without_handed_on(tree: ast.Module) -> Iterator[Callable[[], ast.Module]]:
    """Each call without its ``*given`` and keywords."""
    for index, function in enumerate(functions(tree)):
        for place, node in enumerate(ast.walk(function)):
            starred = isinstance(node, ast.Call) and any(isinstance(item, ast.Starred) for item in node.args)
            if starred or (isinstance(node, ast.Call) and node.keywords):
                yield partial(_without_handed_on, tree, index, place)


def _without_handed_on(tree: ast.Module, index: int, place: int) -> ast.Module:
    tree = copy.deepcopy(tree)
    node = list(ast.walk(list(functions(tree))[index]))[place]
    assert isinstance(node, ast.Call)
    node.args, node.keywords = [item for item in node.args if not isinstance(item, ast.Starred)], []
    return tree


def with_one_class(tree: ast.Module) -> ast.Module:
    """A class whose only use is that another extends it becomes a part of that one."""
    tree = copy.deepcopy(tree)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for cls in sorted(classes.values(), key=lambda cls: tree.body.index(cls)):
        base = classes.get(ast.unparse(cls.bases[0])) if len(cls.bases) == 1 else None
        if base is None or any(name.id == "super" for name in _names(cls)):
            continue
        if sum(name.id == base.name for name in _names(tree)) == 1:
            own = {item.name for item in cls.body if isinstance(item, Function)}
            cls.body = [item for item in base.body if not (isinstance(item, Function) and item.name in own)] + cls.body
            cls.bases = base.bases
            tree.body.remove(base)
    return tree


def _names(tree: ast.AST) -> list[ast.Name]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Name)]


def with_drawn_weights(tree: ast.Module) -> ast.Module:
    """The model with numbers from the seed, not those of the file."""
    tree = copy.deepcopy(tree)
    last = made(tree, "model").body[-1]
    if isinstance(last, ast.Return) and isinstance(last.value, ast.Call) and ast.unparse(last.value.func) == "filled":
        last.value = last.value.args[0]
    return tree


def with_drawn_inputs(tree: ast.Module) -> ast.Module:
    """Inputs drawn from the seed, not those of the file: floats, or the call fails."""
    tree = copy.deepcopy(tree)

    class Drawn(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            self.generic_visit(node)
            if ast.unparse(node).startswith("stored("):
                node.func = ast.parse("torch.randn", mode="eval").body
            return node

    Drawn().visit(made(tree, "calls"))
    return tree


def with_plain_numbers(tree: ast.Module) -> ast.Module:
    """Inputs drawn with a mean of 0 and a deviation of 1."""
    tree = copy.deepcopy(tree)

    class Plain(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
            inner = self.visit(node.left)
            return inner if ast.unparse(inner).startswith("torch.randn(") else node

    Plain().visit(made(tree, "calls"))
    return tree


def with_constructors(tree: ast.Module) -> ast.Module:
    """Attributes set by a class's ``__init__`` where it has one instance, and each is made without the others."""
    tree = copy.deepcopy(tree)
    function = made(tree, "model")
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for name, cls in classes.items():
        uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
        own = [ast.unparse(node.targets[0]) for node in function.body
               if isinstance(node, ast.Assign) and _is_made_of(node.value, name)]  # fmt: skip
        if len(uses) != 1 or len(own) != 1 or list(map(ast.unparse, cls.bases)) != ["torch.nn.Module"]:
            continue
        inside, outside = _split(function.body, own[0])
        if inside is not None:
            function.body = outside
            cls.body = [*_constructor(inside, own[0]), *(item for item in cls.body if not isinstance(item, ast.Pass))]
    _finish(function)
    return tree


def _is_made_of(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == name


def _split(body: Block, path: str) -> tuple[Block | None, Block]:
    """The statements below a path, and the others; None where the former read what lies outside."""
    inside = [node for node in body if (goal := target(node)) is not None
              and isinstance(goal, ast.Attribute) and _below(ast.unparse(goal.value), path)]  # fmt: skip
    for node in inside:
        read = [ast.unparse(item) for item in ast.walk(node) if isinstance(item, ast.Attribute | ast.Name)]
        if any(item.split(".")[0].split("[")[0] == "model" and not _below(item, path) and not path.startswith(item)
               for item in read):  # fmt: skip
            return None, body
        values = ast.unparse(node.value) if isinstance(node, ast.Assign) else ""
        if values == path or (values.startswith(("model.", "model[")) and not _below(values, path)):
            return None, body
    return inside, [node for node in body if node not in inside]


def _below(place: str, path: str) -> bool:
    return place == path or place.startswith((f"{path}.", f"{path}["))


def _constructor(inside: Block, path: str) -> Block:
    if not inside:
        return []
    lines = ["def __init__(self):", "    super().__init__()"]
    own = len(path)
    for node in inside:
        text = ast.unparse(node)
        lines.append("    " + "self" + text[own:].replace(f" {path}.", " self."))
    return list(ast.parse("\n".join(lines)).body)


def _finish(function: Function) -> None:
    """``model = Net(); return model.eval()`` as ``return Net().eval()``."""
    if len(function.body) < 2:
        return
    first, last = function.body[-2:]
    if isinstance(first, ast.Assign) and isinstance(last, ast.Return) and last.value is not None:
        names = [node for node in ast.walk(last) if isinstance(node, ast.Name) and node.id == "model"]
        if ast.unparse(first.targets[0]) == "model" and len(names) == 1:
            source = ast.unparse(last).replace("model", ast.unparse(first.value), 1)
            function.body[-2:] = ast.parse(f"def _():\n    {source}").body[0].body  # type: ignore[attr-defined]
