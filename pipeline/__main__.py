"""``python -m pipeline`` in a checkout; ``python -m inductor_debug.pipeline`` anywhere."""

import importlib
import os
import sys
from pathlib import Path


def _arrange_path() -> None:
    """Make ``inductor_debug`` importable from the checkout, and put the working directory last.

    ``python -m`` puts it first, where a file of the user's would shadow what is installed. The checkout's own folder
    does not stay: once the package is imported nothing needs it, and ``models`` there is no module of the user's.
    """
    here, root = os.getcwd(), str(Path(__file__).resolve().parents[1])
    sys.path[:] = [entry for entry in sys.path if entry not in ("", here, root)]
    if "inductor_debug" not in sys.modules:  # the checkout's own, whatever else is installed
        sys.path.insert(0, root)
        importlib.import_module("inductor_debug")
        sys.path.remove(root)
    sys.path.append(here)


def _run() -> int:
    """Import, which takes a moment in which Ctrl-C may come, and run."""
    try:
        _arrange_path()
        from inductor_debug.pipeline.run.commands.entry import main
        from inductor_debug.pipeline.streams import steady_streams

        with steady_streams():
            return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(_run())
