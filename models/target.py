"""From the dotted name of a callable to the callable."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import ConfigurationError, closest_first

OWN = ("conf", "models", "pipeline", "stages")
"""Top-level packages of this program: a name of theirs on a user's path is never looked at."""


def hidden_behind_ours(target: str, key: str) -> ConfigurationError | None:
    """The error for a dotted name in a package of the user's that is called as one of ours; None for any other.

    Args:
        target: module, then attributes, joined by dots; not one of ours.
        key: the configuration key that it came from.
    """
    top, *inner = target.split(".")
    if top not in OWN or not inner:
        return None
    ours = Path(__file__).resolve().parents[1] / top
    places = [Path(entry or ".").absolute() / top for entry in sys.path]
    for place in places:
        inits = (place / "__init__.py").is_file() and len(inner) == 1
        there = inits or (place / inner[0]).is_dir() or (place / f"{inner[0]}.py").is_file()
        if there and place.resolve() != ours:
            return ConfigurationError(
                f"{key}: got {target!r}, but {top!r} is the name of a package of this program, so the one in {place} "
                f"is not looked at; valid: a package of another name, or that folder on PYTHONPATH.\n"
                f"Try: PYTHONPATH={place} and {key}={'.'.join(inner)}"
            )
    return None


def resolve_target(target: str, key: str) -> Callable[..., Any]:
    """The callable that ``target`` names, e.g. ``"my_package.nets.build"`` or ``"my_package.nets.Net.build"``.

    Args:
        target: module, then attributes, joined by dots.
        key: the configuration key that it came from, for messages.

    Raises:
        ConfigurationError: missing, not importable, no such attribute, or not callable.
    """
    if not target or target == "???" or "." not in target:
        got = "nothing" if target in ("", "???") else repr(target)
        raise ConfigurationError(
            f"{key}: got {got}; valid: the dotted name of a callable.\nTry: {key}=my_package.nets.build"
        )
    value, rest = _imported(target, key)
    done = target.split(".")[: len(target.split(".")) - len(rest)]
    for name in rest:
        if not hasattr(value, name):
            raise hidden_behind_ours(target, key) or _no_attribute(target, key, ".".join(done), name, value)
        value = getattr(value, name)
        done.append(name)
    if not callable(value):
        raise ConfigurationError(f"{key}: {target} is a {type(value).__name__}; valid: a callable.")
    found: Callable[..., Any] = value
    return found


def _imported(target: str, key: str) -> tuple[Any, list[str]]:
    """The innermost module of ``target`` that can be imported, and the names that are left after it."""
    parts = target.split(".")
    for count in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:count])
        try:
            return importlib.import_module(name), parts[count:]
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
                raise ConfigurationError(
                    f"{key}: {target}: importing {name} failed: {error}.\nTry: pip install {error.name}"
                ) from error
        except (ImportError, SyntaxError) as error:
            raise ConfigurationError(f"{key}: {target}: importing {name} failed: {error}") from error
    raise ConfigurationError(
        f"{key}: got {target!r}: there is no module {parts[0]!r} on Python's path.\n"
        f"Try: run in the folder that contains {parts[0]}, or PYTHONPATH=FOLDER"
    )


def _no_attribute(target: str, key: str, module: str, name: str, value: Any) -> ConfigurationError:
    listed = getattr(value, "__all__", None) or dir(value)
    public = [item for item in listed if not item.startswith("_") and callable(getattr(value, item, None))]
    own = [item for item in public if getattr(getattr(value, item), "__module__", module) == module]
    choices = public if hasattr(value, "__all__") else own or public
    ordered = closest_first(name, choices)
    hint = f"\nTry: {key}={module}.{ordered[0]}" if ordered else ""
    return ConfigurationError(
        f"{key}: got {target!r}: {module} has no {name!r}; valid: {', '.join(ordered) or 'nothing callable'}.{hint}"
    )
