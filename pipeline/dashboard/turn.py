"""What a run that was started on the page is until its turn has come: ``python -P turn.py FOLDER TICKET COMMAND…``.

A ticket is locked as long as a process of its run lives (:mod:`children`). This program waits for the locks of earlier
tickets and then becomes the command, so that no run needs the page once it is started. It needs the standard library
alone.
"""

import contextlib
import fcntl
import os
import sys
from pathlib import Path


def main(folder: str, ticket: str, *command: str) -> None:
    """Wait, then become the command."""
    for earlier in sorted(Path(folder).glob("*.json")):
        if earlier.stem < ticket:
            with contextlib.suppress(FileNotFoundError), earlier.open("rb") as file:  # an ended one may be removed
                fcntl.flock(file, fcntl.LOCK_SH)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
