"""Runs scripts, each in a fresh process, and says which of them showed what they should."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from inductor_debug.stages.repro.check import COULD_NOT_RUN, NOT_REPRODUCED, REPRODUCED

TIMEOUT_S = 120.0
JOBS = 2
"""Scripts that run at once: each holds torch and its operands."""
MAX_BYTES = 2 << 30
"""A script whose tensors take more is not run."""
_SAID = 300

_OFFLINE = """
import runpy, sys
if sys.platform.startswith("linux"):
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: it ends with the process that asked
def refuse(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        raise PermissionError(f"a reproduction must not use the network: {event}")
sys.addaudithook(refuse)
"""

_ALONE = """
def alone(event, arguments):
    if event == "import" and arguments[0].partition(".")[0] == "inductor_debug":
        raise ModuleNotFoundError(f"a reproduction must not need this tool: {arguments[0]}")
sys.addaudithook(alone)
"""

_SCRIPT = """
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True)
class Script:
    """A script to be run.

    Attributes:
        name: of it.
        text: of it.
        line: that it must print.
        nbytes: that its tensors take.
        beside: files that it reads, by name.
        packages: beside torch, those that it may import; they may need this tool.
    """

    name: str
    text: str
    line: str
    nbytes: int = 0
    beside: tuple[Path, ...] = ()
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """What became of one run. ``reason`` says why it is not verified; empty where it is."""

    verified: bool
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Ending:
    """How a script ended.

    Attributes:
        code: its exit code, the negative number of a signal, or None where time ran out or it could not be started.
        output: what it printed, errors too.
        not_started: why it could not be started; empty where it was.
    """

    code: int | None
    output: str
    not_started: str = ""


def ran(item: Script, *, timeout_s: float = TIMEOUT_S) -> Ending:
    """Run a script as :func:`verify` does, without a judgement; its line and its tensors' bytes are not looked at.

    Args:
        item: the script.
        timeout_s: seconds after which it is killed, with the processes that it started.
    """
    with tempfile.TemporaryDirectory(prefix="repro-") as folder:
        file = Path(folder) / "repro.py"
        file.write_text(item.text, encoding="utf-8")
        try:
            for other in item.beside:
                shutil.copy(other, folder)
            return Ending(*_run(file, timeout_s, item.packages))
        except OSError as error:  # no process could be started, e.g. for want of memory
            return Ending(None, "", f"not run: {error}")


def verify(
    scripts: Sequence[Script], *, timeout_s: float = TIMEOUT_S, jobs: int = JOBS, max_bytes: int = MAX_BYTES
) -> list[Verification]:
    """Run each script as ``python -P FILE`` in an empty working directory, without the network.

    A script is verified where it exits with the code for "reproduces" and prints its line; anything else is not, and
    says why. Nothing that a script does raises here.

    Args:
        scripts: what to run.
        timeout_s: seconds after which a script is killed, with the processes that it started.
        jobs: how many run at once.
        max_bytes: scripts whose tensors take more are not run.

    Returns:
        one verification a script, in their order.
    """
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        return list(pool.map(lambda item: _verified(item, timeout_s, max_bytes), scripts))


def _verified(item: Script, timeout_s: float, max_bytes: int) -> Verification:
    if item.nbytes > max_bytes:
        return Verification(False, f"not run: its tensors take {item.nbytes:,} bytes, more than {max_bytes:,}")
    began = time.perf_counter()
    ending = ran(item, timeout_s=timeout_s)
    seconds = time.perf_counter() - began
    return Verification((reason := _reason(ending, item.line, timeout_s)) == "", reason, seconds)


def _run(file: Path, timeout_s: float, packages: Sequence[str]) -> tuple[int | None, str]:
    """Exit code and output; None where time ran out."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _OFFLINE + (_ALONE if not packages else "") + _SCRIPT, str(file)],
        cwd=file.parent, env=_environment(packages), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output
    return process.returncode, output


def _environment(packages: Sequence[str] = ()) -> dict[str, str]:
    """This process's, but with torch and some packages on the path: a script that needs more must not seem to work."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    if packages:
        environment["PYTHONPATH"] = os.pathsep.join(item or os.getcwd() for item in sys.path)
        return environment
    found = importlib.util.find_spec("torch")
    if found is not None and found.origin is not None:
        environment["PYTHONPATH"] = str(Path(found.origin).parents[1])
    return environment


def _reason(ending: Ending, line: str, timeout_s: float) -> str:
    code = ending.code
    if code is None:
        return ending.not_started or f"timed out after {timeout_s:g} s"
    lines = [text.strip() for text in ending.output.splitlines() if text.strip()]
    last = (lines[-1] if lines else "it printed nothing")[:_SAID]
    if code == REPRODUCED and line in lines:
        return ""
    if code == REPRODUCED:
        return f"it shows something else than the graph did: {last}"
    if code == NOT_REPRODUCED:
        return f"it does not reproduce: {last}"
    if code == COULD_NOT_RUN:
        return f"it could not run: {last}"
    return f"it ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}: {last}"
