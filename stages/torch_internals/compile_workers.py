"""The processes that TorchInductor compiles Triton kernels in, and what it raises for an exception in one.

Relies on ``SubprocException``, whose message is that exception's traceback, and on ``torch._inductor.async_compile.
{_pool_set, shutdown_compile_workers}``. The second asks each pool of this process to end, and waits for the pool's
``process``, where it has one. The next compilation starts another pool.
"""

import re
import subprocess
import sys
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any
from unittest import mock

import psutil

_OF_A_WORKER = "SubprocException"
_RAISED = re.compile(r"^(?:\w+\.)*(?P<type>\w*(?:Error|Exception))(?:: *(?P<message>.*))?$", re.MULTILINE)


def first_raised(error_type: str, message: str) -> tuple[str, str]:
    """An error's type and message; of one in a compile worker, those of what was raised there first."""
    found = _RAISED.search(message) if error_type == _OF_A_WORKER else None
    return (error_type, message) if found is None else (found["type"], found["message"] or "")


def end_compile_workers() -> None:
    """End this process's compile workers, so that what is timed next has the processors to itself.

    A generated module with Triton kernels starts them as it is loaded, even where nothing is left to compile. Each of
    them then imports torch and Triton, seconds of work beside whatever the process does next, and torch would wait for
    that before it ends them.
    """
    pools: Any = sys.modules.get("torch._inductor.async_compile")
    if pools is None:
        return
    with ExitStack() as stack:
        for pool in list(pools._pool_set):
            process = getattr(pool, "process", None)
            if isinstance(process, subprocess.Popen):
                stack.enter_context(mock.patch.object(process, "wait", partial(_killed, process, process.wait)))
        pools.shutdown_compile_workers()


def _killed(process: "subprocess.Popen[bytes]", wait: Any, *arguments: Any) -> int:
    """Kill a process and all that it started; its exit status."""
    with suppress(psutil.NoSuchProcess):
        pool = psutil.Process(process.pid)
        pool.suspend()  # so that it starts no other worker meanwhile
        for worker in pool.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                worker.kill()
        pool.kill()
    return wait(*arguments)
