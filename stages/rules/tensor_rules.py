"""The rules about one tensor at a time: dtype and memory."""

from collections.abc import Iterator, Mapping, Sequence

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.graphs.records import INTEGERS, GraphRecord
from inductor_debug.stages.rules.checked_tensors import BOUND, CheckedTensor, chosen
from inductor_debug.stages.rules.contractions import contractions
from inductor_debug.stages.rules.judged import Judgement, Subject
from inductor_debug.stages.rules.unread import Unread

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


def typed(graph: GraphRecord, rule: Rule, *, forward_checked: bool) -> Iterator[CheckedTensor | Unread]:
    """What the dtype rule looks at: with the role ``compute`` the operands of matrix products, convolutions and
    attention, at each node that reads them. An operation whose operands can't be told is undecided.
    """
    roles = set(rule.roles or ())
    others = chosen(graph, rule, forward_checked=forward_checked) if roles != {"compute"} else iter(())
    if "storage" in roles:
        others = (checked for checked in others if checked.role != "index" or "index" in roles)
    yield from others
    if "compute" in roles:
        yield from contractions(graph, rule)


def dtype(subject: Subject, rule: Rule) -> Iterator[Judgement]:
    """One judgement of a tensor whose dtype is not in the list ``rule.value``, or is a key of that mapping.

    The cost is the tensor's bytes.
    """
    found = subject.tensor.dtype
    becomes = {_bare(key): _bare(value) for key, value in rule.value.items()} if isinstance(rule.value, Mapping) else {}
    allowed = [] if becomes else [_bare(item) for item in rule.value]
    if found not in becomes if becomes else found in allowed:
        return
    if becomes:
        message, suggestion = f"is {becomes[found]} on this accelerator", f"use {becomes[found]} yourself"
    else:
        message = "is not supported"
        other = instead_of(found, allowed)
        suggestion = "there is no supported dtype of this kind" if other is None else f"use {other}"
    yield Judgement(
        measured=found,
        limit=becomes[found] if becomes else " ".join(allowed),
        cost=subject.nbytes,
        message=f"{subject.where} {message}",
        suggestion=suggestion,
    )


def _bare(name: object) -> str:
    return str(name).removeprefix("torch.")


def memory_tensor(subject: Subject, rule: Rule) -> Iterator[Judgement]:
    """One judgement of a tensor of more than ``rule.value`` bytes. Views allocate nothing and are left out.

    ``unit`` bytes measures the dense tensor; span_bytes what its strides reach, from the first byte to the last. A
    symbolic size is decided by its range, else taken as this case had it; one that fits here, but need not, is
    undecided.
    """
    limit = int(rule.value)
    if subject.aliases and not rule.operations:
        return
    least, most, nbytes = subject.span if rule.unit == "span_bytes" else subject.extent
    if most is not None and most <= limit:
        return
    if nbytes is None and least is not None and least > limit:  # of a size without a value, but with a range
        nbytes = least
    if nbytes is not None and nbytes > limit:
        kind = "spans" if rule.unit == "span_bytes" else "takes"
        yield Judgement(
            measured=nbytes,
            limit=limit,
            cost=nbytes,
            message=f"{subject.where} {kind} {nbytes:,} bytes, more than {limit:,}",
            suggestion="split the tensor, lower the batch or use a narrower dtype",
        )
    else:
        here = "its size in bytes is not known" if nbytes is None else f"it takes {nbytes:,} bytes here, and may take"
        here += "" if nbytes is None else f" {'any number' if most is None else f'{most:,}'}"
        yield Judgement(
            measured=subject.tensor.shape,
            limit=limit,
            undecided=True,
            message=f"{subject.where}: {here}",
            suggestion=BOUND,
        )
