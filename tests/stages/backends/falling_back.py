"""Backends that leave their work to TorchInductor in silence, and some that do it themselves; a model for them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.compile_fx import compile_fx, compile_fx_inner

from inductor_debug import AcceleratorAdapter, diff
from inductor_debug.stages.kerneldiff.records import Comparison
from inductor_debug.stages.torch_internals.inductor import inductor_decompositions

Run = Callable[..., Any]


class Net(nn.Module):
    """With ``breaks`` in two graphs; with ``eager`` an operation between them that Dynamo leaves alone."""

    def __init__(self, breaks: bool = False, eager: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.breaks, self.eager = nn.Linear(8, 16), nn.Linear(16, 4), breaks, eager

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        if self.breaks:
            torch._dynamo.graph_break()
        if self.eager:
            x = left_to_torch(x)
        return self.last(x).softmax(-1)


@torch.compiler.disable
def left_to_torch(x: Tensor) -> Tensor:
    return x.sin() * 2


def found(backend: Any, mode: str = "inference", module: nn.Module | None = None, **options: Any) -> Comparison:
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(0)
    args = (torch.randn(6, 8, generator=generator),)
    return diff(module or Net(), args, backend=backend, mode=mode, **{"draws": 1} | options)


def no_device(gm: fx.GraphModule) -> Run:
    raise RuntimeError("no device")


def silent(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    """Falls back as OpenVINO's does."""
    try:
        return no_device(gm)
    except RuntimeError:
        return compile_fx(gm, list(inputs))


def wrapped(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    compiled = compile_fx(gm, list(inputs))
    return lambda *args: tuple(compiled(*args))


def behind_its_own_autograd(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    def half(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        return make_boxed_func(silent(graph, example_inputs))

    return aot_autograd(fw_compiler=half, bw_compiler=half)(gm, inputs)


class SilentAot(AcceleratorAdapter):
    """Falls back for each of AOTAutograd's graphs for which ``falls`` says so."""

    name = "silent_aot"

    def __init__(self, falls: Callable[[int], bool] = lambda number: True) -> None:
        self.falls, self.count = falls, 0
        self.decompositions = inductor_decompositions()

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Run:
        number, self.count = self.count, self.count + 1
        if not self.falls(number):
            return interpreted(gm, example_inputs)
        compiled = compile_fx_inner(gm, list(example_inputs))
        return lambda *args: compiled(list(args))


def interpreted(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    """An own interpreter, of which nobody can tell what else it does."""

    class Own(fx.Interpreter):
        pass

    return Own(gm).run


def by_numpy(gm: fx.GraphModule, inputs: Sequence[Any]) -> Run:
    """Two layers and a softmax, by code of its own."""

    def run(*args: Tensor) -> tuple[Tensor]:
        values = [value.detach().numpy() for value in args]
        first, last = (value for value in values if value.shape in ((16, 8), (4, 16)))
        bias, other = (value for value in values if value.ndim == 1)
        x = next(value for value in values if value.shape == (6, 8))
        logits = numpy.maximum(x @ first.T + bias, 0) @ last.T + other
        powers = numpy.exp(logits - logits.max(-1, keepdims=True))
        return (torch.from_numpy(powers / powers.sum(-1, keepdims=True)),)

    return run
