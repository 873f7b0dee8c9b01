"""One worker process as its parent sees it: events, time, memory, and its end. Free of torch."""

import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import IO, Any

from . import summary
from .plan import Plan
from .rundir import RunDirectory
from .watch import Watch, describe_death, format_bytes

logger = logging.getLogger("pipeline.runner")

PREFLIGHT = "preflight"
_POLL_S = 0.05
_EXIT_S = 10.0


class WorkerSession:
    """One worker process, from its start to its end.

    Attributes:
        stage: the stage that runs, or "preflight", or "" between stages.
        stage_seconds: how long it has run.
        ending: (status, message) where the worker did not end well, for the stage that ran.
        rejected: the message of a configuration error.
        devices: what torch found.
        compiled_by: what the worker told of it.
    """

    def __init__(self, plan: Plan, environment: Mapping[str, str], rundir: RunDirectory, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.memory_limit = plan.memory_limit
        self.stage = PREFLIGHT
        self.stage_began = time.monotonic()
        self.stage_seconds = 0.0
        self.ending: tuple[str, str] | None = None
        self.rejected: str | None = None
        self.devices: Any = None
        self.compiled_by: dict[str, Any] = {}
        self.done = False
        self._buffer = b""
        self._events, writing = os.pipe()
        os.set_blocking(self._events, False)
        command = [sys.executable, "-P", "-m", "pipeline.worker", str(writing)]
        try:
            with rundir.log.open("ab") as log:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    pass_fds=[writing],
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._events)
            raise
        finally:
            os.close(writing)
        self.watch = Watch(self.process, plan.memory_limit)
        _send(self.process.stdin, json.dumps(plan.to_json()).encode())

    def serve(self) -> None:
        """Handle the worker's events until it ends, by itself or by our hand."""
        while True:
            exited = self.process.poll() is not None
            self._receive(0.0 if exited else _POLL_S)
            self.stage_seconds = time.monotonic() - self.stage_began
            if exited:
                self._note_exit()
                return
            if self.done or self.rejected is not None:
                self._let_exit()
                return
            if self._stopped_for_time() or self._stopped_for_memory():
                return

    def close(self) -> None:
        """End what is left of the worker and of its children."""
        self.watch.end()
        os.close(self._events)

    def _let_exit(self) -> None:
        """Nothing remains to be done: give the process time to leave, threads of the model's may never end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=_EXIT_S)

    def _note_exit(self) -> None:
        code = self.process.returncode
        if self.done or self.rejected is not None:
            return
        self.ending = (summary.CRASHED, describe_death(code, memory_limit=self.memory_limit, peak=self.watch.peak))

    def _stopped_for_time(self) -> bool:
        if self.stage_seconds < self.timeout_s:
            return False
        self.watch.end(dump_stacks=True)
        self._receive(0.0)
        text = f"timed out: still running after runner.timeout_s={self.timeout_s:g}; the stacks are in run.log"
        self.ending = (summary.TIMED_OUT, text)
        return True

    def _stopped_for_memory(self) -> bool:
        used = self.watch.over_limit()
        if used is None or self.memory_limit is None:
            return False
        self.watch.end()
        limit = format_bytes(self.memory_limit)
        text = f"ran out of memory: the worker used {format_bytes(used)}, runner.memory_limit is {limit}"
        self.ending = (summary.CRASHED, text)
        return True

    def _receive(self, timeout: float) -> None:
        ready, _, _ = select.select([self._events], [], [], timeout)
        if not ready:
            return
        chunk = b""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._events, 65536):
                self._buffer += chunk
        if not chunk and self.process.poll() is None:
            time.sleep(timeout)  # the pipe is closed, the process has not ended yet
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._handle(json.loads(line))

    def _handle(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        log_event(event)
        if kind in ("stage_started", "stage_finished", "preflight_ok"):
            self.stage = event["name"] if kind == "stage_started" else ""
            self.stage_began = time.monotonic()
        elif kind == "configuration_error":
            self.rejected = event["message"]
        elif kind == "devices":
            self.devices = event["found"]
        elif kind == "compiled_by":
            self.compiled_by = event["found"]
        elif kind == "done":
            self.done = True


def log_event(event: Mapping[str, Any]) -> None:
    """Show an event as progress."""
    kind = event["event"]
    if kind == "stage_started" and not event["skipped"]:
        logger.info("%s …", event["name"])
    elif kind == "warning":
        logger.warning("%s", event["text"])
    elif kind == "progress":
        logger.info("%s: %s", event["name"], event["text"])
    elif kind == "stage_finished":
        level = logging.ERROR if event["status"] in (summary.CRASHED, summary.FAILED) else logging.INFO
        logger.log(level, "%s %s in %.1f s%s%s", event["name"], event["status"], event["seconds"],
                   ": " if event["message"] else "", event["message"])  # fmt: skip


def _send(pipe: IO[bytes] | None, content: bytes) -> None:
    assert pipe is not None
    with contextlib.suppress(BrokenPipeError), pipe:  # a worker that dies at once is noticed by its exit code
        pipe.write(content)
