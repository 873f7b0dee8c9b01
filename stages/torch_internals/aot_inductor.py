"""AOTInductor: AOT graphs compiled ahead of time into shared libraries, recorded, and run.

Relies on ``torch._inductor.compile_fx.compile_fx_aot`` (its ``inner_compile`` and ``config_patches``; what that
compilation returns has ``filename`` and ``device_type``), on the files ``*.wrapper.cpp`` and ``*.kernel.cpp`` beside
the library, on ``torch._C._aoti.AOTIModelContainerRunnerCpu`` and ``…Cuda``, on
``torch._inductor.debug.dump_inductor_provenance_info`` and ``_inductor_kernel_stack_trace``, on
``torch._inductor.runtime.cache_dir_utils.cache_dir``, on ``torch._guards.{tracing, TracingContext, detect_fake_mode}``.
For the printer of intermediate values it relies on the options ``aot_inductor.debug_intermediate_value_printer`` and
``aot_inductor.filtered_kernel_names``, and on
``torch._inductor.codegen.debug_utils.DebugPrinterManager.set_printer_args``, which is told of every launch.
"""

import contextlib
import copy
import functools
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast
from unittest import mock

import torch
import torch._inductor.debug as inductor_debug
from torch import Tensor, fx
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch._inductor.codegen.debug_utils import DebugPrinterManager
from torch._inductor.compile_fx import compile_fx_aot
from torch._inductor.runtime.cache_dir_utils import cache_dir

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.torch_internals.backends import aot_backend
from inductor_debug.stages.torch_internals.compiler_options import unrecorded
from inductor_debug.stages.torch_internals.inductor import (
    LoweredGraph,
    RecordingCompiler,
    inductor_decompositions,
    name_missing,
    read_texts,
)
from inductor_debug.stages.torch_internals.inductor_nodes import origins_by_sequence
from inductor_debug.stages.torch_internals.inductor_options import patched_config

PRINTER = "aot_inductor.debug_intermediate_value_printer"
FILTER = "aot_inductor.filtered_kernel_names"
_RUNNERS = {"cpu": "AOTIModelContainerRunnerCpu", "cuda": "AOTIModelContainerRunnerCuda"}

Run = Callable[[], Sequence[Tensor]]
Around = Callable[[LoweredGraph, Run], Sequence[Tensor]]
"""Calls what it is given, a run of that graph, and returns what that returned."""


class AotInductorCompiler(RecordingCompiler):
    """A ``torch.compile`` backend: AOTAutograd, then each graph compiled ahead of time by AOTInductor.

    Forward and backward are compiled apart, each as a graph of its own with parameters as inputs.

    Args:
        options: patch of ``torch._inductor.config``, flat keys, in force for this compiler's compilations alone.
        print_values: level of the printer of intermediate values, 0 to 3.
        kernels: those whose values are printed (level 2); empty for all.
        around: every run of a compiled graph goes through it.

    Attributes:
        launched: graph id → names of the kernels that it launches, as the printer prints them.
    """

    loads_modules: ClassVar[bool] = False

    def __init__(
        self,
        options: Mapping[str, Any] | None = None,
        print_values: int = 0,
        kernels: Sequence[str] = (),
        around: Around | None = None,
    ) -> None:
        printer = {PRINTER: str(print_values), FILTER: ",".join(kernels) or None}
        super().__init__(dict(options or {}) | printer)
        self.launched: dict[str, list[str]] = {}
        self._around = around
        self._libraries: dict[str, Any] = {}

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        common = self._common(gm)
        forward = functools.partial(self.compile_graph, common, "forward")
        backward = functools.partial(self.compile_graph, common, "backward")
        with patched_config(self.options):  # which decompositions there are depends on fallback_random
            decompositions = inductor_decompositions()
        backend = aot_backend(forward=forward, backward=backward, inference=forward, decompositions=decompositions)
        return backend(gm, example_inputs)

    def compile_graph(
        self, common: LoweredGraph, direction: str, gm: fx.GraphModule, example_inputs: Sequence[Any]
    ) -> Callable[..., list[Any]]:
        """One AOT graph as a shared library, called with its inputs. The graph is left as it was.

        Args:
            common: what both halves of a Dynamo graph share; its id is ``g0``, ``g1``, …
            direction: forward or backward.
            gm: the graph.
            example_inputs: its inputs, fake or real.

        Raises:
            ConfigurationError: sizes are symbolic, or there is no runtime for the device.
        """
        graph_id = f"{common.id}.{direction}"
        _refuse_symbolic(graph_id, gm)
        common.by_sequence = common.by_sequence or origins_by_sequence(gm)
        traced, kept = _tensor_outputs(gm)
        folder = tempfile.TemporaryDirectory(prefix="aoti-", dir=cache_folder(), ignore_cleanup_errors=True)

        def inner(graph_module: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
            graph_module.graph.set_codegen(fx.graph.CodeGen())  # one that flattens arguments writes no code that runs
            graph_module.recompile()
            _restore_history(graph_module, gm)
            _restore_inputs(graph_module, gm)
            compiled = self._inner_compile(common, graph_module, inputs, direction, **options)
            self._libraries[graph_id] = compiled
            return compiled

        patches = {"aot_inductor.output_path": folder.name}
        with (
            patched_config(self.options),
            unrecorded((*patches, PRINTER, FILTER)),
            tracing(TracingContext(detect_fake_mode(example_inputs))),  # it traces again, not into torch.compile's
            _launches(self.launched, graph_id),
        ):
            compile_fx_aot(traced, list(example_inputs), inner_compile=cast(Any, inner), config_patches=patches)
        library = self._libraries.pop(graph_id)
        kind = library.device_type  # with its number, where an input has one
        devices = (item.device for item in example_inputs if isinstance(item, Tensor) and item.device.type == kind)
        runner = _load(library.filename, str(next(devices, kind)))
        return self._callable(graph_id, runner, kept, folder)

    def _callable(
        self, graph_id: str, runner: Any, kept: Sequence[int | None], folder: Any
    ) -> Callable[..., list[Any]]:
        around = self._around

        def call(*inputs: Any) -> list[Any]:
            assert folder is not None, "the library's folder lives as long as this function does"
            run: Run = functools.partial(runner.run, list(inputs))
            outputs = run() if around is None else around(self.graphs[graph_id], run)
            return [None if index is None else outputs[index] for index in kept]

        return call

    def _read(self, lowered: LoweredGraph, gm: fx.GraphModule, compiled: Any) -> None:
        lowered.language = "cpp"
        read_texts(
            lowered,
            source_code=_sources(Path(compiled.filename).parent),
            post_grad=gm.print_readable(print_output=False, include_stride=True, include_device=True),
            nodes=inductor_debug.dump_inductor_provenance_info(),
            stacks=inductor_debug._inductor_kernel_stack_trace,
        )
        name_missing(lowered, nothing=False)


def _refuse_symbolic(graph_id: str, gm: fx.GraphModule) -> None:
    """ConfigurationError where an input has, or is, a symbolic size."""
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, Tensor) else [value]
        if node.op == "placeholder" and any(isinstance(size, torch.SymInt) for size in sizes):
            raise ConfigurationError(
                f"backend=aot_inductor: {graph_id} has symbolic sizes ({node.name}); valid: sizes that are known when "
                "it is compiled.\nTry: inputs without torch._dynamo.mark_dynamic, or backend=inductor"
            )


def _tensor_outputs(gm: fx.GraphModule) -> tuple[fx.GraphModule, list[int | None]]:
    """A copy of the graph that returns its tensors alone, and of each of its outputs the place there; None for None.

    A backward has None for each input that needs no gradient.
    """
    copied = copy.deepcopy(gm)
    output = next(node for node in reversed(copied.graph.nodes) if node.op == "output")
    outputs = list(output.args[0])
    assert all(item is None or isinstance(item, fx.Node) for item in outputs), "AOTAutograd returns nodes"
    tensors = list(dict.fromkeys(item for item in outputs if item is not None))
    output.args = (tuple(tensors),)
    copied.recompile()
    return copied, [None if item is None else tensors.index(item) for item in outputs]


_HISTORY = ("original_aten", "seq_nr", "from_node")


def _restore_history(gm: fx.GraphModule, given: fx.GraphModule) -> None:
    """Give the nodes of a graph that was traced from ``given`` what tracing again replaced: where they came from."""
    nodes = {node.name: node for node in given.graph.nodes}
    for node in gm.graph.nodes:
        names = _history(node.meta.get("from_node") or [])
        origin = next((nodes[name] for name in names if name in nodes), None)
        if origin is not None:
            node.meta |= {key: origin.meta[key] for key in _HISTORY if key in origin.meta}


def _restore_inputs(gm: fx.GraphModule, given: fx.GraphModule) -> None:
    """Give the placeholders of a graph that was traced from ``given`` what AOTAutograd said of those, in order."""
    pairs = zip(gm.graph.find_nodes(op="placeholder"), given.graph.find_nodes(op="placeholder"), strict=False)
    for node, origin in pairs:
        node.meta["desc"] = origin.meta.get("desc")


def _history(sources: Sequence[Any]) -> Iterator[str]:
    """Names of the nodes that a node came from, the latest first."""
    for source in sources:
        yield source.name
        yield from _history(source.from_node)


def cache_folder() -> str:
    """TorchInductor's cache directory, which exists."""
    os.makedirs(cache_dir(), exist_ok=True)
    return cache_dir()


def _launches(launched: dict[str, list[str]], graph_id: str) -> contextlib.AbstractContextManager[Any]:
    """While open, ``launched[graph_id]`` gets the names of the kernels that the generated code launches."""
    original = DebugPrinterManager.set_printer_args
    names = launched.setdefault(graph_id, [])

    @functools.wraps(original)
    def told(*args: Any, **kwargs: Any) -> None:
        name = inspect.signature(original).bind(*args, **kwargs).arguments["kernel_name"]
        if name not in names:
            names.append(name)
        original(*args, **kwargs)

    return mock.patch.object(DebugPrinterManager, "set_printer_args", told)


def _sources(folder: Path) -> str:
    """The generated C++ beside a library: the kernels, then the wrapper that launches them."""
    return "\n".join(
        path.read_text() for kind in ("kernel", "wrapper") for path in sorted(folder.glob(f"*.{kind}.cpp"))
    )


def _load(filename: str, device: str) -> Any:
    """The library, ready to be run."""
    kind = device.partition(":")[0]
    runner = getattr(torch._C._aoti, _RUNNERS.get(kind, ""), None)
    if runner is None:
        raise ConfigurationError(
            f"backend=aot_inductor: got device={device}, for which torch has no runtime of AOTInductor here; "
            f"valid: {', '.join(_RUNNERS)}.\nTry: device=cpu"
        )
    return runner(filename, 1) if kind == "cpu" else runner(filename, 1, device)
