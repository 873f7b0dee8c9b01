"""What a kind of fault is: which nodes of an AOT graph it fits, and what the faulty kernel gives there.

``blind_kinds.py`` has the kinds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx


@dataclass
class Call:
    """One call of the planted node: what it reads, what the right kernel gives, and what was kept of earlier calls."""

    node: fx.Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    right: Any
    number: int
    every: int
    seed: int
    kept: dict[str, Any]

    def again(self, *args: Any, **kwargs: Any) -> Any:
        """The right kernel with other operands."""
        assert callable(self.node.target)
        return self.node.target(*args, **kwargs)

    def replaced(self, index: int, value: Any) -> Any:
        """The right kernel with one argument changed."""
        return self.again(*self.args[:index], value, *self.args[index + 1 :], **self.kwargs)


Wrong = Callable[[Call], Any]


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    name: str
    wrong: Wrong
    fits: Callable[[fx.Node], bool]
    needs: frozenset[str] = field(default_factory=frozenset)


KINDS: dict[str, Kind] = {}


def kind(fits: Callable[[fx.Node], bool], *needs: str) -> Callable[[Wrong], Wrong]:
    """Register a kind by the name of its function; ``needs`` of backward, training, call, data, float32."""

    def register(wrong: Wrong) -> Wrong:
        KINDS[wrong.__name__] = Kind(wrong.__name__, wrong, fits, frozenset(needs))
        return wrong

    return register


def base(node: fx.Node) -> str:
    """``addmm`` of ``aten.addmm.default``; empty of what is no operator."""
    packet = getattr(node.target, "overloadpacket", None)
    return packet.__name__ if packet is not None else ""


def is_backward(node: fx.Node) -> bool:
    return any(other.name.startswith("tangents") for other in node.graph.nodes if other.op == "placeholder")


def value(argument: Any) -> Any:
    """What tracing knows of an argument: a fake tensor of a node."""
    return argument.meta.get("val") if isinstance(argument, fx.Node) else argument


def shape(argument: Any) -> tuple[int, ...]:
    known = value(argument)
    return tuple(known.shape) if isinstance(known, Tensor) else ()


def floating(argument: Any) -> bool:
    known = value(argument)
    return isinstance(known, Tensor) and known.is_floating_point()


def among(*names: str) -> Callable[[fx.Node], bool]:
    return lambda node: base(node) in names
