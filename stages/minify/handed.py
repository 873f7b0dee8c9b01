"""A graph that TorchInductor failed to compile, handed to a process of its own that looks for the smallest program.

A search compiles programs, and can't do so while a compilation is under way in the same process.
"""

import io
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from inductor_debug.stages.accelerators.profile import REPRO_DIRECTORY
from inductor_debug.stages.backends.mock_options import MockOptions
from inductor_debug.stages.file_names import file_name
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.torch_internals.backends import inductor_modes
from inductor_debug.stages.torch_internals.fx_values import hint_of, node_value
from inductor_debug.stages.torch_internals.inductor_options import changed_options

log = logging.getLogger(__name__)

MORE_S = 60.0
"""Seconds over its budget after which a search is ended: it imports torch before, and runs the script after."""
SAID = 300
GRAPH = "graph.pt"


@dataclass(frozen=True)
class Task:
    """What a process looks for.

    Attributes:
        inductor: options of TorchInductor.
        training: whether gradients are asked for.
        dynamic: whether sizes are symbolic.
        budget_s: as in ``MinifyConfig``.
        folder: where the script goes.
        path: ``sys.path`` of the process that failed.
    """

    inductor: dict[str, Any]
    training: bool
    dynamic: bool
    budget_s: float
    folder: str
    path: list[str]


def leave_script(gm: fx.GraphModule, inputs: Sequence[Any], gradients: bool, options: MockOptions) -> None:
    """Leave the smallest program that TorchInductor fails to compile, and log where it is, or why there is none.

    Args:
        gm: Dynamo's graph.
        inputs: what it was called with: tensors and sizes; None for a tensor that is gone.
        gradients: whether they were on.
        options: the mode is that in which TorchInductor compiled; ``minify_s`` and ``repro_dir`` are read.
    """
    if options.minify_s == 0:
        return
    if any(value is None for value in inputs):
        log.warning("TorchInductor failed. No script of it: inputs of the graph are gone")
        return
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    sizes = [node_value(node) for node in gm.graph.nodes if node.op == "placeholder"]
    dynamic = any(_symbolic(value) for value in sizes)
    training = gradients and any(tensor.requires_grad for tensor in tensors)
    log.warning("TorchInductor failed. Looking for the smallest program that shows it, for %g s at most "
                "(options minify_s=0: not)", options.minify_s)  # fmt: skip
    try:
        folder = Path(options.repro_dir or os.environ.get(REPRO_DIRECTORY) or tempfile.mkdtemp(prefix="mock-repros-"))
        folder.mkdir(parents=True, exist_ok=True)
        mode = {} if options.mode is None else inductor_modes()[options.mode]
        task = Task(mode | changed_options(), training, dynamic, options.minify_s, str(folder.absolute()), sys.path)
        given = [value if isinstance(value, torch.Tensor) else hint_of(value) for value in inputs]
        log.warning("%s", _asked(_stored(gm, given), task))
    except Exception:
        log.warning("No script of it: the search could not run", exc_info=True)


def _symbolic(value: Any) -> bool:
    sizes = value.shape if isinstance(value, torch.Tensor) else [value]
    return any(isinstance(size, torch.SymInt) for size in sizes)


def _stored(gm: fx.GraphModule, inputs: Sequence[Any]) -> bytes:
    """A graph without what Dynamo noted, which holds on to this process, and its inputs."""
    bare = fx.GraphModule(gm, gm.graph)
    bare.meta = {}
    stored = io.BytesIO()
    torch.save((bare, inputs), stored)
    return stored.getvalue()


def _asked(graph: bytes, task: Task) -> str:
    """What a process says that looks for it."""
    with tempfile.TemporaryDirectory(prefix="minify-") as temporary:
        (Path(temporary) / GRAPH).write_bytes(graph)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, temporary], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with process:
            try:
                said, errors = process.communicate(json.dumps(asdict(task)), timeout=task.budget_s + MORE_S)
            finally:
                process.kill()
    if process.returncode != 0:
        last = errors.strip().rpartition("\n")[2][-SAID:]
        raise RuntimeError(f"exit code {process.returncode}: {last}")
    return said.strip().rpartition("\n")[2]


def main() -> None:
    """Look for the program, store it, and say so in the last line of stdout."""
    from inductor_debug.stages.minify.api import minify

    task = Task(**json.load(sys.stdin))
    sys.path[:] = task.path
    gm, inputs = torch.load(Path(sys.argv[1]) / GRAPH, weights_only=False)  # of the process that started this one
    found = minify(
        gm, inputs, inductor=task.inductor, mode="training" if task.training else "inference",
        dynamic=True if task.dynamic else None,
        config=MinifyConfig(budget_s=task.budget_s, limit_s=max(1.0, math.ceil(task.budget_s / 4))),
    )  # fmt: skip
    if found.script:
        folder = Path(tempfile.mkdtemp(prefix="minified-", dir=task.folder))
        path = folder / file_name(found.node or "model", ".py")
        found.save(path)
        sys.stdout.write(f"\n{found.message} Try: python {path}\n")
    else:
        sys.stdout.write(f"\nNo script of it, in a process that imports torch alone. {found.message}\n")


if __name__ == "__main__":
    main()
