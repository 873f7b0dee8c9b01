"""What the parent process tells a worker: plain JSON, so that nothing is pickled. Free of torch and Hydra."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from models.errors import invalid_choice
from stages.contract import Settings
from stages.registry import CONFIGS

ALWAYS_LAST = "report"


@dataclass
class Plan:
    """One run, as the worker sees it.

    Attributes:
        directory: the run directory, absolute.
        settings: the run's settings.
        stages: stage name → its options, in order of execution.
        run: the ``run`` part of ``summary.json``, without ``seconds``.
        remaining: stages that this worker has to run.
        preflight: build and check every remaining stage first, and call a mistake found there a configuration error.
        stage_classes: stages beyond the registry's, name → ``"module:Class"``.
        memory_limit: bytes of private writable memory the process may have, or None.
        log_limit: bytes that the run's log may have, or None.
        manifest: what a preliminary manifest shows the report stage.
        compiled_by: what compiles it, as far as it is known, see :mod:`pipeline.compiled_by`.
        expected: of a run that is made again, the fields of :class:`pipeline.restoring.Expected`.
    """

    directory: str
    settings: Settings
    stages: dict[str, Any]
    run: dict[str, Any]
    remaining: list[str]
    preflight: bool = True
    stage_classes: dict[str, str] = field(default_factory=dict)
    memory_limit: int | None = None
    log_limit: int | None = None
    manifest: dict[str, Any] = field(default_factory=dict)
    compiled_by: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON-able dict."""
        plain: dict[str, Any] = _plain(self)
        return plain

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Plan":
        """The inverse of :meth:`to_json`; ConfigurationError for an option that a stage does not have."""
        stages = {
            name: from_plain(CONFIGS[name], options, key=f"stages.{name}") if name in CONFIGS else options
            for name, options in data["stages"].items()
        }
        return cls(**(data | {"settings": from_plain(Settings, data["settings"]), "stages": stages}))


def settings_of(config: Any) -> Settings:
    """The settings within a whole configuration (any object or dataclass that has their fields)."""
    values = {item.name: getattr(config, item.name) for item in dataclasses.fields(Settings)}
    settings: Settings = from_plain(Settings, _plain(values))
    return settings


def execution_order(names: typing.Iterable[str]) -> list[str]:
    """The stages in the order given, with the report last: it tells of all others."""
    names = list(names)
    return [name for name in names if name != ALWAYS_LAST] + [name for name in names if name == ALWAYS_LAST]


def _plain(value: Any) -> Any:
    """``value`` with dataclasses as dicts and tuples as lists; a number stays what it is, an infinity too."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def from_plain(annotation: Any, value: Any, *, key: str = "") -> Any:
    """Build a (nested) dataclass from dicts and lists; ConfigurationError for a key that it does not have."""
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        if not isinstance(value, dict):
            return value
        hints = typing.get_type_hints(annotation)
        for name in value:
            if name not in hints:
                raise invalid_choice(key or annotation.__name__, name, hints)
        prefix = f"{key}." if key else ""
        return annotation(**{name: from_plain(hints[name], item, key=prefix + name) for name, item in value.items()})
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        inner = [argument for argument in arguments if argument is not type(None)]
        return value if value is None or len(inner) != 1 else from_plain(inner[0], value, key=key)
    if origin is list and isinstance(value, list):
        return [from_plain(arguments[0], item, key=key) for item in value]
    if origin is dict and isinstance(value, dict):
        return {name: from_plain(arguments[1], item, key=f"{key}.{name}") for name, item in value.items()}
    return value
