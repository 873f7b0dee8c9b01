"""Operations that are linear in each of what they take: what errors of that make of them, and their derivative.

Products of matrices and convolutions make most of a model's work. Errors, and cotangents, are multiplied themselves: no
two large results are subtracted. They need few digits, and float32 has fast kernels on a CPU.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import fx

from inductor_debug.stages.localize.judging.noise import narrow

aten = torch.ops.aten

Values = Mapping[fx.Node, torch.Tensor]


class Linear(Protocol):
    """An operation on floating tensors and numbers."""

    def error(self, node: fx.Node, actual: Values, errors: Values) -> torch.Tensor:
        """A result, less what it would be without errors; to be broadcast to its shape.

        Args:
            node: a call of the operation.
            actual: of what it takes; each is asked for where it is needed.
            errors: actual less what it would be, of those that have one; one at least.
        """

    def gradients(
        self,
        node: fx.Node,
        values: Values,
        shape: Callable[[fx.Node], torch.Size],
        cotangent: torch.Tensor,
        asked: Container[fx.Node],
    ) -> dict[fx.Node, torch.Tensor]:
        """What a cotangent of the result becomes for what it takes.

        Args:
            node: a call of the operation.
            values: of what it takes; each is asked for where it is needed.
            shape: of what it takes.
            cotangent: of the result.
            asked: nodes whose cotangents are wanted.
        """


@dataclass(frozen=True)
class _Product:
    """An operation that multiplies two of its arguments, and perhaps adds a third.

    Attributes:
        factors: places of the two.
        added: place of the third; None where there is none.
        multiply: the two, and the operation's further arguments → their product.
        gradient: 0 or 1, a cotangent, what gives each of the two, the further arguments → the gradient of that one, to
            be summed to its shape.
        beside: the shape of the third, and the dimensions of the result → the shape by which it is broadcast to that.
    """

    factors: tuple[int, int]
    added: int | None
    multiply: Callable[..., torch.Tensor]
    gradient: Callable[..., torch.Tensor]
    beside: Callable[[torch.Size, int], Any] = lambda shape, dims: shape

    def error(self, node: fx.Node, actual: Values, errors: Values) -> torch.Tensor:
        (first, second, added), rest = self._sources(node), self._rest(node)
        alpha, beta = node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1)
        found: list[torch.Tensor] = []
        if first in errors:
            found.append(_times(self.multiply(errors[first], _value(actual, second), *rest), alpha))
        if second in errors:
            left = _value(actual, first)
            left = torch.sub(left, errors[first]) if first in errors else left
            found.append(_times(self.multiply(left, errors[second], *rest), alpha))
        if added in errors:
            own, dims = errors[added], actual[first].dim()
            found.append(_times(own.reshape(self.beside(own.shape, dims)), beta))
        return sum(found[1:], found[0])

    def gradients(
        self,
        node: fx.Node,
        values: Values,
        shape: Callable[[fx.Node], torch.Size],
        cotangent: torch.Tensor,
        asked: Container[fx.Node],
    ) -> dict[fx.Node, torch.Tensor]:
        *factors, added = self._sources(node)
        alpha, beta = node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1)
        found: dict[fx.Node, torch.Tensor] = {}
        both = [lambda source=source: _value(values, source) for source in factors]
        for number, source in enumerate(factors):
            if source in asked:
                gradient = self.gradient(number, cotangent, *both, *self._rest(node)).sum_to_size(shape(source))
                _add(found, source, _times(gradient, alpha))
        if added is not None and added in asked:
            own = shape(added)
            whole = _times(cotangent, beta).sum_to_size(self.beside(own, cotangent.dim()))
            _add(found, added, whole.reshape(own))
        return found

    def _sources(self, node: fx.Node) -> tuple[Any, Any, Any]:
        """The two, and the third."""
        first, second = self.factors
        return node.args[first], node.args[second], None if self.added is None else node.args[self.added]

    def _rest(self, node: fx.Node) -> tuple[Any, ...]:
        """The further arguments."""
        return node.args[1 + max(*self.factors, self.factors[1] if self.added is None else self.added) :]


@dataclass(frozen=True)
class _Sum:
    """The first argument and ``alpha`` times the second.

    Attributes:
        sign: -1 where the second is subtracted.
    """

    sign: int = 1

    def error(self, node: fx.Node, actual: Values, errors: Values) -> torch.Tensor:
        found = [_times(errors[source], scale) for source, scale in self._sources(node) if source in errors]
        return sum(found[1:], found[0])

    def gradients(
        self,
        node: fx.Node,
        values: Values,
        shape: Callable[[fx.Node], torch.Size],
        cotangent: torch.Tensor,
        asked: Container[fx.Node],
    ) -> dict[fx.Node, torch.Tensor]:
        found: dict[fx.Node, torch.Tensor] = {}
        for source, scale in self._sources(node):
            if source in asked:
                _add(found, source, _times(cotangent.sum_to_size(shape(source)), scale))
        return found

    def _sources(self, node: fx.Node) -> list[tuple[Any, Any]]:
        scale: Any = node.kwargs.get("alpha", 1)
        return [(node.args[0], 1), (node.args[1], scale * self.sign)]


def _value(values: Values, source: Any) -> Any:
    """Of a node; a number is itself."""
    return values[source] if isinstance(source, fx.Node) else source


def _add(found: dict[fx.Node, torch.Tensor], source: fx.Node, gradient: torch.Tensor) -> None:
    found[source] = found[source] + gradient if source in found else gradient


def _times(value: torch.Tensor, scale: Any) -> torch.Tensor:
    return value if scale == 1 else value * scale


def _alike(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Floating tensors in float32, or where that has slow kernels, few digits or too little range, in float64."""
    plain = all(tensor.device.type == "cpu" for tensor in tensors) and torch.get_float32_matmul_precision() == "highest"
    found = [narrow(tensor.detach()) if plain else tensor.detach().double() for tensor in tensors]
    wide = any(tensor.dtype == torch.float64 for tensor in found)
    return [tensor.double() for tensor in found] if wide else found


Later = Callable[[], Any]


def _multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    left, right = _alike(left, right)
    return left @ right


def _of_matrices(number: int, cotangent: torch.Tensor, left: Later, right: Later) -> torch.Tensor:
    if number == 0:
        return _multiply(cotangent, right().mT)
    return _multiply(left().mT, cotangent)


def _convolve(x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
    found: torch.Tensor = aten.convolution.default(*_alike(x, weight), None, *rest)
    return found


def _of_convolution(number: int, cotangent: torch.Tensor, x: Later, weight: Later, *rest: Any) -> torch.Tensor:
    mask = [number == 0, number == 1, False]
    found: torch.Tensor = aten.convolution_backward.default(*_alike(cotangent, x(), weight()), None, *rest, mask)[
        number
    ]
    return found


def _by_channel(shape: torch.Size, dims: int) -> list[int]:
    return [*shape, *[1] * (dims - 2)]


def _of_elements(number: int, cotangent: torch.Tensor, left: Later, right: Later) -> torch.Tensor:
    return torch.mul(cotangent, left() if number else right())


LINEAR: dict[Any, Linear] = {
    aten.mm.default: _Product((0, 1), None, _multiply, _of_matrices),
    aten.bmm.default: _Product((0, 1), None, _multiply, _of_matrices),
    aten.addmm.default: _Product((1, 2), 0, _multiply, _of_matrices),
    aten.baddbmm.default: _Product((1, 2), 0, _multiply, _of_matrices),
    aten.convolution.default: _Product((0, 1), 2, _convolve, _of_convolution, _by_channel),
    aten.mul.Tensor: _Product((0, 1), None, torch.mul, _of_elements),
    aten.add.Tensor: _Sum(),
    aten.sub.Tensor: _Sum(-1),
}
"""By operator."""
