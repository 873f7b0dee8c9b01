"""From the dotted name of a callable to the callable."""

import importlib
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import ConfigurationError, closest_first

PACKAGE = "inductor_debug"
"""The one name that everything of this program is below."""
FORMER = ("conf", "models", "pipeline", "stages")
"""Packages of ours that stood at the top once, as configurations stored then name them."""
MOVED = {
    f"{module}.{former}": f"stages.backends.{now}"
    for module in ("stages.lower.adapters", "stages.backends.registry")
    for former, now in {
        "EagerAdapter": "eager.EagerAdapter",
        "AotEagerAdapter": "eager.AotEagerAdapter",
        "InductorAdapter": "inductor.InductorAdapter",
        "DynamoAdapter": "registered.RegisteredAdapter",
    }.items()
} | {
    "stages.constrain.kernel_limits": "stages.rules.kernel_limits",
    "stages.lower.PlantedFault": "stages.backends.planted.PlantedFault",
    "stages.lower.adapters": "stages.backends.registry",
    "stages.lower.aot_inductor": "stages.backends.aot_inductor",
    "stages.lower.emulated": "stages.backends.emulated",
    "stages.lower.faults": "stages.backends.planted",
    "stages.lower.mock": "stages.backends.mock",
}
"""What a configuration may name of ours, by its former name → its name now."""


def full_name(target: str) -> str:
    """A dotted name with this program's name before it where it is one of ours by its former name.

    A module of that name on Python's path is the user's and is meant instead, wherever it is.

    Args:
        target: module, then attributes, joined by dots.
    """
    top, _, rest = target.partition(".")
    if top in FORMER and rest and not _is_the_users(top, rest.split(".")):
        target = f"{PACKAGE}.{target}"
    for former, now in MOVED.items():
        rest = target.removeprefix(f"{PACKAGE}.{former}")
        if rest != target and rest[:1] in ("", "."):
            return f"{PACKAGE}.{now}{rest}"
    return target


def _is_the_users(top: str, inner: list[str]) -> bool:
    found = PathFinder.find_spec(top)
    if found is None:
        return False
    folders = [str(folder) for folder in found.submodule_search_locations or ()]
    ours = Path(__file__).resolve().parents[1]
    if any(Path(folder).resolve() == ours / top for folder in folders):
        return False
    return _holds_module(inner, folders) or (
        not (ours / top / f"{inner[0]}.py").is_file() and not (ours / top / inner[0]).is_dir()
    )


def _holds_module(parts: list[str], folders: list[str]) -> bool:
    """Whether the folders hold a module on the way to these dotted parts. A folder without one on it holds nothing."""
    found = PathFinder.find_spec(parts[0], folders) if parts else None
    if found is None or found.origin is not None:
        return found is not None
    return _holds_module(parts[1:], list(found.submodule_search_locations or ()))


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
    parts = full_name(target).split(".")
    value, rest = _imported(target, parts, key)
    done = parts[: len(parts) - len(rest)]
    for name in rest:
        if not hasattr(value, name):
            raise _no_attribute(target, key, ".".join(done), name, value)
        value = getattr(value, name)
        done.append(name)
    if not callable(value):
        raise ConfigurationError(f"{key}: {target} is a {type(value).__name__}; valid: a callable.")
    return value


def _imported(target: str, parts: list[str], key: str) -> tuple[Any, list[str]]:
    """The innermost module that can be imported of the full name's parts, and the names that are left after it."""
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
