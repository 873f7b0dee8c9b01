"""One worker process as its parent sees it: events, time, memory, and its end."""

import contextlib
import json
import logging
import math
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from inductor_debug.models.units import format_bytes
from inductor_debug.pipeline.directory import summary
from inductor_debug.pipeline.directory.records import TorchFound
from inductor_debug.pipeline.directory.rundir import RunDirectory
from inductor_debug.pipeline.run.error_words import LESS_MEMORY
from inductor_debug.pipeline.run.events import (
    LINES,
    PREFLIGHT,
    Checked,
    Compiled,
    Done,
    Event,
    Finished,
    Found,
    Full,
    Progress,
    Rejected,
    Started,
    Waiting,
    Warned,
)
from inductor_debug.pipeline.run.parent.forking import Forked, ForkServer
from inductor_debug.pipeline.run.parent.watch import Watch, describe_death
from inductor_debug.pipeline.run.plan import Plan
from inductor_debug.stages.artifacts.compiled_by import CompiledBy
from inductor_debug.stages.child_processes import send

logger = logging.getLogger("inductor_debug.pipeline.run.runner")

_POLL_S = 0.05
_EXIT_S = 10.0
_CHUNK = 1 << 20
_EVENT_LIMIT = 64 << 20
MARKER = "INDUCTOR_DEBUG_WORKER"
"""Environment variable of a worker and of all that it starts: how they are found where their guard was killed."""
_GUARD = str(Path(__file__).parents[1] / "processes" / "guard.py")


class WorkerSession:
    """One worker process, from its start to its end.

    Args:
        plan: what it is to run.
        environment: its environment variables, but for a marker.
        rundir: where its records and its log go.
        timeout_s: seconds that a stage may take.
        server: what the worker is forked from; None starts a new Python.

    Attributes:
        stage: the stage that runs, or "preflight", or "" between stages.
        stage_seconds: how long it has run.
        ending: (status, message, cause) where the worker did not end well, for the record of the stage that ran.
        rejected: the message of a configuration error.
        devices: what torch found.
        compiled_by: what the worker told of it, or None.
        full: why a stage's record could not be stored.
        needed_torch: whether it was told at the end that a stage needed torch.
    """

    def __init__(
        self,
        plan: Plan,
        environment: Mapping[str, str],
        rundir: RunDirectory,
        timeout_s: float,
        server: ForkServer | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.memory_limit = plan.memory_limit
        self.stage = PREFLIGHT
        self.stage_began = time.monotonic()
        self.stage_seconds = 0.0
        self.ending: tuple[str, str, str] | None = None
        self.rejected: str | None = None
        self.devices: TorchFound | None = None
        self.compiled_by: CompiledBy | None = None
        self.done = False
        self.needed_torch = False
        self.full: str | None = None
        self._token = secrets.token_hex(8)
        self._buffer = b""
        self._foreign = 0
        environment = dict(environment) | {MARKER: self._token}
        with contextlib.ExitStack() as opened:
            self._events, writing = _pipe(opened)
            reading, lifeline = _pipe(opened)
            os.set_blocking(self._events, False)
            with rundir.log.open("ab") as log:
                held = [] if rundir.lock is None else [rundir.lock]
                files = [reading, writing, log.fileno(), *held]
                forked = None if server is None else server.fork(environment, files, plan.log_limit)
                self.process: Forked | subprocess.Popen[bytes] = forked or _started(environment, files, plan.log_limit)
            opened.pop_all()  # from here on the pipes are closed one by one
        os.close(writing)
        os.close(reading)
        self.watch = Watch(self.process, lifeline, plan.memory_limit, (MARKER, self._token))
        send(self.process.stdin, json.dumps(plan.to_json() | {"token": self._token}).encode())

    def serve(self, check: Callable[[], None]) -> None:
        """Handle the worker's events until it ends, by itself or by our hand.

        Args:
            check: called often; what it raises ends the wait (an interruption).
        """
        while True:
            check()
            exited = self.process.poll() is not None
            more = self._receive(0.0 if exited else _POLL_S)
            self.stage_seconds = max(0.0, time.monotonic() - self.stage_began)
            if exited and not more:
                self._note_exit()
                return
            if self._over:
                with contextlib.suppress(subprocess.TimeoutExpired):  # threads of the model's may never end
                    self.process.wait(timeout=_EXIT_S)
                return
            if not exited and (self._stopped_for_time() or self._stopped_for_memory()):
                return

    def close(self) -> None:
        """End what is left of the worker and of its children."""
        self.watch.end()
        os.close(self._events)

    @property
    def _over(self) -> bool:
        """Whether the worker told that nothing remains to be done."""
        return self.done or self.rejected is not None or self.full is not None

    def _note_exit(self) -> None:
        if not self._over:
            code = self.process.wait()
            death = describe_death(code, memory_limit=self.memory_limit, peak=self.watch.peak)
            outside = code >= 0 or -code == signal.SIGKILL
            self.ending = (summary.CRASHED, death, "" if outside else f"signal {-code}")

    def _stopped_for_time(self) -> bool:
        if self.stage_seconds < self.timeout_s:
            return False
        self.watch.end(dump_stacks=True)
        self._receive(0.0)
        text = f"timed out: still running after runner.timeout_s={self.timeout_s:g}; the stacks are in run.log."
        text += f" To wait longer, add to the command: runner.timeout_s={2 * self.timeout_s:g}"
        self.ending = (summary.TIMED_OUT, text, "hang")
        return True

    def _stopped_for_memory(self) -> bool:
        used = self.watch.over_limit()
        if used is None or self.memory_limit is None:
            return False
        self.watch.end()
        limit = format_bytes(self.memory_limit)
        text = f"ran out of memory: the worker used {format_bytes(used)}, runner.memory_limit is {limit}. {LESS_MEMORY}"
        self.ending = (summary.CRASHED, text, "")
        return True

    def _receive(self, timeout: float) -> bool:
        """Handle what has come, a part of it at a time; whether there may be more."""
        ready, _, _ = select.select([self._events], [], [], timeout)
        if not ready:
            return False
        try:
            chunk = os.read(self._events, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk and self.process.poll() is None:
            time.sleep(timeout)  # the pipe is closed, the process has not ended yet
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        for line in lines:
            self._handle_line(line)
        if len(self._buffer) > _EVENT_LIMIT:
            self._tell_foreign()
            self._buffer = b""
        return bool(chunk)

    def _handle_line(self, line: bytes) -> None:
        """A line that starts with the token is ours: a model may write to every descriptor that it finds."""
        _, ours, content = line.rpartition(self._token.encode() + b" ")
        try:
            event = LINES.read(content) if ours else None
        except ValueError:  # others wrote within it
            event = None
        if event is not None:
            self._handle(event)
        elif line.strip():
            self._tell_foreign()

    def _tell_foreign(self) -> None:
        self._foreign += 1
        if self._foreign == 1:
            logger.warning("something else than the worker wrote to the pipe of its events, during %s; it is ignored",
                           self.stage or "no stage")  # fmt: skip

    def _handle(self, event: Event) -> None:
        log_event(event)
        match event:
            case Started() | Finished() | Checked():
                self.stage = event.stage if isinstance(event, Started) else ""
                self.stage_began = time.monotonic()
            case Waiting():
                self.stage_began = math.inf if event.text else time.monotonic()
            case Rejected():
                self.rejected = event.message
            case Found():
                self.devices = self.devices if event.devices is None else event.devices.after(self.devices)
            case Compiled():
                self.compiled_by = event.by
            case Full():
                self.full = event.message
            case Done():
                self.done = True
                self.needed_torch = event.torch


def log_event(event: Event) -> None:
    """Show an event as progress. Its record has the event, for handlers that show it otherwise."""
    extra = {"event": event}
    match event:
        case Started(skipped=False):
            logger.info("%s …", event.stage, extra=extra)
        case Warned():
            logger.warning("%s", event.text)
        case Progress():
            logger.info("%s: %s", event.stage, event.text, extra=extra)
        case Waiting() if event.text:
            logger.info("waiting: %s", event.text, extra=extra)
        case Finished():
            level = logging.ERROR if event.status in (summary.CRASHED, summary.FAILED) else logging.INFO
            told, *figures = event.message.split("\n")
            colon = ": " if told else ""
            logger.log(level, "%s %s in %.1f s%s%s", event.stage, event.status, event.seconds, colon, told, extra=extra)
            for line in figures:
                logger.debug("%s: %s", event.stage, line)


def _started(environment: Mapping[str, str], files: Sequence[int], limit: int | None) -> "subprocess.Popen[bytes]":
    """A worker in a new Python, behind its guard; arguments as of :meth:`ForkServer.fork`."""
    lifeline, events, log, *lock = files
    numbers = (lifeline, lock[0] if lock else -1, events, -1 if limit is None else limit)
    guard = [sys.executable, "-I", "-S", _GUARD, *map(str, numbers)]
    return subprocess.Popen(
        [*guard, sys.executable, "-P", "-m", "inductor_debug.pipeline.run.processes.worker", str(events)],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        pass_fds=[lifeline, events, *lock],
        start_new_session=True,
    )


def _pipe(opened: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe's two ends, closed with ``opened``."""
    ends = os.pipe()
    for end in ends:
        opened.callback(os.close, end)
    return ends
