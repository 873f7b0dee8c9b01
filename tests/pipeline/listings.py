"""What a directory holds."""

import os
from pathlib import Path


def listing(folder: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Every path below a folder with its mode, and its content or what it links to."""

    def content(path: Path) -> bytes | str | None:
        if path.is_symlink():
            return os.readlink(path)
        return path.read_bytes() if path.is_file() else None

    return {str(path): (path.lstat().st_mode, content(path)) for path in sorted(folder.rglob("*"))}
