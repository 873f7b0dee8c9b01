"""What each submodule receives as the model runs by torch."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from inductor_debug.models.torch_private import pytree
from inductor_debug.stages.minify.modules.inline import MODULE
from inductor_debug.stages.minify.modules.values import Values
from inductor_debug.stages.repro import NotReproducible

Arguments = tuple[Sequence[Any], Mapping[str, Any]]
"""Positional and keyword arguments of a call."""

EXACT = 1e-5
"""Difference of results, over their size, up to which a module that was made anew computes the same."""


@dataclass(frozen=True)
class Received:
    """A call of a submodule: what it got, with its own numbers, what it gave, and the generator's state before."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    output: Any
    generator: torch.Tensor


def described(module: MODULE, calls: Sequence[Arguments], values: Mapping[str, Values]) -> dict[str, list[str]]:
    """Source of what submodules get in all calls, by their path.

    Args:
        module: the model, left as found.
        calls: of it.
        values: write what each path gets. A path is left out whose arguments can't be written.
    """
    found: dict[str, list[str]] = {path: [] for path in values}
    refused: set[str] = set()

    def hook(path: str) -> Any:
        def before(_: MODULE, args: Any, kwargs: Any) -> None:
            try:
                found[path].append(call_source(args, kwargs, values[path], f"{path or 'model'}.{len(found[path])}"))
            except NotReproducible:
                refused.add(path)

        return before

    with running(module, calls) as ran:
        for path in values:
            ran.get_submodule(path).register_forward_pre_hook(hook(path), with_kwargs=True)
    return {path: given for path, given in found.items() if given and path not in refused}


def received(module: MODULE, calls: Sequence[Arguments], path: str) -> list[Received]:
    """What one submodule gets and gives in all calls."""
    found: list[Received] = []
    begun: list[tuple[Any, Any, torch.Tensor]] = []

    def before(_: MODULE, args: Any, kwargs: Any) -> None:
        begun.append((*copied((args, kwargs)), torch.get_rng_state()))

    def after(_: MODULE, args: Any, kwargs: Any, output: Any) -> None:
        got, named, generator = begun.pop()
        found.append(Received(got, named, copied(output), generator))

    with running(module, calls) as ran:
        chosen = ran.get_submodule(path)
        chosen.register_forward_pre_hook(before, with_kwargs=True)
        chosen.register_forward_hook(after, with_kwargs=True)
    return found


def call_source(args: Sequence[Any], kwargs: Mapping[str, Any], values: Values, name: str) -> str:
    """Source of a call's arguments, ``((x,), {"mask": None})``.

    Args:
        args, kwargs: the arguments.
        values: writes them.
        name: of tensors' numbers, where they are stored.

    Raises:
        NotReproducible: one of them can't be written.
    """
    plain = values.source(tuple(args), name)
    named = ", ".join(f"{key!r}: {values.source(item, f'{name}.{key}')}" for key, item in kwargs.items())
    return f"({plain}, {{{named}}})"


def copied(value: Any) -> Any:
    """A value whose tensors are copies, of the same layout where no elements share memory."""
    return pytree.tree_map(lambda item: item.detach().clone() if isinstance(item, torch.Tensor) else item, value)


@contextmanager
def kept_generator() -> Iterator[None]:
    """Leaves torch's generator as it was."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _copied(module: MODULE) -> MODULE:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise NotReproducible(f"the model can't be copied: {type(error).__name__}: {error}") from error


@contextmanager
def running(module: MODULE, calls: Sequence[Arguments]) -> Iterator[MODULE]:
    """A copy of the model, to put hooks on; it is called as the block ends, by torch, without gradients."""
    ran = _copied(module)
    yield ran
    with torch.no_grad(), kept_generator():
        torch.manual_seed(0)
        for args, kwargs in copied([(tuple(args), dict(kwargs)) for args, kwargs in calls]):
            ran(*args, **kwargs)
