"""The releases of torch that this package was tried with."""

import re

OLDEST, NEWEST = (2, 11), (2, 15)
"""The oldest is also the bound in ``pyproject.toml``; a newer one than the newest is warned of, and used."""


def warning_for(version: str) -> str | None:
    """What to tell of a torch that is newer than those tried; None of another.

    Args:
        version: as ``torch.__version__`` has it: ``2.15.0+cu132``, ``2.16.0.dev20261101``.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) <= NEWEST:
        return None
    (oldest, newest) = (".".join(map(str, release)) for release in (OLDEST, NEWEST))
    return (
        f"torch {version} is newer than the releases that this version was tried with ({oldest} to {newest}). The run "
        f"goes on. Its results may be incomplete, or wrong, where they rely on torch's internals. "
        f"Try: pip install 'torch=={newest}.*'"
    )
