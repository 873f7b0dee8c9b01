"""Names of files after names that others chose, as kernels, nodes and tensors have."""

import hashlib
import re

LIMIT = 150
"""Bytes of a name made here. File systems allow 255; a temporary file beside it has a longer name than the file."""
_DIGITS = 12


def file_name(name: str, suffix: str = "") -> str:
    """A file's name for anything called ``name``: letters, digits, ``_``, ``.`` and ``-``, :data:`LIMIT` bytes at most.

    What had to be replaced or cut is followed by a hash of all of ``name``: two names never get one file.

    Args:
        suffix: what the file's name ends with, e.g. ``".py"``.
    """
    safe = re.sub(r"[^\w.-]+", "_", name).strip(".")
    return shortened(name, safe, LIMIT - len(suffix.encode())) + suffix


def shortened(name: str, shown: str, limit: int) -> str:
    """``shown`` in at most ``limit`` bytes of UTF-8; a hash of ``name`` ends it where it is not all of that name."""
    if shown == name and len(shown.encode()) <= limit:
        return shown
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    head = shown.encode(errors="replace")[: limit - _DIGITS - 1].decode(errors="ignore")
    return f"{head}-{digest}"
