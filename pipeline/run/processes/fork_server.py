"""The process that workers of a sweep are forked from: ``python -P fork_server.py SOCKET``.

It has imported what every worker needs, and torch once two of them needed it, but nothing of a model. So a job does not
pay for these imports again. A forked worker has a guard as a started one has (:mod:`.guard`): it is forked first. The
server ends when the other end of its socket is closed.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable
from typing import Any

from inductor_debug.pipeline.cache.key import own_source
from inductor_debug.pipeline.cache.seen import imported_packages, installed_names
from inductor_debug.pipeline.run.parent.forking import HEAD
from inductor_debug.pipeline.run.processes import guard, worker
from inductor_debug.stages.backends.plugins import adds_devices
from inductor_debug.stages.process_end import leave
from inductor_debug.stages.registry import declared, is_ours

MOST_FILES = 8


def serve(connection: socket.socket) -> None:
    """Fork a worker for each request, one at a time, and tell how it ended.

    It ends where this package's files, or what is installed, are others than those that it imported, for a result is
    kept under what they hold.
    """
    source, installed = own_source(), installed_names()
    light = [stage for stage in declared().values() if is_ours(stage) and not stage.uses_torch]
    _import(["pandas", *(stage.stage.partition(":")[0] for stage in light)])
    while True:
        received = _receive(connection)
        if received is None:
            return
        request, files = received
        if own_source() != source or installed_names() != installed:
            return
        if request["torch"]:
            _import(["torch"])
        child = _forked()
        if child == 0:
            _be_guard(connection, request, files)
        for descriptor in files:
            os.close(descriptor)
        _tell(connection, child)
        _tell(connection, os.waitpid(child, 0)[1])


def _import(modules: Iterable[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    own_source(), adds_devices(), imported_packages()  # read once here, a worker looks whether anything changed
    gc.freeze()  # or each worker would copy all pages in its first collection


def _forked() -> int:
    """The threads of which Python warns are OpenBLAS's, which it ends before a fork, and jemalloc's (of pyarrow), which
    holds its locks meanwhile: both have handlers for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """A request and its files; None where nobody is left who asks."""
    head, files, _, _ = socket.recv_fds(connection, HEAD, MOST_FILES)
    if len(head) < HEAD:
        return None
    content = b""
    while len(content) < int.from_bytes(head):
        part = connection.recv(1 << 16)
        if not part:
            return None
        content += part
    request: dict[str, Any] = json.loads(content)
    return request, files


def _tell(connection: socket.socket, number: int) -> None:
    try:
        connection.sendall(f"{number}\n".encode())
    except OSError:  # nobody is left who asks: the next read says so
        return


def _be_guard(connection: socket.socket, request: dict[str, Any], files: list[int]) -> None:
    """In the forked process: be the worker's guard until it has ended. Does not return."""
    try:
        connection.close()
        os.setsid()
        lifeline, events, log, plan, *lock = files
        for descriptor, place in ((plan, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, place)
        _close_all_but([lifeline, events, *lock])
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])

        def begin() -> None:
            for held in (lifeline, *lock):
                os.close(held)
            _be_worker(events)

        watched = guard.Guard(lifeline, guard.BoundedLog(1, request["limit"]))
        watched.start(begin, events)
        os.close(0)
        watched.watch()
        guard.end_like(watched.status)
    except BaseException:  # noqa: BLE001 - whatever it is, this process must not go on as the server
        traceback.print_exc()
    finally:
        os._exit(1)


def _be_worker(events: int) -> None:
    sys.argv[:] = [worker.__file__, str(events)]
    tempfile.tempdir = None  # it may have been looked up for another run
    try:
        code = worker.main([str(events)])
    except BaseException:  # noqa: BLE001 - what Python itself does at the end of a program
        traceback.print_exc()
        code = 1
    leave(code)


def _close_all_but(kept: Iterable[int]) -> None:
    keep = {0, 1, 2, *kept}
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else map(str, range(3, 1024)):
        if int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:  # of the listing itself
                continue


if __name__ == "__main__":
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # see the guard's
    serve(socket.socket(fileno=int(sys.argv[1])))
