"""Values of a configuration's interpolations: its stored text holds ``${oc.env:SEED}``, not the seed."""

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import OmegaConf

from inductor_debug.models.visible import is_secret


def resolved(composed: Any) -> dict[str, Any]:
    """Dotted key → value of each setting that is an interpolation, a list's whole; JSON-able.

    One whose name or text names a secret is left out.

    Args:
        composed: a ``DictConfig`` in which all can be resolved.
    """
    texts, values = (OmegaConf.to_container(composed, resolve=resolve) for resolve in (False, True))
    return {key: value for key, text, value in _leaves(texts, values)
            if "${" in str(text) and not is_secret(f"{key} {text}")}  # fmt: skip


def _leaves(text: Any, value: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(text, Mapping):
        for key in text:
            yield from _leaves(text[key], value[key], f"{prefix}{key}.")
    else:
        yield prefix[:-1], text, value
