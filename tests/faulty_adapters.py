"""Backends that are wrong in known ways, for ``backend.adapter=faulty_adapters.NAME`` with tests/ on the path."""

import ctypes
import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx

from stages.lower.adapter import AcceleratorAdapter


class ScaledOutput(AcceleratorAdapter):
    """Multiplies the first floating output of the first graph by ``factor``."""

    name = "scaled_output"

    def __init__(self, factor: float = 1.001) -> None:
        if not factor > 0:
            raise ValueError(f"factor is {factor}, not above 0")
        self.factor = factor
        self.graphs = 0

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        self.graphs += 1
        if self.graphs > 1:
            return gm.forward

        def call(*inputs: Tensor) -> Sequence[Tensor]:
            outputs = list(gm(*inputs))
            index = next(i for i, out in enumerate(outputs) if isinstance(out, Tensor) and out.is_floating_point())
            outputs[index] = outputs[index] * self.factor
            return outputs

        return call


class CrashInCompile(AcceleratorAdapter):
    """Raises while it compiles."""

    name = "crash_in_compile"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        raise RuntimeError("the faulty compiler gave up")


class Segfault(AcceleratorAdapter):
    """Reads address 0 when the compiled graph runs."""

    name = "segfault"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return lambda *inputs: ctypes.string_at(0)  # type: ignore[return-value]


class Hang(AcceleratorAdapter):
    """Never returns from the compiled graph."""

    name = "hang"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return lambda *inputs: threading.Event().wait()  # type: ignore[return-value]


class OutOfMemory(AcceleratorAdapter):
    """Allocates and touches memory until it gets no more."""

    name = "out_of_memory"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        def call(*inputs: Tensor) -> Sequence[Tensor]:
            held = []
            while True:
                held.append(torch.ones(16 * 2**20))  # 64 MiB, written

        return call
