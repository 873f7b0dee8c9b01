"""Samples of user time, told apart: this tool's own, and that of torch and the model.

:func:`start` is called in every Python process of a run (``growing_run.py`` puts a ``sitecustomize`` on the path). At
each tick of the process's clock of user time the time since the tick before goes to what the main thread's stack says,
so that a long call into C counts whole. Nothing of the tool is imported or changed. System time is left out: on a
virtual machine most of it is the first touch of memory that the host has not given yet.

Reading a stack from its outermost frame on: what the tool calls of the model, of torch.nn, autograd, Dynamo,
AOTAutograd or TorchInductor is not its own. A frame of the tool within (a hook) is its own again, and so is all that
it calls, except where it only passes a call on (``PASSES``, whose own lines therefore count nowhere). Collections of
garbage are not its own: what they look through is nearly all torch's.
"""

import atexit
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

TICK_S = 0.005
WRITE_S = 1.0
OWN, OTHER = "own", "other"
PASSES = {
    "CompiledCase._counted.<locals>.compiler",
    "CompiledCase._counted.<locals>.compiler.<locals>.<lambda>",
    "LoadingCompiler.__call__",
    "RecordingCompiler.__call__",
    "RecordingCompiler._inner_compile",
    "Watch._calling.<locals>.call",
    "Watch.watched",
    "_Recorder.__call__",
    "_noting.<locals>.noting",
    "_recorded_joint.<locals>.passes",
    "graphs_stored.<locals>.key_of",
}
"""Functions of the tool that torch calls and that call torch's own in its place."""

_TOOL = f"{os.sep}inductor_debug{os.sep}"
_PACKAGES = ("_dynamo", "_inductor", "_functorch", "nn", "autograd", "optim")
_TORCH = [f"{os.sep}torch{os.sep}{name}{os.sep}" for name in _PACKAGES]
_RUNS_A_STAGE = "_run_stage"


def user_seconds() -> float:
    """User time of this process, all its threads together."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


class Sampler:
    """Seconds by stage, part and function of this process, in a file of its own.

    Args:
        folder: where the file is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.collecting = folder, False
        gc.callbacks.append(self.collected)
        self.begin()

    def begin(self) -> None:
        """Begin with nothing, in this process."""
        self.seconds: Counter[tuple[str, str, str]] = Counter()
        self.peaks: dict[str, int] = {}
        self.parts: dict[str, str] = {}
        self.clock, self.written = user_seconds(), time.monotonic()
        signal.signal(signal.SIGVTALRM, self.tick)
        signal.setitimer(signal.ITIMER_VIRTUAL, TICK_S, TICK_S)

    def end(self) -> None:
        """Take no more samples."""
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self.write()

    def tick(self, _: int, frame: FrameType | None) -> None:
        """Give the time since the last tick to where the main thread is."""
        stage, part, function = self.place(frame)
        if self.collecting:
            part, function = OTHER, "collection of garbage"
        now = user_seconds()
        self.seconds[stage, part, function] += now - self.clock
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        self.peaks[stage] = max(self.peaks.get(stage, 0), pages * 4096)
        if time.monotonic() - self.written > WRITE_S:
            self.write()
        self.clock = user_seconds()

    def place(self, frame: FrameType | None) -> tuple[str, str, str]:
        """Stage, part and the tool's innermost function of a stack."""
        frames = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        stage, part, function, hook = "pipeline", OWN, "", False
        for frame in reversed(frames):
            code = frame.f_code
            kind = self.kind(code.co_filename)
            if kind == OWN:
                file = code.co_filename.partition(_TOOL)[2]
                if code.co_name == _RUNS_A_STAGE:
                    stage = str(frame.f_locals.get("name", stage))
                elif not function and file.startswith("stages"):  # a process of a stage's own
                    stage = file.split(os.sep)[1]
                if part == OTHER and code.co_qualname in PASSES:
                    continue
                hook = hook or part == OTHER
                part, function = OWN, f"{file}:{code.co_qualname}"
            elif kind == OTHER and not hook:
                part = OTHER
        return stage, part, function

    def kind(self, file: str) -> str:
        """What code of a file belongs to; empty: to what calls it."""
        if file not in self.parts:
            self.parts[file] = (
                OWN if _TOOL in file
                else OTHER if any(name in file for name in _TORCH) or file.endswith("growing_models.py")
                else ""
            )  # fmt: skip
        return self.parts[file]

    def collected(self, phase: str, _: dict[str, int]) -> None:
        """Know of collections of garbage, which any allocation may begin: a signal waits until they have ended."""
        if threading.current_thread() is threading.main_thread():
            self.tick(0, sys._getframe().f_back)
            self.collecting = phase == "start"

    def write(self) -> None:
        """Write the file anew, of copies: a collection of garbage in between adds a sample."""
        self.written = time.monotonic()
        rows = [[*place, seconds] for place, seconds in dict(self.seconds).items()]
        path = self.folder / f"{os.getpid()}.json"
        path.with_suffix(".new").write_text(json.dumps({"rows": rows, "peaks": dict(self.peaks), "argv": sys.argv}))
        path.with_suffix(".new").replace(path)


def start(folder: Path) -> None:
    """Sample this process, and those forked from it."""
    sampler = Sampler(folder)
    os.register_at_fork(after_in_child=sampler.begin)
    atexit.register(sampler.end)
