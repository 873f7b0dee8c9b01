"""TorchInductor's private doors: its configuration, one recorded compilation, the source lines it knew.

Relies on ``torch._inductor.compile_fx.{compile_fx, compile_fx_inner}``, ``torch._inductor.config`` (``patch``,
``get_type``, ``get_config_copy``, ``_pre_fusion_custom_pass``, ``_post_fusion_custom_pass``,
``trace.provenance_tracking_level``, ``fx_graph_cache``), ``torch._inductor.debug.reset_provenance_globals``,
``torch._inductor.virtualized.V.graph``, ``torch._functorch.config.enable_autograd_cache`` and the attributes of
``CompiledFxGraph`` read in :func:`_read_compiled`.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Union, get_args, get_origin

import torch
from torch import fx

from models.errors import ConfigurationError, closest_first

log = logging.getLogger(__name__)

NEAREST = 10
"""So many options are named where one is misspelt."""


def flatten_options(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"cpp": {"threads": 2}}`` as ``{"cpp.threads": 2}``; a key that Inductor knows as a dict keeps its value."""
    import torch._inductor.config as inductor_config

    known = inductor_config.get_config_copy()
    flat: dict[str, Any] = {}
    for key, value in options.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and dotted not in known:
            flat |= flatten_options(value, f"{dotted}.")
        else:
            flat[dotted] = dict(value) if isinstance(value, Mapping) else value
    return flat


def check_options(options: Mapping[str, Any], *, key_prefix: str = "backend.inductor.") -> dict[str, Any]:
    """TorchInductor options as a flat patch.

    Raises:
        ConfigurationError: for a key that ``torch._inductor.config`` does not have, and for a value of another type.
    """
    import torch._inductor.config as inductor_config

    known = {key: value for key, value in inductor_config.get_config_copy().items() if not _last(key).isupper()}
    flat = flatten_options(options)
    for key, value in flat.items():
        if key not in known:
            raise _unknown_option(key, value, known, key_prefix)
        expected = inductor_config.get_type(key)  # type: ignore[attr-defined]
        if not _fits(value, expected):
            name = expected.__name__ if isinstance(expected, type) else str(expected).replace("typing.", "")
            raise ConfigurationError(
                f"{key_prefix}{key}: got {value!r} ({type(value).__name__}); valid: {name}, "
                f"for example its present value.\nTry: {key_prefix}{key}={_as_yaml(known[key])}"
            )
    return flat


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _unknown_option(key: str, value: Any, known: Mapping[str, Any], prefix: str) -> ConfigurationError:
    """The error for a key that TorchInductor does not have: there are hundreds, so the nearest alone are told."""
    public = [name for name in known if not _last(name).startswith("_")]
    near = closest_first(key, public)[:NEAREST]
    return ConfigurationError(
        f"{prefix}{key}: TorchInductor has no such option; valid: {', '.join(near)} and {len(public) - len(near)} more "
        f"(all: python -c 'import torch._inductor.config as c; print(*c.get_config_copy())').\n"
        f"Try: {prefix}{near[0]}={_as_yaml(value)}"
    )


def _as_yaml(value: Any) -> str:
    return {True: "true", False: "false", None: "null"}[value] if isinstance(value, bool | None) else str(value)


def _fits(value: Any, expected: Any) -> bool:
    """Whether ``value`` may stand where the annotation ``expected`` is. Annotations that can't be told apart pass."""
    origin = get_origin(expected)
    if expected in (Any, type(None)):  # no annotation and the default None: nothing is known
        return True
    if origin is Union or type(expected).__name__ == "UnionType":
        return any(value is None if choice is type(None) else _fits(value, choice) for choice in get_args(expected))
    if origin is Literal:
        return value in get_args(expected)
    container = origin or expected
    if not isinstance(container, type):
        return True
    if container is bool or isinstance(value, bool):
        return container in (bool, object) and isinstance(value, bool)
    if container is float:
        return isinstance(value, int | float)
    if container is tuple:
        return isinstance(value, tuple | list)
    return isinstance(value, container)


@dataclass(frozen=True)
class PostGradNode:
    """One node of the graph that Inductor compiled, after its post-grad passes.

    Attributes:
        name: in its graph; nodes of nested subgraphs are written ``subgraph/name``.
        target: e.g. ``aten.mul.Tensor``.
        original: the aten operation before decomposition, e.g. ``aten.gelu.default``, or "" where torch lost it.
        sequence: autograd's sequence number: equal for the nodes of one operation and its backward; None if lost.
        dynamo: name of the Dynamo node that it came from, or "".
        stack_trace: the user's frames, innermost last, or "".
    """

    name: str
    target: str
    original: str
    sequence: int | None
    dynamo: str
    stack_trace: str


@dataclass
class LoweredGraph:
    """What one compilation by Inductor made of one AOT graph.

    Attributes:
        id: ``g0.forward`` or ``g0.backward``.
        pre_grad: readable code of the Dynamo graph that it came from.
        post_grad: readable code of what was compiled.
        ir_pre_fusion, ir_post_fusion: the scheduler's nodes as text.
        nodes_pre_fusion, nodes_post_fusion: how many scheduler nodes there were.
        fusions: for each scheduler node after fusion that holds several, the names of those.
        source_code: the generated module.
        kernel_nodes: ``kernel:handle`` → names of post-grad nodes.
        kernel_stacks: ``kernel:handle`` → the stack traces Inductor kept.
        nodes: the post-grad graph's call nodes.
        seconds: wall time of this compilation.
        not_established: why something above is missing; empty where nothing is.
    """

    id: str
    pre_grad: str = ""
    post_grad: str = ""
    ir_pre_fusion: str = ""
    ir_post_fusion: str = ""
    nodes_pre_fusion: int = 0
    nodes_post_fusion: int = 0
    fusions: list[list[str]] = field(default_factory=list)
    source_code: str = ""
    kernel_nodes: dict[str, list[str]] = field(default_factory=dict)
    kernel_stacks: dict[str, list[str]] = field(default_factory=dict)
    nodes: list[PostGradNode] = field(default_factory=list)
    seconds: float = 0.0
    not_established: list[str] = field(default_factory=list)


class RecordingCompiler:
    """A ``torch.compile`` backend that compiles through Inductor once and keeps what it made.

    ``graphs`` fills as graphs are compiled: the forward at the first call, the backward when it is first needed.
    Nothing of another compilation gets in, because everything is read inside the one inner compile.

    Args:
        options: patch of ``torch._inductor.config``, flat keys, in force for this compiler's compilations alone.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = dict(options or {})
        self.graphs: dict[str, LoweredGraph] = {}
        self._count = 0

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        from torch._inductor.compile_fx import compile_fx

        number, self._count = self._count, self._count + 1
        pre_grad = gm.print_readable(print_output=False, include_stride=True, include_device=True)

        def inner(graph_module: fx.GraphModule, inputs: Sequence[Any], **inner_kwargs: Any) -> Any:
            direction = "backward" if inner_kwargs.get("is_backward") else "forward"
            return self._inner_compile(f"g{number}.{direction}", pre_grad, graph_module, inputs, inner_kwargs)

        with patched_config(self.options):
            compiled: Any = compile_fx(gm, list(example_inputs), inner_compile=inner)
        return compiled

    def _inner_compile(
        self, graph_id: str, pre_grad: str, gm: fx.GraphModule, inputs: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        import time

        from torch._inductor.compile_fx import compile_fx_inner

        lowered = LoweredGraph(graph_id, pre_grad=pre_grad)
        passes = {
            "_pre_fusion_custom_pass": lambda nodes: _record_pre_fusion(lowered, nodes),
            "_post_fusion_custom_pass": lambda nodes: _record_post_fusion(lowered, nodes),
        }
        began = time.perf_counter()
        with contextlib.ExitStack() as stack:
            # The backward is compiled later, outside the patch around compile_fx, hence here again.
            stack.enter_context(patched_config(self.options | passes))
            if kwargs.get("is_backward"):
                stack.enter_context(_private_provenance())
            compiled = compile_fx_inner(gm, inputs, **kwargs)
        lowered.seconds = time.perf_counter() - began
        _read_compiled(lowered, compiled)
        self.graphs[graph_id] = lowered
        return compiled


@contextlib.contextmanager
def patched_config(options: Mapping[str, Any]) -> Iterator[None]:
    """Inductor's configuration with ``options`` and provenance tracking on, restored on exit.

    The graph caches are off: a hit would return a graph whose IR nobody saw. Compiled kernels are still found in
    Inductor's code cache.
    """
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    own = {"trace.provenance_tracking_level": 1, "fx_graph_cache": False, "fx_graph_remote_cache": False}
    caches = {"enable_autograd_cache": False, "enable_remote_autograd_cache": False}
    known = {key: value for key, value in caches.items() if hasattr(functorch_config, key)}
    with inductor_config.patch(own | dict(options)), functorch_config.patch(known):
        yield


@contextlib.contextmanager
def _private_provenance() -> Iterator[None]:
    """Empty provenance tables for a backward: compile_fx makes fresh ones for the forward alone, and without them
    a backward's kernels get no node mapping and stay in tables that the next backward reads."""
    import torch._inductor.debug as inductor_debug

    with inductor_debug.reset_provenance_globals():
        yield


def _record_pre_fusion(lowered: LoweredGraph, nodes: list[Any]) -> list[Any]:
    lowered.ir_pre_fusion += _ir_text(nodes)
    lowered.nodes_pre_fusion += len(nodes)
    return nodes


def _record_post_fusion(lowered: LoweredGraph, nodes: list[Any]) -> list[Any]:
    from torch._inductor.virtualized import V

    lowered.ir_post_fusion += _ir_text(nodes)
    lowered.nodes_post_fusion += len(nodes)
    for node in nodes:
        members = [member.get_name() for member in node.get_nodes()]
        if len(members) > 1:
            lowered.fusions.append(members)
    prefix = "" if getattr(V.graph, "name", None) is None else f"{V.graph.name}/"
    lowered.nodes += post_grad_nodes(V.graph.module, prefix)
    return nodes


def _ir_text(nodes: list[Any]) -> str:
    from torch._inductor.virtualized import V

    name = getattr(V.graph, "name", None)
    heading = "" if name is None else f"# subgraph {name}\n\n"
    return heading + "".join(f"{node.debug_str()}\n\n\n" for node in nodes)


def post_grad_nodes(gm: Any, prefix: str = "") -> list[PostGradNode]:
    """The call nodes of a graph with where they came from."""
    records = []
    for node in gm.graph.nodes:
        if node.op not in ("call_function", "call_method", "call_module"):
            continue
        original = node.meta.get("original_aten")
        origins = node.meta.get("from_node") or []
        root = origins[0] if origins else None
        while root is not None and root.from_node:
            root = root.from_node[0]
        records.append(
            PostGradNode(
                name=prefix + node.name,
                target=str(node.target),
                original="" if original is None else str(original),
                sequence=node.meta.get("seq_nr"),
                dynamo="" if root is None else root.name,
                stack_trace=node.meta.get("stack_trace") or "",
            )
        )
    return records


def _read_compiled(lowered: LoweredGraph, compiled: Any) -> None:
    """Fill ``lowered`` from what ``compile_fx_inner`` returned; name what it did not hold."""
    lowered.source_code = getattr(compiled, "source_code", None) or ""
    lowered.post_grad = getattr(compiled, "inductor_post_grad_graph_str", None) or ""
    mapping = json.loads(getattr(compiled, "inductor_provenance_mapping_str", None) or "{}")
    lowered.kernel_nodes = {name: list(nodes) for name, nodes in mapping.get("cppCodeToPost", {}).items()}
    stacks = json.loads(getattr(compiled, "inductor_provenance_stack_traces_str", None) or "{}")
    lowered.kernel_stacks = {name: list(traces) for name, traces in stacks.items()}
    found = {
        "generated code": lowered.source_code,
        "post-grad graph": lowered.post_grad,
        "IR before fusion": lowered.ir_pre_fusion,
        "IR after fusion": lowered.ir_post_fusion,
    }
    missing = [name for name, text in found.items() if not text]
    if len(missing) == len(found) and not hasattr(compiled, "source_code"):
        lowered.not_established.append("the graph holds no operation, so Inductor generated nothing")
    else:
        lowered.not_established += [f"{name} not established: this compilation did not give it" for name in missing]
    for reason in lowered.not_established:
        log.warning("%s: %s", lowered.id, reason)


def compile_aot_graph(
    gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor], options: Mapping[str, Any]
) -> Callable[..., Sequence[torch.Tensor]]:
    """One AOT graph compiled by Inductor alone, called as ``compiled(*inputs)``. The graph is left as it was."""
    import copy

    from torch._inductor.compile_fx import compile_fx_inner

    with patched_config(options):
        compiled = compile_fx_inner(copy.deepcopy(gm), list(example_inputs))

    def call(*inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        return compiled(list(inputs))

    return call


def inductor_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """The decompositions that Inductor applies before it compiles. Importing the lowerings first is required."""
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()
