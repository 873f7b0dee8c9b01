"""What a probe's process may do, in the place of ``stages.bisect.isolated._serve``; imported there without torch."""

import os
import signal
from typing import Any

from inductor_debug.stages.bisect.kinds import Verdict
from inductor_debug.stages.bisect.records import Outcome


def ended_by_a_signal(connection: Any, *given: Any) -> None:
    """Is killed by the first probe with nothing off, and answers others."""
    while True:
        setting = connection.recv()
        if setting == "facts":
            connection.send({"name": "child"})
        elif not setting.off:
            os.kill(os.getpid(), signal.SIGSEGV)
        else:
            connection.send(Outcome(Verdict.OK, message=str(os.getpid())))


def never_answers(connection: Any, *given: Any) -> None:
    signal.pause()


def raises(connection: Any, *given: Any) -> None:
    connection.recv()
    connection.send(MemoryError("no more"))
