"""The same random numbers in float64 as in the case's own dtype.

A device may draw other numbers for another dtype: CUDA's dropout takes its numbers in the order of its vectorized
loads. Fused attention draws within its kernel and has no float64. On the CPU too ``randn`` differs by dtype. A float64
gold would then drop other elements than the reference. So one step of the case is watched (:func:`recorded_draws`):
each random operation with its dtype, strides and the generator's state before it. While gold runs (:func:`replayed`)
each of its random operations draws as the recorded one did, and its result is widened. An operation that could draw and
left the generator where it was (fused attention without dropout) counts on neither side: in float64 it may be another
kernel, or several.

Of fused attention the dropout mask is read off the kernel itself: with queries and keys of zeros and columns of the
identity for values it returns its mask, scaled.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from inductor_debug.models.gold import as_written
from inductor_debug.models.nested import memory_of
from inductor_debug.models.torch_private import OpOverload, TorchDispatchMode, UnseenMode, pytree, schema_of

aten = torch.ops.aten

ATTENTION = tuple(
    getattr(aten, name).default
    for name in (
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_cudnn_attention",
    )
)
PURE = {
    *("bernoulli_", "uniform_", "normal_", "exponential_", "random_", "geometric_", "cauchy_", "log_normal_"),
    *("bernoulli", "rand", "randn", "randint", "randperm", "normal", "rand_like", "randn_like", "randint_like"),
    *("multinomial", "poisson", "binomial"),
}
"""Operations whose result is what they drew; another one (``rrelu_with_noise``) also computes, and is not replayed."""


@dataclass
class Draw:
    """One random operation of the watched step.

    Attributes:
        function: the ATen overload, or the higher-order operation that drew.
        state: of its device's generator, before it.
        args, kwargs: as given, tensors replaced by their :class:`Described`.
        drawn: its result's tensors, described.
        used: whether a later operation of the step took the result.
    """

    function: Any
    device: torch.device
    state: torch.Tensor
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    drawn: tuple["Described", ...] = ()
    used: bool = False


@dataclass
class Described:
    """Shape, strides and a tensor without elements that has the dtype and the device."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    template: torch.Tensor

    def empty(self) -> torch.Tensor:
        return self.template.new_empty_strided(self.shape, self.stride)


@dataclass
class Draws:
    """The random operations of one step, in order.

    Attributes:
        matched: False once a replay met an operation that drew and that the watched step did not have in this place, or
            that can't be replayed. From there on gold drew for itself.
    """

    items: list[Draw] = field(default_factory=list)
    matched: bool = True


def recorded_draws(step: Callable[[], Any]) -> Draws:
    """Watch one step, which must start from the state in which the sides to compare start."""
    recorder = _Recorder()
    states()  # not first within the step: a checkpointed part of it refuses that the device is initialized there
    with recorder:
        step()
    return recorder.draws


@contextmanager
def replayed(draws: Draws) -> Iterator[None]:
    """Inside, random operations draw as in the watched step, from its first on."""
    draws.matched = True
    replay = _Replay(draws)
    with replay:
        yield
    if replay.position < len(draws.items):
        draws.matched = False


class _Recorder(UnseenMode):
    def __init__(self) -> None:
        super().__init__()
        self.draws = Draws()
        self.unused: list[tuple[torch.Tensor, Draw]] = []  # which keeps the tensors, so that no memory is reused

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._note_uses((args, kwargs))
        if is_operator(func) and torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        described_args, described_kwargs = pytree.tree_map_only(torch.Tensor, _described, (args, kwargs))
        before = states()
        result = func(*args, **kwargs)
        tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        for device, state in before.items():
            if not unmoved({device: state}):
                drawn = tuple(_described(tensor) for tensor in tensors)
                draw = Draw(func, device, state, described_args, described_kwargs, drawn)
                self.draws.items.append(draw)
                self.unused += [(tensor.detach(), draw) for tensor in tensors]
        return result

    def _note_uses(self, arguments: Any) -> None:
        if not self.unused:
            return
        read = {memory_of(leaf) for leaf in pytree.tree_leaves(arguments) if _has_memory(leaf)}
        for tensor, draw in self.unused:
            draw.used |= not _has_memory(tensor) or memory_of(tensor) in read
        self.unused = [(tensor, draw) for tensor, draw in self.unused if not draw.used]


def is_operator(func: Any) -> bool:
    """Whether this is an operator's overload, no higher-order operation, of which it can't be told whether it draws."""
    return isinstance(func, OpOverload)


def may_draw(func: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an operator may draw from a device's own generator."""
    random = is_operator(func) and torch.Tag.nondeterministic_seeded in func.tags
    return random and kwargs.get("generator") is None


def _has_memory(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and not leaf.is_meta


class _Replay(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self.draws, self.position = draws, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not may_draw(func, kwargs) or not self.draws.matched:
            return func(*args, **kwargs)
        draw = self.draws.items[self.position] if self.position < len(self.draws.items) else None
        default = torch.get_default_dtype()
        with as_written():
            result = None if draw is None else _redrawn(draw, func, args, kwargs, default)
        if result is not None:
            self.position += 1
            return result
        before = states()
        result = func(*args, **kwargs)
        # what could draw and did not (attention without dropout) was not recorded either, and takes no place
        self.draws.matched = unmoved(before)
        return result


def _redrawn(draw: Draw, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], default: torch.dtype) -> Any:
    """What ``func`` gives with the numbers of ``draw``; None, and nothing drawn, where the two do not belong together.

    Args:
        default: dtype of what names none.
    """
    if not torch.equal(state_of(draw.device), draw.state):
        return None  # another step, from another seed
    name = func.overloadpacket.__name__
    if name == "native_dropout":
        return _dropout(draw, *args, **kwargs)
    if func is not draw.function or name not in PURE:
        return None
    narrow = like_recorded((args, kwargs), (draw.args, draw.kwargs))
    if narrow is None:
        return None
    drawn = draw.function(*narrow[0], **narrow[1])
    if schema_of(func).is_mutable:
        return args[0].copy_(drawn)
    like = next((value.dtype for value in args if isinstance(value, torch.Tensor)), default)
    return drawn.to(kwargs.get("dtype") or like) if drawn.is_floating_point() else drawn


def _dropout(draw: Draw, wide: torch.Tensor, probability: float, train: bool | None) -> Any:
    if draw.function is aten.native_dropout.default:
        like = draw.args[0]
        if like.shape != tuple(wide.shape) or draw.args[1] != probability:
            return None
        _, mask = draw.function(like.empty().fill_(1), probability, train)
    elif draw.function in ATTENTION:
        query, keys = draw.args[0].shape, draw.args[2].shape[-2]
        if tuple(wide.shape) != (*query[:-1], keys):
            return None
        mask = attention_mask(draw)
    else:
        return None
    return wide * mask * (1 / (1 - probability) if probability < 1 else 0.0), mask


def attention_mask(draw: Draw) -> torch.Tensor:
    """Which elements of ``softmax(q @ k.T)``, (batch, heads, queries, keys), the recorded kernel keeps; bool."""
    query, key, value, *rest = (item.empty().zero_() if isinstance(item, Described) else item for item in draw.args)
    kwargs = {name: item.empty().zero_() if isinstance(item, Described) else item for name, item in draw.kwargs.items()}
    keys, width = value.shape[-2], value.shape[-1]
    kept = torch.empty((*query.shape[:-1], keys), dtype=torch.bool, device=query.device)
    for first in range(0, keys, width):
        count = min(width, keys - first)
        value.zero_()
        value[..., first : first + count, :count] = torch.eye(count, dtype=value.dtype, device=value.device)
        restore(draw)
        kept[..., first : first + count] = draw.function(query, key, value, *rest, **kwargs)[0][..., :count] != 0
    return kept


def like_recorded(mine: Any, recorded: Any) -> Any:
    """``mine`` with its tensors in the recorded dtypes and strides; None where a shape or another argument differs."""
    flat, spec = pytree.tree_flatten(mine)
    theirs, _ = pytree.tree_flatten(recorded)
    if len(flat) != len(theirs):
        return None
    narrow = []
    for left, right in zip(flat, theirs, strict=True):
        if isinstance(right, Described):
            if not isinstance(left, torch.Tensor) or tuple(left.shape) != right.shape:
                return None
            narrow.append(right.empty().copy_(left))
        elif left == right or isinstance(right, torch.dtype):
            narrow.append(right)
        else:
            return None
    return pytree.tree_unflatten(narrow, spec)


def _described(tensor: torch.Tensor) -> Described:
    return Described(tuple(tensor.shape), tuple(tensor.stride()), tensor.detach().new_empty(0))


def states() -> dict[torch.device, torch.Tensor]:
    devices = [torch.device("cpu")]
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None:
        devices.append(torch.device(accelerator.type, torch.accelerator.current_device_index()))
    return {device: state_of(device) for device in devices}


def state_of(device: torch.device) -> torch.Tensor:
    if device.type == "cpu":
        return torch.get_rng_state()
    return torch.get_device_module(device).get_rng_state(device)


def unmoved(before: dict[torch.device, torch.Tensor]) -> bool:
    """Whether the generators are where they were: nothing was drawn."""
    return all(torch.equal(state, state_of(device)) for device, state in before.items())


def restore(draw: Draw) -> None:
    """Put the generator into the state that it had before the draw."""
    if draw.device.type == "cpu":
        torch.set_rng_state(draw.state)
    else:
        torch.get_device_module(draw.device).set_rng_state(draw.state, draw.device)
