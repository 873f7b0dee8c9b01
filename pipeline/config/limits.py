"""Limits that are typed with a unit."""

from inductor_debug.models.errors import ConfigurationError, shown
from inductor_debug.models.units import VALID_BYTES, parse_bytes


def memory_limit_of(text: str | int | float | None, key: str = "runner.memory_limit") -> int | None:
    """``"8GiB"``, ``"512MiB"``, ``"1.5GB"`` or a plain number as bytes; None, which no option can be, stays None.

    Raises:
        ConfigurationError: for anything else, and for zero.
    """
    if text is None:
        return None
    size = parse_bytes(text)
    if size is None:
        valid = VALID_BYTES if key.startswith("-") else f"null, or {VALID_BYTES}"
        raise ConfigurationError(f"got {shown(text)}", key=key, valid=valid, hint=f"{key}=8GiB")
    return size
