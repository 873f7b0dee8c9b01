"""What of Dynamo's settings would keep a graph whole, as Dynamo's own messages on graph breaks name them."""

from collections.abc import Iterable, Mapping
from typing import Any

from inductor_debug.stages.torch_internals.break_text import setting_named


def setting_in(detail: str) -> str | None:
    """The override that a graph break's message suggests, ``backend.dynamo.allow_rnn=true``; None where it has none."""
    found = setting_named(detail)
    return f"backend.dynamo.{found[0]}={str(found[1]).lower()}" if found else None


def in_words(breaks: Iterable[Mapping[str, Any]]) -> str:
    """What to type so that Dynamo captures what broke its graphs; empty where no setting is known to help.

    Args:
        breaks: content of ``capture/breaks.json``.
    """
    settings = dict.fromkeys(filter(None, (setting_in(str(item.get("detail"))) for item in breaks)))
    return f"Dynamo has a setting for it. Try: {' '.join(settings)}" if settings else ""
