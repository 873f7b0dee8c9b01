"""Runs scripts that need torch, each in a process of its own, without the seconds that importing torch takes.

::

    with Workers(timeout_s=60) as workers:
        outcome = workers.run(Path("candidate.py"), "argument")   # outcome.code, outcome.signal, outcome.output

On Linux the processes are forked from one that has torch imported (``zygote``), and elsewhere they are fresh. A script
sees the same either way, but for what torch reads once, at its import: environment variables that are to take effect
are given to ``Workers``, not set by the script. What happens as Python takes its objects apart is not seen.
"""

import contextlib
import importlib.util
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.child_processes import signal_name
from inductor_debug.stages.torch_internals.first_compilation import ANSWERS, MODULES

TIMEOUT_S = 120.0
LAST = 64 << 10
"""Bytes kept of what a script prints."""
_PROGRAM = Path(__file__).with_name("zygote.py")
_TOOL = "inductor_debug"
_PREPARE_S = 600.0
_LATE_S = 60.0
"""Seconds after a timeout in which it must have been told."""
_SAID = 2000
_HEADERS = """
import torch
torch.compile(lambda x: x + 1)(torch.ones(64))
"""
"""Has torch precompile its C++ headers, if it has not yet: minutes at worst, in a folder that all its processes share.
A candidate killed meanwhile would leave half a header there, and every compilation from then on would be slow."""


class WorkersError(RuntimeError):
    """The process that runs the scripts ended twice, or can't be prepared."""


class _Died(Exception):
    """The zygote ended, or fell silent; the message says how."""


@dataclass(frozen=True)
class Outcome:
    """How a script ended.

    ``code`` is its exit code, and None where a signal or the time limit ended it. ``signal`` is the signal that ended
    it, other than at the time limit. ``output`` is the last 64 KiB of stdout and stderr together.
    """

    code: int | None
    signal: int | None
    timed_out: bool
    output: str
    seconds: float


class Workers:
    """Runs scripts one after another; a context manager that leaves no process and no file behind.

    Scripts run in their own folder, without input, network and this tool, and hash with the seed 0. Each has an empty
    TorchInductor cache, and none of its processes outlives it. Nothing is started before the first run.

    Args:
        packages: imported before, e.g. the user's backend; scripts may import this tool too where there are any.
        timeout_s: seconds after which a script is killed.
        environment: variables on top of this process's.

    Raises:
        ConfigurationError: a package can't be found.
    """

    def __init__(
        self,
        *,
        packages: Sequence[str] = (),
        timeout_s: float = TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._packages = tuple(packages)
        self._timeout_s = timeout_s
        self._environment = _environment(self._packages) | dict(environment or {})
        self._refused = "" if packages else _TOOL
        self._folder = Path(tempfile.mkdtemp(prefix="minify-"))
        self._forks = sys.platform == "linux" and hasattr(os, "fork")
        self._zygote: _Zygote | None = None
        self._headers_ready = False
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, script: Path, *arguments: str, timeout_s: float | None = None, compiles_cpp: bool = True) -> Outcome:
        """Run a script to its end, and end what it started.

        Args:
            script: a Python file.
            arguments: its ``sys.argv`` after its name.
            timeout_s: instead of that of all.
            compiles_cpp: whether it compiles C++ by TorchInductor, whose headers are made ready then.

        Returns:
            how it ended, whatever it did.

        Raises:
            WorkersError: the process that runs the scripts was killed twice, e.g. for want of memory.
        """
        with self._lock:
            if not self._folder.is_dir():
                raise WorkersError("these workers are closed")
            limit_s = self._timeout_s if timeout_s is None else timeout_s
            return self._run(script.absolute(), arguments, limit_s, compiles_cpp)

    def start(self, *, compiles_cpp: bool = True) -> None:
        """Start what runs the scripts, which else the first run does; ``compiles_cpp`` as of :meth:`run`."""
        with self._lock:
            if self._forks:
                try:
                    self._ready(compiles_cpp)
                except _Died:  # the first run tries again, and tells
                    self._drop()

    def close(self) -> None:
        """End what runs, and remove the files."""
        self._drop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, script: Path, arguments: Sequence[str], timeout_s: float, compiles_cpp: bool) -> Outcome:
        deaths: list[str] = []
        while self._forks and len(deaths) < 2:
            try:
                zygote = self._ready(compiles_cpp)
                if zygote is not None:
                    return self._forked(zygote, script, arguments, timeout_s)
            except _Died as death:
                self._drop()
                deaths.append(str(death))
            except BaseException:  # an answer may still come, and would be taken for the next one's
                self._drop()
                raise
        if self._forks:
            raise WorkersError(
                f"the process that runs {script.name} ended twice. First: {deaths[0]}. Then: {deaths[1]}"
            )
        return self._fresh(script, arguments, timeout_s)

    def _ready(self, compiles_cpp: bool) -> "_Zygote | None":
        """The zygote, started if need be; None where it turns out that it can't be forked."""
        if self._zygote is None:
            home = self._folder / "zygote"
            home.mkdir(exist_ok=True)
            self._zygote = _Zygote(self._environment | {"TORCHINDUCTOR_CACHE_DIR": str(home)}, home)
            unfit = self._zygote.prepare(self._packages)
            if unfit:
                self._forks = False
                self._drop()
                return None
        if compiles_cpp and not self._headers_ready:
            script = self._folder / "headers.py"
            script.write_text(_HEADERS, encoding="utf-8")
            self._forked(self._zygote, script, (), _PREPARE_S)
            self._headers_ready = True
        return self._zygote

    def _drop(self) -> None:
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.end()

    def _forked(self, zygote: "_Zygote", script: Path, arguments: Sequence[str], timeout_s: float) -> Outcome:
        with self._own_folder() as folder:
            request = {"script": str(script), "arguments": list(arguments), "timeout_s": timeout_s}
            return zygote.run(request | {"folder": folder, "refused": self._refused}, timeout_s)

    def _fresh(self, script: Path, arguments: Sequence[str], timeout_s: float) -> Outcome:
        with self._own_folder() as folder:
            command = [sys.executable, "-P", str(_PROGRAM), folder, self._refused, str(script), *arguments]
            return _fresh_process(command, self._environment, timeout_s)

    @contextlib.contextmanager
    def _own_folder(self) -> Any:
        folder = tempfile.mkdtemp(dir=self._folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class _Zygote:
    """The process that forks, as its parent sees it.

    Args:
        environment: its variables.
        home: its own folder in the workers', whose folder it removes if they are killed.
    """

    def __init__(self, environment: Mapping[str, str], home: Path) -> None:
        self._home = home
        self._said = home / "said.txt"
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM)],
                env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True,
                bufsize=0, cwd=home,  # torch's folder for debugging is below that of its import
            )  # fmt: skip
        self._child: int | None = None

    def prepare(self, packages: Sequence[str]) -> str:
        """Have it import everything; why it can't be forked, empty where it can."""
        self._send({"folder": str(self._home.parent), "modules": MODULES, "answers": ANSWERS, "packages": packages})
        return str(self._receive(_PREPARE_S)["unfit"])

    def run(self, request: dict[str, Any], timeout_s: float) -> Outcome:
        """Have a script run."""
        self._send(request)
        self._child = self._receive(_LATE_S)["pid"]
        outcome = Outcome(**self._receive(timeout_s + _LATE_S))
        self._child = None
        return outcome

    def end(self) -> None:
        """End it and what it runs."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(_Died):
            self._send({})  # it ends by itself then, with what it runs
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        content = json.dumps(message).encode()
        try:
            self.process.stdin.write(struct.pack("!I", len(content)) + content)
        except BrokenPipeError:
            raise self._died() from None

    def _receive(self, within_s: float) -> dict[str, Any]:
        until = time.monotonic() + within_s
        (length,) = struct.unpack("!I", self._exactly(4, until))
        message: dict[str, Any] = json.loads(self._exactly(length, until))
        return message

    def _exactly(self, count: int, until: float) -> bytes:
        assert self.process.stdout is not None
        content = b""
        while len(content) < count:
            if not select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
                raise _Died("it did not answer in time")
            part = self.process.stdout.read(count - len(content))
            if not part:
                raise self._died()
            content += part
        return content

    def _died(self) -> _Died:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        code = self.process.returncode
        how = "it closed its pipe" if code is None else signal_name(-code) if code < 0 else f"exit code {code}"
        said = self._said.read_text(encoding="utf-8", errors="replace")[-_SAID:].strip()
        return _Died(f"{how}{', after it had said: ' if said else ''}{said}")


def _fresh_process(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> Outcome:
    began = time.monotonic()
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, bufsize=0,
    )  # fmt: skip
    assert process.stdout is not None
    printed = bytearray()
    reader = threading.Thread(target=_keep_last, args=(process.stdout, printed), daemon=True)
    reader.start()
    timed_out = False
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        timed_out = True
    finally:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
    reader.join(_LATE_S)
    process.stdout.close()
    code = process.returncode
    return Outcome(
        code=None if timed_out or code < 0 else code,
        signal=-code if code < 0 and not timed_out else None,
        timed_out=timed_out,
        output=printed.decode(errors="replace"),
        seconds=time.monotonic() - began,
    )


def _keep_last(pipe: IO[bytes], printed: bytearray) -> None:
    while part := pipe.read(LAST):
        printed += part
        del printed[:-LAST]


def _environment(packages: Sequence[str]) -> dict[str, str]:
    """This process's, with torch and the packages alone on the path, and without TorchInductor's caches."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    wanted = ("torch", *packages, *([_TOOL] if packages else []))
    folders = dict.fromkeys(_folder_of(name.partition(".")[0]) for name in wanted)
    return environment | {
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(folders),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    }


def _folder_of(package: str) -> str:
    """The folder that a package is imported from."""
    found = importlib.util.find_spec(package)
    if found is None:
        raise ConfigurationError(package, key="packages", valid="packages that can be imported")
    if found.submodule_search_locations:
        return str(Path(next(iter(found.submodule_search_locations))).parent)
    return str(Path(found.origin or "").parent)
