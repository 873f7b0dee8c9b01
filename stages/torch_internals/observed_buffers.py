"""The buffers of a generated module, seen while it runs: a rewriting of its text.

A wrapper in Python makes buffers, gives them to kernels, and lets go of each when nothing reads it any more: by
``del``, by giving its memory to another (``buf4 = buf3; del buf3  # reuse``), or by its end. Just before, the buffer
holds what all its readers got, whatever wrote into it. So a call is put there that is given the buffer, and two more:
one after the inputs were taken, and one before the results are returned. Nothing else of the module changes: the same
kernels run on the same memory, and what the wrapper frees is freed.

A buffer that no kernel was given is not looked at: its memory was given away before anything was written.
"""

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakValueDictionary

_CALL = "_tell_of_buffers"
_IMPORT = f"\nfrom {__name__} import tell_of_buffers as {_CALL}\n"
_ALLOCATES = ("empty_strided", "reinterpret_tensor", "alloc_from_pool", "assert_", "get_raw_stream", "_DeviceGuard")
"""What the names of functions begin with that write nothing."""

_observers: "WeakValueDictionary[int, Observing]" = WeakValueDictionary()
_numbers = itertools.count()


class Watcher(Protocol):
    """What is told. Tensors are the wrapper's own, and are written into, or freed, after the call."""

    def inputs(self, graph: str, names: Mapping[str, Any]) -> None:
        """A graph begins: all local variables of its wrapper."""

    def buffers(self, graph: str, values: Mapping[str, Any]) -> None:
        """These are let go of: by their names in the wrapper."""

    def outputs(self, graph: str, values: Sequence[Any]) -> None:
        """A graph ends with these results."""


class Observing:
    """Rewrites generated modules so that ``watcher`` is told of their buffers, for as long as this object lives.

    Attributes:
        missing: graph id → why its buffers are not seen.
    """

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.missing: dict[str, str] = {}
        self.number = next(_numbers)
        _observers[self.number] = self

    def rewrite(self, graph: str, text: str) -> str:
        """A generated module's text that tells of its buffers; a text without a wrapper as it is."""
        if "cpp_wrapper_src" in text:
            self.missing[graph] = "its wrapper is C++, in which buffers are not observed"
            return text
        functions = (item for item in ast.walk(ast.parse(text)) if isinstance(item, ast.FunctionDef))
        wrappers = [item for item in functions if _is_wrapper(item)]
        if not wrappers:
            return text
        lines = text.splitlines()
        calls: dict[int, list[str]] = {}
        for wrapper in wrappers:
            for place in _places(wrapper):
                line = lines[place.line - 1]
                indentation = line[: len(line) - len(line.lstrip())]
                told = place.told.format(f"{_CALL}({self.number}, {graph!r}, ")
                calls.setdefault(place.line, []).append(indentation + told)
        changed = [part for number, line in enumerate(lines, 1) for part in (*calls.get(number, ()), line)]
        return "\n".join(changed) + _IMPORT


def tell_of_buffers(number: int, graph: str, kind: str, values: Any) -> None:
    """Called by rewritten modules; nothing happens where their :class:`Observing` is gone."""
    observing = _observers.get(number)
    if observing is not None:
        getattr(observing.watcher, kind)(graph, values)


@dataclass(frozen=True)
class _Place:
    """A line, from 1, before which something is told, with ``{}`` for how the call begins."""

    line: int
    told: str


@dataclass
class _Names:
    """A wrapper's own variables: which were given to a kernel so far, and whose memory each has."""

    own: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)
    memory: dict[str, str] = field(default_factory=dict)

    def make(self, names: Sequence[str]) -> None:
        self.own |= set(names)
        self.given -= set(names)

    def give(self, names: Sequence[str]) -> None:
        for name in names:
            while name in self.own:
                self.given.add(name)
                name = self.memory.get(name, "")

    def remove(self, names: Sequence[str]) -> None:
        self.own -= set(names)
        self.given -= set(names)
        self.memory = {name: source for name, source in self.memory.items() if source not in names}


def _is_wrapper(function: ast.FunctionDef) -> bool:
    named = function.name == "call" or function.name.startswith("partition_")
    return named and any(argument.arg == "args" for argument in function.args.args)


def _places(wrapper: ast.FunctionDef) -> Iterator[_Place]:
    """Where something is told; a part of a wrapper (``partition_0``) begins and ends no graph."""
    whole = wrapper.name == "call"
    names, entered = _Names(), not whole
    for statement in _statements(wrapper.body):
        if isinstance(statement, ast.Delete):
            gone = _names(statement.targets)
            kept = [name for name in gone if name in names.given]
            names.remove(gone)
            if kept:
                values = ", ".join(f"{name!r}: {name}" for name in kept)
                yield _Place(statement.lineno, f"{{}}'buffers', {{{{{values}}}}})")
        elif isinstance(statement, ast.Return):
            values = ", ".join(f"{name!r}: {name}" for name in sorted(names.given))
            yield _Place(statement.lineno, f"{{}}'buffers', {{{{{values}}}}})")
            result = "()" if statement.value is None else ast.unparse(statement.value)
            if whole:
                yield _Place(statement.lineno, f"{{}}'outputs', {result.replace('{', '{{').replace('}', '}}')})")
        elif not entered and not _takes_inputs(statement):
            entered = True
            yield _Place(statement.lineno, "{}'inputs', locals())")
        _note(statement, names)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that do something, those inside ``with`` included, in order."""
    for statement in body:
        if isinstance(statement, ast.With):
            yield from _statements(statement.body)
        elif not isinstance(statement, ast.FunctionDef):
            yield statement


def _takes_inputs(statement: ast.stmt) -> bool:
    """``a, b = args`` and ``args.clear()``, with which a wrapper begins."""
    return any(isinstance(item, ast.Name) and item.id == "args" for item in ast.walk(statement))


def _note(statement: ast.stmt, names: _Names) -> None:
    if isinstance(statement, ast.Expr) and _writes(statement.value):
        names.give(_loaded(statement.value))
    elif isinstance(statement, ast.Assign):
        made, loaded = _names(statement.targets), _loaded(statement.value)
        names.make(made)
        if _writes(statement.value):
            names.give([*loaded, *made])
        elif isinstance(statement.value, ast.Subscript):
            names.give(made)
        else:  # memory, or a part of it, under another name
            names.memory |= {name: source for name in made for source in loaded[:1] if source in names.own}


def _names(targets: Sequence[ast.expr]) -> list[str]:
    return [item.id for target in targets for item in ast.walk(target) if isinstance(item, ast.Name)]


def _writes(value: ast.expr) -> bool:
    """Whether an expression calls a kernel, or a library."""
    if not isinstance(value, ast.Call):
        return False
    function = value.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return not name.startswith(_ALLOCATES)


def _loaded(value: ast.expr) -> list[str]:
    """Names in an expression, in order; of a call those of its arguments."""
    return [item.id for item in ast.walk(value) if isinstance(item, ast.Name)]
