"""The rules there are: usual effect, values and the fields that mean something to each."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inductor_debug.models.errors import ConfigurationError, example_of, invalid_choice, wrong_value
from inductor_debug.models.options import INT64, Range
from inductor_debug.models.units import VALID_BYTES, parse_bytes
from inductor_debug.stages.graphs.records import ITEM_BYTES

EFFECTS = ("reject", "pad", "cast", "copy", "fallback")
DIMS = ("last", "last2", "first", "contraction", "all")
TENSOR_ROLES = ("activation", "parameter", "index")
DTYPE_ROLES = (*TENSOR_ROLES, "storage", "compute")
PRODUCT_ROLES = ("compute", "result")
"""What is multiplied, and what that gives: neither a bias, which is added, nor what else an operation is given."""
LAYOUTS = ("contiguous", "channels_last")
DYNAMIC = ("static", "bounded")
DTYPES = (*ITEM_BYTES, "float8_e8m0fnu", "float4_e2m1fn_x2")
PATTERN = re.compile(r"!?[\w.:*?\[\]!-]+")

Read = Callable[[Any, str, str], Any]
"""(value, key, example) → the value as a rule reads it; ConfigurationError where it is none of the rule's."""


@dataclass(frozen=True)
class Kind:
    """One rule's name in a profile.

    Attributes:
        effects: that it may have, the usual one first.
        read: its value, as the user wrote it.
        example: of a value.
        scalar: field of ``AccelConfig`` that edits it, None where a scalar can't say it.
        dims: the values that ``dims`` may have, the first one by default; empty where it means nothing.
        roles: the same of ``roles``; None in a rule is then all of ``default_roles``.
        units: the same of ``unit``.
        operations: True where ``operations`` restricts the rule to some nodes.
    """

    effects: tuple[str, ...]
    read: Read
    example: str
    scalar: str | None = None
    dims: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    default_roles: tuple[str, ...] | None = None
    units: tuple[str, ...] = ()
    operations: bool = True


COUNT = Range(1, INT64, whole=True)
"""A size, a rank or a number of bytes."""


def _count(value: Any, key: str, example: str) -> int:
    replace(COUNT, example=example).check(value, key)
    return int(value)


def _bytes(value: Any, key: str, example: str) -> int:
    found = parse_bytes(value)
    if found is None:
        raise wrong_value(key, value, VALID_BYTES, example)
    return found


def _counts(value: Mapping[str, Any], names: tuple[str, ...], key: str, example: str) -> None:
    """A mapping of one or several of ``names`` to whole numbers above 0."""
    if not value or not set(value) <= set(names):
        raise wrong_value(key, dict(value), f"a mapping of {' or '.join(names)}, or both, to numbers above 0", example)
    for name, number in value.items():
        _count(number, f"{key}.{name}", "16")


def _size(value: Any, key: str, example: str) -> Any:
    if not isinstance(value, Mapping):
        return _count(value, key, example)
    _counts(value, ("min", "max"), key, "{min: 1, max: 65535}")
    if value.get("min", 0) > value.get("max", math.inf):
        raise wrong_value(key, dict(value), "min at most max", "{min: 1, max: 65535}")
    return value


def _tile(value: Any, key: str, example: str) -> Any:
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= 4 or not all(map(COUNT.holds, value)):
        raise wrong_value(key, value, "one to four whole numbers above 0, of the last dimensions", example)
    return value


def _dtypes(value: Any, key: str, example: str) -> Any:
    if isinstance(value, str) or not isinstance(value, (list, tuple, Mapping)):
        raise wrong_value(key, value, "a list of dtypes that are allowed, or {dtype: what it becomes}", example)
    if not value:
        none = "leave the rule out" if "[" in key else f"{key}=null"
        raise ConfigurationError(
            f"got {value!r}, which would allow no dtype at all",
            key=key,
            valid="at least one",
            hint=f"{example_of(key, example)}, or for no rule {none}",
        )
    for dtype, example in dtypes_in(value):
        if str(dtype).removeprefix("torch.") not in DTYPES:
            raise invalid_choice(key, dtype, DTYPES, example=example_of(key, example))
    return value


def dtypes_in(value: Sequence[Any] | Mapping[Any, Any]) -> Iterator[tuple[Any, str]]:
    """Every dtype of a dtype rule's value, and the value to type where it is wrong, ``{}`` being the closest."""
    if isinstance(value, Mapping):
        for key, becomes in value.items():
            yield key, f"{{{{}}: {becomes}}}"
            yield becomes, f"{{{key}: {{}}}}"
    else:
        yield from ((dtype, "[{}]") for dtype in value)


def _layout(value: Any, key: str, example: str) -> Any:
    if isinstance(value, Mapping):
        _counts(value, ("stride", "offset"), key, "{stride: 16, offset: 128}")
    elif value not in LAYOUTS:
        raise invalid_choice(key, value, (*LAYOUTS, "{stride: 16, offset: 128}"))
    return value


def check_patterns(value: Any, key: str, example: str) -> None:
    """A list of operations: names or patterns (see :func:`stages.graphs.operation_names.matches`)."""
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise wrong_value(key, value, "a list of operations", example)
    for pattern in value:
        if not isinstance(pattern, str) or not PATTERN.fullmatch(pattern):
            raise wrong_value(key, pattern, "an operation's name or pattern", example)


def _operations(value: Any, key: str, example: str) -> Any:
    if isinstance(value, Mapping):
        if list(value) != ["allow"]:
            raise wrong_value(key, dict(value), "a list that is denied, or {allow: a list}", "{allow: [aten.add]}")
        check_patterns(value["allow"], f"{key}.allow", "[aten.add]")
    else:
        check_patterns(value, key, example)
    return value


def _dynamic(value: Any, key: str, example: str) -> Any:
    if value not in DYNAMIC:
        raise invalid_choice(key, value, DYNAMIC)
    return value


def _custom(value: Any, key: str, example: str) -> Any:
    if not isinstance(value, Mapping) or not isinstance(value.get("_target_"), str):
        raise wrong_value(key, value, "{_target_: package.module.function, and its arguments}", example)
    return value


KINDS: dict[str, Kind] = {
    "alignment": Kind(("pad", "reject", "copy", "fallback"), _count, "16", "alignment",
                      dims=("last", "last2", "first", "contraction", "all"),
                      roles=(*TENSOR_ROLES, *PRODUCT_ROLES), default_roles=("activation", "parameter"),
                      units=("elements", "bytes")),
    "rank": Kind(("reject", "copy", "fallback"), _count, "4", "max_rank", roles=TENSOR_ROLES,
                 default_roles=TENSOR_ROLES),
    "size": Kind(("reject", "pad", "copy", "fallback"), _size, "65535", "max_size",
                 dims=("all", "last", "last2", "first"), roles=TENSOR_ROLES, default_roles=TENSOR_ROLES),
    "tile": Kind(("pad", "reject", "copy", "fallback"), _tile, "[32,32]", "tile", dims=("all", "free"),
                 roles=(*TENSOR_ROLES, *PRODUCT_ROLES), default_roles=("activation", "parameter")),
    "dtype": Kind(("reject", "cast", "fallback"), _dtypes, "[float32,int64]", "dtypes", roles=DTYPE_ROLES),
    "layout": Kind(("copy", "reject", "fallback"), _layout, "contiguous", "layout", roles=TENSOR_ROLES,
                   default_roles=TENSOR_ROLES, units=("elements", "bytes")),
    "memory_tensor": Kind(("reject", "copy", "fallback"), _bytes, "16GiB", "max_tensor_bytes",
                          roles=TENSOR_ROLES, default_roles=TENSOR_ROLES, units=("bytes", "span_bytes")),
    "memory_peak": Kind(("reject", "copy", "fallback"), _bytes, "16GiB", "max_peak_bytes", operations=False),
    "operation": Kind(("reject", "fallback"), _operations, "[aten.convolution]", "denied", operations=False),
    "dynamic_shape": Kind(("reject", "pad", "fallback"), _dynamic, "static", "dynamic_shapes", operations=False),
    "custom": Kind(("reject", *(effect for effect in EFFECTS if effect != "reject")), _custom,
                   "{_target_: my.rules.check}"),
}  # fmt: skip
"""By name. ``violations.csv`` uses the same names."""

SCALARS = {kind.scalar: name for name, kind in KINDS.items() if kind.scalar} | {"allowed": "operation"}
"""Scalar field of a profile → the rule that it edits."""

IN_BYTES = frozenset(kind.scalar for kind in KINDS.values() if kind.read is _bytes)
"""Those scalars that are sizes in bytes and may be written with a unit."""
