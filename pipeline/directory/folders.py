"""Folders that the user names to be written into."""

import tempfile
from pathlib import Path

from inductor_debug.models.errors import UserError


def made(folder: Path, key: str, example: str = "FOLDER") -> Path:
    """A folder, made if it is not there, into which a file can be written.

    Args:
        folder: its path.
        key: what names it, ``runner.cache_dir`` or ``--out``.
        example: what to type instead.

    Raises:
        UserError: it can't be made, or not written into.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        separator = " " if key.startswith("-") else "="
        raise UserError(
            f"{key}: {folder} can't be written ({error.strerror or error}); valid: a folder that can, or that can be "
            f"made.\nTry: {key}{separator}{example}"
        ) from error
    return folder
