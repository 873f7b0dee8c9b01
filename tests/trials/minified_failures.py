"""A corpus of failures: how small is the script of each, is it verified, and does it fail alike?

Usage: ``python tests/trials/minified_failures.py --out ROWS.jsonl [--only REGEX] [--classes error crash …] [--small]
[--torch] [--own] [--jobs 2] [--device cpu] [--budget 120] [--seconds 480]``, and ``… --out ROWS.jsonl --table``.

``minified_corpus.csv`` lists the failures; ``--list`` prints their names, which ``--only`` matches. A row of JSON is
added to the file as soon as a search has ended. A further start does what the file lacks, so that a long run can be
made of short ones: no search begins that could not end within ``--seconds``, when those that run are ended and left for
the next start. ``--again`` repeats what raised. Exit code 0: all is done; 1: something is left.

``--torch`` has torch's own minifier reduce the same graphs, each after the tool; ``--own`` has it do so once more where
the failure is no wrong number, with a test that takes any failure for the one that is looked for, as torch's does.
``--table`` prints the rows in Markdown, and the medians.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import minified_table
from minified_corpus import Plant, read
from minified_trial import OURS, OWN, THEIRS, Row, serve

CLASSES = ("violation", "error", "crash", "hang", "defect", "storm")
AROUND_S = 60.0
"""Seconds that a search takes beyond its budget: to run the model once, and the script in a fresh process."""
SIZES = ("full", "deep", "small")
"""The order in which the corpus is gone through: what takes long comes first."""

Task = tuple[Plant, str]


class Rows:
    """The rows of a file, which grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self.all: list[Row] = [json.loads(line) for line in lines]

    def of(self, plant: Plant, by: str) -> Row | None:
        """The last row of a search; None where there is none yet."""
        return next((row for row in reversed(self.all) if (row["case"], row["by"]) == (plant.name, by)), None)

    def add(self, row: Row) -> None:
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            self.all.append(row)
            print(minified_table.line(row), flush=True)


class Tasks:
    """Searches that are left; torch's of a failure comes after the tool's."""

    def __init__(self, plants: Sequence[Plant], who: Sequence[str], rows: Rows, again: bool) -> None:
        self._rows, self._lock = rows, threading.Lock()
        plants = sorted(plants, key=lambda plant: SIZES.index(plant.size))
        self._left = [(plant, by) for plant in plants for by in who if self._lacks(plant, by, again)]

    def _lacks(self, plant: Plant, by: str, again: bool) -> bool:
        if by == OWN and plant.of not in ("error", "crash", "hang"):
            return False
        row = self._rows.of(plant, by)
        return row is None or (again and "raised" in row)

    def take(self) -> Task | None:
        """The next search that can begin."""
        with self._lock:
            for place, (plant, by) in enumerate(self._left):
                if by == OURS or self._rows.of(plant, OURS) is not None:
                    return self._left.pop(place)
            return None

    def put_back(self, task: Task) -> None:
        with self._lock:
            self._left.insert(0, task)

    def __len__(self) -> int:
        return len(self._left)


class Server:
    """A process that does one search after another, and is replaced where it dies."""

    def __init__(self, options: argparse.Namespace, threads: int) -> None:
        self._folder = TemporaryDirectory(prefix="minified-")  # what a process leaves that is ended
        self._given = options.device, options.budget, threads, self._folder.name
        self._process: Any = None
        self._pipe: Connection | None = None

    def row(self, plant: Plant, by: str, ours: Row | None, until: float) -> Row | None:
        """The row of a search; None where it had not ended in time."""
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, other = context.Pipe()
            self._process = context.Process(target=serve, args=(other, *self._given), daemon=True)
            self._process.start()
            other.close()
        assert self._pipe is not None
        try:
            self._pipe.send((plant, by, ours))
            if self._pipe.poll(max(0.0, until - time.monotonic())):
                row: Row = self._pipe.recv()
                return row
        except (EOFError, OSError):
            self._process.join()
            code, self._process = self._process.exitcode, None
            return {"case": plant.name, "by": by, "class": plant.of, "raised": f"the process ended with {code}"}
        self._process.kill()
        return None

    def end(self) -> None:
        """End the process, and remove its files."""
        if self._process is not None:
            assert self._pipe is not None
            with contextlib.suppress(OSError):
                self._pipe.send(None)
            self._process.join(AROUND_S)
            self._process.kill()
            self._process.join()
            self._process = None
        self._folder.cleanup()


def work(tasks: Tasks, rows: Rows, options: argparse.Namespace, until: float, threads: int) -> None:
    """Do searches until there are none, or no time."""
    server = Server(options, threads)
    while time.monotonic() + options.budget + AROUND_S < until:
        task = tasks.take()
        if task is None:
            if not len(tasks):
                break
            time.sleep(1)  # for the tool's row, which another process makes
            continue
        row = server.row(*task, rows.of(task[0], OURS), until)
        if row is None:
            tasks.put_back(task)
        else:
            rows.add(row)
    server.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="file of rows, which grows")
    parser.add_argument("--only", default="", metavar="REGEX", help="failures whose names have this")
    parser.add_argument("--classes", nargs="+", default=CLASSES, choices=CLASSES)
    parser.add_argument("--small", action="store_true", help="small models alone")
    parser.add_argument("--torch", action="store_true", help="let torch's minifier reduce the same graphs")
    parser.add_argument("--own", action="store_true", help="and once more, by a test that takes any failure")
    parser.add_argument("--jobs", type=int, default=1, help="searches at once")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of one search")
    parser.add_argument("--seconds", type=float, default=86400.0, help="after which the command has ended")
    parser.add_argument("--again", action="store_true", help="repeat what raised")
    parser.add_argument("--list", action="store_true", help="print the failures' names alone")
    parser.add_argument("--table", action="store_true", help="print the rows of the file alone, in Markdown")
    options = parser.parse_args()
    began = time.monotonic()
    plants = [plant for plant in read() if plant.of in options.classes and re.search(options.only, plant.name)
              and (plant.size == "small" or not options.small)
              and (plant.kind != "real" or options.device == "cpu")]  # fmt: skip
    rows = Rows(options.out)
    if options.table or options.list:
        print(minified_table.table(rows.all, plants) if options.table else "\n".join(plant.name for plant in plants))
        return 0
    tasks = Tasks(plants, [OURS, *[THEIRS] * options.torch, *[OWN] * options.own], rows, options.again)
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    given = tasks, rows, options, began + options.seconds, threads
    workers = [threading.Thread(target=work, args=given) for _ in range(options.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"{len(tasks)} left after {time.monotonic() - began:.0f} s")
    return 1 if len(tasks) else 0


if __name__ == "__main__":
    sys.exit(main())
