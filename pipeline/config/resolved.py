"""Values of a configuration's interpolations: its stored text holds ``${oc.env:SEED}``, not the seed."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf

_SECRET = re.compile(r"(^|[._])(\w*_)?(token|secret|passw(or)?d|credentials?|key)$", re.IGNORECASE)
"""Names of settings and of variables whose values are told nowhere; ``num_tokens`` is none."""
_LEAST = 6
"""Characters from which on a value is no number or word that other settings may have by chance."""
_NAME = re.compile(r"\w+")


def resolved(composed: Any) -> dict[str, Any]:
    """Dotted key → value of each setting that is an interpolation, a list's whole; JSON-able.

    One whose name, or a name in its text, says that it is a secret is left out, and what holds the same value.

    Args:
        composed: a ``DictConfig`` in which all can be resolved.
    """
    texts, values = (OmegaConf.to_container(composed, resolve=resolve) for resolve in (False, True))
    leaves = [leaf for leaf in _leaves(texts, values) if "${" in str(leaf[1])]
    secrets = {str(value) for key, text, value in _leaves(texts, values) if _is_secret(key, text)}
    secrets = {secret for secret in secrets if len(secret) >= _LEAST}
    return {key: value for key, text, value in leaves
            if not _is_secret(key, text) and not any(secret in str(value) for secret in secrets)}  # fmt: skip


def _is_secret(key: str, text: Any) -> bool:
    looked_up = _NAME.findall(str(text)) if "${" in str(text) else []
    return any(_SECRET.search(name) for name in (key, *looked_up))


def _leaves(text: Any, value: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(text, Mapping):
        for key in text:
            yield from _leaves(text[key], value[key], f"{prefix}{key}.")
    else:
        yield prefix[:-1], text, value
