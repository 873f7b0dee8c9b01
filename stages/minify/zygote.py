"""A process that has torch imported, and forks a child for each script that it is asked to run.

It is a program, ``python -P zygote.py``, which ``workers`` starts. It needs the standard library alone, and imports
nothing of this tool, since the scripts may not either. Messages on its standard input and output are JSON after their
length in four bytes: first what to prepare, which it answers, then one request a script, each answered twice: with the
child's number, then with how it ended. ``python -P zygote.py FOLDER REFUSED SCRIPT ARGUMENT…`` runs one script itself.

It ends at an empty message, or with its parent. Each child has a session of its own, and what it started is killed once
it has ended. What left the session is found as well: it becomes this process's child (PR_SET_CHILD_SUBREAPER).
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

LAST = 64 << 10
"""Bytes kept of what a script prints."""
_PDEATHSIG, _CHILD_SUBREAPER = 1, 36
_TICK_S = 1.0
_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Has torch ask whether there is a GPU without CUDA, which would not survive a fork."""


class ParentGone(Exception):
    """Nobody is left to answer."""


def run_script(script: str, arguments: Sequence[str], folder: str, refused: str) -> NoReturn:
    """Run a script as this process's main program, and end as Python would.

    The process ends without taking its objects apart, which takes seconds after torch was compiled with.

    Args:
        script: its path.
        arguments: ``sys.argv`` after its name.
        folder: becomes TorchInductor's cache folder.
        refused: a package that can't be imported; empty for none.
    """
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    os.chdir(Path(script).parent)
    sys.argv = [script, *arguments]
    sys.excepthook = _from_the_script
    _refuse(refused)
    code = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as asked:
        code = _exit_code(asked)
    except BaseException as error:  # noqa: BLE001 - as Python ends, whatever was raised
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    _leave(code)


def _refuse(package: str) -> None:
    """Audit every event from now on: no network, and not this package."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
            raise PermissionError(f"a candidate must not use the network: {event}")
        if event == "import" and package and arguments[0].partition(".")[0] == package:
            raise ModuleNotFoundError(f"a candidate must not need this tool: {arguments[0]}")

    sys.addaudithook(refuse)


def _from_the_script(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an exception without the frames that began the script."""
    while trace is not None and trace.tb_frame.f_code.co_filename != sys.argv[0]:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def _exit_code(asked: SystemExit) -> int:
    if asked.code is None or isinstance(asked.code, int):
        return (asked.code or 0) & 0xFF
    print(asked.code, file=sys.stderr)  # noqa: T201 - as Python does
    return 1


def _leave(code: int) -> NoReturn:
    """Wait for threads, call exit handlers, write what is buffered."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError, AttributeError):
            stream.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)
    os._exit(code)


class Zygote:
    """Serves requests until its parent is gone.

    Args:
        requests: descriptor that messages are read from.
        answers: descriptor that they are written to.
    """

    def __init__(self, requests: int, answers: int) -> None:
        self._requests = requests
        self._answers = answers
        self._parent = os.getppid()
        self._ended, self._wake = os.pipe()
        for end in (self._ended, self._wake):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Prepare, then run what is asked for; remove the parent's files once it is gone."""
        _prctl(_PDEATHSIG, signal.SIGKILL)  # an import that hangs never reads that the parent is gone
        setup = self._receive()
        try:
            self._serve(setup)
        except ParentGone:
            shutil.rmtree(setup["folder"], ignore_errors=True)

    def _serve(self, setup: dict[str, Any]) -> None:
        _prepare(setup["modules"], setup["answers"], setup["packages"])
        _prctl(_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._send({"unfit": _unfit()})
        _prctl(_PDEATHSIG, 0)  # from now on it would also end with the thread, not the process, that started it
        gc.collect()
        gc.freeze()
        while (request := self._receive()) != {}:
            self._run(request)

    def _run(self, request: dict[str, Any]) -> None:
        began = time.monotonic()
        output, written = os.pipe()
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(output)
            self._become(zygote, written)
            tempfile.tempdir, os.environ["TMPDIR"] = None, request["folder"]
            run_script(request["script"], request["arguments"], request["folder"], request["refused"])
        os.close(written)
        os.set_blocking(output, False)
        printed = bytearray()
        timed_out = gone = False
        try:
            self._send({"pid": pid})
            timed_out = self._watch(pid, output, printed, began + request["timeout_s"])
        except ParentGone:
            gone = True
        status = _end(pid)
        _read(output, printed)
        os.close(output)
        if gone:
            return
        code = os.waitstatus_to_exitcode(status)
        self._send(
            {
                "code": None if timed_out or code < 0 else code,
                "signal": -code if code < 0 and not timed_out else None,
                "timed_out": timed_out,
                "output": printed.decode(errors="replace"),
                "seconds": time.monotonic() - began,
            }
        )

    def _become(self, zygote: int, written: int) -> None:
        """Make this forked process what a fresh one is."""
        os.setsid()
        _prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != zygote:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(written, 1)
        os.dup2(written, 2)
        for end in (written, self._requests, self._answers, self._ended, self._wake):
            os.close(end)
        for seed_anew in _seeds():  # Python's own generator does so itself
            seed_anew()

    def _watch(self, pid: int, output: int, printed: bytearray, until: float) -> bool:
        """Wait for a child and read what it prints. True where time ran out."""
        sources = [self._requests, self._ended, output]
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            left = until - time.monotonic()
            if left <= 0:
                return True
            ready = select.select(sources, [], [], min(left, _TICK_S))[0]
            if self._requests in ready or os.getppid() != self._parent:  # a message during a run is the end
                raise ParentGone
            if self._ended in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._ended, LAST)
            if output in ready and _read(output, printed, once=True):
                sources.remove(output)
        return False

    def _receive(self) -> dict[str, Any]:
        (length,) = struct.unpack("!I", self._exactly(4))
        message: dict[str, Any] = json.loads(self._exactly(length))
        return message

    def _exactly(self, count: int) -> bytes:
        content = b""
        while len(content) < count:
            while not select.select([self._requests], [], [], _TICK_S)[0]:
                if os.getppid() != self._parent:
                    raise ParentGone
            part = os.read(self._requests, count - len(content))
            if not part:
                raise ParentGone
            content += part
        return content

    def _send(self, message: dict[str, Any]) -> None:
        content = json.dumps(message).encode()
        content = struct.pack("!I", len(content)) + content
        try:
            while content:
                content = content[os.write(self._answers, content) :]
        except BrokenPipeError:
            raise ParentGone from None


def _prepare(modules: Sequence[str], answers: Sequence[Sequence[str]], packages: Sequence[str]) -> None:
    """Import what scripts need. Of torch's own, what is not there is left out; a package has to be."""
    added = os.environ.setdefault(_NVML, "1") == "1"
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for module, function in answers:
        try:
            getattr(importlib.import_module(module), function)()
        except Exception:  # noqa: BLE001 - the scripts meet it themselves
            traceback.print_exc()
    for name in packages:
        importlib.import_module(name)
    if added:
        del os.environ[_NVML]
    for kept in getattr(weakref.finalize, "_registry", {}):
        kept.atexit = False  # what an import made is this process's: its children need not take it apart, nor may they


def _unfit() -> str:
    """Why this process can't be forked; empty where it can."""
    pid = os.fork()  # before a fork, libraries that can end their threads do
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA was initialized by an import"
    threads = len(os.listdir("/proc/self/task"))
    return "" if threads == 1 else f"an import started {threads - 1} thread(s)"


def _seeds() -> list[Callable[[], object]]:
    """What seeds the generators of this process that a fresh one would seed at random."""
    torch, numpy_random = sys.modules.get("torch"), sys.modules.get("numpy.random")
    found = [] if torch is None else [torch.default_generator.seed]
    return found if numpy_random is None else [*found, numpy_random.seed]


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(option, value)


def _read(output: int, printed: bytearray, once: bool = False) -> bool:
    """Read what is there, and keep the last of it. True at the end of all output."""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(output, LAST):
            printed += part
            del printed[:-LAST]
            if once:
                return False
        return True
    return False


def _end(pid: int) -> int:
    """Kill a child's session and what left it; the child's status, that of its own end where it had ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    with contextlib.suppress(ChildProcessError):  # until there is no child
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                for child in _children():
                    os.kill(child, signal.SIGKILL)
                time.sleep(0.001)
    return status


def _children() -> list[int]:
    found = []
    for folder in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            after_name = Path("/proc", folder, "stat").read_text().rpartition(")")[2]
            if int(after_name.split()[1]) == os.getpid():
                found.append(int(folder))
    return found


def _main() -> None:
    if len(sys.argv) > 1:
        folder, refused, script, *arguments = sys.argv[1:]
        run_script(script, arguments, folder, refused)
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what an import prints is no answer
    os.close(nothing)
    Zygote(requests, answers).serve()


if __name__ == "__main__":
    _main()
