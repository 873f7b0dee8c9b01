"""What a rule asks for, in a sentence for someone who does not know the profile's fields."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.formatting import counted, human_bytes

_DIMS = {
    "last": "the last dimension",
    "last2": "each of the last two dimensions",
    "first": "the first dimension",
    "all": "every dimension",
    "contraction": "the dimension that a product sums over",
}
_ROLES = {
    "activation": "activations",
    "parameter": "parameters",
    "index": "index tensors",
    "storage": "tensors in memory",
    "compute": "operands of matrix products and convolutions",
    "result": "results of matrix products and convolutions",
}
_EVERY = ("activation", "parameter", "index")
_FEW = 12


def in_a_sentence(rule: Rule) -> str:
    """What a rule of a profile asks for: ``The last dimension of activations must be a multiple of 16 elements.``"""
    asked = _SENTENCES[rule.rule](rule)
    return f"{asked[0].upper()}{asked[1:]}.{_where(rule.operations or ())}"


def _where(operations: Sequence[str]) -> str:
    """Of which operations a rule asks that; empty for all."""
    but = [name[1:] for name in operations if name.startswith("!")]
    alone = [name for name in operations if not name.startswith("!")]
    told = f" It is asked of {_listed(alone)} alone." if alone else ""
    return told + (f" It is not asked of {_listed(but)}." if but else "")


def _of(rule: Rule) -> str:
    roles = tuple(rule.roles or _EVERY)
    return "tensors" if set(roles) == set(_EVERY) else " and ".join(_ROLES[role] for role in roles)


def _alignment(rule: Rule) -> str:
    """A size of 1 needs no padding, unless every dimension counts."""
    counts = "" if rule.dims == "all" else ", or 1"
    return f"{_dims(rule)} must be a multiple of {rule.value} {rule.unit}{counts}"


def _dims(rule: Rule) -> str:
    return f"{_DIMS[rule.dims or 'last']} of {_of(rule)}"


def _size(rule: Rule) -> str:
    limits = rule.value if isinstance(rule.value, Mapping) else {"max": rule.value}
    ends = {"min": "at least {:,}", "max": "at most {:,}"}
    told = " and ".join(text.format(limits[end]) for end, text in ends.items() if end in limits)
    return f"{_dims(rule)} must be {told}"


def _tile(rule: Rule) -> str:
    shape = "x".join(map(str, rule.value))
    aside = ", the one that a product sums over aside" if rule.dims == "free" else ""
    return f"tiles of {shape} must cover the last dimensions of {_of(rule)} exactly{aside}"


def _dtype(rule: Rule) -> str:
    if isinstance(rule.value, Mapping):
        return f"{_of(rule)} change their dtype: {', '.join(f'{old} to {new}' for old, new in rule.value.items())}"
    return f"{_of(rule)} must have one of the dtypes {_listed(rule.value)}"


def _layout(rule: Rule) -> str:
    if not isinstance(rule.value, Mapping):
        return f"{_of(rule)} must be {str(rule.value).replace('_', ' ')} in memory"
    each = (f"the {key} of {_of(rule)} must be a multiple of {value} {rule.unit}" for key, value in rule.value.items())
    return " and ".join(each)


def _memory_tensor(rule: Rule) -> str:
    verb = "span" if rule.unit == "span_bytes" else "take"
    return f"none of the {_of(rule)} may {verb} more than {_bytes(rule)}"


def _bytes(rule: Rule) -> str:
    return f"{rule.value:,} bytes ({human_bytes(rule.value)})"


def _operation(rule: Rule) -> str:
    if isinstance(rule.value, Mapping):
        return f"no other operations are allowed than {_listed(rule.value['allow'])}"
    return f"these operations are not allowed: {_listed(rule.value)}"


def _dynamic_shape(rule: Rule) -> str:
    return "no size may be symbolic" if rule.value == "static" else "a symbolic size must have a largest value"


def _custom(rule: Rule) -> str:
    given = ", ".join(f"{key}={value}" for key, value in rule.value.items() if key != "_target_")
    return f"the function {rule.value['_target_']}{f' ({given})' if given else ''} must find nothing"


def _listed(names: Any) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:_FEW]) + (f" and {len(names) - _FEW} more" if len(names) > _FEW else "")


_SENTENCES: Mapping[str, Callable[[Rule], str]] = {
    "alignment": _alignment,
    "rank": lambda rule: f"{_of(rule)} must have at most {counted(rule.value, 'dimension')}",
    "size": _size,
    "tile": _tile,
    "dtype": _dtype,
    "layout": _layout,
    "memory_tensor": _memory_tensor,
    "memory_peak": lambda rule: f"the tensors that live at the same time must take at most {_bytes(rule)}",
    "operation": _operation,
    "dynamic_shape": _dynamic_shape,
    "custom": _custom,
}
