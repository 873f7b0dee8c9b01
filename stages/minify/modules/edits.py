"""Single changes of a program, each a new tree; None where a change does not apply."""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from inductor_debug.stages.minify.modules.program import Function, calls_of, functions, made, target

Block = list[ast.stmt]

_BLOCKS = ("body", "orelse", "finalbody", "handlers")


def blocks(tree: ast.Module, depth: int) -> Iterator[tuple[Function, Block]]:
    """The blocks of statements of all functions that lie so deep, 0 for a function's own."""
    for function in functions(tree):
        level: list[Block] = [function.body]
        for _ in range(depth):
            level = [inner for block in level for node in block for inner in inner_blocks(node)]
        yield from ((function, block) for block in level)


def inner_blocks(node: ast.stmt) -> Iterator[Block]:
    """The blocks of a compound statement."""
    for name in _BLOCKS:
        for item in getattr(node, name, None) or ():
            if isinstance(item, ast.ExceptHandler):
                yield item.body
        block = getattr(node, name, None)
        if block and name != "handlers":
            yield block


def units(tree: ast.Module, depth: int) -> list[ast.stmt]:
    """The statements at a depth that can be left out."""
    return [node for _, block in blocks(tree, depth) for node in block if not isinstance(node, ast.Pass)]


def with_statements(tree: ast.Module, depth: int, kept: Sequence[int]) -> ast.Module:
    """Of the statements at a depth some; what the others compute is one of their operands, where it is used later."""
    tree = copy.deepcopy(tree)
    wanted, place = set(kept), 0
    for function, block in blocks(tree, depth):
        new: Block = []
        for node in block:
            if isinstance(node, ast.Pass):
                continue
            new += [node] if place in wanted else stand_in(node, function)
            place += 1
        block[:] = new or [ast.Pass()]
    return tree


def stand_in(node: ast.stmt, function: Function) -> Block:
    """What is left of a statement that is left out: its names become one of its operands."""
    value = getattr(node, "value", None)
    if not isinstance(node, ast.Assign | ast.Return) or value is None:
        return [node] if isinstance(node, ast.Global) else []
    known = _variables(function)
    operand = next((item for item in ast.walk(value) if isinstance(item, ast.Name) and item.id in known), None)
    if operand is None:
        return []
    if isinstance(node, ast.Return):
        return [ast.Return(ast.Name(operand.id, ast.Load()))]
    names = [item for goal in node.targets for item in (goal.elts if isinstance(goal, ast.Tuple) else [goal])]
    return [ast.Assign([ast.Name(name.id, ast.Store())], ast.Name(operand.id, ast.Load()), lineno=0)
            for name in names if isinstance(name, ast.Name) and name.id != operand.id]  # fmt: skip


def _variables(function: Function) -> set[str]:
    given = function.args
    names = {item.arg for item in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    names |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return names - {"self"}


def cut_after(tree: ast.Module, count: int) -> ast.Module | None:
    """The module's forward up to its first ``count`` statements, whose last one's result it gives."""
    tree = copy.deepcopy(tree)
    function = forward(tree)
    if function is None or count >= len(function.body):
        return None
    last = function.body[count - 1]
    goal = last.targets[0] if isinstance(last, ast.Assign) else last.target if isinstance(last, ast.AugAssign) else None
    goal = goal.elts[0] if isinstance(goal, ast.Tuple) else goal
    if not isinstance(goal, ast.Name):
        return None
    function.body[count:] = [ast.Return(ast.Name(goal.id, ast.Load()))]
    return tree


def forward(tree: ast.Module) -> Function | None:
    """The forward of the module as a whole; None where that is one of torch's."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    kind = next(node.value for node in made(tree, "model").body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "model")  # fmt: skip
    name = ast.unparse(kind.func) if isinstance(kind, ast.Call) else ""
    while name in classes:
        found = [item for item in classes[name].body if isinstance(item, Function) and item.name == "forward"]
        if found:
            return found[0]
        name = ast.unparse(classes[name].bases[0])
    return None


def unwrapped(tree: ast.Module) -> Iterator[Callable[[], ast.Module]]:
    """Each compound statement replaced by one of its blocks."""
    for place, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.If | ast.With | ast.Try | ast.For | ast.While):
            for number in range(len(list(inner_blocks(node)))):
                yield partial(_unwrapped, tree, place, number)


def _unwrapped(tree: ast.Module, place: int, number: int) -> ast.Module:
    tree = copy.deepcopy(tree)
    node = list(ast.walk(tree))[place]
    assert isinstance(node, ast.stmt)
    block = list(inner_blocks(node))[number]
    for other in ast.walk(tree):
        for name in _BLOCKS:
            held = getattr(other, name, None)
            if isinstance(held, list) and node in held:
                start = held.index(node)
                held[start : start + 1] = block
                return tree
    return tree


def simpler_expressions(tree: ast.Module) -> Iterator[Callable[[], ast.Module]]:
    """Each expression of the functions replaced by one of its operands, outer ones first."""
    for index, function in enumerate(functions(tree)):
        for place, node in enumerate(ast.walk(function)):
            for number in range(len(_operands(node)) if isinstance(node, ast.expr) else 0):
                yield partial(_replaced, tree, index, place, number)


def _operands(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Call(func=function, args=args, keywords=keywords):
            of = [function.value] if isinstance(function, ast.Attribute) and not _is_module(function.value) else []
            given = [item for item in args if not isinstance(item, ast.Starred)]
            return [*of, *given, *(item.value for item in keywords)]
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.BoolOp(values=values):
            return values
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.Subscript(value=value, ctx=ast.Load()):
            return [value]
        case ast.Tuple(elts=items, ctx=ast.Load()) | ast.List(elts=items, ctx=ast.Load()):
            return items
        case ast.Attribute(value=value, ctx=ast.Load()) if not _is_module(value):
            return [value]
    return []


def _is_module(node: ast.expr) -> bool:
    """Whether an expression is ``self``, or torch, or a module of it."""
    while isinstance(node, ast.Attribute):
        node = node.value
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("torch", "self", "math", "functools", "types", "operator")


def _replaced(tree: ast.Module, index: int, place: int, number: int) -> ast.Module:
    tree = copy.deepcopy(tree)
    function = list(functions(tree))[index]
    node = list(ast.walk(function))[place]
    operand = _operands(node)[number]
    for other in ast.walk(function):
        for name, value in ast.iter_fields(other):
            if value is node:
                setattr(other, name, operand)
            elif isinstance(value, list) and any(item is node for item in value):
                setattr(other, name, [operand if item is node else item for item in value])
    return tree


def without_parameters(tree: ast.Module) -> Iterator[Callable[[], ast.Module]]:
    """The forward without one of its parameters, and the calls without what they give for it."""
    function = forward(tree)
    for place in range(len(function.args.args) - 1, 0, -1) if function is not None else ():
        yield partial(_without_parameter, tree, place)


def _without_parameter(tree: ast.Module, place: int) -> ast.Module:
    tree = copy.deepcopy(tree)
    function = forward(tree)
    assert function is not None
    given = function.args
    first_default = len(given.args) - len(given.defaults)
    if place >= first_default:
        del given.defaults[place - first_default]
    name = given.args.pop(place).arg
    for call in calls_of(tree).elts:
        assert isinstance(call, ast.Tuple)
        args, kwargs = call.elts
        assert isinstance(args, ast.Tuple) and isinstance(kwargs, ast.Dict)
        if place - 1 < len(args.elts):
            del args.elts[place - 1]
        for position, key in enumerate(kwargs.keys):
            if isinstance(key, ast.Constant) and key.value == name:
                del kwargs.keys[position], kwargs.values[position]
                break
    return tree


def with_calls(tree: ast.Module, kept: Sequence[int]) -> ast.Module:
    """Some of the calls."""
    tree = copy.deepcopy(tree)
    items = calls_of(tree)
    items.elts = [items.elts[place] for place in kept]
    return tree


def items(tree: ast.Module) -> list[tuple[str, int]]:
    """The children of containers in ``model()``: the source of the container's place, and the child's number."""
    found = []
    for node in made(tree, "model").body:
        if isinstance(node, ast.Assign):
            for held in _containers(node.value):
                found += [(ast.unparse(node.targets[0]), number) for number in range(len(held))]
    return found


def _containers(value: ast.expr) -> list[list[ast.expr]]:
    """The children that a container of one expression is made of."""
    if isinstance(value, ast.Call) and value.args:
        first = value.args[0]
        if isinstance(first, ast.List) and first.elts and isinstance(first.elts[0], ast.Call):
            return [first.elts]
        if all(isinstance(item, ast.Call) for item in value.args):
            return [value.args]
    return []


def with_items(tree: ast.Module, kept: Sequence[int]) -> ast.Module:
    """Some of the children of containers, numbered anew."""
    tree = copy.deepcopy(tree)
    function, every = made(tree, "model"), items(tree)
    wanted = {every[place] for place in kept}
    numbers = {path: [number for other, number in every if other == path and (other, number) in wanted]
               for path, _ in every}  # fmt: skip
    body: Block = []
    for node in function.body:
        if isinstance(node, ast.Assign):
            path = ast.unparse(node.targets[0])
            for held in _containers(node.value) if path in numbers else ():
                held[:] = [held[number] for number in numbers[path]]
        goal = target(node)
        if goal is None or _renumbered(node, numbers):
            body.append(node)
    function.body = body
    return tree


def _renumbered(node: ast.stmt, numbers: dict[str, list[int]]) -> bool:
    """Whether what a statement completes is still there; its numbers are then the new ones."""
    for item in ast.walk(node):
        if isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Constant):
            held = numbers.get(ast.unparse(item.value))
            if held is not None and item.slice.value not in held:
                return False
    for item in [item for item in ast.walk(node) if isinstance(item, ast.Subscript)]:
        held = numbers.get(ast.unparse(item.value))
        if held is not None and isinstance(item.slice, ast.Constant):
            item.slice = ast.Constant([*held].index(int(str(item.slice.value))))
    return True


def numbers(tree: ast.Module) -> list[int]:
    """The whole numbers over 1 of a program, large ones first."""
    found = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is int}
    return sorted((value for value in found if value > 1), reverse=True)


def with_number(tree: ast.Module, old: int, new: int, within: str = "") -> ast.Module:
    """A whole number replaced by another.

    Args:
        tree: the program.
        old, new: numbers.
        within: ``model`` or ``calls`` for that function alone; empty for everywhere.
    """
    tree = copy.deepcopy(tree)
    for node in ast.walk(made(tree, within) if within else tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value == old:
            node.value = new
    return tree
