"""TorchInductor's private doors: one recorded compilation.

Relies on ``torch._inductor.compile_fx.{compile_fx, compile_fx_inner, get_cpp_wrapper_config,
_recursive_joint_graph_passes, trace_structured}``,
``torch._dynamo.repro.after_aot.save_graph_repro`` (called once a compilation, before the post-grad passes),
``torch._inductor.config`` (``patch``, ``_pre_fusion_custom_pass``, ``_post_fusion_custom_pass``),
``torch._inductor.debug.reset_provenance_globals``, ``torch._inductor.decomposition.select_decomp_table`` (after
``torch._inductor.lowering``), ``torch._inductor.virtualized.V.graph.module`` and the attributes of ``CompiledFxGraph``
read in :meth:`RecordingCompiler._read`.
"""

import contextlib
import copy
import functools
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from unittest import mock

import torch
import torch._inductor.config as inductor_config
from torch import fx
from torch._inductor.virtualized import V

from inductor_debug.stages.graphs.records import GraphRecord
from inductor_debug.stages.torch_internals import failed_compilation
from inductor_debug.stages.torch_internals.fx_records import PlaceholderInfo
from inductor_debug.stages.torch_internals.graph_cache import graphs_stored, traces_stored
from inductor_debug.stages.torch_internals.inductor_nodes import (
    PostGradNode,
    PreGradNode,
    Scatters,
    lifted_placeholders,
    origins_by_sequence,
    post_grad_nodes,
    post_grad_record,
    pre_grad_nodes,
    scatters,
)
from inductor_debug.stages.torch_internals.inductor_options import patched_config
from inductor_debug.stages.torch_internals.inductor_scheduler import Schedule, graph_prefix, recorded
from inductor_debug.stages.torch_internals.loading import loaded, rewritten

log = logging.getLogger(__name__)

_OF_THIS_PROCESS = (
    "torch._inductor.config.aot_inductor.output_path",
    *(
        f"os.environ['{name}']"
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR")
    ),
)

_ZERO_INTEGERS = '''
def _with_zero_integers(load):
    """Random integers would index out of range, and random masks hide what they mask: they are 0 here."""
    def load_args(reader):
        make = reader.tensor
        def tensor(*args, **kwargs):
            made = make(*args, **kwargs)
            keeps = made is None or made.is_floating_point() or made.is_complex()
            return made if keeps else made.zero_()
        reader.tensor = tensor
        load(reader)
    load_args._version = load._version
    return load_args

load_args = _with_zero_integers(load_args)

'''


@dataclass
class LoweredGraph:
    """What one compilation by Inductor made of one AOT graph.

    Attributes:
        id: ``g0.forward`` or ``g0.backward``.
        pre_grad: readable code of the Dynamo graph that it came from, and ``pre_grad_nodes`` its calls.
        placeholders: what that graph's inputs stand for, in order.
        by_sequence: autograd's sequence numbers → names of those calls.
        joint: readable code of AOTAutograd's joint graph before Inductor's passes; "" in inference, which has none.
        readable: code of the AOT graph that was given to Inductor; ``runnable`` a script that compiles and runs it.
        post_grad: readable code of what was compiled, ``nodes`` its calls, those of subgraphs too, and ``record`` the
            graph itself, without source lines; None where nothing was compiled.
        schedule: IR before and after fusion, buffers, refused fusions, autotuning.
        module: the graph that was compiled, its nodes with fake values; None unless generated modules are rewritten.
        source_code: the generated module, in ``language``: py, or cpp.
        kernel_nodes: ``kernel:handle`` → names of post-grad nodes.
        kernel_stacks: ``kernel:handle`` → the stack traces Inductor kept.
        seconds: wall time of this compilation.
        not_established: why something above is missing; empty where nothing is.
    """

    id: str
    pre_grad: str = ""
    pre_grad_nodes: list[PreGradNode] = field(default_factory=list)
    placeholders: list[PlaceholderInfo] = field(default_factory=list)
    by_sequence: dict[int, list[str]] = field(default_factory=dict)
    joint: str = ""
    readable: str = ""
    runnable: str = ""
    post_grad: str = ""
    nodes: list[PostGradNode] = field(default_factory=list)
    record: GraphRecord | None = None
    schedule: Schedule = field(default_factory=Schedule)
    module: fx.GraphModule | None = field(default=None, repr=False)
    source_code: str = ""
    language: str = "py"
    kernel_nodes: dict[str, list[str]] = field(default_factory=dict)
    kernel_stacks: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    not_established: list[str] = field(default_factory=list)


class RecordingCompiler:
    """A ``torch.compile`` backend that compiles through Inductor once and keeps what it made.

    ``graphs`` fills as graphs are compiled: the forward at the first call, the backward when it is first needed.
    Nothing of another compilation gets in, because everything is read inside the one inner compile.

    Args:
        options: patch of ``torch._inductor.config``, flat keys, in force for this compiler's compilations alone.

    Attributes:
        rewrite: graph id, text of a generated module → what is loaded in its place; None loads what was generated. The
            recorded source code is what was generated in either case.
        stores: whether the compiled graphs are stored for :class:`LoadingCompiler`. They are not loaded here.
        loads_modules: whether it is generated modules that run.
    """

    loads_modules: ClassVar[bool] = True

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = dict(options or {})
        self.graphs: dict[str, LoweredGraph] = {}
        self.rewrite: Callable[[str, str], str] | None = None
        self.stores = False
        self._count = 0

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        from torch._inductor.compile_fx import compile_fx

        common = self._common(gm)
        inner = functools.partial(self._inner_compile, common)
        with contextlib.ExitStack() as stack:
            stack.enter_context(patched_config(self.options, graphs=self.stores))
            stack.enter_context(_recorded_joint(common))
            if self.stores:
                stack.enter_context(traces_stored())
            compiled: Any = compile_fx(gm, list(example_inputs), inner_compile=inner)
        return compiled

    def _common(self, gm: fx.GraphModule) -> LoweredGraph:
        """What both halves of a Dynamo graph share: the next one's id, ``g0``, ``g1``, …, and the graph as it is."""
        number, self._count = self._count, self._count + 1
        return LoweredGraph(
            f"g{number}",
            pre_grad=gm.print_readable(print_output=False, include_stride=True, include_device=True),
            pre_grad_nodes=pre_grad_nodes(gm),
            placeholders=lifted_placeholders(gm),
        )

    def _inner_compile(
        self,
        common: LoweredGraph,
        gm: fx.GraphModule,
        inputs: Sequence[Any],
        direction: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """What ``compile_fx_inner`` returns, recorded. ``direction``: forward or backward, where torch is not told."""
        import torch._inductor.debug as inductor_debug
        from torch._inductor.compile_fx import compile_fx_inner

        backward = bool(kwargs.get("is_backward"))
        lowered = LoweredGraph(
            f"{common.id}.{direction or ('backward' if backward else 'forward')}",
            pre_grad=common.pre_grad,
            pre_grad_nodes=common.pre_grad_nodes,
            placeholders=common.placeholders,
            by_sequence=common.by_sequence or origins_by_sequence(gm),
            joint=common.joint,
            readable=gm.print_readable(print_output=False, include_stride=True, include_device=True),
        )
        began = time.perf_counter()
        with contextlib.ExitStack() as stack:
            passes = stack.enter_context(recorded(lowered.schedule))
            passes["_post_fusion_custom_pass"] = _with_nodes(
                passes["_post_fusion_custom_pass"], lowered, scatters(gm), keep=self.rewrite is not None
            )
            # The backward is compiled later, outside the patch around compile_fx, hence here again.
            stack.enter_context(patched_config(self.options, passes, graphs=self.stores))
            if self.stores:
                stack.enter_context(graphs_stored())
            stack.enter_context(_as_cpp_wrapper(kwargs))
            stack.enter_context(_recorded_runnable(lowered))
            if backward:  # compile_fx makes fresh tables for the forward alone: a backward's would stay for the next
                stack.enter_context(inductor_debug.reset_provenance_globals())
            if self.rewrite is not None:
                stack.enter_context(rewritten(functools.partial(self.rewrite, lowered.id)))
            generated: list[str] = []
            stack.enter_context(loaded(generated))
            try:
                compiled = compile_fx_inner(gm, inputs, **kwargs)
            except Exception as error:
                failed_compilation.mark(error, lowered, generated)
                raise
        lowered.seconds = time.perf_counter() - began
        self._read(lowered, gm, compiled)
        self.graphs[lowered.id] = lowered
        return compiled

    def _read(self, lowered: LoweredGraph, gm: fx.GraphModule, compiled: Any) -> None:
        """Fill ``lowered`` from what ``compile_fx_inner`` made of ``gm``, which its passes changed."""
        read_texts(
            lowered,
            source_code=getattr(compiled, "source_code", None) or "",
            post_grad=getattr(compiled, "inductor_post_grad_graph_str", None) or "",
            nodes=json.loads(getattr(compiled, "inductor_provenance_mapping_str", None) or "{}"),
            stacks=json.loads(getattr(compiled, "inductor_provenance_stack_traces_str", None) or "{}"),
        )
        has_code = hasattr(compiled, "source_code")
        name_missing(lowered, nothing=not lowered.schedule.ir_pre_fusion and not has_code)


class LoadingCompiler:
    """A ``torch.compile`` backend that loads what a :class:`RecordingCompiler` of this run stored.

    What is not there it compiles, by the same options.

    Args:
        options: as of :class:`RecordingCompiler`.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = dict(options or {})

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        from torch._inductor.compile_fx import compile_fx

        with patched_config(self.options, graphs=True):
            compiled: Any = compile_fx(gm, list(example_inputs), inner_compile=self._inner_compile)
        return compiled

    def _inner_compile(self, gm: fx.GraphModule, inputs: Sequence[Any], **kwargs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx_inner

        # The backward is compiled later, outside the patch around compile_fx, hence here again.
        with patched_config(self.options, graphs=True), _as_cpp_wrapper(kwargs):
            return compile_fx_inner(gm, inputs, **kwargs)


def _as_cpp_wrapper(kwargs: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """What a C++ wrapper needs of the other options.

    Up to torch 2.12 a backward that is compiled later does not get them, unless the option is set for the whole
    process. On CUDA it then asserts that a kernel's parameters are known.
    """
    from torch._inductor.compile_fx import get_cpp_wrapper_config

    return inductor_config.patch(get_cpp_wrapper_config()) if kwargs.get("cpp_wrapper") else contextlib.nullcontext()


def _with_nodes(
    after_fusion: Callable[[list[Any]], list[Any]], lowered: LoweredGraph, before: Scatters, *, keep: bool
) -> Callable[..., list[Any]]:
    """The pass, which also records the graph that the scheduler's nodes were made of; ``keep``: and keeps it."""
    known = {node.name for node in lowered.pre_grad_nodes}

    def record(nodes: list[Any]) -> list[Any]:
        graph: Any = V.graph
        prefix = graph_prefix()
        found = post_grad_nodes(graph.module, known, lowered.by_sequence, prefix, before)
        lowered.nodes += found
        if not prefix:
            lowered.record = post_grad_record(graph.module, lowered.id, found, lowered.placeholders)
            lowered.module = graph.module if keep else None
        return after_fusion(nodes)

    return record


def _recorded_joint(common: LoweredGraph) -> contextlib.AbstractContextManager[Any]:
    """While open, ``common`` gets the joint graph as it is given to Inductor's passes.

    An inference graph goes through the same passes, and is told apart by its having no tangents.
    """
    from torch._inductor import compile_fx

    original = compile_fx._recursive_joint_graph_passes

    def passes(gm: fx.GraphModule, *args: Any, **kwargs: Any) -> fx.GraphModule:
        if not common.joint and any(node.name.startswith("tangents_") for node in gm.graph.nodes):
            common.by_sequence = origins_by_sequence(gm)
            common.joint = gm.print_readable(print_output=False, include_stride=True, include_device=True)
        return original(gm, *args, **kwargs)

    return mock.patch.object(compile_fx, "_recursive_joint_graph_passes", passes)


@contextlib.contextmanager
def _recorded_runnable(lowered: LoweredGraph) -> Iterator[None]:
    """While open, the script that Inductor writes of each graph for its own logs is kept.

    Without the passes that record: they are of this process, as are the folders that the script would compile in.
    From torch 2.15 the script is written only where somebody listens to ``torch.__trace``, hence it is asked for here.
    """
    from torch._dynamo.repro import after_aot
    from torch._inductor import compile_fx

    original, trace = after_aot.save_graph_repro, compile_fx.trace_structured

    def save(file: Any, *args: Any, **kwargs: Any) -> None:
        began = file.tell()
        with inductor_config.patch({"_pre_fusion_custom_pass": None, "_post_fusion_custom_pass": None}):
            original(file, *args, **kwargs)
        if not lowered.runnable:
            file.seek(began)
            lowered.runnable = _for_others(file.read())

    def traced(name: str, metadata_fn: Callable[[], Any] = dict, **kwargs: Any) -> None:
        if name == "artifact" and metadata_fn().get("name") == "fx_graph_runnable":
            kwargs["payload_fn"]()
        trace(name, metadata_fn, **kwargs)

    with (
        mock.patch.object(after_aot, "save_graph_repro", save),
        mock.patch.object(compile_fx, "trace_structured", traced),
    ):
        yield


def _for_others(script: str) -> str:
    """Inductor's script without what belongs to this process, and with integers that are valid wherever they index."""
    lines = [line for line in script.splitlines(keepends=True) if not line.startswith(_OF_THIS_PROCESS)]
    main = next((index for index, line in enumerate(lines) if line.startswith("if __name__")), len(lines))
    return "".join([*lines[:main], _ZERO_INTEGERS, *lines[main:]])


def read_texts(
    lowered: LoweredGraph, *, source_code: str, post_grad: str, nodes: Mapping[str, Any], stacks: Mapping[str, Any]
) -> None:
    """Fill ``lowered`` from texts and from TorchInductor's provenance tables.

    Args:
        lowered: of the graph; changed in place.
        source_code, post_grad: generated code, and the post-grad graph as text.
        nodes, stacks: kernel → post-grad nodes (under ``cppCodeToPost``), and kernel → stack traces.
    """
    lowered.source_code = source_code
    lowered.post_grad = post_grad
    lowered.kernel_nodes = {name: list(found) for name, found in nodes.get("cppCodeToPost", {}).items()}
    lowered.kernel_stacks = {name: list(traces) for name, traces in stacks.items()}


def name_missing(lowered: LoweredGraph, *, nothing: bool) -> None:
    """Name in ``not_established`` what a compilation did not give. ``nothing``: it had no operation to compile."""
    found = {
        "generated code": lowered.source_code,
        "post-grad graph": lowered.post_grad,
        "IR before fusion": lowered.schedule.ir_pre_fusion,
        "IR after fusion": lowered.schedule.ir_post_fusion,
        "runnable graph": lowered.runnable,
    }
    if nothing:
        lowered.not_established.append("the graph holds no operation, so Inductor generated nothing")
    else:
        lowered.not_established += [
            f"{name} not established: this compilation did not give it" for name, text in found.items() if not text
        ]
    for reason in lowered.not_established:
        log.warning("%s: %s", lowered.id, reason)


def compile_aot_graph(
    gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor], options: Mapping[str, Any]
) -> Callable[..., Sequence[torch.Tensor]]:
    """One AOT graph compiled by Inductor alone, called as ``compiled(*inputs)``. The graph is left as it was."""
    from torch._inductor.compile_fx import compile_fx_inner

    with patched_config(options):
        compiled = compile_fx_inner(copy.deepcopy(gm), list(example_inputs))

    def call(*inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        return compiled(list(inputs))

    return call


def inductor_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """The decompositions that Inductor applies before it compiles. Some of them need its lowerings to be imported."""
    import torch._inductor.lowering  # noqa: F401
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()
