"""What a process of ours does with those that it starts."""

import contextlib
import signal
from typing import IO


def send(stdin: IO[bytes] | None, content: bytes) -> None:
    """Write all of a process's standard input and close it; one that died at once is noticed by its exit."""
    assert stdin is not None
    with contextlib.suppress(BrokenPipeError), stdin as pipe:
        pipe.write(content)


def signal_name(number: int) -> str:
    """``SIGKILL``, or ``signal 99`` of one without a name."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
