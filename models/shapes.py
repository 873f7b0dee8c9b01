"""What stored data must look like, declared as types, and how it is read into them.

A shape is ``Any``, ``str``, ``int``, ``float`` (whole numbers too), ``bool``, ``None``, a union of shapes, a
``Literal``, ``list[shape]``, ``dict[str, shape]``, ``tuple[shape, …]`` (a list of that length) or a dataclass (a
mapping). Of a dataclass, keys without a default, and those marked :data:`STORED`, must be there. Keys that it does not
name are left out, whatever they hold. The field ``for_`` has the key ``for``, which Python reserves.
"""

import dataclasses
import functools
import keyword
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal

Number = float | Literal["nan", "inf", "-inf"]
"""A number as stored JSON has it."""

STORED = {"stored": True}
"""Metadata of a field that every file has, though whoever makes the record may leave it at its default."""

OMITTED = {"omitted": True}
"""Metadata of a field that is not written where it is None."""

Reader = Callable[[Any], Any]

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
def reader(shape: Any, *, exact: bool = False) -> Reader:
    """A function that gives plain data as an instance of ``shape``; it raises :class:`Mismatch` for other data.

    Args:
        shape: see the module.
        exact: whether a key that a dataclass does not name is a mismatch too.
    """
    origin, parameters = typing.get_origin(shape), typing.get_args(shape)
    if shape is Any:
        return lambda value: value
    if shape is None or shape in _DESCRIPTIONS:
        return _scalar(types.NoneType if shape is None else shape)
    if origin in (types.UnionType, typing.Union):
        return _union(parameters, [reader(parameter, exact=exact) for parameter in parameters], describe(shape))
    if origin is Literal:
        return _literal(parameters, describe(shape))
    if origin is list:
        return _each(reader(parameters[0], exact=exact), _taken(parameters[0]))
    if origin is tuple:
        return _fixed([reader(parameter, exact=exact) for parameter in parameters])
    if origin is dict:
        return _mapping(reader(parameters[1], exact=exact))
    assert dataclasses.is_dataclass(shape), f"{shape} is no shape"
    return _record(shape, exact)


def fields_of(record: Any) -> Iterator[tuple[str, Any]]:
    """Key and value of each field of a dataclass's instance, in their order: what :func:`reader` reads back."""
    found = ((field, getattr(record, field.name)) for field in dataclasses.fields(record))
    return ((_key(field), value) for field, value in found if value is not None or field.metadata != OMITTED)


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


def _scalar(kind: type) -> Reader:
    kinds = (int, float) if kind is float else (kind,)

    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise Mismatch(_got(value), _DESCRIPTIONS[kind])
        return value

    return read


def _literal(parameters: tuple[Any, ...], valid: str) -> Reader:
    def read(value: Any) -> Any:
        _require(value in parameters and type(value) in map(type, parameters), value, valid)
        return value

    return read


def _union(parameters: tuple[Any, ...], readers: list[Reader], valid: str) -> Reader:
    single = [parameter for parameter in parameters if parameter is not types.NoneType]

    def read(value: Any) -> Any:
        if value is None and len(single) < len(parameters):
            return None
        found: Mismatch | None = None
        for each in readers:
            try:
                return each(value)
            except Mismatch as error:
                fits = error.place or error.got != _got(value)  # what is wrong inside tells more than the alternatives
                found = error if fits else found
        raise found or Mismatch(_got(value), valid)

    return read


def _taken(shape: Any) -> frozenset[type]:
    """Types whose values a shape takes as they are. Asking that first saves the call of most readers."""
    if typing.get_origin(shape) in (types.UnionType, typing.Union):
        return frozenset().union(*map(_taken, typing.get_args(shape)))
    if shape is float:
        return frozenset((int, float))
    kind = types.NoneType if shape is None else shape
    return frozenset((kind,)) if isinstance(kind, type) and kind in _DESCRIPTIONS else frozenset()


def _each(inner: Reader, taken: frozenset[type]) -> Reader:
    def read(value: Any) -> list[Any]:
        _require(type(value) is list, value, "a list")
        if taken.issuperset(map(type, value)):
            return [*value]
        found: list[Any] = []
        try:
            for item in value:
                found.append(inner(item))  # their number tells the place of a mismatch
        except Mismatch as error:
            raise error.within(f"[{len(found)}]") from None
        return found

    return read


def _fixed(readers: list[Reader]) -> Reader:
    def read(value: Any) -> tuple[Any, ...]:
        _require(type(value) is list and len(value) == len(readers), value, f"a list of {len(readers)}")
        found: list[Any] = []
        try:
            for each, item in zip(readers, value, strict=True):
                found.append(each(item))
        except Mismatch as error:
            raise error.within(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _mapping(inner: Reader) -> Reader:
    def read(value: Any) -> dict[str, Any]:
        _require_keys(value)
        found, key = {}, ""
        try:
            for key, item in value.items():
                found[key] = inner(item)
        except Mismatch as error:
            raise error.within(key) from None
        return found

    return read


def _record(shape: Any, exact: bool) -> Reader:
    @functools.cache
    def readers() -> dict[str, tuple[str, frozenset[type], Reader]]:  # late: it may hold records of its own kind
        hints = typing.get_type_hints(shape)
        return {_key(field): (field.name, _taken(hints[field.name]), reader(hints[field.name], exact=exact))
                for field in fields}  # fmt: skip

    fields = dataclasses.fields(shape)
    required = {_key(field) for field in fields if _is_required(field)}
    build = _builder(shape)

    def read(value: Any) -> Any:
        _require_keys(value)
        if not required <= value.keys():
            missing = sorted(required - value.keys())
            raise Mismatch(f"a mapping without {missing[0]!r}", "one with it")
        known = readers()
        unknown = [key for key in value if key not in known] if exact else []
        if unknown:
            raise Mismatch(f"a mapping with {unknown[0]!r}", f"the keys {', '.join(known)}")
        found, key = {}, ""
        try:
            for key, item in value.items():
                if key in known:
                    name, taken, inner = known[key]
                    found[name] = item if type(item) in taken else inner(item)
        except Mismatch as error:
            raise error.within(key) from None
        return build(found)

    return read


def _builder(shape: Any) -> Callable[[dict[str, Any]], Any]:
    """Makes a dataclass's instance of its fields' values, as its own ``__init__`` does.

    That of a frozen one sets each field by a call of its own, which takes as long as reading the field.
    """
    fields = dataclasses.fields(shape)
    if hasattr(shape, "__post_init__") or hasattr(shape, "__slots__"):
        return lambda found: shape(**found)
    defaults = {field.name: field.default for field in fields}  # in their order; what has none is found, or made
    made = [(field.name, factory) for field in fields if (factory := field.default_factory) is not dataclasses.MISSING]

    def build(found: dict[str, Any]) -> Any:
        instance = object.__new__(shape)
        content = instance.__dict__
        content.update(defaults)
        content.update(found)
        for name, factory in made:
            if name not in found:
                content[name] = factory()
        return instance

    return build


def _require_keys(value: Any) -> None:
    _require(type(value) is dict and set(map(type, value)) <= {str}, value, "a mapping with text as keys")


def _key(field: "dataclasses.Field[Any]") -> str:
    plain = field.name.removesuffix("_")
    return plain if keyword.iskeyword(plain) else field.name


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    return not optional or field.metadata == STORED
