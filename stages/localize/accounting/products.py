"""Products of matrices, and convolutions: what errors of what they take make of them, and their derivative.

They make most of a model's work, and are linear in each of what they take. So errors, and cotangents, are multiplied
themselves: no two large results are subtracted. They need few digits, and float32 has fast kernels on a CPU.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from inductor_debug.stages.localize.judging.noise import narrow

aten = torch.ops.aten


@dataclass(frozen=True)
class Product:
    """An operation that multiplies two of its arguments, and perhaps adds a third.

    Attributes:
        factors: places of the two.
        added: place of the third; None where there is none.
        multiply: the two, and the operation's further arguments → their product.
        gradient: 0 or 1, a cotangent, what gives each of the two, the further arguments → the gradient of that one.
        beside: the third, and the dimensions of the result → the third, to be broadcast to it.
    """

    factors: tuple[int, int]
    added: int | None
    multiply: Callable[..., torch.Tensor]
    gradient: Callable[..., torch.Tensor]
    beside: Callable[[torch.Tensor, int], torch.Tensor] = lambda added, dims: added

    def sources(self, node: fx.Node) -> tuple[Any, Any, Any]:
        """The two, and the third."""
        first, second = self.factors
        return node.args[first], node.args[second], None if self.added is None else node.args[self.added]

    def rest(self, node: fx.Node) -> tuple[Any, ...]:
        """The further arguments."""
        return node.args[1 + max(*self.factors, self.factors[1] if self.added is None else self.added) :]


def error_of(
    node: fx.Node, actual: Mapping[fx.Node, torch.Tensor], errors: Mapping[fx.Node, torch.Tensor]
) -> torch.Tensor:
    """A product, less what it would be without errors; to be broadcast to its shape.

    Args:
        node: of :data:`PRODUCTS`.
        actual: of what it takes, floating.
        errors: actual less what it would be, of those of it that have one; one at least.
    """
    product = PRODUCTS[node.target]
    (first, second, added), rest = product.sources(node), product.rest(node)
    alpha, beta = _scales(node)
    found: list[torch.Tensor] = []
    if first in errors:
        found.append(_times(product.multiply(*_alike(errors[first], actual[second]), *rest), alpha))
    if second in errors:
        left = torch.sub(actual[first], errors[first]) if first in errors else actual[first]
        found.append(_times(product.multiply(*_alike(left, errors[second]), *rest), alpha))
    if added in errors:
        found.append(_times(product.beside(errors[added], actual[first].dim()), beta))
    return sum(found[1:], found[0])


def gradients_of(
    node: fx.Node, values: Mapping[fx.Node, torch.Tensor], cotangent: torch.Tensor, asked: Container[fx.Node]
) -> dict[fx.Node, torch.Tensor]:
    """What a cotangent of a product becomes for what it takes.

    Args:
        node: of :data:`PRODUCTS`.
        values: of what it takes, floating; each is asked for where it is needed.
        cotangent: of the result.
        asked: nodes whose cotangents are wanted.
    """
    product = PRODUCTS[node.target]
    *factors, added = product.sources(node)
    rest, (alpha, beta) = product.rest(node), _scales(node)
    found: dict[fx.Node, torch.Tensor] = {}

    def add(source: fx.Node, gradient: torch.Tensor) -> None:
        found[source] = found[source] + gradient if source in found else gradient

    for number, source in enumerate(factors):
        if source in asked:
            both = [lambda source=source: values[source] for source in factors]
            gradient = product.gradient(number, cotangent, *both, *rest)
            add(source, _times(gradient, alpha))
    if isinstance(added, fx.Node) and added in asked:
        own, whole = values[added], _times(cotangent, beta)
        add(added, whole.sum_to_size(product.beside(own, cotangent.dim()).shape).reshape(own.shape))
    return found


def _scales(node: fx.Node) -> tuple[Any, Any]:
    """What multiplies the product, and the third."""
    return node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1)


def _times(value: torch.Tensor, scale: Any) -> torch.Tensor:
    return value if scale == 1 else value * scale


def _alike(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Floating tensors in float32, or where that has slow kernels, few digits or too little range, in float64."""
    plain = all(tensor.device.type == "cpu" for tensor in tensors) and torch.get_float32_matmul_precision() == "highest"
    found = [narrow(tensor.detach()) if plain else tensor.detach().double() for tensor in tensors]
    wide = any(tensor.dtype == torch.float64 for tensor in found)
    return [tensor.double() for tensor in found] if wide else found


Later = Callable[[], torch.Tensor]


def _of_matrices(number: int, cotangent: torch.Tensor, left: Later, right: Later) -> torch.Tensor:
    if number == 0:
        mine, other = _alike(cotangent, right())
        return mine @ other.mT
    other, mine = _alike(left(), cotangent)
    return other.mT @ mine


def _convolve(x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
    found: torch.Tensor = aten.convolution.default(x, weight, None, *rest)
    return found


def _of_convolution(number: int, cotangent: torch.Tensor, x: Later, weight: Later, *rest: Any) -> torch.Tensor:
    given = _alike(cotangent, x(), weight())
    found: torch.Tensor = aten.convolution_backward.default(*given, None, *rest, [number == 0, number == 1, False])[
        number
    ]
    return found


def _by_channel(bias: torch.Tensor, dims: int) -> torch.Tensor:
    return bias.view(-1, *[1] * (dims - 2))


PRODUCTS: dict[Any, Product] = {
    aten.mm.default: Product((0, 1), None, torch.matmul, _of_matrices),
    aten.bmm.default: Product((0, 1), None, torch.matmul, _of_matrices),
    aten.addmm.default: Product((1, 2), 0, torch.matmul, _of_matrices),
    aten.baddbmm.default: Product((1, 2), 0, torch.matmul, _of_matrices),
    aten.convolution.default: Product((0, 1), 2, _convolve, _of_convolution, _by_channel),
}
"""By operator."""
