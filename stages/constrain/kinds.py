"""The rules there are: usual effect, values and the fields that mean something to each. Free of torch."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from models.errors import ConfigurationError, invalid_choice
from stages.graphs import ITEM_BYTES

EFFECTS = ("reject", "pad", "cast", "copy", "fallback")
DIMS = ("last", "last2", "first", "contraction", "all")
TENSOR_ROLES = ("activation", "parameter", "index")
DTYPE_ROLES = (*TENSOR_ROLES, "storage", "compute")
LAYOUTS = ("contiguous", "channels_last")
DYNAMIC = ("static", "bounded")
DTYPES = (*ITEM_BYTES, "float8_e8m0fnu", "float4_e2m1fn_x2")
PATTERN = re.compile(r"!?[\w.:*?\[\]!-]+")

Check = Callable[[Any, str, str], None]
"""(value, key, example) → ConfigurationError where the value is none of the rule's."""


@dataclass(frozen=True)
class Kind:
    """One rule's name in a profile.

    Attributes:
        effect: where the profile names none.
        check: of its value.
        example: what a user types.
        scalar: field of ``AccelConfig`` that edits it, None where a scalar can't say it.
        dims: the values that ``dims`` may have, the first one by default; empty where it means nothing.
        roles: the same of ``roles``; None in a rule is then all of ``default_roles``.
        units: the same of ``unit``.
        operations: True where ``operations`` restricts the rule to some nodes.
    """

    effect: str
    check: Check
    example: str
    scalar: str | None = None
    dims: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    default_roles: tuple[str, ...] | None = None
    units: tuple[str, ...] = ()
    operations: bool = True


def _fail(key: str, value: Any, valid: str, example: str) -> ConfigurationError:
    return ConfigurationError(f"{key}: got {value!r}; valid: {valid}. Try: {example}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _count(value: Any, key: str, example: str) -> None:
    if not _is_count(value):
        raise _fail(key, value, "a whole number above 0", example)


def _counts(names: tuple[str, ...]) -> Check:
    """A mapping of some of ``names`` to whole numbers above 0, or one such number."""

    def check(value: Any, key: str, example: str) -> None:
        if isinstance(value, Mapping):
            for name, number in value.items():
                if name not in names:
                    raise invalid_choice(f"{key}.{name}", name, names)
                _count(number, f"{key}.{name}", example)
            if value and list(value) == [name for name in value if value[name] <= value.get("max", value[name])]:
                return
        elif _is_count(value):
            return
        raise _fail(key, value, f"a whole number above 0, or {{{', '.join(names)}}}", example)

    return check


def _tile(value: Any, key: str, example: str) -> None:
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= 4 or not all(map(_is_count, value)):
        raise _fail(key, value, "one to four whole numbers above 0, of the last dimensions", example)


def _dtypes(value: Any, key: str, example: str) -> None:
    if isinstance(value, str) or not isinstance(value, (list, tuple, Mapping)):
        raise _fail(key, value, "a list of dtypes that are allowed, or {dtype: what it becomes}", example)
    if not value:
        raise ConfigurationError(
            f"{key}: got {value!r}: it would allow no dtype at all. Try: {example}, or null for no rule"
        )
    for dtype in [*value, *(value.values() if isinstance(value, Mapping) else ())]:
        if str(dtype).removeprefix("torch.") not in DTYPES:
            raise invalid_choice(key, dtype, DTYPES)


def _layout(value: Any, key: str, example: str) -> None:
    if isinstance(value, Mapping):
        _counts(("stride", "offset"))(value, key, example)
    elif value not in LAYOUTS:
        raise invalid_choice(key, value, (*LAYOUTS, "{stride: N, offset: N}"))


def check_patterns(value: Any, key: str, example: str) -> None:
    """A list of operations: names or patterns (see :func:`stages.constrain.names.matches`)."""
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise _fail(key, value, "a list", example)
    for pattern in value:
        if not isinstance(pattern, str) or not PATTERN.fullmatch(pattern):
            raise _fail(key, pattern, "an operation's name or pattern", example)


def _operations(value: Any, key: str, example: str) -> None:
    if isinstance(value, Mapping):
        if list(value) != ["allow"]:
            raise _fail(key, value, "a list that is denied, or {allow: a list}", example)
        check_patterns(value["allow"], f"{key}.allow", "accel.allowed=[aten.add]")
    else:
        check_patterns(value, key, example)


def _dynamic(value: Any, key: str, example: str) -> None:
    if value not in DYNAMIC:
        raise invalid_choice(key, value, DYNAMIC)


def _custom(value: Any, key: str, example: str) -> None:
    if not isinstance(value, Mapping) or not isinstance(value.get("_target_"), str):
        raise _fail(key, value, "{_target_: package.module.function, and its arguments}", example)


KINDS: dict[str, Kind] = {
    "alignment": Kind("pad", _count, "accel.alignment=16", "alignment",
                      dims=("last", "last2", "first", "contraction", "all"), roles=TENSOR_ROLES,
                      default_roles=("activation", "parameter"), units=("elements", "bytes")),
    "rank": Kind("reject", _count, "accel.max_rank=4", "max_rank", roles=TENSOR_ROLES, default_roles=TENSOR_ROLES),
    "size": Kind("reject", _counts(("min", "max")), "accel.max_size=65535", "max_size",
                 dims=("all", "last", "last2", "first"), roles=TENSOR_ROLES, default_roles=TENSOR_ROLES),
    "tile": Kind("pad", _tile, "accel.tile=[32,32]", "tile", roles=TENSOR_ROLES,
                 default_roles=("activation", "parameter")),
    "dtype": Kind("reject", _dtypes, "accel.dtypes=[float32,int64]", "dtypes", roles=DTYPE_ROLES),
    "layout": Kind("copy", _layout, "accel.layout=contiguous", "layout", roles=TENSOR_ROLES,
                   default_roles=TENSOR_ROLES, units=("elements", "bytes")),
    "memory_tensor": Kind("reject", _count, "accel.max_tensor_bytes=17179869184", "max_tensor_bytes",
                          roles=TENSOR_ROLES, default_roles=TENSOR_ROLES, units=("bytes", "span_bytes")),
    "memory_peak": Kind("reject", _count, "accel.max_peak_bytes=17179869184", "max_peak_bytes", operations=False),
    "operation": Kind("reject", _operations, "accel.denied=[aten.convolution]", "denied", operations=False),
    "dynamic_shape": Kind("reject", _dynamic, "accel.dynamic_shapes=static", "dynamic_shapes", operations=False),
    "custom": Kind("reject", _custom, "accel.rules=[{rule: custom, value: {_target_: my.rules.check}}]"),
}  # fmt: skip
"""By name. ``violations.csv`` uses the same names."""

SCALARS = {kind.scalar: name for name, kind in KINDS.items() if kind.scalar} | {"allowed": "operation"}
"""Scalar field of a profile → the rule that it edits."""
