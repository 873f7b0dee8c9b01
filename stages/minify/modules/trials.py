"""Modules tried, each as the script that it would be, in a process of its own."""

import ast
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch

from inductor_debug.models.stored import whole_lines
from inductor_debug.stages.minify.failures import Failure, said
from inductor_debug.stages.minify.modules.script import Way, script
from inductor_debug.stages.minify.workers import Workers

QUICK_S, TIMES = 5.0, 5.0
"""A hang is known as one, so a further one is told by this many seconds, or by this many times the slowest other
script if that is more."""


class Trials:
    """What programs show.

    Args:
        workers: run the scripts.
        folder: has the tensors that programs read, and what is known of programs.

    Attributes:
        executed: how many programs ran.
        refused: why the last program was none that torch itself runs.
        hangs: whether it is known that what is looked for is a hang.
    """

    def __init__(self, workers: Workers, folder: Path) -> None:
        self.executed, self.refused, self.hangs = 0, "", False
        self._workers, self._folder, self._slowest = workers, folder, 0.0
        self._digests: dict[str, str] = {}
        self._known: dict[str, str | None] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if self._store.is_file():
            for entry in whole_lines(self._store):
                self._known[entry["program"]] = entry["found"]

    @property
    def _store(self) -> Path:
        return self._folder / "known.jsonl"

    def keep(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Store tensors' numbers for programs that read them."""
        for name, value in tensors.items():
            flat = value.detach().cpu().contiguous().flatten()
            torch.save(flat, self._folder / f"{name}.pt")
            self._digests[name] = hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()

    def found(self, tree: ast.Module, way: Way, kind: str) -> Failure | None:
        """What a program shows; None also for one that torch itself does not run."""
        text = script(tree, way, kind, data=str(self._folder))
        read = sorted(self._digests.items()) if "stored(" in text else []
        key = hashlib.sha256("\n".join([torch.__version__, repr(read), text]).encode()).hexdigest()
        if key not in self._known:
            self._known[key] = self._once(text, way)
            with self._store.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"program": key, "found": self._known[key]}) + "\n")
        found = self._known[key]
        return None if found is None else Failure.named(found)

    def _once(self, text: str, way: Way) -> str | None:
        self.executed += 1
        path = self._folder / "repro.py"  # as it is called in the end: tracebacks name it
        path.write_text(text, encoding="utf-8")
        limit_s = min(way.limit_s, max(QUICK_S, TIMES * self._slowest)) if self.hangs else way.limit_s
        try:
            outcome = self._workers.run(path, timeout_s=limit_s)
        finally:
            path.unlink()
        self._slowest = self._slowest if outcome.timed_out else max(self._slowest, outcome.seconds)
        found = Failure.of(outcome)
        if found is None and not said(outcome):
            self.refused = (outcome.output.strip().splitlines() or ["it printed nothing"])[-1]
        return None if found is None else found.text
