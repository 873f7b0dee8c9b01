"""What a rule judges a tensor by, and what it then says. Neither tells the place: like tensors are judged once."""

import functools
import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.known import known_product
from inductor_debug.stages.graphs.records import ITEM_BYTES, TensorRecord
from inductor_debug.stages.graphs.symbolic_sizes import Symbols, bounds, case_value, shape_in_case
from inductor_debug.stages.rules.violation import Violation

Bytes = tuple[int | None, int | None, int | None]
"""At least and at most over the symbols' ranges, and in this case; None: open, or not known."""


class Judgement(NamedTuple):
    """What a rule says of a subject.

    Attributes:
        measured, limit: what was found and what is allowed.
        message: one sentence, which a row begins with its node's name. suggestion: what to try.
        undecided: whether the sizes leave it open, instead of breaking the rule.
        cost, share: a row's ``cost_bytes`` and ``cost_share``; None where they are not known.
        part: tells costs of one tensor apart that add up (padding one dimension, and another).
        node: where the row belongs, if not where the subject is.
    """

    measured: object
    limit: object
    message: str
    suggestion: str
    undecided: bool = False
    cost: int | None = None
    share: float | None = None
    part: str = ""
    node: str = ""


@dataclass(frozen=True, eq=False)
class Subject:
    """All that a rule may judge a tensor by. Equal subjects of one graph get equal judgements.

    Attributes:
        tensor: its metadata.
        symbols: the graph's.
        operand: ``output``, ``output[i]``, a placeholder's role, or ``args[i]``.
        aliases: whether the node it is seen at makes a view.
        contracted: the dimension that is contracted where it is read; None: none, or several together.
        groups: equal parts of that dimension which are contracted each by itself.
    """

    tensor: TensorRecord
    symbols: Symbols
    operand: str
    aliases: bool
    contracted: int | None
    groups: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subject) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @functools.cached_property
    def _key(self) -> Hashable:
        tensor = self.tensor
        return (
            self.operand, self.aliases, self.contracted, self.groups, tensor.dtype, tensor.layout, tensor.device,
            tuple(tensor.shape), tuple(tensor.stride), tensor.storage_offset, tensor.storage_bytes,
            tensor.storage_hint, None if tensor.hints is None else tuple(tensor.hints),
        )  # fmt: skip

    @functools.cached_property
    def sizes(self) -> list[int | None]:
        """The shape in this case; None for a size that is not known."""
        return shape_in_case(self.tensor, self.symbols)

    @functools.cached_property
    def bounds(self) -> list[tuple[int | None, int | None]]:
        """Least and largest size of each dimension over the symbols' ranges."""
        return [bounds(size, self.symbols) for size in self.tensor.shape]

    @property
    def where(self) -> str:
        """Operand, shape and dtype in words."""
        return f"{self.operand} {self.tensor.shape} {self.tensor.dtype}"

    @functools.cached_property
    def nbytes(self) -> int | None:
        """Dense bytes in this case, or None where a size or the dtype's width is unknown."""
        return known_product([ITEM_BYTES.get(self.tensor.dtype), *self.sizes])

    @functools.cached_property
    def extent(self) -> Bytes:
        """Its dense bytes."""
        return *byte_bounds(self.tensor, self.symbols), self.nbytes

    @functools.cached_property
    def span(self) -> Bytes:
        """Bytes that its strides reach, from the first to the last."""
        item = ITEM_BYTES.get(self.tensor.dtype)
        strides = [case_value(stride, None, self.symbols) for stride in self.tensor.stride]
        if item is None or None in self.sizes or None in strides or len(strides) != len(self.sizes):
            return None, None, None
        last = sum((size - 1) * stride for size, stride in zip(self.sizes, strides, strict=True) if size and stride)
        nbytes = 0 if 0 in self.sizes else (last + 1) * item
        fixed = all(isinstance(size, int) for size in self.tensor.shape)
        return None, nbytes if fixed else None, nbytes


def byte_bounds(tensor: TensorRecord, symbols: Symbols) -> tuple[int | None, int | None]:
    """Dense bytes of a tensor at least and at most over the symbols' ranges; None where that is open or unknown."""
    item, ends = ITEM_BYTES.get(tensor.dtype), [bounds(size, symbols) for size in tensor.shape]
    if item is None:
        return None, None
    return item * math.prod(max(low or 0, 0) for low, _ in ends), known_product([item, *(high for _, high in ends)])


def storage_bounds(tensor: TensorRecord, symbols: Symbols) -> tuple[int | None, int | None]:
    """Bytes of the storage that a tensor is in, at least and at most, as :func:`byte_bounds` tells its dense ones."""
    if tensor.storage_bytes is None:
        return byte_bounds(tensor, symbols)
    least, most = bounds(tensor.storage_bytes, symbols)
    return max(least or 0, 0), most


class Seen(Protocol):
    """What a rule looks at, in its place."""

    @property
    def subject(self) -> Hashable:
        """What the rule judges it by."""

    def row(self, rule: Rule, judgement: Judgement) -> Violation:
        """A judgement of the subject as a row about this place."""
