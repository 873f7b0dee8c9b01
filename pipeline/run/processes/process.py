"""A worker's process: what it tells its parent, what it may take, and what a model must not spoil."""

import contextlib
import ctypes
import errno
import faulthandler
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable

from inductor_debug.pipeline.directory.records import CudaDevice, TorchFound
from inductor_debug.pipeline.run.events import LINES, Event

logger = logging.getLogger("inductor_debug.pipeline.run.processes.worker")

Emit = Callable[[Event], None]
"""Tells the parent an event."""


def describe_devices() -> TorchFound | None:
    """What torch found; None where no stage imported it."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    cuda = []
    if torch.cuda.is_initialized():  # a run on the CPU has no reason to start CUDA
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            cuda.append(CudaDevice(properties.name, properties.total_memory))
    return TorchFound(
        threads=torch.get_num_threads(),
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        deterministic_algorithms=torch.are_deterministic_algorithms_enabled(),
        cuda=cuda,
        cuda_version=torch.version.cuda,
    )


def limit_memory(limit: int | None, device: str) -> None:
    """Let allocations beyond ``limit`` bytes of private writable memory fail, so that they raise.

    Not on a GPU, whose driver maps far more than it uses; the parent process watches resident memory in either case.
    """
    if limit is None or not device.startswith("cpu"):
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))


def prepare_process() -> None:
    """Make what is printed reach the log even if this process is killed, and keep what a model may spoil."""
    faulthandler.enable(all_threads=True)
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None)
        with contextlib.suppress(ValueError):
            libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, 1, 0)  # _IOLBF
    logging.basicConfig(
        level=os.environ.get("INDUCTOR_DEBUG_LOG_LEVEL", "INFO"),
        format="[%(asctime)s][%(name)s][%(levelname)s] - %(message)s",
    )


def keep_recursion_limit() -> None:
    """A model that lowers Python's recursion limit would make torch's compiler, and these stages, fail in its name."""
    ours = sys.setrecursionlimit

    def raised_only(limit: int) -> None:
        if limit >= sys.getrecursionlimit():
            ours(limit)
        else:
            logger.warning("the model asks for a recursion limit of %d; it stays %d", limit, sys.getrecursionlimit())

    sys.setrecursionlimit = raised_only


def writer(descriptor: int, token: str) -> Emit:
    """Writes events to the pipe, each on a line of its own behind the token, whatever others write there."""
    pipe = os.fstat(descriptor)

    def emit(event: Event) -> None:
        try:
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != (pipe.st_dev, pipe.st_ino):
                raise OSError(errno.EBADF, "the descriptor is another file's now")
            view = memoryview(f"\n{token} {LINES.write(event)}".encode())
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError as error:  # a model may close every descriptor: the stages' records tell all the same
            logger.warning("the event %s could not be told: %s", event, error)

    return emit
