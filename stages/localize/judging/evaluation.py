"""One node of a graph, from what it takes: in float64, or rightly in its own dtypes and rounded otherwise."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

import torch
from torch import fx

from inductor_debug.models.random_state import preserved_random_state
from inductor_debug.models.torch_private import OpOverload, pytree, schema_of
from inductor_debug.stages.localize.judging.choices import noted
from inductor_debug.stages.sides.rounded import MANTISSA, Rounded, in_float64, rounds_once, widened
from inductor_debug.stages.sides.running import generator_state
from inductor_debug.stages.sides.sum_noise import Sums, sums_of

Evaluate = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]
"""An operator, its arguments → what it gives."""

aten = torch.ops.aten

PLAIN = ("_operator", "math", "builtins")
"""Modules of Python whose functions stand in graphs: arithmetic of sizes, and results taken apart."""

ANY_ORDER = {aten.sort.default, aten.sort.stable}
"""Operators that give values in order, and their places: those of equal ones in any order, unless ``stable`` is set."""

GATHERING = {aten.embedding.default, aten.index_select.default, aten.gather.default}
"""Operators that give some of the numbers that they take: the others need not be widened."""

UNSET = {
    *(aten.empty.memory_format, aten.empty_like.default, aten.empty_strided.default, aten.empty_permuted.default),
    *(aten.new_empty.default, aten.new_empty_strided.default),
}
"""Operators of which nothing says what their results hold."""

AS_LAID_OUT = {aten.view.default: aten.reshape.default}
"""Operators that refuse other strides than the graph has → those that give the same numbers of any: float64 of an
operation may be laid out otherwise than its result."""

_LEFT_OPEN = "_left_open"

ORDERED = "control_deps"
"""TorchInductor's operator that runs a graph of one node after others: (what comes before, the graph, its inputs…)."""


def taken_by(node: fx.Node) -> list[fx.Node]:
    """The nodes whose values a node takes; of one that must only come after others not these."""
    if getattr(node.target, "__name__", "") != ORDERED:
        return node.all_input_nodes
    found: list[fx.Node] = []
    fx.map_arg((node.args[1:], node.kwargs), found.append)
    return list(dict.fromkeys(found))


def is_floating(value: object) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor of floating numbers."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


class Unknown(Exception):
    """A value can't be computed; the message says why."""


def exactly(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An operator in float64: floating tensors are widened, floating dtypes mean float64, the rest is as it is.

    Raises:
        Unknown: it draws random numbers, or has no float64.
    """
    return _exactly(target, args, kwargs)[2]


def _exactly(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Arguments, keywords and results of an operator in float64."""
    if target in GATHERING:
        return args, kwargs, widened(target(*args, **kwargs))
    with _drawing_nothing(target, args):
        found = in_float64(target, args, kwargs)
    if found is None:
        raise Unknown(f"{target} could not be computed in float64")
    noted(target, found[0], found[1], found[2])
    return found


def rounded_by(rounding: Rounded) -> Evaluate:
    """An operator in its own dtypes, rounded otherwise.

    Raises:
        Unknown: it draws random numbers, or raised.
    """

    def evaluate(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with _drawing_nothing(target, args), rounding:
            return _computed(target, args, kwargs)

    return evaluate


class Both:
    """An operator in float64 and then rounded otherwise. Of a region of one operation, both start from what was
    received: float64 is computed once.

    Args:
        rounding: the draw.
    """

    def __init__(self, rounding: Rounded) -> None:
        self._rounding, self._anew = rounding, rounded_by(rounding)
        self._target: Any = None
        self._dtypes: list[torch.dtype | None] = []
        self._known: tuple[Any, Any, Any] | None = None

    def begin(self, operations: Sequence[fx.Node]) -> None:
        """Go on to a region."""
        self._target = self._known = None
        (node, *others) = operations
        leaves = pytree.tree_leaves(node.meta.get("val"))
        dtypes = [leaf.dtype if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
        plain = all(leaf is None or (dtype in MANTISSA and leaf.numel() > 0)
                    for leaf, dtype in zip(leaves, dtypes, strict=True))  # fmt: skip
        if any(dtypes) and plain and not others and isinstance(node.target, OpOverload) and rounds_once(node.target):
            self._target, self._dtypes = node.target, dtypes

    def exactly(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """See :func:`exactly`."""
        found = _exactly(target, args, kwargs)
        wide = [leaf.dtype if isinstance(leaf, torch.Tensor) else None for leaf in pytree.tree_leaves(found[2])]
        if target is self._target and wide == [dtype and torch.float64 for dtype in self._dtypes]:
            self._known = found
        return found[2]

    def sums(self) -> Sums | None:
        """Those that the region is, where that is known."""
        return None if self._known is None else sums_of(self._target, *self._known[:2])

    def rounded(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """See :func:`rounded_by`."""
        if self._known is None or target is not self._target:
            return self._anew(target, args, kwargs)
        known, self._known = self._known, None
        return self._rounding.of_exact(target, known, self._dtypes)


def _computed(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return target(*args, **kwargs)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise Unknown(f"{target} raised {str(error).partition(chr(10))[0]}") from error


def as_it_is(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An operator as torch computes it.

    Raises:
        Unknown: it draws random numbers, or raised.
    """
    with _drawing_nothing(target, args):
        return _computed(target, args, kwargs)


Drawn = Mapping[str, torch.Tensor]
"""Node of dropout → the mask that it drew."""


def value_of(
    node: fx.Node, values: Mapping[fx.Node, Any], owner: torch.nn.Module, evaluate: Evaluate, drawn: Drawn | None = None
) -> Any:
    """What a node gives.

    Args:
        node: a call, or an attribute of ``owner``.
        values: what it takes, by node.
        owner: what holds the graph's constants.
        evaluate: of operators.
        drawn: dropout of which the mask is known is computed by that.

    Raises:
        Unknown: what it takes is not known, or it can't be computed.
    """
    if node.op == "get_attr":
        return operator.attrgetter(str(node.target))(owner)
    if node.op != "call_function":
        raise Unknown(f"{node.op} {node.target} is not replayed")

    def value(source: fx.Node) -> Any:
        found = values[source]
        if isinstance(found, Unknown):
            raise found
        if getattr(found, _LEFT_OPEN, False) and node.target is not operator.getitem:
            raise Unknown(f"in which order {source.name} has equal values was not seen")
        return found

    ordered = getattr(node.target, "__name__", "") == ORDERED
    args, kwargs = fx.map_arg((node.args[ordered:], node.kwargs), value)
    if isinstance(node.target, OpOverload):
        if drawn and node.name in drawn and node.target is aten.native_dropout.default:
            return _dropped(drawn[node.name], evaluate, *args)
        if node.target in ANY_ORDER:
            return _sorted(node.target, args, kwargs, evaluate)
        if node.target in UNSET:
            return evaluate(node.target, args, kwargs).zero_()  # an index that is read from it is one at least
        if schema_of(node.target).is_mutable:
            args, kwargs = pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, (args, kwargs))
        return evaluate(AS_LAID_OUT.get(node.target, node.target), args, kwargs)
    if ordered and isinstance(args[0], fx.GraphModule):
        masks = dict.fromkeys((inner.name for inner in args[0].graph.nodes), drawn[node.name]) if (
            drawn and node.name in drawn) else {}  # fmt: skip
        return _graph(args[0], args[1:], evaluate, masks)
    if getattr(node.target, "__module__", "") in PLAIN:
        return node.target(*args, **kwargs)  # type: ignore[operator]
    raise Unknown(f"{node.target} is not replayed")


def _dropped(mask: torch.Tensor, evaluate: Evaluate, *args: Any) -> tuple[Any, torch.Tensor]:
    """What dropout of a share of the elements gives, with the mask of those that stay."""
    x, share = args[:2]
    factor: Any = 1 / (1 - share) if share < 1 else 0.0
    if evaluate is as_it_is and x.device.type == "cpu":  # where torch rounds the factor to the format
        factor = torch.tensor(factor, dtype=x.dtype)
    kept = evaluate(aten.mul.Tensor, (x, mask), {})
    return evaluate(aten.mul.Tensor, (kept, factor), {}), mask


def _sorted(target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], evaluate: Evaluate) -> Any:
    """What a sort gives. Its places are marked where another order of equal values is right too."""
    names = [argument.name for argument in schema_of(target).arguments]
    options = dict(zip(names[1:], args[1:], strict=False)) | dict(kwargs)
    values, places = evaluate(target, args, kwargs)
    equal = values.dim() > 0 and bool((values.diff(dim=options.get("dim", -1)) == 0).any())
    setattr(places, _LEFT_OPEN, equal and not options.get("stable"))
    return values, places


def is_dropout(node: fx.Node, owner: torch.nn.Module) -> bool:
    """Whether a node is a dropout, by itself or run after others."""
    if getattr(node.target, "__name__", "") != ORDERED:
        return node.target is aten.native_dropout.default
    inner = operator.attrgetter(str(node.args[1].target))(owner)  # type: ignore[union-attr]
    return any(item.target is aten.native_dropout.default for item in inner.graph.nodes)


def _graph(gm: fx.GraphModule, args: Sequence[Any], evaluate: Evaluate, drawn: Drawn) -> Any:
    given = iter(args)
    values: dict[fx.Node, Any] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            return fx.map_arg(node.args[0], values.__getitem__)
        values[node] = next(given) if node.op == "placeholder" else value_of(node, values, gm, evaluate, drawn)
    raise AssertionError("a graph has an output")


@contextmanager
def _drawing_nothing(target: Any, args: Sequence[Any]) -> Iterator[None]:
    """Around a call that may draw random numbers: Unknown where it did. The generators are left as found."""
    if torch.Tag.nondeterministic_seeded not in target.tags:
        yield
        return
    tensors = (item for item in pytree.tree_leaves(args) if isinstance(item, torch.Tensor))
    device = next((tensor.device for tensor in tensors), torch.device("cpu"))
    with preserved_random_state(device):
        before = generator_state(device)
        yield
        drew = generator_state(device) != before
    if drew:
        raise Unknown(f"{target} draws random numbers")
