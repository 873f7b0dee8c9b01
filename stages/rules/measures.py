"""What a reproduction measures on the tensor that a rule judged.

A measure is an expression over a tensor, and a condition on what it gives. Each is tried on the recorded tensor first:
a script is written only where it measures what the rule measured.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inductor_debug.stages.graphs.records import ITEM_BYTES, TensorRecord
from inductor_debug.stages.graphs.symbolic_sizes import case_value, shape_in_case
from inductor_debug.stages.repro import Check, NotReproducible
from inductor_debug.stages.rules.violation import Violation

Measure = tuple[str, str]
"""Expression over ``{}``, the tensor; condition on ``found``, its value, and the tensor."""

WIDTHS = ("", " * {}.element_size()")
"""In elements, in bytes."""


@dataclass(frozen=True)
class _Recorded:
    """What a script may ask a tensor, answered from its record, at the sizes of this case."""

    shape: Sequence[int]
    strides: Sequence[int]
    offset: int
    dtype: str
    width: int | None

    def dim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        return math.prod(self.shape)

    def stride(self) -> Sequence[int]:
        return self.strides

    def storage_offset(self) -> int:
        return self.offset

    def element_size(self) -> int:
        if self.width is None:
            raise NotReproducible(f"the width of {self.dtype} is not known")
        return self.width


def measure_of(row: Violation, tensor: TensorRecord, source: str, symbols: Mapping[str, Any]) -> Check:
    """The check of a script that shows ``row`` on a tensor.

    Args:
        row: what was found.
        tensor: the one that it is about.
        source: Python source of that tensor in the script.
        symbols: the graph's, for the sizes in this case.

    Raises:
        NotReproducible: the rule measures what is on no tensor, or the tensor does not have what the row says.
    """
    if row.rule not in MEASURES:
        raise NotReproducible(
            f"what the rule {row.rule} measures is no property of a tensor that a script could measure"
        )
    recorded = _recorded(tensor, symbols)
    expected = re.sub(r"^.* = (?=-?\d+$)", "", row.measured)  # of a symbolic size its value in this case
    for expression, condition in MEASURES[row.rule](row, len(recorded.shape)):
        found = _value(expression, recorded)
        if str(found) == expected and _value(condition, recorded, found):
            return Check(
                row.rule, expression.replace("{}", source), condition.replace("{}", source), expected, row.limit
            )
    raise NotReproducible(f"the rule {row.rule} measured {row.measured}, which the recorded tensor does not show")


def _recorded(tensor: TensorRecord, symbols: Mapping[str, Any]) -> _Recorded:
    shape = shape_in_case(tensor, symbols)
    strides = [case_value(stride, None, symbols) for stride in tensor.stride]
    offset = case_value(tensor.storage_offset, None, symbols)
    width = ITEM_BYTES.get(tensor.dtype)
    if offset is None or None in shape or None in strides:
        raise NotReproducible("a size or a stride has no known value in this case")
    sizes = [size for size in shape if size is not None]
    return _Recorded(
        sizes, [stride for stride in strides if stride is not None], offset, f"torch.{tensor.dtype}", width
    )


def _value(source: str, tensor: _Recorded, found: Any = None) -> Any:
    return eval(source.replace("{}", "tensor"), {"tensor": tensor, "found": found})  # of the measures below alone


def _alignment(row: Violation, rank: int) -> Iterator[Measure]:
    part = re.search(r":(\d+)/(\d+)$", row.piece)  # one group's part of a dimension
    sizes = (
        [f"{{}}.shape[{part[1]}] // {part[2]}"]
        if part is not None
        else [f"{{}}.shape[{dimension}]" for dimension in reversed(range(rank))]
    )
    for width in WIDTHS:
        for size in sizes:
            yield size + width, f"found % {_number(row)} != 0"


def _dtype(row: Violation, rank: int) -> Iterator[Measure]:
    yield 'str({}.dtype).removeprefix("torch.")', f"found not in {row.limit.split()!r}"


def _memory(row: Violation, rank: int) -> Iterator[Measure]:
    reach = "".join(f" + ({{}}.shape[{dimension}] - 1) * {{}}.stride()[{dimension}]" for dimension in range(rank))
    for nbytes in ("{}.numel() * {}.element_size()", f"(1{reach}) * {{}}.element_size()"):
        yield nbytes, f"found > {_number(row)}"


def _rank(row: Violation, rank: int) -> Iterator[Measure]:
    yield "{}.dim()", f"found > {_number(row)}"


def _size(row: Violation, rank: int) -> Iterator[Measure]:
    """Limits read ``at most 8``, ``4 or more`` and ``4 to 8``."""
    first, *second = re.findall(r"\d+", row.limit)
    allowed = f"{first} <= found <= {second[0]}" if second else f"found <= {first}"
    for dimension in range(rank):
        yield f"{{}}.shape[{dimension}]", f"found < {first}" if row.limit.endswith("more") else f"not {allowed}"


def _tile(row: Violation, rank: int) -> Iterator[Measure]:
    tiles = [int(size) for size in row.limit.split("x")]
    sizes = f"({[1] * len(tiles)} + list({{}}.shape))[-{len(tiles)}:]"
    yield f'"x".join(map(str, {sizes}))', f"any(size % tile for size, tile in zip({sizes}, {tiles}))"


def _layout(row: Violation, rank: int) -> Iterator[Measure]:
    """Limits read ``contiguous [12, 4, 1]``, ``stride 16`` and ``offset 16``."""
    dense = re.search(r"\[[\d, ]*\]$", row.limit)
    if dense is not None:
        differ = f"any(size != 1 and got != want for size, got, want in zip({{}}.shape, found, {dense[0]}))"
        yield "list({}.stride())", differ
        return
    limit = _number(row)
    for width in WIDTHS:
        if row.limit.startswith("offset"):
            start = "{}.storage_offset()" + width
            yield f'"offset " + str({start})', f"{start} % {limit}" if limit else start
        else:
            wrong = f"for size, step in zip({{}}.shape, {{}}.stride()) if size != 1 != step and step{width} % {limit}"
            yield f"[step{width} {wrong}]", "found"


def _number(row: Violation) -> int:
    return int(re.findall(r"\d+", row.limit)[-1])


MEASURES: dict[str, Callable[[Violation, int], Iterator[Measure]]] = {
    "alignment": _alignment,
    "dtype": _dtype,
    "layout": _layout,
    "memory_tensor": _memory,
    "rank": _rank,
    "size": _size,
    "tile": _tile,
}
"""Rule → what may have been measured, given a row and the tensor's rank. Of other rules there is no script."""
