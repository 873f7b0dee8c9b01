"""What a script compiles with, or asks: of an adapter, or of a function."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.given import function_of
from inductor_debug.stages.backends.written import name_of
from inductor_debug.stages.minify.script import Compiler, Predicate
from inductor_debug.stages.repro import NotReproducible

OWN = "inductor_debug."
"""Modules that no script imports but for what a user's package needs of them."""


def compiler_of(adapter: AcceleratorAdapter, options: Mapping[str, Any] | None = None) -> Compiler:
    """What ``torch.compile`` is to be given, as source.

    Args:
        adapter: of the backend.
        options: that an adapter of a package was made with; None: it is to be as its class makes it without arguments.

    Raises:
        NotReproducible: no module has the backend under its name, or nobody knows what it was made with.
    """
    known = name_of(adapter)
    if known is not None:
        return Compiler(repr(known[0]), options=known[1])
    function = function_of(adapter)
    if function is not None:
        found = _home_of(function)
        if found is None:
            raise NotReproducible(f"no module that a script can import has the backend {adapter.name}")
        return Compiler(found[1], (f"from {found[0]} import {found[1]}",), packages=(found[0],))
    kind = adapter.__class__
    if getattr(importlib.import_module(kind.__module__), kind.__name__, None) is not kind:
        raise NotReproducible(f"the backend {adapter.name} is no class of a module that a script can import")
    if kind.__module__.startswith(OWN):
        raise NotReproducible(f"the backend {adapter.name} is a part of this tool")
    if options is None and not _made_alone(kind, adapter):
        raise NotReproducible(f"the backend {adapter.name} was made with arguments, which no script can tell: give a "
                              f"subclass of {kind.__name__} that has them as its defaults")  # fmt: skip
    given = ", ".join(f"{key}={value!r}" for key, value in (options or {}).items())
    return Compiler(f"{kind.__name__}({given}).dynamo_backend()", (f"from {kind.__module__} import {kind.__name__}",),
                    packages=(kind.__module__,))  # fmt: skip


def _made_alone(kind: type[AcceleratorAdapter], adapter: AcceleratorAdapter) -> bool:
    """Whether a class makes an equal one without arguments."""
    try:
        return bool(vars(kind()) == vars(adapter))
    except (TypeError, ValueError, RuntimeError):  # it takes some, or has a tensor, of which no equality is told
        return False


def predicate_of(function: Callable[..., bool]) -> Predicate:
    """A function that a script asks.

    Raises:
        NotReproducible: no module that a script can import has it under a name.
    """
    found = _home_of(function)
    if found is None or found[0].startswith(OWN):
        raise NotReproducible(f"no module that a script can import has the function {function!r}")
    module, name = found
    source = (
        f"def failing(program, inputs):\n    from {module} import {name}\n\n"
        f"    with torch.no_grad():\n        return {name}(program, inputs)"
    )
    return Predicate(name, source, (module,))


def _home_of(function: Callable[..., Any]) -> tuple[str, str] | None:
    """A module that has a function as a global, its own before others, and the name there."""
    own = getattr(function, "__module__", "")
    for name in sorted(set(sys.modules) - {"__main__", "__mp_main__"}, key=lambda name: (name != own, name)):
        for key, value in list(vars(sys.modules[name]).items()) if sys.modules[name] is not None else ():
            if value is function and key.isidentifier():
                return name, key
    return None
