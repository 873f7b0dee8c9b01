"""Records what the installed torch writes, for the tests of the parsers: ``python tests/corpus/record.py``.

Leaves ``tests/corpus/torch-VERSION/``:

    NAME.txt          generated modules: a Python wrapper's of inference, forward and backward, a C++ wrapper's, and
                      AOTInductor's sources with its printer in them
    printed.txt       what AOTInductor's printer printed in one call
    facts.json        torch's version; of each module the launches (``kernel:handle``) by torch's own provenance table,
                      and the scheduler's buffers
    guards.json       the guards of two compilations of one frame
    recompiles.json   what changed → torch's reasons for the recompilation
    breaks.json       what broke a graph → torch's messages

Run it outside pytest, in an environment of each release
(``docs/reference/torch-versions.md``). Folders and addresses of this
machine are replaced by names.
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import models  # noqa: E402 - this folder's
from inductor_debug.stages.graphs.sources import SourceFinder  # noqa: E402
from inductor_debug.stages.native_output import copied_stdout  # noqa: E402
from inductor_debug.stages.torch_internals.aot_inductor import AotInductorCompiler  # noqa: E402
from inductor_debug.stages.torch_internals.dynamo import (  # noqa: E402
    CompilationLog,
    compile_recorded,
    recorded_breaks,
    reset,
)
from inductor_debug.stages.torch_internals.inductor import LoweredGraph, RecordingCompiler  # noqa: E402

_HERE_ALONE = (
    (re.compile(r"^// (g\+\+|\S*/g\+\+|c\+\+|clang\+\+) .*\n", re.MULTILINE), ""),
    (re.compile(re.escape(str(Path(torch.__file__).parent))), "TORCH"),
    (re.compile(r"[\w/.-]*/tests/corpus/"), "CHECKOUT/tests/corpus/"),
    (re.compile(re.escape(tempfile.gettempdir()) + r"/[^\s\"']*/"), "TEMPORARY/"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0xADDRESS"),
)
"""Compilers' command lines, folders and addresses."""


def portable(text: str) -> str:
    for pattern, name in _HERE_ALONE:
        text = pattern.sub(name, text)
    return text


def lowered(compiler: RecordingCompiler, *, training: bool = False) -> list[LoweredGraph]:
    """What a compiler makes of the model; of training the forward and the backward."""
    torch.manual_seed(0)
    reset()
    module = models.Lowered().train(training)
    x = torch.linspace(-1, 1, 32).reshape(4, 8)
    result = torch.compile(module, backend=compiler, dynamic=False)
    if training:
        result(x).sum().backward()
    else:
        with torch.no_grad():
            result(x)
    return list(compiler.graphs.values())


def modules(folder: Path) -> dict[str, Any]:
    """Write generated modules; what torch's tables say of each."""
    (inference,) = lowered(RecordingCompiler())
    forward, backward = lowered(RecordingCompiler(), training=True)
    (wrapper,) = lowered(RecordingCompiler({"cpp_wrapper": True}))
    with copied_stdout(folder / "printed.txt"):
        (ahead,) = lowered(AotInductorCompiler(print_values=2))
    printed = (folder / "printed.txt").read_text()
    (folder / "printed.txt").write_text(portable(printed))
    found = {
        "python_inference": inference, "python_forward": forward, "python_backward": backward, "cpp_wrapper": wrapper,
        "aot_inductor": ahead,
    }  # fmt: skip
    for name, graph in found.items():
        (folder / f"{name}.txt").write_text(portable(graph.source_code))
    return {
        name: {
            "launches": sorted({*graph.kernel_nodes, *graph.kernel_stacks}),
            "buffers": sorted({buffer for node in graph.schedule.nodes for buffer in node.writes}),
        }
        for name, graph in found.items()
    }


def eager(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward


def reasons(calls: Callable[[Callable[..., Any]], None]) -> list[str]:
    """torch's reasons for the recompilations that these calls lead to."""
    log = CompilationLog(SourceFinder())
    reset()
    calls(lambda function, dynamic: compile_recorded(function, eager, log, dynamic))
    return [portable(event.reason) for event in log.recompiles]


def breaks(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[str]:
    log = CompilationLog(SourceFinder())
    reset()
    with recorded_breaks(log):
        compile_recorded(function, eager, log, False)(*arguments)
    return [portable(event.detail) for event in log.breaks]


def guards() -> list[list[dict[str, Any]]]:
    """The guards of one frame compiled twice, for inputs of another size."""
    module, log = models.Lowered(), CompilationLog(SourceFinder())
    reset()
    compiled = compile_recorded(module, eager, log, False)
    found = []
    for rows in (4, 5):
        log.guards.clear()
        compiled(torch.ones(rows, 8))
        found.append([{"type": item.type, "name": item.name, "code": item.code} for item in log.guards])
    return found


def write(path: Path, content: Mapping[str, Any] | list[Any]) -> None:
    path.write_text(portable(json.dumps(content, indent=1)) + "\n")


def main() -> None:
    release = ".".join(torch.__version__.split(".")[:2])
    folder = HERE / f"torch-{release}"
    folder.mkdir(exist_ok=True)
    write(folder / "facts.json", {"torch": torch.__version__, "modules": modules(folder)})
    write(folder / "guards.json", guards())
    write(folder / "recompiles.json", {name: reasons(calls) for name, calls in models.recompiled().items()})
    write(folder / "breaks.json", {name: breaks(*what) for name, what in models.broken().items()})


if __name__ == "__main__":
    main()
