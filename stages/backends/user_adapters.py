"""Adapters that are a user's own: found by a dotted path, made with ``backend.options``, checked to be adapters."""

import importlib
import inspect
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, get_args

from inductor_debug.models.errors import ConfigurationError, UserError, invalid_choice
from inductor_debug.models.target import full_name
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.front import Level
from inductor_debug.stages.settings import BUILT_IN

MEMBERS = tuple(name for name, item in vars(AcceleratorAdapter).items() if callable(item) and not name.startswith("_"))
"""What is called of an adapter."""


def adapter_at(path: str, options: Mapping[str, Any], accel: AccelConfig | None) -> AcceleratorAdapter:
    """The adapter made by the callable at ``package.module.attribute``, which gets the profile if it takes one.

    Raises:
        ConfigurationError: there is no such callable, its module can't be imported, it does not take the options, or
            what it makes is no whole adapter: see :func:`check_adapter`.
    """
    module_name, _, attribute = full_name(path.replace(":", ".")).rpartition(".")
    module = _imported(module_name, path)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        found = {name: item for name, item in vars(module).items() if not name.startswith("_") and callable(item)}
        names = [name for name, item in found.items() if _is_adapter(item)] or list(found)
        raise invalid_choice("backend.adapter", path, [f"{module_name}.{name}" for name in names])
    if inspect.isabstract(factory):
        raise _lacks(path, factory, sorted(factory.__abstractmethods__))
    if accel is not None and "accel" not in options and "accel" in inspect.signature(factory).parameters:
        options = {**options, "accel": accel}
    adapter = _made(path, factory, options)
    if not isinstance(adapter, AcceleratorAdapter):
        raise ConfigurationError(
            f"backend.adapter: {path} ({_place(factory)}) gave {type(adapter).__name__}; valid: an instance of "
            "inductor_debug.AcceleratorAdapter."
        )
    check_adapter(adapter, path)
    return adapter


def check_adapter(adapter: AcceleratorAdapter, path: str) -> None:
    """Raise ConfigurationError for an adapter that lacks a member, or has switches and nothing that sets them.

    Args:
        path: what the adapter is called in the message.
    """
    own = type(adapter)
    missing = [name for name in MEMBERS if not callable(getattr(adapter, name, None))]
    if adapter.level not in get_args(Level):
        raise ConfigurationError(
            f"backend.adapter: {path} ({_place(own)}) takes graphs of the level {adapter.level!r}; valid: "
            f"{', '.join(get_args(Level))}.\nTry: level = 'aot'"
        )
    if own.switches is not AcceleratorAdapter.switches and own.switched is AcceleratorAdapter.switched:
        missing = ["switched"]
    if missing:
        raise _lacks(path, own, missing)


def _imported(name: str, path: str) -> ModuleType:
    """The module, or a ConfigurationError with the line at which importing it ended."""
    try:
        return importlib.import_module(name)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(f"{missing}.")):
            raise ConfigurationError(
                f"backend.adapter: got {path!r}, but there is no module {missing!r}; valid: "
                f"{', '.join(BUILT_IN)}, or package.module.Class.\nTry: PYTHONPATH=FOLDER that holds it"
            ) from error
        raise ConfigurationError(
            f"backend.adapter: got {path!r}, but importing {name} raised {_said(error)} at {_raised_at(error)}; "
            f"valid: a module that can be imported.\nTry: python -c 'import {name}'"
        ) from error


def _made(path: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise ConfigurationError(
            f"backend.options: got {dict(options)!r}; "
            f"valid: the arguments of {path}{inspect.signature(factory)}: {error}"
        ) from error
    try:
        return factory(**options)
    except ConfigurationError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"backend.options: got {dict(options)!r}, at which {path} ({_place(factory)}) raised {_said(error)}; "
            f"valid: what {path}{inspect.signature(factory)} takes."
        ) from error


def _lacks(path: str, made: Any, missing: list[str]) -> ConfigurationError:
    """What ``path`` leads to lacks members, or has something else in their place."""
    arguments = ", ".join(inspect.signature(getattr(AcceleratorAdapter, missing[0])).parameters)
    return ConfigurationError(
        f"backend.adapter: {path} ({_place(made)}) has no method {', '.join(missing)}; valid: a subclass of "
        f"inductor_debug.AcceleratorAdapter that defines it.\nTry: def {missing[0]}({arguments}): ..."
    )


def _is_adapter(item: Any) -> bool:
    return isinstance(item, type) and issubclass(item, AcceleratorAdapter) and not inspect.isabstract(item)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".removesuffix(": ")


def _place(item: Any) -> str:
    """``file:line`` of a class or a function; its module where that can't be told."""
    try:
        return f"{inspect.getsourcefile(item)}:{inspect.getsourcelines(item)[1]}"
    except (TypeError, OSError):
        return str(getattr(item, "__module__", type(item).__module__))


def _raised_at(error: BaseException) -> str:
    """``file:line`` of the last line of Python that ran, or that could not be parsed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith("<frozen")]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else "an unknown line"
