"""The options of torch's compilers that differ from their defaults: now, and where each compiler compiled a case.

Relies on the configuration modules (see :mod:`stages.torch_internals.config_options`). What was in force while
something was compiled is seen in three places:

- ``torch._dynamo.output_graph.OutputGraph.call_user_compiler``;
- ``torch._functorch.aot_autograd.{prepare_aot_module_simplified, create_aot_state}``: one of them opens each way into
  AOTAutograd;
- ``torch._inductor.output_code.{CompiledFxGraph, CompiledAOTI}.post_compile``: called for each graph that Inductor
  compiled, or found in a cache, with the options that it was looked up by.

Many of the defaults are read from the environment when a module is imported: the defaults proper are those of the same
file, executed without it.
"""

import contextlib
import contextvars
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from types import MappingProxyType, ModuleType
from typing import Any
from unittest import mock

KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "TMPDIR", "TEMP", "TMP")
"""Variables that say who runs and where files are, not what is compiled."""

MODULES = {
    "inductor": "torch._inductor.config",
    "dynamo": "torch._dynamo.config",
    "functorch": "torch._functorch.config",
}
"""Compiler → the module of its options; ``functorch`` is AOTAutograd's."""

SEVERAL = "by compilation"
"""Key of the values of an option that was not the same in all compilations: ``{"by compilation": [true, false]}``."""

_DOORS = {
    "torch._dynamo.output_graph.OutputGraph.call_user_compiler": "dynamo",
    "torch._functorch.aot_autograd.prepare_aot_module_simplified": "functorch",
    "torch._functorch.aot_autograd.create_aot_state": "functorch",
    "torch._inductor.output_code.CompiledFxGraph.post_compile": "inductor",
    "torch._inductor.output_code.CompiledAOTI.post_compile": "inductor",
}
"""Called once in each compilation → the compiler that is at work then."""
_OUTER = {"inductor": ("inductor", "functorch", "dynamo"), "functorch": ("functorch", "dynamo"), "dynamo": ("dynamo",)}
"""Compiler → where its options are read, the first of them that was passed: a backend need not call every compiler."""

_BY_INDUCTOR = ("unlift_effect_tokens", "selective_decompose")
"""Options of AOTAutograd's that TorchInductor sets whenever it compiles, the second to an option of its own."""

_TOLD = ("aot_inductor.metadata",)
"""Options that change no code: what is told beside it, to which AOTInductor adds in place, for the whole process."""

_unrecorded: contextvars.ContextVar[frozenset[str]] = contextvars.ContextVar("_unrecorded", default=frozenset())


def differing() -> dict[str, dict[str, Any]]:
    """Compiler → option → value, as they are in force now in this thread, where that is not the default.

    Options whose value is a default computed from the machine are equal to it. Values are primitives or their ``repr``.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, path in MODULES.items():
        config: Any = importlib.import_module(path)
        defaults = _defaults(config)
        values = config.get_config_copy()
        changed = (key for key in sorted(values) if key not in _TOLD and values[key] != defaults.get(key))
        found[name] = {key: primitive(values[key]) for key in changed}
    return found


class CompilationOptions:
    """The options that differ from their defaults, as they were in force where each compiler compiled.

    Args:
        compilers: whose options these are; those of the others stay as they were before.
    """

    def __init__(self, compilers: Iterable[str] = tuple(MODULES)) -> None:
        self._compilers = frozenset(compilers)
        self._seen: dict[str, list[tuple[dict[str, dict[str, Any]], frozenset[str]]]] = {}

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """While open, the options of each compiler that is at work, whoever called it, are noted."""
        with contextlib.ExitStack() as stack:
            for path, compiler in _DOORS.items():
                owner, name = _owner(path)
                noting = _noting(getattr(owner, name), functools.partial(self._note, compiler))
                stack.enter_context(mock.patch.object(owner, name, noting))
            yield

    def _note(self, compiler: str) -> None:
        self._seen.setdefault(compiler, []).append((differing(), _unrecorded.get()))

    def over(self, before: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Compiler → option → value; ``before`` where that compiler, or what calls it, was not seen at work.

        An option with several values has ``{SEVERAL: [value, …]}``, in the order in which they were seen; None there
        stands for the default.
        """
        found = {}
        for compiler in MODULES:
            places = _OUTER[compiler] if compiler in self._compilers else ()
            place = next((place for place in places if place in self._seen), None)
            known = before.get(compiler, {})
            found[compiler] = dict(known) if place is None else self._of(compiler, place, known)
        return found

    def _of(self, compiler: str, place: str, before: dict[str, Any]) -> dict[str, Any]:
        values = []
        for seen, unrecorded in self._seen[place]:
            ours = unrecorded.union(_BY_INDUCTOR if compiler == "functorch" else ())
            theirs = {key: value for key, value in seen[compiler].items() if key not in ours}
            values.append(theirs | {key: value for key, value in before.items() if key in ours})
        merged = {}
        for key in sorted({key for part in values for key in part}):
            several: list[Any] = []
            for value in (part.get(key) for part in values):
                if value not in several:
                    several.append(value)
            merged[key] = several[0] if len(several) == 1 else {SEVERAL: several}
        return merged


@contextlib.contextmanager
def unrecorded(names: Iterable[str]) -> Iterator[None]:
    """While open, options of these names are not noted: a recording patches them itself, or puts its files there."""
    token = _unrecorded.set(_unrecorded.get() | frozenset(names))
    try:
        yield
    finally:
        _unrecorded.reset(token)


def _noting(original: Callable[..., Any], note: Callable[[], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def noting(*args: Any, **kwargs: Any) -> Any:
        note()
        return original(*args, **kwargs)

    return noting


def _owner(path: str) -> tuple[Any, str]:
    """The module or class that has the last name of a dotted path, and that name."""
    *parts, name = path.split(".")
    depth = next(depth for depth, part in enumerate([*parts, "X"]) if part[0].isupper())
    owner: Any = importlib.import_module(".".join(parts[:depth]))
    return functools.reduce(getattr, parts[depth:], owner), name


def primitive(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(key): primitive(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [primitive(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return f"<{getattr(value, '__module__', '?')}.{name}>"  # no address: it is another in every process


@functools.cache
def _defaults(config: ModuleType) -> MappingProxyType[str, Any]:
    """A configuration module's values where no variable is set: those of a second copy of it."""
    assert config.__file__ is not None
    name = f"_defaults_of_{config.__name__.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(name, config.__file__)
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    sys.modules[name] = copy  # the module looks itself up by its name
    try:
        kept = {key: os.environ[key] for key in KEPT if key in os.environ}
        with mock.patch.dict(os.environ, kept, clear=True):
            spec.loader.exec_module(copy)
            return MappingProxyType(copy.get_config_copy())
    finally:
        del sys.modules[name]
