"""A program as Python source that needs torch alone."""

import builtins
import keyword
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from inductor_debug.models.torch_private import OpOverload
from inductor_debug.stages.minify.candidate import Candidate, Given, Normal, NumberGiven, Stored, TensorGiven, Whole
from inductor_debug.stages.repro import NotReproducible

RESERVED = {"torch", "operator", "math", "inputs", "program", "main", *keyword.kwlist, *dir(builtins)}
"""Names that no variable of a program may have."""

MODULES = {"_operator": "operator", "builtins": "builtins", "math": "math"}
"""Module of a Python function in a graph → what a script calls it."""


def function_source(candidate: Candidate) -> str:
    """``def program(…)``, which gives the results as a tuple.

    Raises:
        NotReproducible: a call or a constant can't be written.
    """
    names = _names(candidate)
    lines = [f"def program({', '.join(names[node] for node in _placeholders(candidate))}):"]
    for node in candidate.calls:
        lines.append(f"    {names[node]} = {_call(node, names)}")
    (output,) = (node for node in candidate.graph.nodes if node.op == "output")
    results = [names[node] for node in output.args[0]]
    lines.append(f"    return ({', '.join(results)}{',' * (len(results) == 1)})")
    return "\n".join(lines)


def inputs_source(candidate: Candidate) -> str:
    """``def inputs()``, which makes what the program is given."""
    lines = ["def inputs():", "    torch.manual_seed(0)", "    return ["]
    names = _names(candidate)
    for node, item in zip(_placeholders(candidate), candidate.given, strict=True):
        fixed = _fixed(item) if candidate.dynamic else []
        given = f"fixed({_given(item)}, {fixed})" if fixed else _given(item)
        given += ".requires_grad_()" if isinstance(item, TensorGiven) and item.requires_grad else ""
        lines.append(f"        {given},  # {names[node]}")
    return "\n".join([*lines, "    ]"])


def _fixed(item: Given) -> list[int]:
    """The dimensions of a tensor whose sizes are known to the compiler."""
    if isinstance(item, NumberGiven):
        return []
    return [place for place in range(len(item.shape)) if place not in item.symbolic]


def _given(item: Given) -> str:
    if isinstance(item, NumberGiven):
        return expression(item.number, {})
    where = f"{item.shape}, {item.stride}, {item.dtype}, {item.device!r}" + (f", {item.offset}" if item.offset else "")
    values = item.values
    if isinstance(values, Stored):
        return f"laid_out(stored({values.name!r}), {where})"
    if isinstance(values, Whole):
        return f"laid_out(torch.randint({values.low}, {values.high}, ({item.length},)), {where})"
    drawn = f"torch.randn({item.length}, dtype={'torch.complex64' if item.dtype.is_complex else 'torch.float32'})"
    drawn += f" * {values.deviation}" if values.deviation != Normal().deviation else ""
    drawn += f" + {values.mean}" if values.mean else ""
    return f"laid_out({drawn}, {where})"


def _placeholders(candidate: Candidate) -> list[fx.Node]:
    return [node for node in candidate.graph.nodes if node.op == "placeholder"]


def _names(candidate: Candidate) -> dict[fx.Node, str]:
    names: dict[fx.Node, str] = {}
    for node in candidate.graph.nodes:
        name = str(node.name) if node.name.isidentifier() else "value"
        while name in RESERVED or name in names.values():
            name += "_"
        names[node] = name
    return names


def _call(node: fx.Node, names: Mapping[fx.Node, str]) -> str:
    given = [expression(value, names) for value in node.args]
    keywords = [f"{key}={expression(value, names)}" for key, value in node.kwargs.items()]
    if node.op == "call_method":
        return f"{given[0]}.{node.target}({', '.join([*given[1:], *keywords])})"
    if node.target is operator.getitem and not keywords:
        return f"{given[0]}[{given[1]}]"
    if node.op != "call_function":
        raise NotReproducible(f"{node.op} {node.target} can't be called from a script")
    return f"{_function(node.target)}({', '.join([*given, *keywords])})"


def target_of(node: fx.Node) -> str:
    """What a node calls, as a person would write it: ``aten.relu.default``, ``torch.tanh``, ``view``."""
    try:
        return _function(node.target).removeprefix("torch.ops.") if node.op == "call_function" else str(node.target)
    except NotReproducible:
        return str(node.target)


def _function(target: Callable[..., Any] | str) -> str:
    if isinstance(target, OpOverload):
        return f"torch.ops.{target}"
    module, name = getattr(target, "__module__", None) or "", getattr(target, "__name__", "")
    if module in MODULES:
        return f"{MODULES[module]}.{name}"
    for path in (f"{module}.{name}", f"torch.{name}", f"torch.nn.functional.{name}"):
        if path.startswith("torch.") and _resolved(path) is target:
            return path
    raise NotReproducible(f"{target} is not one of torch's own functions")


def _resolved(path: str) -> Any:
    try:
        return operator.attrgetter(path.partition(".")[2])(torch)
    except AttributeError:
        return None


def expression(value: Any, names: Mapping[fx.Node, str]) -> str:
    """An argument as Python source.

    Raises:
        NotReproducible: a value that no source stands for.
    """
    if isinstance(value, fx.Node):
        return names[value]
    if isinstance(value, (list, tuple)):
        items = [expression(item, names) for item in value]
        return f"({', '.join(items)}{',' * (len(items) == 1)})" if isinstance(value, tuple) else f"[{', '.join(items)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {expression(item, names)}' for key, item in value.items())}}}"
    if isinstance(value, slice):
        return f"slice({', '.join(expression(item, names) for item in (value.start, value.stop, value.step))})"
    if isinstance(value, float) and not math.isfinite(value):
        return "math.nan" if math.isnan(value) else "math.inf" if value > 0 else "-math.inf"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return str(value)
    if value is None or value is Ellipsis or isinstance(value, (bool, int, float, complex, str)):
        return "..." if value is Ellipsis else repr(value)
    raise NotReproducible(f"an argument of type {type(value).__name__}")
