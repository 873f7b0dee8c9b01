"""What was raised, in one line."""

from inductor_debug.models.errors import root_cause

_LIMIT = 300


def said(error: BaseException) -> str:
    """``Type: first line`` of what was raised first, whatever torch wrapped around it."""
    cause = root_cause(error)
    text = next((line.strip() for line in str(cause).splitlines() if line.strip()), "")
    text = text if len(text) <= _LIMIT else f"{text[:_LIMIT]}…"
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__
