"""Where Python looks for what a user names by its dotted path: models, rules, adapters."""

import os
import sys
from pathlib import Path


def arrange_path() -> None:
    """The user's working directory comes last, where nothing there shadows what is installed.

    The folder in which our packages stand leaves the path. They are imported below one name; ``models`` is the user's.
    """
    ours = Path(__file__).resolve().parents[2]
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ours]
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
