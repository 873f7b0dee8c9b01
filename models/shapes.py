"""What stored data must look like, declared as types, and the check of it.

A shape is ``Any``, ``str``, ``int``, ``float`` (whole numbers too), ``bool``, ``None``, a union of shapes, a
``Literal``, ``list[shape]``, ``dict[str, shape]``, ``tuple[shape, …]`` (a list of that length) or a TypedDict: its
required keys must be there, and keys that it does not name may hold anything.
"""

import functools
import types
import typing
from collections.abc import Callable
from typing import Any, Literal

Number = float | Literal["nan", "inf", "-inf"]
"""A number as stored JSON has it."""

Check = Callable[[Any], None]

_DESCRIPTIONS: dict[Any, str] = {str: "text", int: "a whole number", float: "a number", bool: "true or false",
                          types.NoneType: "null"}  # fmt: skip


class Mismatch(Exception):
    """A value that is not of its shape.

    Attributes:
        got: the value in words. valid: its shape in words. place: where it is, ``stages[0].status``.
    """

    def __init__(self, got: str, valid: str, place: str = "") -> None:
        super().__init__(f"{place}: {got}, valid: {valid}")
        self.got, self.valid, self.place = got, valid, place

    def within(self, step: str) -> "Mismatch":
        """The same, seen from what holds it."""
        joined = self.place if not self.place or self.place.startswith("[") else f".{self.place}"
        return Mismatch(self.got, self.valid, f"{step}{joined}")


@functools.cache
def checker(shape: Any) -> Check:
    """A function that raises :class:`Mismatch` for a value that is not of ``shape``."""
    origin, parameters = typing.get_origin(shape), typing.get_args(shape)
    if shape is Any:
        return lambda value: None
    if shape is None or shape in _DESCRIPTIONS:
        return _scalar(types.NoneType if shape is None else shape)
    if origin in (types.UnionType, typing.Union):
        return _union(parameters, describe(shape))
    if origin is Literal:
        return lambda value: _require(
            value in parameters and type(value) in map(type, parameters), value, describe(shape)
        )
    if origin is list:
        return _each(parameters[0])
    if origin is tuple:
        return _fixed(parameters)
    if origin is dict:
        return _mapping(parameters[1])
    assert typing.is_typeddict(shape), f"{shape} is no shape"
    return _record(shape)


def describe(shape: Any) -> str:
    """A shape in words."""
    origin, parameters = typing.get_origin(shape), typing.get_args(shape)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(map(describe, parameters)))
    if origin is Literal:
        return " or ".join(map(str, parameters))
    if origin in (list, tuple):
        return "a list" if origin is list else f"a list of {len(parameters)}"
    return _DESCRIPTIONS.get(shape, "anything" if shape is Any else "a mapping")


def _got(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:59]}…"


def _require(holds: bool, value: Any, valid: str) -> None:
    if not holds:
        raise Mismatch(_got(value), valid)


def _scalar(kind: type) -> Check:
    kinds = (int, float) if kind is float else (kind,)

    def check(value: Any) -> None:
        if type(value) not in kinds:
            raise Mismatch(_got(value), _DESCRIPTIONS[kind])

    return check


def _union(parameters: tuple[Any, ...], valid: str) -> Check:
    checks = [checker(parameter) for parameter in parameters]
    single = [parameter for parameter in parameters if parameter is not types.NoneType]

    def check(value: Any) -> None:
        if value is None and len(single) < len(parameters):
            return
        found: Mismatch | None = None
        for each in checks:
            try:
                each(value)
            except Mismatch as error:
                found = error if error.place else found  # the place inside tells more than the alternatives
            else:
                return
        raise found or Mismatch(_got(value), valid)

    return check


def _each(inner: Any) -> Check:
    check_inner = checker(inner)

    def check(value: Any) -> None:
        _require(type(value) is list, value, "a list")
        for index, item in enumerate(value):
            try:
                check_inner(item)
            except Mismatch as error:
                raise error.within(f"[{index}]") from None

    return check


def _fixed(inner: tuple[Any, ...]) -> Check:
    checks = [checker(each) for each in inner]

    def check(value: Any) -> None:
        _require(type(value) is list and len(value) == len(checks), value, f"a list of {len(checks)}")
        for index, (each, item) in enumerate(zip(checks, value, strict=True)):
            try:
                each(item)
            except Mismatch as error:
                raise error.within(f"[{index}]") from None

    return check


def _mapping(inner: Any) -> Check:
    check_inner = checker(inner)

    def check(value: Any) -> None:
        _require(type(value) is dict and all(type(key) is str for key in value), value, "a mapping with text as keys")
        for key, item in value.items():
            try:
                check_inner(item)
            except Mismatch as error:
                raise error.within(key) from None

    return check


def _record(shape: Any) -> Check:
    checks = {key: checker(kind) for key, kind in typing.get_type_hints(shape).items()}
    required = sorted(shape.__required_keys__)

    def check(value: Any) -> None:
        _require(type(value) is dict and all(type(key) is str for key in value), value, "a mapping with text as keys")
        missing = [key for key in required if key not in value]
        if missing:
            raise Mismatch(f"a mapping without {missing[0]!r}", "one with it")
        for key, item in value.items():
            if key in checks:
                try:
                    checks[key](item)
                except Mismatch as error:
                    raise error.within(key) from None

    return check
