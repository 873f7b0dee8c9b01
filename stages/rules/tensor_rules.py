"""The rules about one tensor at a time: dtype and memory."""

from collections.abc import Iterator, Mapping, Sequence

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.records import INTEGERS, ITEM_BYTES, GraphRecord
from inductor_debug.stages.graphs.symbolic_sizes import case_value
from inductor_debug.stages.rules.checked_tensors import BOUND, CheckedTensor, byte_bounds, chosen
from inductor_debug.stages.rules.contractions import contractions
from inductor_debug.stages.rules.violation import Violation

INSTEAD = {
    "float64": ("float32", "bfloat16", "float16"),
    "float32": ("bfloat16", "float16", "float64"),
    "float16": ("float32", "bfloat16"),
    "bfloat16": ("float32", "float16"),
    "complex128": ("complex64", "complex32"),
}
"""dtype → what to try instead, best first, before the others of its kind."""


def instead_of(found: str, allowed: Sequence[str]) -> str | None:
    """What to use for a dtype: an allowed one of its kind (integer, float, complex; for bool an integer), or None."""
    if found == "bool":
        choices: Sequence[str] = ("uint8", "int8", *INTEGERS)
    elif found.startswith(("int", "uint")):
        choices = INTEGERS
    else:
        kind = "complex" if found.startswith("complex") else ("float", "bfloat")
        choices = (*INSTEAD.get(found, ()), *(other for other in allowed if other.startswith(kind)))
    return next((other for other in choices if other in allowed), None)


def dtype(graph: GraphRecord, rule: Rule, *, forward_checked: bool = False) -> Iterator[Violation]:
    """One row for each tensor whose dtype is not in the list ``rule.value``, or is a key of that mapping.

    The cost is the tensor's bytes. With the role ``compute`` the operands of matrix products, convolutions and
    attention are looked at, at each node that reads them. An operation whose operands can't be told is undecided.
    """
    becomes = {_bare(key): _bare(value) for key, value in rule.value.items()} if isinstance(rule.value, Mapping) else {}
    allowed = [] if becomes else [_bare(item) for item in rule.value]
    roles = set(rule.roles or ())
    others = chosen(graph, rule, forward_checked=forward_checked) if roles != {"compute"} else iter(())
    if "storage" in roles:
        others = (checked for checked in others if checked.role != "index" or "index" in roles)
    for checked in others:
        yield from _dtype(checked, rule, becomes, allowed)
    for found in contractions(graph, rule) if "compute" in roles else ():
        yield from [found] if isinstance(found, Violation) else _dtype(found[0], rule, becomes, allowed)


def _dtype(
    checked: CheckedTensor, rule: Rule, becomes: Mapping[str, str], allowed: Sequence[str]
) -> Iterator[Violation]:
    found = checked.tensor.dtype
    if found not in becomes if becomes else found in allowed:
        return
    if becomes:
        message, suggestion = f"is {becomes[found]} on this accelerator", f"use {becomes[found]} yourself"
    else:
        message = "is not supported"
        other = instead_of(found, allowed)
        suggestion = "there is no supported dtype of this kind" if other is None else f"use {other}"
    yield checked.violation(
        rule,
        measured=found,
        limit=becomes[found] if becomes else " ".join(allowed),
        cost=checked.nbytes,
        message=f"{checked.where} {message}",
        suggestion=suggestion,
    )


def _bare(name: object) -> str:
    return str(name).removeprefix("torch.")


def memory_tensor(graph: GraphRecord, rule: Rule, *, forward_checked: bool = False) -> Iterator[Violation]:
    """One row for each tensor of more than ``rule.value`` bytes. Views allocate nothing and are left out.

    ``unit`` bytes measures the dense tensor; span_bytes what its strides reach, from the first byte to the last. A
    symbolic size is decided by its range, else taken as this case had it; one that fits here, but need not, is
    undecided.
    """
    limit = int(rule.value)
    for checked in chosen(graph, rule, forward_checked=forward_checked):
        if checked.node.aliases and not rule.operations:
            continue
        least, most, nbytes = _extent(checked, span=rule.unit == "span_bytes")
        if most is not None and most <= limit:
            continue
        if nbytes is None and least is not None and least > limit:  # of a size without a value, but with a range
            nbytes = least
        if nbytes is not None and nbytes > limit:
            kind = "spans" if rule.unit == "span_bytes" else "takes"
            yield checked.violation(
                rule,
                measured=nbytes,
                limit=limit,
                cost=nbytes,
                message=f"{checked.where} {kind} {nbytes:,} bytes, more than {limit:,}",
                suggestion="split the tensor, lower the batch or use a narrower dtype",
            )
        else:
            here = (
                "its size in bytes is not known" if nbytes is None else f"it takes {nbytes:,} bytes here, and may take"
            )
            here += "" if nbytes is None else f" {'any number' if most is None else f'{most:,}'}"
            yield checked.violation(
                rule,
                measured=checked.tensor.shape,
                limit=limit,
                undecided=True,
                message=f"{checked.where}: {here}",
                suggestion=BOUND,
            )


def _extent(checked: CheckedTensor, *, span: bool) -> tuple[int | None, int | None, int | None]:
    """Bytes at least, at most, and in this case."""
    item = ITEM_BYTES.get(checked.tensor.dtype)
    if item is None:
        return None, None, None
    if not span:
        return *byte_bounds(checked.tensor, checked.graph.symbols), checked.nbytes
    symbols, sizes = checked.graph.symbols, checked.sizes
    strides = [case_value(stride, None, symbols) for stride in checked.tensor.stride]
    if None in sizes or None in strides or len(strides) != len(sizes):
        return None, None, None
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True) if size and stride)
    nbytes = 0 if 0 in sizes else (last + 1) * item
    fixed = all(isinstance(size, int) for size in checked.tensor.shape)
    return None, nbytes if fixed else None, nbytes
