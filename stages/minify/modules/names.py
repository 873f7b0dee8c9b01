"""Names in a definition, and what they stand for."""

import ast
import copy
import types
from collections.abc import Callable, Sequence
from typing import Any


class Scope:
    """What a definition may read from around it: variables of functions that it was made in, then globals.

    Args:
        variables: the globals.
        function: whose closure counts too.
    """

    def __init__(self, variables: dict[str, Any], function: types.FunctionType | None = None) -> None:
        self._globals = variables
        self._cells: dict[str, types.CellType] = {}
        if function is not None:
            cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            self._cells = {name: cell for name, cell in cells if name != "__class__"}

    def __contains__(self, name: str) -> bool:
        return name in self._cells or name in self._globals

    def __getitem__(self, name: str) -> Any:
        return self._cells[name].cell_contents if name in self._cells else self._globals[name]

    def get(self, name: str) -> Any:
        """The value of a variable; None where there is none."""
        return self[name] if name in self else None  # noqa: SIM401 - it is what get does

    @property
    def module(self) -> str:
        """Name of the module that the globals are of."""
        return str(self._globals.get("__name__", ""))

    @property
    def is_installed(self) -> bool:
        """Whether that module is of an installed package."""
        return "site-packages" in str(self._globals.get("__file__"))

    def remembered(self, name: str) -> Callable[[], None]:
        """What gives a variable its present value again, and a list, dict or set its content."""
        value = self[name]
        content = copy.copy(value) if type(value) in (list, dict, set) else None

        def give_back() -> None:
            if isinstance(value, list) and content is not None:
                value[:] = content
            elif isinstance(value, dict | set) and content is not None:
                value.clear()
                value.update(content)
            if name in self._cells:
                self._cells[name].cell_contents = value
            else:
                self._globals[name] = value

        return give_back


def plain(tree: ast.stmt, keeps: Callable[[ast.expr], bool]) -> None:
    """Take annotations, docstrings and decorators that are not kept out of a definition."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.decorator_list = [item for item in node.decorator_list if keeps(item)]
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    if isinstance(tree, ast.FunctionDef):
        _Unannotated().visit(tree)


class _Unannotated(ast.NodeTransformer):
    """``x: int = 3`` → ``x = 3``."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        return ast.Pass() if node.value is None else ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return node  # fields of a dataclass


def free_names(tree: ast.stmt) -> set[str]:
    """Names that a definition reads or changes from around it."""
    own: set[str] = set()
    outer: set[str] = set()
    read: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            outer |= set(node.names)
        elif isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else own).add(node.id)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and node is not tree:
            own.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            own |= {(item.asname or item.name).partition(".")[0] for item in node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            own.add(node.name)
    if isinstance(tree, ast.FunctionDef):
        outer |= {name for node in tree.body if isinstance(node, ast.Nonlocal) for name in node.names}
    return (read - own) | outer


def attributes_of_first(tree: ast.FunctionDef) -> set[str]:
    """Names that a method reads of its own object, or of what that holds: ``self.block.norm``."""
    first = tree.args.args[0].arg if tree.args.args else ""
    found = set()
    for node in ast.walk(tree):
        chain: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id == first:
            found |= set(chain)
    return found


def ordered(definitions: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Definitions, each after those that it reads as soon as it is executed: bases, decorators, defaults."""
    named = {name: node for node in definitions for name in _defined(node)}
    done: dict[int, ast.stmt] = {}

    def put(node: ast.stmt, around: tuple[int, ...]) -> None:
        if id(node) in done or id(node) in around:
            return
        for name in _read_at_once(node):
            if name in named:
                put(named[name], (*around, id(node)))
        done[id(node)] = node

    for node in definitions:
        put(node, ())
    return list(done.values())


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    return [item.id for item in node.targets if isinstance(item, ast.Name)] if isinstance(node, ast.Assign) else []


def _read_at_once(tree: ast.stmt) -> list[str]:
    """Names that are read when a definition is executed: not those in the bodies of its functions."""
    found: list[str] = []
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Name):
            found.append(node.id)
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            left += [*node.args.defaults, *filter(None, node.args.kw_defaults), *getattr(node, "decorator_list", [])]
        else:
            left += ast.iter_child_nodes(node)
    return list(dict.fromkeys(found))


class Resolver(ast.NodeTransformer):
    """Replaces free names by what they are called in a script.

    Args:
        free: the names.
        found: source of a name; None for one that stays.
        member: source of what a name has under another, ``module.name``; None where that stays.

    Attributes:
        changed: names that the definition assigns to.
    """

    def __init__(
        self, free: set[str], found: Callable[[str], str | None], member: Callable[[str, str], str | None]
    ) -> None:
        self.changed: set[str] = set()
        self._free, self._found, self._member = free, found, member

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in self._free:
            source = self._member(node.value.id, node.attr)
            if source is not None:
                return _expression(source, node.ctx)
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        source = self._found(node.id) if node.id in self._free else None
        return node if source is None else _expression(source, node.ctx)

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        self.changed |= set(node.names)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.stmt:
        if not set(node.names) <= self._free:
            return node
        self.changed |= set(node.names)
        return ast.Global(node.names)


def _expression(source: str, context: ast.expr_context) -> ast.expr:
    made = ast.parse(source, mode="eval").body
    if isinstance(made, ast.Name | ast.Attribute):
        made.ctx = context
    return made
