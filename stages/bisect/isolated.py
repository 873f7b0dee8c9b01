"""Probes in a process of their own: one that a generated kernel kills, or in which it hangs, is a finding.

The process builds the case once and serves probe after probe; after one that killed it, the next starts another.
"""

import contextlib
import ctypes
import faulthandler
import logging
import multiprocessing
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from inductor_debug.stages.bisect.kinds import Verdict
from inductor_debug.stages.bisect.records import BackendFacts, Outcome, Setting
from inductor_debug.stages.child_processes import signal_name
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.settings import Settings

log = logging.getLogger(__name__)

_LEAVE_S = 20
"""Seconds that a process has to leave by itself."""


class IsolatedProber:
    """As :class:`stages.bisect.probing.Prober`, but no probe can take this process with it. Close it after use.

    Args:
        settings: the run's; the case and the adapter are built from them.
        options: how kerneldiff judges.
        timeout_s: seconds after which a probe is called a hang, the building of the case included.
    """

    def __init__(self, settings: Settings, options: KernelDiffConfig, timeout_s: float) -> None:
        self._given = settings, options
        self._timeout_s = timeout_s
        self._hangs = False
        self._process: Any = None
        self._connection: Connection | None = None

    def facts(self) -> BackendFacts:
        answer = self._asked("facts")
        if isinstance(answer, Outcome):
            raise RuntimeError(f"building the case or the backend ended its process: {answer.message}")
        return answer

    def probe(self, setting: Setting) -> Outcome:
        began = time.perf_counter()
        outcome: Outcome = self._asked(setting)
        outcome.seconds = time.perf_counter() - began  # with the start of a process, where it took one
        return outcome

    def close(self) -> None:
        """End the process: it leaves when nobody can ask any more, or is made to."""
        if self._process is not None:
            assert self._connection is not None
            self._connection.close()
            self._process.join(0 if self._hangs else _LEAVE_S)
            self._process.kill()
            self._process.join()
            self._process = self._connection = None

    def _asked(self, question: Any) -> Any:
        """The process's answer; an Outcome of its end where it gave none. What it raised is raised here."""
        if self._process is None:
            self._start()
        assert self._connection is not None
        self._connection.send(question)
        if not self._connection.poll(self._timeout_s):
            self._hangs = True
            self.close()
            return _ended(f"a hang: it took more than {self._timeout_s:g} s")
        try:
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            self.close()
            return _ended(f"killed by {signal_name(-code)}" if code < 0 else f"its process left with code {code}")
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, *self._given), daemon=True)
        self._hangs = False
        self._process.start()
        theirs.close()


def _ended(how: str) -> Outcome:
    return Outcome(Verdict.RAISED, how, f"the test side ended its process: {how}", "not_established", died=True)


def _serve(connection: Connection, settings: Settings, options: KernelDiffConfig) -> None:
    """Answer questions until there are no more."""
    faulthandler.enable()
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the parent
    logging.basicConfig(format="[%(asctime)s][%(name)s][%(levelname)s] - %(message)s")
    from inductor_debug.stages.backends.registry import build_adapter
    from inductor_debug.stages.bisect.probing import Prober
    from inductor_debug.stages.torch_internals.dynamo_options import in_force

    prober = Prober(StageContext(settings, MemoryArtifacts()), options, lambda: build_adapter(settings))
    with contextlib.suppress(EOFError), in_force(settings.backend.dynamo):
        while True:
            question = connection.recv()
            answer: Any
            try:
                answer = prober.facts() if question == "facts" else prober.probe(question)
            except Exception as error:  # it is raised where the question was asked
                log.exception("bisect: a probe could not be made")
                answer = _sendable(error)
            connection.send(answer)


def _sendable(error: Exception) -> Exception:
    """The error, or where it can't be sent one that says the same."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - an exception may hold anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
