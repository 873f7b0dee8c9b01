"""What TorchInductor's scheduler was given, what it decided, and why it refused.

Relies on ``torch._inductor.virtualized.V.graph`` (``name``, ``module``, ``graph_inputs``, ``constants``,
``name_to_buffer``, ``sizevars``, ``scheduler.mutation_real_name``), on the scheduler nodes' ``debug_str``
(in it ``loop_body.LoopBodyBlock.debug_str``, whose text is made of its ``graph``), ``get_name``,
``get_nodes``, ``get_outputs`` (with ``get_mutations``), ``get_ranges``, ``_body.is_memory_copy`` (of
``SchedulerNode``: loops that only load and store), ``read_writes`` (of
``dependencies.MemoryDep``: ``name``, ``index``, ``var_names``, ``size``, ``is_indirect``, and ``WeakDep``: an order
alone), ``is_extern``, ``is_template`` and ``node.origins``, on ``scheduler.{SchedulerNode, NopKernelSchedulerNode}``
and ``ir.{MultiOutput, UserDefinedTritonKernel}`` (with ``indices`` and
``inputs``), on the buffers' ``has_tensor_output``, ``maybe_get_stride`` and
``origin_node``, on ``backed_var_to_val`` of the shape environment, on ``scheduler.WhyNoFuse.__call__`` (called with the
reason of each refusal), and on the feedback functions of ``select_algorithm``'s cache (called with the timings of each
autotuned operation).
"""

import contextlib
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from torch import fx
from torch._inductor.dependencies import MemoryDep, WeakDep
from torch._inductor.loop_body import LoopBodyBlock
from torch._inductor.virtualized import V

from inductor_debug.stages.graphs.known import known_product
from inductor_debug.stages.graphs.records import Size

_MEMBERS = re.compile(r"(.*?op\d+)(?:_|$)")


@dataclass(frozen=True)
class BufferInfo:
    """One buffer of a generated module.

    Attributes:
        role: ``input``, ``constant``, or ``buffer`` (what the module computes).
        shape, stride: in elements; symbolic ones as expressions.
        dtype: without the ``torch.`` prefix.
        bytes: dense size, of symbolic sizes as this case had them; None where that is not known.
        origin: the post-grad node whose output it is exactly, or "".
        graph: prefix of the names of its graph's nodes, ``"subgraph/"`` or "".
    """

    name: str
    role: str
    shape: Sequence[Size]
    stride: Sequence[Size]
    dtype: str
    device: str
    bytes: int | None
    origin: str = ""
    graph: str = ""


@dataclass(frozen=True)
class ScheduledNode:
    """One node of the scheduler after fusion: what one kernel, or one external call, computes.

    Attributes:
        name: e.g. ``op0_op1``.
        members: the nodes before fusion that are in it.
        reads: names of buffers that others wrote.
        writes: names of the buffers that it makes, those that only its members read included.
        mutates: names of buffers of others, or of inputs, that it overwrites.
        origins: names of post-grad nodes, as :func:`stages.torch_internals.inductor_nodes.post_grad_nodes` names them.
        kind: ``extern``, ``template``, ``user`` (a Triton kernel of the model's own), ``nop``, ``generated``, or
            ``output`` (one result of an external call with several, which is another node's).
        accessed: buffer → how many of its elements are read or written at most. An element counts as often as the loops
            come to it. Only buffers of generated loops, where that is known.
        copies: buffer that it writes → the buffer whose elements it has, where loops only load and store them.
    """

    name: str
    members: list[str]
    reads: list[str]
    writes: list[str]
    mutates: list[str]
    origins: list[str]
    kind: str
    accessed: dict[str, int] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """Two nodes of the scheduler that were not fused, and why; ``times`` it was asked."""

    first: str
    second: str
    reason: str
    times: int


@dataclass(frozen=True)
class Autotuning:
    """One operation for which several kernels were timed.

    Attributes:
        operation: e.g. ``mm``.
        inputs: ``dtype[shape]`` of each operand.
        choices: (name, milliseconds), fastest first; infinite where one failed.
    """

    operation: str
    inputs: list[str]
    choices: list[tuple[str, float]]


@dataclass
class Schedule:
    """What the scheduler did in one compilation.

    Attributes:
        origins: node before fusion → names of post-grad nodes.
        renamed: name of a buffer after a node overwrote it → the buffer.
    """

    ir_pre_fusion: str = ""
    ir_post_fusion: str = ""
    nodes_pre_fusion: int = 0
    nodes: list[ScheduledNode] = field(default_factory=list)
    buffers: dict[str, BufferInfo] = field(default_factory=dict)
    origins: dict[str, list[str]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    refused: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    autotuning: list[Autotuning] = field(default_factory=list)

    @property
    def refusals(self) -> list[Refusal]:
        """Pairs that were not fused although something spoke for it, where the compiler said why."""
        return [Refusal(*key, times) for key, times in self.refused.items()]

    def before_fusion(self, nodes: list[Any]) -> list[Any]:
        """For ``_pre_fusion_custom_pass``."""
        self.ir_pre_fusion += _ir_text(nodes)
        self.nodes_pre_fusion += len(nodes)
        self.origins |= {node.get_name(): _origins(node) for node in nodes}
        return nodes

    def after_fusion(self, nodes: list[Any]) -> list[Any]:
        """For ``_post_fusion_custom_pass``."""
        self.ir_post_fusion += _ir_text(nodes)
        self.nodes += [_scheduled(node) for node in nodes]
        self.buffers |= {item.name: item for item in _buffers()}
        self.renamed |= _renamed()
        return nodes


def fused_members(name: str) -> list[str]:
    """The nodes that a fused one is called after: of ``op0_op1``, and of ``subgraph_op0_subgraph_op1``."""
    return _MEMBERS.findall(name)


def graph_prefix() -> str:
    """``"subgraph/"`` inside the subgraph of a higher-order operator, else ""."""
    name = getattr(V.graph, "name", None)
    return "" if name is None else f"{name}/"


def _renamed() -> dict[str, str]:
    return V.graph.scheduler.mutation_real_name


def _ir_text(nodes: list[Any]) -> str:
    prefix = graph_prefix()
    heading = f"# subgraph {prefix[:-1]}\n\n" if prefix else ""
    with mock.patch.object(LoopBodyBlock, "debug_str", block_text):
        return heading + "".join(f"{node.debug_str()}\n\n\n" for node in nodes)


def block_text(block: LoopBodyBlock, name: str = "block") -> str:
    """What ``LoopBodyBlock.debug_str`` gives, without the ``GraphModule`` that it makes, compiles and throws away.

    Args:
        block: of a loop's body.
        name: of the function.
    """
    code = block.graph.python_code(root_module="self").src
    return re.sub(r";[^\n]*", "", code.strip().replace("def forward(", f"def {name}("))


def _origins(node: Any) -> list[str]:
    """Names of post-grad nodes. What is in a subgraph has also the operator that calls it among its own: left out."""
    prefix, own = graph_prefix(), V.graph.module.graph
    found = {origin for member in node.get_nodes() if member.node is not None for origin in member.node.origins}
    return sorted({prefix + origin.name for origin in found if not prefix or origin.graph is own})


def _scheduled(node: Any) -> ScheduledNode:
    outputs = node.get_outputs()
    writes = list(dict.fromkeys(output.get_name() for output in outputs))
    from torch._inductor.ir import MultiOutput, UserDefinedTritonKernel
    from torch._inductor.scheduler import NopKernelSchedulerNode

    reads = dict.fromkeys(item.name for item in node.read_writes.reads if not isinstance(item, WeakDep))
    kinds = {
        "output": isinstance(node.node, MultiOutput),
        "user": isinstance(node.node, UserDefinedTritonKernel),
        "extern": node.is_extern(),
        "template": node.is_template(),
        "nop": isinstance(node, NopKernelSchedulerNode),
    }
    return ScheduledNode(
        name=node.get_name(),
        members=[member.get_name() for member in node.get_nodes()],
        reads=[name for name in reads if name not in writes],
        writes=writes,
        mutates=sorted({name for output in outputs for name in output.get_mutations()}),
        origins=_origins(node),
        kind=next((kind for kind, holds in kinds.items() if holds), "generated"),
        accessed=_accessed(node),
        copies=dict(_copies(node)),
    )


def _copies(node: Any) -> Iterator[tuple[str, str]]:
    """Buffer → the buffer of which it is a copy, of each of a fused node's members that does nothing else."""
    from torch._inductor.scheduler import SchedulerNode

    renamed = _renamed()
    for member in node.get_nodes():
        body: Any = member._body if isinstance(member, SchedulerNode) else None  # a template's node has none
        if body is not None and body.is_memory_copy():
            reads = (item.name for item in member.read_writes.reads if isinstance(item, MemoryDep))
            for source in reads:
                yield from ((output.get_name(), renamed.get(source, source)) for output in member.get_outputs())


def _accessed(node: Any) -> dict[str, int]:
    """Accesses of a fused node's loops by buffer, one that is overwritten under both of its names."""
    from torch._inductor.scheduler import SchedulerNode

    found: dict[str, int] = {}
    unknown: set[str] = set()
    renamed = _renamed()
    for member in node.get_nodes():
        aliases = {output.get_name(): list(output.get_mutations()) for output in member.get_outputs()}
        for dependency in member.read_writes.reads | member.read_writes.writes:
            loops = isinstance(member, SchedulerNode) and isinstance(dependency, MemoryDep)
            count = _accesses(member, dependency) if loops else None
            before = {renamed.get(dependency.name, dependency.name), *aliases.get(dependency.name, [])}
            for name in {dependency.name, *before}:
                if count is None:
                    unknown.add(name)
                else:
                    found[name] = found.get(name, 0) + count
    return {name: count for name, count in found.items() if name not in unknown}


def _accesses(member: Any, dependency: Any) -> int | None:
    """How often a loop comes to a buffer; where the index depends on data, once each time around."""
    sizes = [size for group in member.get_ranges() for size in group]
    if not dependency.is_indirect():
        symbols = dependency.index.free_symbols
        pairs = zip(dependency.var_names, dependency.size, strict=True)
        sizes = [size for variable, size in pairs if variable in symbols]
    return known_product(map(_hint, sizes))


def _buffers() -> Iterator[BufferInfo]:
    graph = V.graph
    for name, value in graph.graph_inputs.items():
        if hasattr(value, "get_size"):  # others are symbolic sizes
            yield _buffer(name, "input", value)
    for name, constant in graph.constants.items():
        shape, stride = [int(size) for size in constant.shape], [int(size) for size in constant.stride()]
        dtype = str(constant.dtype).removeprefix("torch.")
        nbytes = constant.numel() * constant.element_size()
        yield BufferInfo(name, "constant", shape, stride, dtype, str(constant.device), nbytes, graph=graph_prefix())
    for name, value in graph.name_to_buffer.items():
        if value.has_tensor_output() and name not in graph.graph_inputs:
            yield _buffer(name, "buffer", value)


def _buffer(name: str, role: str, value: Any) -> BufferInfo:
    sizes, dtype = list(value.get_size()), value.get_dtype()
    stride = value.maybe_get_stride()
    return BufferInfo(
        name=name,
        role=role,
        shape=[_size(size) for size in sizes],
        stride=[] if stride is None else [_size(item) for item in stride],
        dtype=str(dtype).removeprefix("torch."),
        device=str(value.get_device()),
        bytes=known_product([*map(_hint, sizes), dtype.itemsize]),
        origin=_origin(name, role, value),
        graph=graph_prefix(),
    )


def _origin(name: str, role: str, value: Any) -> str:
    prefix = graph_prefix()
    if role == "input":
        return prefix + name.removeprefix(prefix.replace("/", "_"))
    node = getattr(value, "origin_node", None) or _taken_from(value)
    return "" if node is None else prefix + node.name


def _taken_from(value: Any) -> fx.Node | None:
    """The node that takes a buffer out of the several results of a library's call, or out of those of a sort.

    The indices of a sort are a buffer of a narrow type, which has no node of its own. None where it is no such buffer.
    """
    from torch._inductor.ir import MultiOutput, Sort

    data = getattr(value, "data", None)
    if isinstance(data, Sort):
        calls = [node for node in value.origins if str(node.target).startswith("aten.sort.")]
        wanted = data.output_index
    elif isinstance(value, MultiOutput) and len(value.indices) == 1:
        calls, wanted = [getattr(value.inputs[0], "origin_node", None)], value.indices[0][1]
    else:
        return None
    users = calls[0].users if len(calls) == 1 and calls[0] is not None else ()
    return next((user for user in users if user.target is operator.getitem and user.args[1] == wanted), None)


def _size(expression: Any) -> Size:
    return int(expression) if isinstance(expression, int) or expression.is_number else str(expression)


def _hint(expression: Any) -> int | None:
    """The value that a size has in this case; None where it depends on data."""
    if isinstance(expression, int) or expression.is_number:
        return int(expression)
    environment = V.graph.sizevars.shape_env
    values = getattr(environment, "backed_var_to_val", None)
    found = expression.xreplace(dict(environment.var_to_val if values is None else values))
    return int(found) if found.is_number else None


@contextlib.contextmanager
def recorded(schedule: Schedule) -> Iterator[dict[str, Callable[[list[Any]], list[Any]]]]:
    """While open, refused fusions and autotuning of this process's compilations go to ``schedule``.

    Yields:
        the patch of ``torch._inductor.config`` that makes the scheduler show its nodes.
    """
    from torch._inductor import scheduler, select_algorithm

    original = scheduler.WhyNoFuse.__call__

    def refuse(why: Any, reason: str, *args: Any) -> None:
        schedule.refused[(why.name1, why.name2, (reason % args if args else reason).strip())] += 1
        original(why, reason, *args)

    def timed(timings: Any, operation: str, inputs: Any, *_: Any) -> None:
        schedule.autotuning.append(_autotuning(timings, operation, inputs))

    with mock.patch.object(scheduler.WhyNoFuse, "__call__", refuse), contextlib.ExitStack() as stack:
        select_algorithm.add_feedback_saver(timed)
        savers = select_algorithm.get_algorithm_selector_cache().feedback_saver_fns
        stack.callback(lambda: savers.remove(timed) if timed in savers else None)
        yield {
            "_pre_fusion_custom_pass": schedule.before_fusion,
            "_post_fusion_custom_pass": schedule.after_fusion,
        }


def _autotuning(timings: Any, operation: str, inputs: Any) -> Autotuning:
    operands = [
        f"{str(item.get_dtype()).removeprefix('torch.')}{[_size(size) for size in item.get_size()]}" for item in inputs
    ]
    choices = [(choice.name, float(milliseconds)) for choice, milliseconds in timings.items()]
    return Autotuning(operation, operands, sorted(choices, key=lambda choice: choice[1]))
