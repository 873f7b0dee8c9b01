"""Memory that this process has freed, and its allocator keeps."""

import ctypes


def give_back_memory() -> None:
    """Give the system what nothing here holds any more.

    After a step in float64 glibc keeps up to a third of a process's memory in pieces that the next step does not fit
    into (malloc_trim(3) gives them back, in milliseconds). Other allocators are left to themselves. Objects that hold
    each other are left to Python, which takes up to a second to look for them.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
