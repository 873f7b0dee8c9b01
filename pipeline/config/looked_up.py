"""Values that a configuration took from its surroundings: its stored text holds ``${oc.env:SEED}``, not the seed."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf

from inductor_debug.models.visible import is_secret

_RESOLVER = re.compile(r"(?<!\\)\$\{\s*([\w.]+)\s*:")
_WITHIN = {"oc.select", "oc.decode", "oc.create", "oc.deprecated", "oc.dict.keys", "oc.dict.values", "slug",
           "shown_backend"}  # fmt: skip
"""Resolvers whose value follows from the configuration itself: the same text is the same value."""


def looked_up(composed: Any) -> dict[str, Any]:
    """Dotted key → value of each setting that a resolver took from elsewhere, a list's whole; JSON-able.

    Of one whose text names a secret the beginning of a SHA-256 stands there.

    Args:
        composed: a ``DictConfig``.
    """
    text, values = (OmegaConf.to_container(composed, resolve=resolve) for resolve in (False, True))
    return {key: _shown(source, value) for key, source, value in _leaves(text, values)
            if any(name not in _WITHIN for name in _RESOLVER.findall(source))}  # fmt: skip


def _leaves(text: Any, value: Any, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    if isinstance(text, Mapping):
        for key in text:
            yield from _leaves(text[key], value[key], f"{prefix}{key}.")
    else:
        yield prefix[:-1], str(text), value


def _shown(text: str, value: Any) -> Any:
    return f"sha256:{hashlib.sha256(repr(value).encode()).hexdigest()[:8]}" if is_secret(text) else value
