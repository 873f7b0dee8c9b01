"""Sizes that may be symbolic: what is certain of them, and their value in this case. Free of torch."""

import ast
import math
import operator
from collections.abc import Callable, Mapping

from stages.graphs import Size

Symbols = Mapping[str, Mapping[str, int | None]]

_FOLDS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


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


def _parse(expression: str) -> ast.expr | None:
    try:
        return ast.parse(expression, mode="eval").body
    except SyntaxError:
        return None


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
    if isinstance(tree, ast.BinOp) and type(tree.op) in _FOLDS:
        left, right = _value(tree.left, symbols), _value(tree.right, symbols)
        if left is None or right is None or (right == 0 and isinstance(tree.op, (ast.FloorDiv, ast.Mod))):
            return None
        return _FOLDS[type(tree.op)](left, right)
    return None
