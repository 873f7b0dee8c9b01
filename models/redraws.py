"""The random numbers of a step of the case, drawn again by other code, element by element.

Many generators fill memory in its order. A compiler may keep a tensor in another order of memory (channels last against
contiguous), and then two sides at one generator state drop other elements. A compiler may also leave out what nothing
uses, after which its generator is behind. So a test side's random operations are watched as the reference's were
(:func:`models.draws.recorded_draws`), and matched with them (:func:`matched`). Where they belong together, the test
side is run once more: each of its random operations runs, and the reference's numbers are written into its result, by
logical index (:func:`repeated`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from inductor_debug.models.draws import (
    ATTENTION,
    PURE,
    Described,
    Draw,
    Draws,
    attention_mask,
    is_operator,
    like_recorded,
    may_draw,
    restore,
    states,
    unmoved,
)
from inductor_debug.models.torch_private import UnseenMode, pytree

aten = torch.ops.aten

MATCHES = ("no", "same", "all", "used")
"""How the draws of two sides match. "no": they do not, or it can't be told. "same": each draws the same at the same
state. "all": one by one, in some order of memory. "used": as "all", without the draws that the first side does not
use."""

_BY_SHAPE = ("rand", "randn", "rand_like", "randn_like")
"""Their numbers depend on the shape alone."""


def matched(mine: Draws, theirs: Draws) -> str:
    """How the random operations of another side belong to those of the case: one of :data:`MATCHES`."""
    if len(mine.items) == len(theirs.items):
        pairs = list(zip(mine.items, theirs.items, strict=True))
        if all(_same(left, right) for left, right in pairs):
            return "same"
        return "all" if all(_interchangeable(left, right) for left, right in pairs) else "no"
    used = [draw for draw in mine.items if draw.used]
    if len(used) == len(theirs.items) and all(map(_interchangeable, used, theirs.items)):
        return "used"
    return "no"


@contextmanager
def repeated(draws: Draws, match: str) -> Iterator[None]:
    """Inside, random operations have the numbers of the recorded ones, by logical index; see :attr:`Draws.matched`.

    Args:
        match: "all" or "used", as :func:`matched` gives it.
    """
    draws.matched = True
    items = [draw for draw in draws.items if match == "all" or draw.used]
    repeat = _Repeat(draws, items)
    with repeat:
        yield
    if repeat.position < len(items):
        draws.matched = False


class _Repeat(UnseenMode):
    def __init__(self, draws: Draws, items: list[Draw]) -> None:
        super().__init__()
        self.draws, self.items, self.position = draws, items, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not may_draw(func, kwargs) or not self.draws.matched:
            return func(*args, **kwargs)
        before = states()
        result = func(*args, **kwargs)
        if unmoved(before):
            return result  # fused attention without dropout: it was not recorded either
        draw = self.items[self.position] if self.position < len(self.items) else None
        self.position += 1
        if draw is None or _family(func) != _family(draw.function):
            self.draws.matched = False
        elif _computes(func):
            restore(draw)
            result = func(*args, **kwargs)
            self.draws.matched = func is draw.function and (func in ATTENTION or _like_drawn(draw, result))
        else:
            self.draws.matched = _overwrite(draw, func, args, kwargs, result)
        return result


def _computes(func: Any) -> bool:
    """Whether an operation computes with what it draws, so that its result can't be overwritten."""
    name = func.overloadpacket.__name__
    return name != "native_dropout" and name.removesuffix("_functional") not in PURE and f"{name}_" not in PURE


def _like_drawn(draw: Draw, result: Any) -> bool:
    """Whether a result has the recorded one's shape and order of memory."""
    first = next((leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)), None)
    return first is not None and (tuple(first.shape), first.stride()) == (draw.drawn[0].shape, draw.drawn[0].stride)


def _overwrite(draw: Draw, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> bool:
    """Give a random operation's result the numbers of a draw, whose generator is then as it was after it.

    False where it can't be done.
    """
    name = func.overloadpacket.__name__
    if name == "native_dropout":
        mask = _mask(draw)
        if mask is None or mask.shape != result[1].shape:
            return False
        scale = 1 / (1 - args[1]) if args[1] < 1 else 0.0
        result[0].copy_(args[0] * mask * scale)
        result[1].copy_(mask)
        return True
    values = _values(draw, func, args, kwargs)
    if values is None or not isinstance(result, torch.Tensor) or values.shape != result.shape:
        return False
    result.copy_(values)
    return True


def _values(draw: Draw, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """What the draw drew, or would have drawn from the other side's operands; None where that can't be told."""
    if _family(func) == "mask" and not _by_probabilities(func):
        mask = _mask(draw)
        return None if mask is None else mask.to(torch.float32)
    name = draw.function.overloadpacket.__name__
    if name not in PURE:
        return None
    narrow = like_recorded((args, kwargs), (draw.args, draw.kwargs))
    if narrow is None and name in _BY_SHAPE:
        narrow = tuple(_emptied(part) for part in (draw.args, draw.kwargs))
    if narrow is None:
        return None
    restore(draw)
    return draw.function(*narrow[0], **narrow[1])


def _mask(draw: Draw) -> torch.Tensor | None:
    """Which elements a dropout keeps, by logical index; None where that is not to be had of this draw."""
    restore(draw)
    if draw.function in ATTENTION:
        return attention_mask(draw)
    if draw.function is aten.native_dropout.default:
        return draw.function(draw.args[0].empty().fill_(1), *draw.args[1:])[1]
    if _by_probabilities(draw.function):
        return None
    drawn: torch.Tensor = draw.function(*_emptied(draw.args), **_emptied(draw.kwargs))
    return drawn != 0


def _emptied(values: Any) -> Any:
    return pytree.tree_map_only(Described, Described.empty, values)


def _by_probabilities(func: Any) -> bool:
    """Whether this draws by a tensor of probabilities."""
    return func in (aten.bernoulli.default, aten.bernoulli_.Tensor, aten.bernoulli.Tensor)


def _family(func: Any) -> str:
    """What is drawn, whatever the form of the operation: in place, functional, or "like" another tensor."""
    if not is_operator(func):
        return str(func)
    name = func.overloadpacket.__name__.removesuffix("_functional").removesuffix("_").removesuffix("_like")
    if name in ("native_dropout", "bernoulli") or func in ATTENTION:
        return "mask by tensor" if _by_probabilities(func) else "mask"
    return name


def _same(left: Draw, right: Draw) -> bool:
    """Whether both surely drew the same numbers: by one operation, in one form, from one state."""
    forms = [(draw.device, _name(draw), draw.drawn and _form(draw.drawn[0])) for draw in (left, right)]
    return forms[0] == forms[1] and _scalars(left) == _scalars(right) and torch.equal(left.state, right.state)


def _interchangeable(left: Draw, right: Draw) -> bool:
    """Whether the two may stand for one another: they draw the same sort of numbers for the same elements."""
    return (left.device, _family(left.function), _shape(left)) == (
        right.device,
        _family(right.function),
        _shape(right),
    ) and is_operator(right.function)


def _shape(draw: Draw) -> tuple[int, ...]:
    """Shape of what is drawn; of fused attention, that of the mask."""
    if draw.function in ATTENTION:
        return (*draw.args[0].shape[:-1], draw.args[2].shape[-2])
    return draw.drawn[0].shape if draw.drawn else ()


def _name(draw: Draw) -> str:
    if not is_operator(draw.function):
        return str(draw.function)
    name: str = draw.function.overloadpacket.__name__
    return name.removesuffix("_functional").removesuffix("_")


def _form(described: Described) -> tuple[Any, ...]:
    return described.shape, described.stride, described.template.dtype


def _scalars(draw: Draw) -> list[Any]:
    """The numbers among the arguments: probabilities, bounds."""
    return [value for value in (*draw.args, *draw.kwargs.values()) if isinstance(value, (int, float))]
