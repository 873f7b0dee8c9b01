"""One name for an operation in Dynamo graphs, where targets are Python callables, and in aten graphs."""

import fnmatch
import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace

from inductor_debug.stages.graphs.records import GETITEM, HIGHER_ORDER, GraphRecord, NodeRecord

ATEN_NAMES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), ("convolution", "_convolution")),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), ("convolution", "_convolution")),
    "layer_norm": ("native_layer_norm",),
    "group_norm": ("native_group_norm",),
    "batch_norm": ("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional"),
    "softmax": ("_softmax",),
    "log_softmax": ("_log_softmax",),
    "dropout": ("native_dropout",),
    **dict.fromkeys(("dropout1d", "dropout2d", "dropout3d"), ("feature_dropout",)),
    "_threshold": ("threshold",),
    "prelu": ("_prelu_kernel",),
    "max_pool2d": ("max_pool2d_with_indices",),
    "max_pool3d": ("max_pool3d_with_indices",),
    "adaptive_avg_pool2d": ("_adaptive_avg_pool2d",),
    "embedding_bag": ("_embedding_bag",),
    "lu": ("_lu_with_info", "linalg_lu_factor_ex"),
    "lu_factor": ("linalg_lu_factor", "linalg_lu_factor_ex"),
    "lu_factor_ex": ("linalg_lu_factor_ex",),
    "linalg_lu_factor": ("linalg_lu_factor_ex",),
    **dict.fromkeys(("solve", "linalg_solve", "solve_ex", "linalg_solve_ex", "tensorsolve", "linalg_tensorsolve"),
                    ("_linalg_solve_ex",)),
    **dict.fromkeys(("inv", "linalg_inv", "inv_ex", "inverse", "tensorinv", "linalg_tensorinv"), ("linalg_inv_ex",)),
    **dict.fromkeys(("det", "linalg_det"), ("_linalg_det",)),
    **dict.fromkeys(("slogdet", "linalg_slogdet", "logdet"), ("_linalg_slogdet",)),
    "truediv": ("div",),
    "floordiv": ("floor_divide",),
    "mod": ("remainder",),
    "invert": ("bitwise_not",),
    "and_": ("bitwise_and", "__and__"),
    "or_": ("bitwise_or", "__or__"),
    "xor": ("bitwise_xor", "__xor__"),
    "scaled_dot_product_attention": (
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
    ),
    **{f"i{own}": (f"{aten}_", aten)
       for own, aten in {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "pow": "pow"}.items()},
}  # fmt: skip
"""Last part of a Python callable's name, or packet of an aten composite → aten packets that it becomes, besides the
packet of its own name."""

MAYBE_NAMES: dict[str, tuple[str, ...]] = {
    "linear": ("addmm", "mm", "bmm"),
    "matmul": ("mm", "bmm", "mv", "dot"),
    "einsum": ("bmm", "mm", "mul"),
    "bilinear": ("_trilinear", "bmm"),
    "cross_entropy": ("nll_loss_forward", "nll_loss2d_forward", "_log_softmax"),
    **dict.fromkeys(("matrix_power", "linalg_matrix_power"), ("linalg_inv_ex", "mm", "bmm")),
    **dict.fromkeys(("cond", "linalg_cond"), ("linalg_inv_ex",)),
    "multi_head_attention_forward": ("bmm", "addmm", "mm", "_softmax"),
}
"""As ``ATEN_NAMES``, where it depends on the arguments: only the aten graph can tell."""

IN_PLACE_POSITION = {
    "relu": 1, "relu6": 1, "silu": 1, "selu": 1, "mish": 1, "hardswish": 1, "hardsigmoid": 1, "elu": 2, "celu": 2,
    "leaky_relu": 2, "hardtanh": 3, "dropout": 3, "dropout1d": 3, "dropout2d": 3, "dropout3d": 3, "alpha_dropout": 3,
    "feature_alpha_dropout": 3, "threshold": 3, "_threshold": 3, "rrelu": 4,
}  # fmt: skip
"""torch.nn.functional callable → position of its ``inplace`` argument."""

IN_PLACE = frozenset((*IN_PLACE_POSITION, "feature_dropout"))
"""Packets that have a name in place too, which such an argument asks for."""

FUNCTIONAL = {"lift_fresh": "lift_fresh_copy"}
"""Packet → what AOTAutograd makes of it, where that is not the name without the underscore of a call in place."""

WRITTEN_VIEWS = ("select", "slice", "diagonal", "as_strided")
"""Views; AOTAutograd makes of a write into one what is called after it: ``select_scatter``."""

PREFIXED = {"linalg": "linalg_", "special": "special_", "fft": "fft_"}
"""torch.NAMESPACE.x is aten.PREFIX_x."""

WILD = "*?["
AUTO_FUNCTIONALIZED = f"{HIGHER_ORDER}auto_functionalized"
PYTHON_ROOTS = ("torch", "_operator", "operator", "builtins", "math")


def normal(name: str) -> str:
    """An operation's name as graphs have it, of the ways to write it: ``torch.ops.aten.add``, ``aten::add``, and
    ``operator.add``, whose functions are those of ``_operator``."""
    name = name.removeprefix("torch.ops.").replace("::", ".")
    return f"_{name}" if name.startswith("operator.") else name


@dataclass(frozen=True)
class Operation:
    """Every name that one operation answers to.

    Attributes:
        names: full names: ``aten.add.Tensor``, ``aten.add``, ``torch.add``.
        short: bare packet names: ``add``.
        python: True for a callable of a Dynamo graph, which tells no overload.
        known: True where what it dispatches to is known, and among its names.
    """

    names: frozenset[str]
    short: frozenset[str]
    python: bool
    known: bool = False

    @property
    def maybe(self) -> frozenset[str]:
        """Packets that a Python callable, or a composite of aten's, may become, depending on its arguments."""
        if self.known or (not self.python and not any(name.startswith("aten.") for name in self.names)):
            return frozenset()
        return frozenset(packet for name in self.short for packet in MAYBE_NAMES.get(name, ()))

    @classmethod
    def of(cls, node: NodeRecord) -> "Operation":
        """The names of a node; in place as well as out of place where its arguments ask for ``inplace``; of an operator
        that ``auto_functionalized`` calls as well."""
        operation = cls.of_target(node.target, method=node.op == "call_method")
        if node.target.startswith(AUTO_FUNCTIONALIZED) and node.args:  # calls its first argument
            called = cls.of_target(str(node.args[0]))
            return cls(operation.names | called.names, operation.short | called.short, False)
        return operation._in_place_too(node)

    def _in_place_too(self, node: NodeRecord) -> "Operation":
        """With the names in place of a Python callable that is asked to write to what it is given.

        Torch may take such a call apart (``relu6`` becomes ``hardtanh_``), so that no overload has that name.
        """
        if not self.python or not _in_place(node):
            return self
        extra = in_place_packets(node)
        return replace(self, names=self.names | {f"aten.{name}" for name in extra}, short=self.short | extra)

    @classmethod
    def dispatched(cls, node: NodeRecord) -> "Operation":
        """The names of a node and of the overloads that it comes to; those of :meth:`of` where these are not known."""
        own = cls.of(node)
        if node.dispatched is None:
            return own
        return cls._calling(node.target, own.python, tuple(node.dispatched))._in_place_too(node)

    @classmethod
    @functools.lru_cache(maxsize=4096)  # a graph repeats few operations often
    def _calling(cls, target: str, python: bool, overloads: tuple[str, ...]) -> "Operation":
        called = [cls.of_target(name) for name in _with_functional(overloads)]
        names = {target}.union(*(item.names for item in called))
        short: set[str] = set().union(*(item.short for item in called))
        if python and called:  # its own packet may be one that is always taken apart (aten.conv2d)
            packets = _own_packets(target)
            names |= packets.union(f"aten.{name}" for name in packets)
            short |= packets
        return cls(frozenset(names), frozenset(short), python, known=True)

    @classmethod
    def of_overload(cls, name: str) -> "Operation":
        """The names of an overload that was called, and of what AOTAutograd makes of it."""
        return cls.dispatched(NodeRecord("", "call_function", name, dispatched=[name]))

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def of_target(cls, target: str, *, method: bool = False) -> "Operation":
        """The names of a target or of a pattern without wildcards."""
        target = normal(target)
        parts = target.split(".")
        if parts[0] not in PYTHON_ROOTS and not method and len(parts) > 1:
            packet = ".".join(parts[:2])
            whole = len(parts) == 2 and parts[0] != "higher_order"  # torch.ops.mylib.op: its overload is not told
            more = ATEN_NAMES.get(parts[1], ()) if parts[0] == "aten" else ()  # a composite of an exported graph
            names = {target, packet, *(f"aten.{name}" for name in more), *(f"aten.{name}.default" for name in more)}
            return cls(frozenset(names), frozenset({parts[1], *more}), whole)
        short = _own_packets(target).union(ATEN_NAMES.get(parts[-1], ()))
        names = {target, *(f"aten.{name}" for name in short), *(f"aten.{name}.default" for name in short)}
        return cls(frozenset(names), frozenset(short), True)


def matches(pattern: str, operation: Operation) -> bool | None:
    """Whether a deny list's entry names the operation; None where a Dynamo graph can't tell (an overload).

    Args:
        pattern: an overload (``aten.add.Tensor``), a packet (``aten.add``, ``add``), a pattern with wildcards over
            those names, or a Python target (``torch.nn.functional.relu``, ``operator.add``); one of torch's also finds
            its aten packets.
        operation: the node's names.
    """
    pattern = normal(pattern)
    if any(character in pattern for character in WILD):
        if any(fnmatch.fnmatchcase(name, pattern) for name in operation.names):
            return True
        return None if _may_match(pattern, operation) else False
    if pattern in operation.names or pattern in operation.short:
        return True
    parts = pattern.split(".")
    if parts[0] == "torch":
        # A Python target denies its own packet, not one that others share (conv2d is not all of convolution).
        own = parts[-1]
        wanted = {own} | {PREFIXED[part] + own for part in parts[1:-1] if part in PREFIXED}
        wanted |= {name for name in ATEN_NAMES.get(own, ()) if own not in SHARED}
        return bool(wanted & operation.short)
    told = operation.known or not operation.python
    if not told and len(parts) == 3 and pattern.rpartition(".")[0] in operation.names:
        return None
    if parts[0] in ("aten", pattern):
        packet = parts[min(1, len(parts) - 1)]
        if packet in operation.maybe:
            return None
    return False


def _may_match(pattern: str, operation: Operation) -> bool:
    """Whether a pattern with wildcards names an overload, or a packet, that a Python callable may become."""
    overload = operation.python and not operation.known and pattern.count(".") == 2
    packet = pattern.rpartition(".")[0] if overload else pattern
    names = {f"aten.{name}" for name in operation.maybe} | (operation.names if overload else frozenset())
    return any(fnmatch.fnmatchcase(name, packet) for name in names)


SHARED = frozenset(("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"))
"""Callables that share their aten packets with others: denying one of them does not deny the packet."""


def settled(node: NodeRecord, graph: GraphRecord) -> bool:
    """Whether it is known to which operators a call comes.

    It is known of an overload, of a node with ``dispatched``, and of an operator that ``auto_functionalized`` calls. It
    is also known of what has nothing to do with tensors: arithmetic on sizes, a switch of autocast, the choice of one
    of several results.
    """
    if node.dispatched is not None:
        return True
    if not Operation.of(node).python:
        return not node.target.startswith(HIGHER_ORDER) or node.target.startswith(AUTO_FUNCTIONALIZED)
    given = [graph.by_name[name] for name in node.inputs if name in graph.by_name]
    if node.target == GETITEM and given and len(given[0].outputs) > 1:
        return True
    return not node.outputs and not any(source.outputs for source in given)


def _own_packets(target: str) -> set[str]:
    """Packets of a Python callable's own name, out of place as well where it works in place."""
    parts = target.split(".")
    own = parts[-1]
    packets = {own} | {PREFIXED[part] + own for part in parts[1:-1] if part in PREFIXED}
    if own.endswith("_") and not own.startswith("_") and own not in ("and_", "or_"):
        packets.add(own.rstrip("_"))
    return packets


def _with_functional(called: Iterable[str]) -> set[str]:
    """Overloads with what AOTAutograd makes of those that write in place."""
    names = set(called)
    packets = {name.split(".")[1] for name in names if name.count(".") == 2}
    written = False
    for name in sorted(names):
        namespace, _, rest = name.partition(".")
        packet, _, overload = rest.partition(".")
        if packet.endswith("_") and not packet.endswith("__"):
            names.add(f"{namespace}.{packet[:-1]}.{overload}")
            written = True
        elif packet in FUNCTIONAL:
            names.add(f"{namespace}.{FUNCTIONAL[packet]}.{overload}")
    if written:
        names |= {f"aten.{view}_scatter.default" for view in WRITTEN_VIEWS if view in packets}
    return names


def in_place_packets(node: NodeRecord) -> frozenset[str]:
    """Packets in place (``relu6_``) that a call of a Python callable asks for with its argument ``inplace``."""
    if not _in_place(node):
        return frozenset()
    operation = Operation.of_target(node.target, method=node.op == "call_method")
    return frozenset(f"{name}_" for name in operation.short if operation.python and name in IN_PLACE)


def _in_place(node: NodeRecord) -> bool:
    if "inplace" in node.kwargs:
        return node.kwargs["inplace"] is True
    position = IN_PLACE_POSITION.get(node.target.rsplit(".", 1)[-1])
    return position is not None and len(node.args) > position and node.args[position] is True
