"""Sizes in bytes as a user writes them, on any layer."""

import re

from inductor_debug.models.options import INT64

_FACTORS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_FACTORS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
VALID_BYTES = "a positive number of bytes with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, below 8388608TiB"
"""What :func:`parse_bytes` takes, in words."""


def parse_bytes(value: object) -> int | None:
    """Bytes of ``"8GiB"``, ``"512MiB"``, ``"1.5GB"`` or a plain number; None for anything else.

    They are at least 1 and less than 2**63, which torch, the tables and the operating system can hold.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    if isinstance(value, int) and value > INT64:
        return None
    match = re.fullmatch(r"\s*(\d{1,30})(\.\d{1,30})?\s*([a-z]*)\s*", str(value).lower())
    if match is None or match[3] not in _FACTORS:
        return None
    fraction = float(match[2]) if match[2] else 0
    size = int(match[1]) * _FACTORS[match[3]] + int(fraction * _FACTORS[match[3]])
    return size if 0 < size <= INT64 else None


def format_bytes(size: float) -> str:
    """``1536 MiB`` below 10 GiB, ``12.5 GiB`` from there on."""
    return f"{size / 2**20:.0f} MiB" if size < 10 * 2**30 else f"{size / 2**30:.1f} GiB"
