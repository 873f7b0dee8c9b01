"""Where Python looks for what a user names by its dotted path: models, rules, adapters."""

import os
import sys


def append_working_directory() -> None:
    """The user's working directory comes last: a folder there called ``models`` shadows nothing."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
