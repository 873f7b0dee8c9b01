"""The highest sum of proportional set sizes of a process's descendants, short peaks included.

The kernel sums a process's PSS (proc_pid_smaps(5)) by walking through its pages: for gigabytes that takes too long for
a look each time. So looks are rare, and between two of them a process's PSS moves as its anonymous memory does
(``RssAnon`` of proc_pid_status(5), a counter). A forked process shares its parent's pages: both are looked at once two
lists have found it, for one that only begins another program has done so by then.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

TICK_S = 0.025
LIST_S = 0.25
"""Between two lists of the processes."""
LOOKING = 0.01
"""Share of the time that looks at all of them may take."""


@dataclass
class Peak:
    """Bytes; the highest that was seen."""

    bytes: int = 0


@contextmanager
def peak_of_children(peak: Peak) -> Iterator[None]:
    """Raise ``peak`` to the highest sum over all descendants of this process while open."""
    ended = threading.Event()

    def watch() -> None:
        apart: dict[int, int] = {}  # process → its PSS less its anonymous memory, when it was looked at
        listed: set[int] = set()
        list_at = look_at = 0.0
        while not ended.wait(TICK_S):
            now = time.perf_counter()
            if now >= list_at:
                found = {child.pid: child for child in psutil.Process().children(recursive=True)}
                new = (found.keys() & listed) - apart.keys()
                stale = new | {_parent(found[pid]) for pid in new}
                apart = {pid: _apart(pid) if pid in stale else apart[pid] for pid in found.keys() & listed}
                listed, list_at = set(found), now + LIST_S
            if now >= look_at:
                apart = {pid: _apart(pid) for pid in apart}
                look_at = now + max(LIST_S, (time.perf_counter() - now) / LOOKING)
            total = sum(least + of for pid, least in apart.items() if (of := _entry(pid, "status", "RssAnon")))
            peak.bytes = max(peak.bytes, total)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return 0


def _apart(process: int) -> int:
    return _entry(process, "smaps_rollup", "Pss") - _entry(process, "status", "RssAnon")


def _entry(process: int, file: str, name: str) -> int:
    """Bytes of an entry of /proc; 0 of a process that has ended."""
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{process}/{file}").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return 0 if found is None else 1024 * int(found[1])
