"""``python -m pipeline``."""

import os
import sys
from pathlib import Path


def _working_directory_last() -> None:
    """``python -m`` puts the working directory first on the path: a folder ``models`` there must shadow nothing."""
    here, root = os.getcwd(), str(Path(__file__).resolve().parent.parent)
    rest = [entry for entry in sys.path if entry not in ("", here, root)]
    packages = next((index for index, entry in enumerate(rest) if entry.endswith("-packages")), len(rest))
    sys.path[:] = [*rest[:packages], root, *rest[packages:], here]


def _run() -> int:
    """Import, which takes a moment in which Ctrl-C may come, and run."""
    try:
        _working_directory_last()
        from inductor_debug.pipeline.entry import main
        from inductor_debug.pipeline.streams import steady_streams

        with steady_streams():
            return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(_run())
