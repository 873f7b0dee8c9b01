"""A record's JSON arguments and target as Python source."""

import re
from collections.abc import Callable
from typing import Any

from inductor_debug.stages.graphs.records import NodeRecord
from inductor_debug.stages.graphs.symbolic_sizes import Symbols, case_value

OPERATOR_NAMESPACES = ("aten", "prims", "prim", "quantized", "inductor", "torchvision", "mkldnn", "onednn")
"""Namespaces of ``torch.ops`` that a Dynamo graph's dotted target may start with."""

_TORCH_CONSTANT = re.compile(r"torch\.\w+")
_COMPLEX = re.compile(r"\(?[-+]?[\d.]+(e[-+]?\d+)?([-+][\d.]+(e[-+]?\d+)?)?j\)?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_FLOATS = {"nan": "float('nan')", "inf": "float('inf')", "-inf": "-float('inf')"}


class NotReproducible(ValueError):
    """Part of a graph that no standalone script can hold; the message says what stands against it."""


def expression(value: Any, node: Callable[[str], str], symbols: Symbols, *, as_tuple: bool = False) -> str:
    """One argument of a record as Python source.

    Args:
        value: a JSON value as :class:`~stages.graphs.records.NodeRecord` documents it.
        node: name of a node → the source that stands for its value.
        symbols: the graph's symbolic sizes; an expression of them becomes its value in the captured case.
        as_tuple: True where a list has to be a tuple (an index).

    Raises:
        NotReproducible: the record did not keep the value.
    """
    if isinstance(value, dict):
        return _mapping(value, node, symbols)
    if isinstance(value, (list, tuple)):
        items = [expression(item, node, symbols) for item in value]
        return f"({', '.join(items)}{',' * (len(items) == 1)})" if as_tuple else f"[{', '.join(items)}]"
    if isinstance(value, str):
        return _text(value, symbols)
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    raise NotReproducible(f"the record holds an argument of type {type(value).__name__}")


def _mapping(value: dict[str, Any], node: Callable[[str], str], symbols: Symbols) -> str:
    if set(value) == {"node"}:
        return node(value["node"])
    if set(value) == {"slice"}:
        return f"slice({', '.join(expression(item, node, symbols) for item in value['slice'])})"
    if set(value) == {"tensor", "dtype"}:
        raise NotReproducible("a constant tensor among the arguments, whose values are not recorded")
    items = (f"{key!r}: {expression(item, node, symbols)}" for key, item in value.items())
    return f"{{{', '.join(items)}}}"


def _text(value: str, symbols: Symbols) -> str:
    """A string of the record: a dtype, layout or memory format, a float that JSON lacks, a symbolic size, or itself."""
    if value in _FLOATS:
        return _FLOATS[value]
    if value == "...":
        return value
    if _TORCH_CONSTANT.fullmatch(value):
        return value
    if _COMPLEX.fullmatch(value):
        return f"complex({value!r})"
    names = set(_NAME.findall(value))
    if names and names <= set(symbols):
        known = case_value(value, None, symbols)
        if known is None:
            raise NotReproducible(f"the size {value} has no value in this case")
        return repr(known)
    if value.startswith("<") and value.endswith(">"):
        raise NotReproducible(f"an argument of type {value}, whose value is not recorded")
    return repr(value)


def call(node: NodeRecord, kind: str, arguments: list[str], keywords: dict[str, str]) -> str:
    """The source of a node's call.

    Args:
        node: a call.
        kind: the graph's kind: only a Dynamo graph has Python targets of the user's own.
        arguments, keywords: sources of the arguments.

    Raises:
        NotReproducible: the target is not torch's, or is no operation.
    """
    if node.op == "call_method":
        given = ", ".join([*arguments[1:], *(f"{key}={text}" for key, text in keywords.items())])
        return f"{arguments[0]}.{node.target}({given})"
    if node.op != "call_function":
        raise NotReproducible(f"{node.op} {node.target} is no operation that a script can call")
    given = ", ".join([*arguments, *(f"{key}={text}" for key, text in keywords.items())])
    return f"{callable_source(node.target, kind)}({given})"


def callable_source(target: str, kind: str) -> str:
    """The Python expression of a ``call_function`` node's target; NotReproducible where it is not torch's."""
    parts = target.split(".")
    if parts[0] == "_operator":
        return f"operator.{'.'.join(parts[1:])}"
    if parts[0] in ("torch", "builtins", "math", "operator") and len(parts) > 1:
        return target
    if parts[0] == "higher_order":
        raise NotReproducible(f"{target} takes a graph as an argument")
    if len(parts) == 3 and (parts[0] in OPERATOR_NAMESPACES or kind != "dynamo"):
        return f"torch.ops.{target}"
    raise NotReproducible(f"{target} is not one of torch's own operations")
