"""An AOT graph, executed operation by operation with a profile's numerics.

What is emulated where:

- Each floating tensor that an operation makes is rounded to its dtype's storage format, once; a view of a rounded
  tensor needs no rounding. Inside an operation (a softmax, a normalization) torch computes as it does. Numbers that
  stand in the graph as Python numbers are not rounded.
- float16 and bfloat16 tensors that have a storage format are held in float32 meanwhile, so that one rounding is all.
- Inputs are rounded, weights once for all calls (:class:`~stages.emulation.weights.WeightCache`); what a graph gives
  back of its inputs, and what it writes into, are the caller's own tensors.
- Integers of a cast type are checked against the narrower type and wrap around where they do not fit.
- An operation on the host runs as torch runs it; its results are rounded on their way back.
"""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from inductor_debug.models.torch_private import HigherOrderOperator, pytree
from inductor_debug.stages.accelerators.number_formats import Format
from inductor_debug.stages.emulation.findings import Findings, describe_elements
from inductor_debug.stages.emulation.padding import any_padded, leaked, reads_beyond
from inductor_debug.stages.emulation.plan import NodePlan, Numerics
from inductor_debug.stages.emulation.products import PRODUCTS, NotEmulated, multiplies_inside
from inductor_debug.stages.emulation.rounding import Loss, round_
from inductor_debug.stages.emulation.weights import WeightCache
from inductor_debug.stages.formatting import counted

HALF_TO_FLOAT = (torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default)
"""Operations whose third argument says that a half-precision input gives a float32 result."""


class EmulatingInterpreter(fx.Interpreter):
    """Runs one graph; call :meth:`run` with its inputs, as often as wanted.

    Args:
        gm: an AOT graph.
        graph_id: for findings.
        plans: from :func:`stages.emulation.plan.plan`.
        numerics: what to emulate.
        weights: shared by the graphs of one model.
        findings: where to tell.
    """

    extra_traceback = False

    def __init__(
        self,
        gm: fx.GraphModule,
        graph_id: str,
        plans: dict[str, NodePlan],
        numerics: Numerics,
        weights: WeightCache,
        findings: Findings,
    ) -> None:
        super().__init__(gm)
        self.graph_id, self.plans, self.numerics = graph_id, plans, numerics
        self.weights, self.findings = weights, findings
        self.given: dict[fx.Node, Tensor] = {}

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The graph's outputs for these inputs, as the graph itself would give them in dtype, shape and strides."""
        with torch.no_grad():
            try:
                return super().run(*args, enable_io_processing=False, **kwargs)
            finally:
                self.given = {}

    def run_node(self, n: fx.Node) -> Any:
        plan = self.plans[n.name]
        if n.op == "call_function":
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return self._call(n, plan, args, kwargs)
        if n.op == "output":
            return self._output(n)
        value = super().run_node(n)
        if not isinstance(value, Tensor):
            return value
        if n.op == "placeholder":
            self.given[n] = value
            self.weights.know(value)
        return self._taken_in(value, plan)

    def _taken_in(self, value: Tensor, plan: NodePlan) -> Tensor:
        """A graph's input or constant, rounded; the tensor itself is left alone."""
        format = self.numerics.storage.get(value.dtype)
        return self._cast(value, plan) if format is None else self._copy_in(value, format, plan)

    def _copy_in(self, value: Tensor, format: Format, plan: NodePlan) -> Tensor:
        """A rounded copy; what rounding lost is told the first time."""
        container = self.numerics.container(value.dtype)
        copy, loss = self.weights.rounded(value, format, container, saturate=self.numerics.saturate)
        if loss is not None:
            self._tell_loss(plan, format, loss, value.numel())
        return copy

    def _output(self, n: fx.Node) -> Any:
        """Inputs among the outputs are given back as they came, the rest in the dtype that the graph says."""

        def given_back(item: Any) -> Any:
            if not isinstance(item, fx.Node):
                return item
            if item in self.given:
                return self.given[item]
            value, dtypes = self.env[item], self.plans[item.name].dtypes
            if isinstance(value, Tensor) and dtypes and dtypes[0] in self.numerics.widened:
                return value.to(dtypes[0])
            return value

        return fx.map_arg(n.args[0], given_back)

    def _call(self, n: fx.Node, plan: NodePlan, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if n.target is operator.getitem:
            return args[0][args[1]]
        written = self._written(n, plan)
        if written:
            args = [written.get(index, item) for index, item in enumerate(args)]
        args, kwargs = self._in_containers(n, args, kwargs)
        if plan.fallback:
            self._tell_fallback(n, plan)
            result = n.target(*args, **kwargs)  # type: ignore[operator]
        else:
            result = self._on_device(n, plan, args, kwargs)
        for index in written:
            node = n.args[index]
            assert isinstance(node, fx.Node)
            self.env[node] = self._taken_in(self.given[node], self.plans[node.name])
        return result if plan.record.aliases or written else self._rounded(result, plan)

    def _written(self, n: fx.Node, plan: NodePlan) -> dict[int, Tensor]:
        """Positions of the graph's inputs that the node writes to, with the caller's own tensors."""
        written = ((index, n.args[index]) for index in plan.mutated if index < len(n.args))
        return {index: self.given[node] for index, node in written if isinstance(node, fx.Node) and node in self.given}

    def _in_containers(self, n: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Arguments that name a dtype name its container."""
        widened = self.numerics.widened
        if not widened:
            return args, kwargs
        if n.target in HALF_TO_FLOAT and args[2]:
            args = [args[0], args[1], False]

        def container(item: Any) -> Any:
            return torch.float32 if isinstance(item, torch.dtype) and item in widened else item

        return pytree.tree_map(container, list(args)), pytree.tree_map(container, dict(kwargs))

    def _on_device(self, n: fx.Node, plan: NodePlan, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        target: Any = n.target
        if target in PRODUCTS:
            args = self._operands(plan, target, args)
        elif multiplies_inside(target) and (self.numerics.accumulation or self.numerics.operands):
            self._tell(plan, "not_emulated", f"what {target} multiplies is multiplied as torch does")
        elif isinstance(target, HigherOrderOperator):
            self._tell(plan, "not_emulated", "what is inside runs as torch runs it; its results are rounded")
        if self.numerics.accumulation is not None and target in PRODUCTS:
            result = self._narrow(plan, target, args, kwargs)
        else:
            result = target(*args, **kwargs)
        if self.numerics.tile:
            dtypes = (dtype for node in n.all_input_nodes for dtype in self.plans[node.name].dtypes)
            self._try_padding(plan, target, args, kwargs, result, self.numerics.tile_of(dtypes))
        return result

    def _operands(self, plan: NodePlan, target: Any, args: Sequence[Any]) -> Sequence[Any]:
        """The arguments with those that are multiplied rounded to the format of operands."""
        new = list(args)
        for position in PRODUCTS[target].operands:
            format = self.numerics.operands.get(new[position].dtype)
            if format is not None:
                new[position] = self._copy_in(new[position], format, plan)
        return new

    def _narrow(self, plan: NodePlan, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        floating = [item for item in pytree.tree_leaves(args) if isinstance(item, Tensor)]
        if any(item.dtype not in (torch.float32, torch.float64) for item in floating):
            self._tell(plan, "not_emulated", f"partial sums of {floating[0].dtype} are those of torch")
            return target(*args, **kwargs)
        try:
            result = PRODUCTS[target].narrow(self.numerics.accumulation, *args, **kwargs)
        except NotEmulated as error:
            self._tell(plan, "not_emulated", f"partial sums of {error} are those of torch")
            return target(*args, **kwargs)
        leaves = pytree.tree_leaves(result)
        laid_out = [_with_strides(item, strides) for item, strides in zip(leaves, plan.strides, strict=False)]
        return laid_out[0] if isinstance(result, Tensor) else tuple(laid_out)

    def _try_padding(
        self,
        plan: NodePlan,
        target: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        unpadded: Any,
        tile: tuple[int, ...],
    ) -> None:
        beyond = reads_beyond(target)
        if beyond is False or plan.mutated or plan.record.aliases:
            return
        if beyond is None:
            if any_padded((args, kwargs), tile):
                self._tell(plan, "not_emulated", f"{plan.record.target} was not run over padding")
            return
        try:
            count = leaked(target, args, kwargs, unpadded, tile, self.numerics.fill)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            self._tell(plan, "not_emulated", f"{plan.record.target} could not be run over padding: {reason}")
            return
        if count:
            total = sum(item.numel() for item in pytree.tree_leaves(unpadded) if isinstance(item, Tensor))
            what = "NaN" if self.numerics.fill != 0 else "zero"
            words = f"{what} in the padding to {list(tile)} reaches {describe_elements(count, total)}"
            self._tell(plan, "pad_leak", words, count=count, elements=total)

    def _rounded(self, result: Any, plan: NodePlan) -> Any:
        """The operation's own results, rounded in place to the storage formats of their dtypes."""
        if isinstance(result, Tensor):
            return self._stored(result, plan.dtypes[0] if plan.dtypes else result.dtype, plan)
        if not isinstance(result, (tuple, list)):
            return result
        dtypes = plan.dtypes if len(plan.dtypes) == len(result) else tuple(getattr(x, "dtype", None) for x in result)
        stored = [
            self._stored(item, dtype, plan) if isinstance(item, Tensor) else item
            for item, dtype in zip(result, dtypes, strict=True)
        ]
        return type(result)(stored)

    def _stored(self, value: Tensor, dtype: torch.dtype | None, plan: NodePlan) -> Tensor:
        if not value.is_floating_point():
            if value.is_complex() and self.numerics.storage:
                self._tell(plan, "not_emulated", "complex numbers are kept as torch keeps them")
            return self._cast(value, plan)
        format = self.numerics.storage.get(value.dtype if dtype is None else dtype)
        if format is None:
            return value
        if 0 in value.stride() or value.dtype not in (torch.float32, torch.float64):
            value = value.to(self.numerics.container(value.dtype), copy=True, memory_format=torch.contiguous_format)
        loss = round_(value, format, saturate=self.numerics.saturate)
        self._tell_loss(plan, format, loss, value.numel())
        return value

    def _cast(self, value: Tensor, plan: NodePlan) -> Tensor:
        """Integers as the narrower type holds them, in their own dtype."""
        narrow = self.numerics.casts.get(value.dtype)
        if narrow is None or value.numel() == 0:
            return value
        limits = torch.iinfo(narrow)
        least, most = (int(item) for item in torch.aminmax(value))
        if limits.min <= least and most <= limits.max:
            return value
        count = int(((value < limits.min) | (value > limits.max)).sum())
        worst = least if abs(least) > abs(most) else most
        words = (
            f"{describe_elements(count, value.numel())} of {str(value.dtype).removeprefix('torch.')} do not fit "
            f"{str(narrow).removeprefix('torch.')}, {worst} among them; they wrap around"
        )
        self._tell(plan, "int_overflow", words, count=count, elements=value.numel(), worst=float(abs(worst)))
        return value.to(narrow).to(value.dtype)

    def _tell_loss(self, plan: NodePlan, format: Format, loss: Loss, elements: int) -> None:
        if loss.overflowed:
            words = (
                f"{describe_elements(loss.overflowed, elements)} too large for {format.name}, up to {loss.largest:g}"
            )
            self._tell(plan, "overflow", words, count=loss.overflowed, elements=elements, worst=loss.largest)
        if loss.underflowed > 0:
            words = f"{describe_elements(loss.underflowed, elements)} became zero in {format.name}"
            self._tell(plan, "underflow", words, count=loss.underflowed, elements=elements)

    def _tell_fallback(self, n: fx.Node, plan: NodePlan) -> None:
        read = [tensor for node in n.all_input_nodes for tensor in self.plans[node.name].record.outputs]
        sizes = [tensor.nbytes for tensor in (*read, *plan.record.outputs)]
        moved = None if None in sizes else sum(size for size in sizes if size is not None)
        cost = "" if moved is None else f", which moves {counted(moved, 'byte')}"
        words = f"runs on the host{cost}: {plan.fallback}"
        self._tell(plan, "fallback", words, bytes=moved, flops=plan.record.flops)

    def _tell(self, plan: NodePlan, kind: str, message: str, **figures: Any) -> None:
        self.findings.add(self.graph_id, plan.record, kind, message, **figures)


def _with_strides(value: Any, strides: tuple[int, ...] | None) -> Any:
    """``value`` laid out as the graph expects it, so that what follows can view it."""
    if not isinstance(value, Tensor) or strides is None or value.stride() == strides:
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)
