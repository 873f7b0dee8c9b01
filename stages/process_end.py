"""How a process of ours ends once its results are told."""

import atexit
import ctypes
import logging
import os
import sys
from typing import NoReturn

from inductor_debug.stages.torch_internals.compile_workers import end_compile_workers


def leave(code: int) -> NoReturn:
    """End the process: exit handlers and buffers, but not the seconds that Python needs to take torch apart."""
    end_compile_workers()
    atexit._run_exitfuncs()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(code)
