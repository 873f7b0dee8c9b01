"""What of Dynamo's settings would keep a graph whole, as Dynamo's own messages on graph breaks name them."""

from collections.abc import Iterable

from inductor_debug.stages.torch_internals.break_text import setting_named


def setting_in(detail: str) -> str | None:
    """The override that a graph break's message suggests, ``backend.dynamo.allow_rnn=true``; None where it has none."""
    found = setting_named(detail)
    return f"backend.dynamo.{found[0]}={str(found[1]).lower()}" if found else None


def helping_settings(details: Iterable[str | None]) -> str:
    """What to type so that Dynamo captures what broke its graphs; empty where no setting is known to help.

    Args:
        details: Dynamo's message of each break.
    """
    settings = dict.fromkeys(filter(None, (setting_in(str(detail)) for detail in details)))
    return f"Dynamo has a setting for it. Try: {' '.join(settings)}" if settings else ""
