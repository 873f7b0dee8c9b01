"""Backends that are wrong in known ways, for ``backend.adapter=faulty_adapters.NAME`` with tests/ on the path."""

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from inductor_debug.stages.backends.adapter import AcceleratorAdapter


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


class WrongOperation(AcceleratorAdapter):
    """Has a kernel that gives 1 % more, for one operation."""

    name = "wrong_operation"

    def __init__(self, operation: str = "aten.sigmoid.default") -> None:
        self.operation = operation

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return _Kernels(gm, self.operation, lambda result: result * 1.01).run


class CrashOnOperation(AcceleratorAdapter):
    """Has no code for one operation, and raises where it meets it."""

    name = "crash_on_operation"

    def __init__(self, operation: str = "aten.gelu.default") -> None:
        self.operation = operation

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        for node in gm.graph.nodes:
            if str(node.target) == self.operation:
                raise RuntimeError(f"no code for {node.target} with {len(gm.graph.nodes)} nodes around it")
        return gm.forward


class KilledByOperation(WrongOperation):
    """Its kernel for one operation reads address 0."""

    name = "killed_by_operation"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return _Kernels(gm, self.operation, lambda result: ctypes.string_at(0)).run


class _Kernels(fx.Interpreter):
    """Executes a graph operation by operation, one of them otherwise."""

    def __init__(self, gm: fx.GraphModule, operation: str, change: Callable[[Any], Any]) -> None:
        super().__init__(gm)
        self.operation, self.change = operation, change

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        result = super().call_function(target, args, kwargs)
        return self.change(result) if str(target) == self.operation else result
