"""Sizes that may be symbolic: what is certain of them, and their value in this case."""

import ast
import functools
import itertools
import math
import operator
import random
from collections.abc import Callable, Mapping, Sequence

from inductor_debug.stages.graphs.records import Size, TensorRecord

Symbols = Mapping[str, Mapping[str, int | None]]

MOST_VALUES = 4096
"""So many values of a symbolic size are tried one by one."""
PROBES, MOST_DRAWN = 8, 1 << 20

_INTEGER_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


_OPERATORS: dict[str, type[ast.operator]] = {"FloorDiv": ast.FloorDiv, "Mod": ast.Mod, "PythonMod": ast.Mod}
"""sympy's functions in the sizes that torch writes."""
_FUNCTIONS = (*_OPERATORS, "Max", "Min")


def guaranteed_factor(size: Size) -> int:
    """The largest number known to divide ``size`` whatever its symbols are: 64 for ``"s0*64"``, 1 for ``"s0"``."""
    if isinstance(size, int):
        return abs(size)
    tree = _parse(size)
    return 1 if tree is None else _factor(tree)


def case_value(size: Size, hint: int | None, symbols: Symbols) -> int | None:
    """The size that this case had, or None where it is not known (an unbacked size)."""
    if isinstance(size, int):
        return size
    if hint is not None:
        return hint
    tree = _parse(size)
    return None if tree is None else _value(tree, symbols)


def is_multiple(size: Size, limit: int, symbols: Symbols, value: int | None, *, item: int = 1) -> bool | None:
    """Whether ``size * item`` is a multiple of ``limit``.

    Args:
        size: in elements, or an expression.
        limit: above 0, in the unit of ``item``.
        symbols: the graph's symbols with their ranges.
        value: of ``size`` in this case, None where it is not known.
        item: units an element takes: its bytes, or 1.

    Returns:
        True: it is one for all values of the symbols. False: it is not in this case, or for no value in the range.
        None: it is in this case but need not be, or nothing is known.
    """
    if guaranteed_factor(size) * item % limit == 0:
        return True
    fits = {number * item % limit == 0 for number in values(size, symbols) or ()}
    if len(fits) == 1:
        return fits.pop()
    return None if value is None or value * item % limit == 0 else False


def product(left: Size, right: Size) -> Size:
    """``left * right``; an expression where one is."""
    return left * right if isinstance(left, int) and isinstance(right, int) else f"({left})*({right})"


def is_equal(left: Size, right: Size, symbols: Symbols) -> bool:
    """Whether two sizes are equal whatever their symbols are, for symbols of at least 2.

    Expressions are compared at :data:`PROBES` random places of the symbols' ranges. At one of N places two different
    polynomials agree with a chance of their degree over N.
    """
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    tree = _parse(f"({left}) - ({right})")
    if tree is None:
        return False
    draw = random.Random(0)
    for _ in range(PROBES):
        point = {name: {"hint": _drawn(draw, symbols.get(name, {}))} for name in _names(tree)}
        if _value(tree, point) != 0:
            return False
    return True


def _drawn(draw: random.Random, known: Mapping[str, int | None]) -> int:
    least, most = max(known.get("min") or 2, 2), known.get("max")
    return draw.randint(least, max(least, least + MOST_DRAWN if most is None else min(most, least + MOST_DRAWN)))


def _names(tree: ast.expr) -> list[str]:
    return sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in _FUNCTIONS})


def bounds(size: Size, symbols: Symbols) -> tuple[int | None, int | None]:
    """The least and the largest value of ``size`` over its symbols' ranges; None for an end that is open or unknown.

    By interval arithmetic: never narrower than the truth.
    """
    if isinstance(size, int):
        return size, size
    tree = _parse(size)
    low, high = (-math.inf, math.inf) if tree is None else _interval(tree, symbols)
    return (None if math.isinf(low) else int(low)), (None if math.isinf(high) else int(high))


def names_in(size: Size) -> frozenset[str]:
    """The symbols that a size depends on."""
    tree = None if isinstance(size, int) else _parse(size)
    return frozenset(() if tree is None else _names(tree))


def values(size: Size, symbols: Symbols) -> Sequence[int] | None:
    """Every value that ``size`` may have, where its symbols' ranges are at most :data:`MOST_VALUES` together; or None.

    Some may be values that a further constraint of the graph excludes.
    """
    if isinstance(size, int):
        return [size]
    tree = _parse(size)
    if tree is None:
        return None
    known = [(name, symbols.get(name, {})) for name in _names(tree)]
    return _values(size, tuple((name, ends.get("min"), ends.get("max")) for name, ends in known))


@functools.lru_cache(maxsize=256)  # of a grid each limit asks for the same
def _values(size: str, ends: tuple[tuple[str, int | None, int | None], ...]) -> tuple[int, ...] | None:
    tree = _parse(size)
    assert tree is not None
    ranges, count = [], 1
    for _, low, high in ends:
        if low is None or high is None:
            return None
        ranges.append(range(low, high + 1))
        count *= max(0, high + 1 - low)
    if count > MOST_VALUES:
        return None
    found = []
    for each in itertools.product(*ranges):
        value = _value(tree, {name: {"hint": number} for (name, _, _), number in zip(ends, each, strict=True)})
        if value is None:
            return None
        found.append(value)
    return tuple(found)


def _interval(tree: ast.expr, symbols: Symbols) -> tuple[float, float]:
    unknown = (-math.inf, math.inf)
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value, tree.value
    if isinstance(tree, ast.Name):
        known = symbols.get(tree.id, {})
        least, most = known.get("min"), known.get("max")
        return (-math.inf if least is None else least), (math.inf if most is None else most)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        low, high = _interval(tree.operand, symbols)
        return -high, -low
    if isinstance(tree, ast.Call):
        arguments = [_interval(argument, symbols) for argument in tree.args]
        function = _function(tree)
        if function in ("Max", "Min") and arguments:
            pick = max if function == "Max" else min
            return pick(low for low, _ in arguments), pick(high for _, high in arguments)
        operator_type = _OPERATORS.get(function or "")
        return unknown if operator_type is None else _combine(operator_type, *arguments)
    if isinstance(tree, ast.BinOp):
        return _combine(type(tree.op), _interval(tree.left, symbols), _interval(tree.right, symbols))
    return unknown


def _combine(kind: type[ast.operator], left: tuple[float, float], right: tuple[float, float]) -> tuple[float, float]:
    unknown = (-math.inf, math.inf)
    if kind is ast.Add:
        return left[0] + right[0], left[1] + right[1]
    if kind is ast.Sub:
        return left[0] - right[1], left[1] - right[0]
    if kind is ast.Mult:
        corners = [0.0 if 0 in (a, b) else a * b for a in left for b in right]
        return min(corners), max(corners)
    if kind is ast.FloorDiv and right[0] > 0:
        corners = [_floor_division(a, b) for a in left for b in right]
        return min(corners), max(corners)
    if kind is ast.Mod and right[0] > 0:
        return 0.0, right[1] - 1
    if kind is ast.Pow and left[0] >= 0 and right[0] == right[1] and 0 <= right[0] < 8:
        return left[0] ** right[0], left[1] ** right[0]
    return unknown


def _floor_division(left: float, right: float) -> float:
    if math.isinf(right):
        return 0.0 if left >= 0 else -1.0
    return left if math.isinf(left) else float(left // right)


def _function(tree: ast.Call) -> str | None:
    return tree.func.id if isinstance(tree.func, ast.Name) else None


@functools.lru_cache(maxsize=4096)  # a graph repeats few expressions often; nobody changes the tree
def _parse(expression: str) -> ast.expr | None:
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError):  # ValueError: a null byte
        return None


MOST_LETTERS, MOST_LEVELS, MOST_BITS = 4000, 60, 960
"""Of an expression that others wrote: its length, its nesting, and the bits of its value, which a float has to hold."""


def readable(expression: str) -> bool:
    """Whether an expression that others wrote is small enough to be worked with; one that says nothing is."""
    if len(expression) > MOST_LETTERS:
        return False
    try:
        tree = _parse(expression)
    except (RecursionError, MemoryError):  # of Python's parser, nested too deep for it
        return False
    if tree is None:
        return True
    level, nodes = 0, list(ast.iter_child_nodes(tree))
    while nodes and level <= MOST_LEVELS:
        level, nodes = level + 1, [inner for node in nodes for inner in ast.iter_child_nodes(node)]
    return level <= MOST_LEVELS and _bits(tree) <= MOST_BITS


def _bits(tree: ast.expr) -> int:
    """Bits of an expression's value at most, its symbols having 64."""
    if isinstance(tree, ast.Constant):
        return tree.value.bit_length() if isinstance(tree.value, int) else 0
    if isinstance(tree, ast.BinOp):
        left, right = _bits(tree.left), _bits(tree.right)
        if isinstance(tree.op, ast.Pow):
            exponent = tree.right.value if isinstance(tree.right, ast.Constant) else None
            return left * max(exponent, 8) if isinstance(exponent, int) else left * 8
        return left + right if isinstance(tree.op, ast.Mult) else max(left, right) + 1
    inner = [_bits(node) for node in ast.iter_child_nodes(tree) if isinstance(node, ast.expr)]
    return max(inner, default=64)


def _factor(tree: ast.expr) -> int:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return abs(tree.value)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, (ast.USub, ast.UAdd)):
        return _factor(tree.operand)
    if isinstance(tree, ast.BinOp):
        left, right = _factor(tree.left), _factor(tree.right)
        if isinstance(tree.op, ast.Mult):
            return left * right
        if isinstance(tree.op, (ast.Add, ast.Sub)):
            return math.gcd(left, right)
        if isinstance(tree.op, ast.Pow) and isinstance(tree.right, ast.Constant) and isinstance(tree.right.value, int):
            return left**tree.right.value if tree.right.value > 0 else 1
    return 1


def _value(tree: ast.expr, symbols: Symbols) -> int | None:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return tree.value
    if isinstance(tree, ast.Name):
        return symbols.get(tree.id, {}).get("hint")
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        inner = _value(tree.operand, symbols)
        return None if inner is None else -inner
    if isinstance(tree, ast.Call) and _function(tree) in ("Max", "Min") and tree.args:
        each = [_value(argument, symbols) for argument in tree.args]
        known = [value for value in each if value is not None]
        return None if len(known) < len(each) else (max if _function(tree) == "Max" else min)(known)
    if isinstance(tree, ast.Call) and _function(tree) in _OPERATORS and len(tree.args) == 2:
        tree = ast.BinOp(tree.args[0], _OPERATORS[_function(tree) or ""](), tree.args[1])
    if isinstance(tree, ast.BinOp) and (type(tree.op) in _INTEGER_OPERATORS or isinstance(tree.op, ast.Pow)):
        left, right = _value(tree.left, symbols), _value(tree.right, symbols)
        if left is None or right is None or (right == 0 and isinstance(tree.op, (ast.FloorDiv, ast.Mod))):
            return None
        if isinstance(tree.op, ast.Pow):
            return left**right if 0 <= right < 8 else None
        return _INTEGER_OPERATORS[type(tree.op)](left, right)
    return None


def shape_in_case(tensor: TensorRecord, symbols: Symbols) -> list[int | None]:
    """The shape that a tensor had in this case; None for a size that is not known."""
    if str not in map(type, tensor.shape):
        return list(tensor.shape)  # type: ignore[arg-type]
    hints: list[int | None] = list(tensor.hints) if tensor.hints else [None] * len(tensor.shape)
    return [case_value(size, hint, symbols) for size, hint in zip(tensor.shape, hints, strict=True)]
