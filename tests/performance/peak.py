"""The highest sum of proportional set sizes of a process's descendants, short peaks included.

The kernel sums a process's PSS (proc_pid_smaps(5)) by walking through its pages, and the process waits meanwhile: for
gigabytes that is too long for a look each 10 ms. So looks are rare, and between them the sum moves as the processes'
anonymous memory does (``RssAnon`` of proc_pid_status(5), a counter). A process that comes or goes brings a look.
"""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

TICK_S = 0.01
LIST_S = 0.1
"""Between two lists of the processes."""
LOOKING = 0.02
"""Share of the time that looks may take."""


@dataclass
class Peak:
    """Bytes; the highest that was seen."""

    bytes: int = 0


@contextmanager
def peak_of_children(peak: Peak) -> Iterator[None]:
    """Raise ``peak`` to the highest sum over all descendants of this process while open."""
    ended = threading.Event()

    def watch() -> None:
        processes: list[int] = []
        seen: list[int] = []
        total = anonymous = 0
        list_at = look_at = 0.0
        while not ended.wait(TICK_S):
            now = time.perf_counter()
            if now >= list_at:
                processes, list_at = [child.pid for child in psutil.Process().children(recursive=True)], now + LIST_S
            if processes != seen or now >= look_at:
                seen, total = processes, _sum(processes, "smaps_rollup", "Pss")
                anonymous = _sum(processes, "status", "RssAnon")
                look_at = now + max(LIST_S, (time.perf_counter() - now) / LOOKING)
            peak.bytes = max(peak.bytes, total + _sum(processes, "status", "RssAnon") - anonymous)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _sum(processes: list[int], file: str, name: str) -> int:
    """Bytes of an entry of /proc, those that have ended left out."""
    total = 0
    for process in processes:
        with suppress(OSError):
            found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{process}/{file}").read_text(), re.MULTILINE)
            total += 1024 * int(found[1]) if found else 0
    return total
