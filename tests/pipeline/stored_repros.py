"""A stored run with reproductions whose scripts really run: of a vendor's backend, and of a profile's rule."""

import json
import operator
from pathlib import Path
from typing import Any

import torch
from constrain_graphs import call, graph, placeholder, tensor
from safetensors.torch import save
from torch import fx

from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.artifacts.records import ReproRecord
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.minify.candidate import Candidate, Normal, Stored, TensorGiven
from inductor_debug.stages.minify.failures import Failure
from inductor_debug.stages.minify.script import About, Compiler, script
from inductor_debug.stages.repro.fingerprint import fingerprint, operations_of
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.repros import write_repros

REFUSED = "error NotImplementedError in minify_backends.py:compiler, minify_backends.py:refuse"
REFUSING = Compiler("refusing", ("from minify_backends import refusing",), packages=("minify_backends",))
INDUCTOR = Compiler("'inductor'", options={"max_autotune": False})
COMPILED_BY = {
    "versions": {"python": "3.99.1", "torch": "9.8.7", "triton": None},
    "device": {"name": "Chip 3000", "threads": 4, "cuda_version": "15.2"},
}
ABOUT = {"id": "day/run", "model": "nets", "accel": "strict4", "backend": "acme", "device": "cuda:1"}


def normalizes(compiler: Compiler, failure: str = REFUSED, *, stored: bool = False, columns: int = 4) -> str:
    """The script of a program that normalizes a layer."""
    made = fx.Graph()
    x = made.placeholder("x")
    norm = made.call_function(torch.ops.aten.native_layer_norm.default, (x, [columns], None, None, 1e-5))
    made.output((made.call_function(operator.getitem, (norm, 0)),))
    values = Stored("x") if stored else Normal()
    given = TensorGiven("x", (2, columns), (columns, 1), torch.float32, "cpu", 0, values, Normal())
    notes = ["1 operation of the 9 of g0.forward."]
    about = About("repro.safetensors", "torch.compile refuses a layer norm.", notes)
    return script(Candidate(made, (given,)), compiler, Failure.named(failure), about=about)


def record(name: str, text: str, failure: str = REFUSED, **more: Any) -> ReproRecord:
    """As the stage minify makes it."""
    kind, known = failure.partition(" ")[0], fingerprint(failure, "acme", *operations_of(text))
    return ReproRecord(f"repros/{name}", kind, 1, True, target="aten.native_layer_norm.default", graph="g0.forward",
                       node="norm", failure=failure, fingerprint=known, **more)  # fmt: skip


def violation() -> tuple[ReproRecord, str]:
    """That of a last dimension of 9 under an alignment of 4; it was not run."""
    made = graph(placeholder("x", 4, 9), call("relu", "aten.relu.default", ["x"], tensor(4, 9)))
    every = write_repros([made], check([made], AccelConfig(strict=True, alignment=4)), verified=0).scripts
    (found,) = (item for item in every if item.record.node == "relu")
    return found.record, found.text


def store(folder: Path, scripts: dict[str, str], records: list[Any], **files: Any) -> Path:
    """A stored run's folder: scripts by file name, their records, and further files by path."""
    (folder / "repros").mkdir(parents=True)
    (folder / "run.log").touch()
    for name, text in scripts.items():
        (folder / "repros" / name).write_text(text)
    x = torch.arange(8, dtype=torch.float32)
    (folder / "repros/repro.safetensors").write_bytes(save({"x": x}))
    content = {"run": ABOUT, "verdict": "failed", "stages": [], "compiled_by": COMPILED_BY, "repros": jsonable(records)}
    for path, text in {"summary.json": content, **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(text))
    return folder


def whole(folder: Path) -> Path:
    """A run with a violation, a failure, and the same failure on stored numbers of another size."""
    rule, rule_text = violation()
    plain, numbers = normalizes(REFUSING), normalizes(REFUSING, stored=True, columns=4)
    scripts = {"plain.py": plain, "numbers.py": numbers, rule.path.rpartition("/")[2]: rule_text}
    more = record("numbers.py", numbers)
    return store(folder, scripts, [record("plain.py", plain, met_in="day/old"), more, rule])
