"""The functions, classes and constants that modules' methods use, as source that stands alone."""

import ast
import builtins
import functools
import importlib.util
import inspect
import math
import operator
import sys
import textwrap
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from inductor_debug.stages.minify.modules.names import Resolver, Scope, attributes_of_first, free_names, ordered, plain
from inductor_debug.stages.minify.modules.values import Values
from inductor_debug.stages.repro import NotReproducible

MODULE = torch.nn.Module
_ROOMS = (torch, torch.nn, torch.nn.functional, math, operator, builtins)
_OF_TORCH = {"torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.compiler", "torch.linalg", "torch.fft"}
_REFERENCES = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType)
_CONSTANTS = (bool, int, float, str, bytes, tuple, type(None), torch.dtype, torch.device)
MOST = 200
"""Methods from which on a model's source is no script."""

_METHODS = (types.FunctionType, property, staticmethod, classmethod)


class Inliner:
    """Collects definitions.

    Args:
        whole: whether decorators that are no part of torch are kept, ``__call__`` of a class, and methods that are read
            of anything but a method's own object.

    Attributes:
        attributes: names of attributes that the collected source reads.
        packages: imported beside torch and the standard library.
        values: writes values with this source.
        resets: source of what the code changes, by name: each model that is made begins with it.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self.attributes: set[str] = set()
        self.packages: set[str] = set()
        self.resets: dict[str, str] = {}
        self.values = Values(lambda value: self.reference(value), self.attributes.__contains__, stored=False)
        self._whole = whole
        self._names: dict[int, tuple[str, Any]] = {}  # the objects too, so that an address means one of them
        self._of_self: set[str] = set()
        self._imports: set[str] = set()
        self._definitions: list[ast.stmt] = []
        self._classes: dict[type, dict[str, ast.stmt]] = {}
        self._before: list[Callable[[], object]] = []

    def add(self, classes: Iterable[type]) -> None:
        """Collect what the forwards of classes of modules need.

        Raises:
            NotReproducible: part of it has no source.
        """
        concrete = [cls for cls in dict.fromkeys(classes) if not is_torchs(cls)]
        for cls in concrete:
            for name in ("forward", *(["__call__"] if self._whole else [])):
                self._method(cls, cls.__mro__, name)
        before = -1
        read = self.attributes if self._whole else self._of_self
        while before != len(read):
            before = len(read)
            for cls in concrete:
                for name in sorted(read):
                    self._method(cls, cls.__mro__, name)
            if sum(map(len, self._classes.values())) > MOST:
                raise NotReproducible(f"the methods that it may call are over {MOST}")

    def class_name(self, cls: type) -> str:
        """Source of the class that instances are made of: without ``__init__``, and without what no method needs."""
        found = next(base for base in cls.__mro__ if is_torchs(base) or self._classes.get(base))
        return self.reference(found)

    def body(self) -> list[ast.stmt]:
        """Imports, functions, then classes."""
        lines = [f"import {name}" for name in sorted(self._imports | {"torch"})]
        classes = [cls for cls in self._classes if self._classes[cls]]
        made = [self._class(cls) for cls in sorted(classes, key=lambda cls: len(cls.__mro__))]
        return [*ast.parse("\n".join(lines)).body, *ordered(self._definitions), *made]

    def restore(self) -> None:
        """Give what the code reads from around it the values that it had when it was collected."""
        for again in self._before:
            again()

    def imported(self, name: str) -> str:
        """A module's name, which the source imports."""
        if name not in _OF_TORCH:
            self._imports.add(name)
        return name

    def reference(self, value: Any, name: str = "") -> str:
        """Source of a module, a function, a class or a constant, which is collected.

        Args:
            value: what is meant.
            name: that it has where it is used.

        Raises:
            NotReproducible: it has no source.
        """
        known = self._names.get(id(value))
        if known is not None and not isinstance(value, int | str | float | tuple | type(None)):
            return known[0]
        if isinstance(value, types.ModuleType):
            return self._module(value)
        found = self._path(value)
        if found is not None:
            return found
        if isinstance(value, type):
            return self._own_class(value)
        if isinstance(value, types.FunctionType):
            return self._function(value)
        return self._constant(value, name)

    def _module(self, value: types.ModuleType) -> str:
        self._check(value.__name__)
        return self.imported(value.__name__)

    def _check(self, name: str) -> None:
        """Note a package that the script needs; NotReproducible where it can't have it."""
        root = name.partition(".")[0]
        if root == "torch" or (root in sys.stdlib_module_names and root != "__main__"):
            return
        found = importlib.util.find_spec(root) if root != "__main__" else None
        if found is None or "site-packages" not in str(found.origin) or root == "inductor_debug":
            raise NotReproducible(f"{name} is no module that a script can import")
        self.packages.add(root)

    def _path(self, value: Any) -> str | None:
        """The dotted name of what torch or the standard library has."""
        for room in _ROOMS:
            name = getattr(value, "__name__", "")
            if name and getattr(room, name, None) is value:
                return name if room is builtins else f"{self.imported(room.__name__)}.{name}"
        for name, known in vars(types).items():  # the interpreter's own types have no other home
            if known is value and isinstance(value, type):
                return f"{self.imported('types')}.{name}"
        home, name = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", "")
        root = home.partition(".")[0]
        if not name or (root != "torch" and root not in sys.stdlib_module_names) or root in ("__main__", "builtins"):
            return None
        found: Any = sys.modules.get(home)
        for part in name.split("."):
            found = getattr(found, part, None)
        return f"{self.imported(home)}.{name}" if found is value else None

    def _named(self, value: Any, name: str) -> str:
        """A name that no other object has."""
        taken = {known for known, _ in self._names.values()} | {"model", "calls", "compiled", "found", "main", "torch"}
        free, count = name, 1
        while free in taken:
            count += 1
            free = f"{name}_{count}"
        self._names[id(value)] = free, value
        return free

    def _own_class(self, cls: type) -> str:
        if issubclass(cls, MODULE):
            self._classes.setdefault(cls, {})
            return self._names[id(cls)][0] if id(cls) in self._names else self._named(cls, cls.__name__)
        name = self._named(cls, cls.__name__)
        try:
            tree = _parsed(cls)
        except NotReproducible:
            return self._package(cls, name)
        tree.name = name  # type: ignore[attr-defined]
        self._resolve(tree, Scope(vars(sys.modules[cls.__module__])))
        self._definitions.append(tree)
        return name

    def _package(self, value: Any, name: str) -> str:
        self._check(value.__module__)
        return f"{self.imported(value.__module__)}.{name}"

    def _function(self, function: types.FunctionType) -> str:
        inner = function if self._whole else inspect.unwrap(function)
        if id(inner) in self._names:
            return self._names[id(inner)][0]
        name = self._named(inner, "function" if inner.__name__ == "<lambda>" else inner.__name__)
        self._names[id(function)] = name, function
        tree = _parsed(inner)
        if inner.__name__ == "<lambda>":
            lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
            if len(lambdas) != 1:
                raise NotReproducible(f"a lambda of {inner.__module__} shares its line with others")
            tree = ast.Assign([ast.Name(name, ast.Store())], lambdas[0])
        elif isinstance(tree, ast.FunctionDef):
            tree.name = name
        self._resolve(tree, _scope_of(inner))
        self._definitions.append(tree)
        return name

    def _constant(self, value: Any, name: str) -> str:
        if not name:
            raise NotReproducible(f"a {type(value).__qualname__} can't be written")
        free = self._named(value, name)
        self._definitions.append(ast.parse(f"{free} = {self.values.source(value, free)}").body[0])
        return free

    def _method(self, cls: type, mro: tuple[type, ...], name: str) -> None:
        """Collect what a class has under a name, unless torch has it."""
        for place, base in enumerate(mro):
            if is_torchs(base):
                return
            if name not in vars(base):
                continue
            value, known = vars(base)[name], self._classes.setdefault(base, {})
            if name in known:
                return
            if isinstance(value, _METHODS):
                function: Any = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                inner = function if self._whole else inspect.unwrap(function)
                tree = _parsed(inner)
                assert isinstance(tree, ast.FunctionDef)
                tree.name = name
                known[name] = tree
                self._resolve(tree, _scope_of(inner))
                self._of_self |= attributes_of_first(tree)
                if any(isinstance(node, ast.Name) and node.id == "super" for node in ast.walk(tree)):
                    self._method(cls, mro[place + 1 :], name)
            elif not name.startswith("__") and not isinstance(value, types.MemberDescriptorType):
                try:
                    source = self.values.source(value, name)
                except NotReproducible:
                    return
                known[name] = ast.parse(f"{name} = {source}").body[0]
            return

    def _class(self, cls: type) -> ast.stmt:
        bases = dict.fromkeys(self.class_name(base) for base in cls.__bases__ if base is not object)
        tree = ast.parse(f"class {self.reference(cls)}({', '.join(bases)}):\n    pass").body[0]
        assert isinstance(tree, ast.ClassDef)
        tree.body = list(self._classes[cls].values())
        return tree

    def _resolve(self, tree: ast.stmt, scope: Scope) -> None:
        """Give what a definition reads from around it the names that it has in the script."""
        plain(tree, self._keeps(scope))

        def member(name: str, attribute: str) -> str | None:
            room = scope.get(name)
            if not isinstance(room, types.ModuleType) or not _is_users(room):
                return None
            return self._source(attribute, Scope(vars(room)))

        resolver = Resolver(free_names(tree), lambda name: self._source(name, scope), member)
        resolver.visit(tree)
        self.attributes |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        self.attributes |= {node.value for node in ast.walk(tree)
                            if isinstance(node, ast.Constant) and isinstance(node.value, str)}  # fmt: skip
        for name in resolver.changed:
            if self._source(name, scope) not in (name, None):
                raise NotReproducible(f"two globals are called {name}")
            self.resets[name] = self.values.source(scope.get(name), name)

    def _source(self, name: str, scope: Scope) -> str | None:
        """Source of a free name; None for one that stays as it is."""
        if name not in scope:
            return None
        value = scope[name]
        if isinstance(value, _REFERENCES):
            return self.reference(value, name)
        self._before.append(scope.remembered(name))
        if type(value) in (list, dict, set) and not scope.is_installed:
            if any(known == name and other is not value for known, other in self._names.values()):
                raise NotReproducible(f"two globals are called {name}")
            self.resets[name] = self.values.source(value, name)
            self._names[id(value)] = name, value
            return name
        if not isinstance(value, _CONSTANTS) and scope.is_installed:
            self._check(scope.module)
            return f"{self.imported(scope.module)}.{name}"
        key = hash((name, type(value).__name__, repr(value)[:200]))  # equal constants of one name are one
        if key not in self._names:
            self._names[key] = self._constant(value, name), value
        return self._names[key][0]

    def _keeps(self, scope: Scope) -> Callable[[ast.expr], bool]:
        """Whether a decorator stays: one of torch or Python, or any where all are kept."""

        def keeps(decorator: ast.expr) -> bool:
            root = decorator.func if isinstance(decorator, ast.Call) else decorator
            while isinstance(root, ast.Attribute):
                root = root.value
            if self._whole or not isinstance(root, ast.Name):
                return True
            value = scope[root.id] if root.id in scope else getattr(builtins, root.id, None)
            home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", "") or ""
            return home.partition(".")[0] in {"torch", *sys.stdlib_module_names}

        return keeps


def is_torchs(cls: type) -> bool:
    """Whether a class is torch's or Python's own."""
    return cls.__module__.partition(".")[0] in ("torch", "builtins", "abc", "typing")


def _scope_of(function: types.FunctionType) -> Scope:
    """What a function's source reads from around it: it is that of the innermost function where decorators wrap it."""
    written = inspect.unwrap(function)
    return Scope(written.__globals__, written)


def _parsed(value: Any) -> ast.stmt:
    try:
        return ast.parse(_source_of(value)).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise NotReproducible(f"the source of {getattr(value, '__qualname__', value)} is not there: {error}") from error


@functools.cache
def _source_of(value: Any) -> str:
    return textwrap.dedent(inspect.getsource(value))


def _is_users(module: types.ModuleType) -> bool:
    """Whether a module is neither torch's, nor Python's, nor an installed package's."""
    root = module.__name__.partition(".")[0]
    return root not in ("torch", *sys.stdlib_module_names) and "site-packages" not in str(module.__file__)
