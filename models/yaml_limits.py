"""What a YAML file may hold, told from its events before anything is built of it."""

import contextlib
import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import DamagedError
from inductor_debug.models.visible import visible

DEPTH, NODES = 100, 200_000
"""Levels of nesting, and values as often as aliases repeat them, at most."""

_FLOAT = re.compile(
    r"""^(?:[-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+)
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
"""A float, as OmegaConf, which wrote the file, reads one: ``1e-3`` too."""


def refuse(content: bytes, path: Path, *, aliases: bool) -> None:
    """DamagedError where a YAML file is nested too deep, has too many values, or has what it may not have.

    What is no YAML at all passes here: its parser tells that.

    Args:
        content: of the file.
        path: what a message calls it.
        aliases: True for a user's own file, whose aliases count as what they repeat. False refuses every anchor, alias
            and tag: no stored file has one.
    """
    import yaml

    # libyaml looks ahead and may give up 1000 levels deep before it tells of the first; Python's tells of each
    for parser in (getattr(yaml, "CSafeLoader", yaml.SafeLoader), yaml.SafeLoader):
        with contextlib.suppress(yaml.YAMLError, UnicodeDecodeError):
            _look_through(yaml.parse(content, Loader=parser), path, aliases)
            return


def _look_through(events: Iterable[Any], path: Path, aliases: bool) -> None:
    import yaml

    held: dict[str, int] = {}  # anchor → values in it
    starts: list[tuple[str | None, int]] = []
    values = 0
    for event in events:
        if isinstance(event, yaml.events.NodeEvent):
            if not aliases and (event.anchor is not None or getattr(event, "tag", None) is not None):
                what = "an anchor or alias" if event.anchor is not None else "a tag"
                raise _refused(path, event, f"{what}, which no stored file has")
            values += held.get(event.anchor or "", NODES) if isinstance(event, yaml.AliasEvent) else 1
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            starts.append((event.anchor, values))
            if len(starts) > DEPTH:
                raise _refused(path, event, f"nesting of more than {DEPTH} levels")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            anchor, before = starts.pop()
            if anchor is not None:
                held[anchor] = values - before + 1
        elif isinstance(event, yaml.ScalarEvent) and event.anchor is not None:
            held[event.anchor] = 1
        if values > NODES:
            raise _refused(path, event, f"more than {NODES:,} values, as its aliases repeat them")


def _refused(path: Path, event: Any, what: str) -> DamagedError:
    line = event.start_mark.line + 1
    valid = f"plain YAML of at most {DEPTH} levels and {NODES:,} values"
    return DamagedError(f"got {what}", key=f"{visible(str(path))}:{line}", valid=valid)


@functools.cache
def loader() -> Any:
    """A safe loader that reads as OmegaConf does: no dates, ``1e-3`` is a number, and a key twice is an error."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            if any(not isinstance(key, yaml.ScalarNode) for key, _ in node.value):
                raise ValueError("a key is no text")
            keys = [key.value for key, _ in node.value]
            if len(set(keys)) != len(keys):
                raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is there twice")
            return super().construct_mapping(node, deep=deep)

    Loader.yaml_implicit_resolvers = {
        letter: [(tag, pattern) for tag, pattern in pairs if tag.rpartition(":")[2] not in ("timestamp", "float")]
        for letter, pairs in base.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
    return Loader
