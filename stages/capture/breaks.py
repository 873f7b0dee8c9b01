"""What of Dynamo's settings would keep a graph whole, as Dynamo's own messages on graph breaks name them."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_NAMED = re.compile(r"torch\._dynamo\.config\.([A-Za-z]\w*)`?\s*(?:=|to)\s*`?(True|False)\b")


def setting_in(detail: str) -> str | None:
    """The override that a graph break's message suggests, ``backend.dynamo.allow_rnn=true``; None where it has none."""
    found = _NAMED.search(detail)
    return f"backend.dynamo.{found[1]}={found[2].lower()}" if found else None


def in_words(breaks: Iterable[Mapping[str, Any]]) -> str:
    """What to type so that Dynamo captures what broke its graphs; empty where no setting is known to help.

    Args:
        breaks: content of ``capture/breaks.json``.
    """
    settings = dict.fromkeys(filter(None, (setting_in(str(item.get("detail"))) for item in breaks)))
    return f"Dynamo has a setting for it. Try: {' '.join(settings)}" if settings else ""
