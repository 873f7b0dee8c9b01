"""Variants of a fault: it shows only beside a neighbour, only above a size, or only off alignment."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import fx

from inductor_debug.models.errors import ConfigurationError, invalid_choice
from inductor_debug.models.torch_private import OpOverload, schema_of

ALWAYS, FUSED, ABOVE, UNALIGNED = "always", "fused", "above", "unaligned"
ONLY = {
    ALWAYS: "wherever the node is compiled",
    FUSED: "where a pointwise operation that makes what the node reads, or reads what it makes, is in the same graph",
    ABOVE: "where the value has more elements than backend.options.above",
    UNALIGNED: "where its last dimension is no multiple of backend.options.alignment",
}
"""What ``backend.options.only`` takes."""


@dataclass(frozen=True)
class Condition:
    """When a fault shows.

    Attributes:
        only: one of :data:`ONLY`.
        above: elements, of ``above``.
        alignment: elements, of ``unaligned``.

    Raises:
        ConfigurationError: there is no such variant, or it is not known above what, or off what.
    """

    only: str = ALWAYS
    above: int = 1024
    alignment: int | None = None

    def __post_init__(self) -> None:
        if self.only not in ONLY:
            raise invalid_choice("backend.options.only", self.only, ONLY)
        if self.only == ABOVE:
            _check_count("backend.options.above", self.above, "1024")
        if self.only == UNALIGNED:
            _check_count("backend.options.alignment", self.alignment, "16, or a profile that has one: accel=warn16")

    def met(self, node: fx.Node, output: int) -> bool:
        """Whether the fault shows at a node of this graph, which may be a part of another.

        Raises:
            ConfigurationError: that depends on a size that is symbolic.
        """
        if self.only == ALWAYS:
            return True
        if self.only == FUSED:
            return next(neighbours(node), None) is not None
        value = node.meta["val"]
        value = value[output] if isinstance(value, (tuple, list)) else value
        sizes = value.shape if self.only == ABOVE else value.shape[-1:]
        if not all(isinstance(size, int) for size in sizes):
            raise ConfigurationError(
                f"backend.options.only: got {self.only!r} at {node.name} of shape {list(value.shape)}; valid: a node "
                "without symbolic sizes.\nTry: backend.options.only=always"
            )
        if self.only == ABOVE:
            return bool(value.numel() > self.above)
        return bool(sizes) and sizes[0] % self.alignment != 0


def neighbours(node: fx.Node) -> Iterator[fx.Node]:
    """Pointwise operations that a node could be fused with: what makes its operands, and what reads its value."""
    for step in (_readers, _operands):
        open_still, seen = step(node), {node}
        while open_still:
            other = open_still.pop()
            if other in seen or other.op != "call_function":
                continue
            seen.add(other)
            if torch.Tag.pointwise in getattr(other.target, "tags", ()):
                yield other
            elif _passes_on(other):
                open_still += step(other)


def _readers(node: fx.Node) -> list[fx.Node]:
    return list(node.users)


def _operands(node: fx.Node) -> list[fx.Node]:
    return list(node.all_input_nodes)


def _passes_on(node: fx.Node) -> bool:
    """Whether a node computes nothing: a view, or what takes several results apart."""
    if not isinstance(node.target, OpOverload):
        return True
    returned = schema_of(node.target).returns
    return any(item.alias_info is not None and not item.alias_info.is_write for item in returned)


def _check_count(key: str, given: object, example: str) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise ConfigurationError(f"{key}: got {given!r}; valid: a whole number, 1 or more.\nTry: {key}={example}")
