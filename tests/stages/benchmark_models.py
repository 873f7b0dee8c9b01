"""Models and backends for sampling processes, which import them by name."""

import gc
import json
import os
import signal
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx, nn
from torch._inductor.compile_fx import compile_fx

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.backends.adapter import AcceleratorAdapter, run_as_traced


def net() -> tuple[nn.Module, tuple[Tensor]]:
    """Two projections and a GELU, compiled to one kernel."""
    return nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 8)), (torch.randn(2, 16),)


def sized(batch_size: int) -> tuple[nn.Module, tuple[Tensor]]:
    """One projection and an input of ``batch_size`` rows; memory runs out at 3, and 5 kills the process."""
    if batch_size == 3:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 20.00 GiB")
    if batch_size == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return nn.Linear(16, 8), (torch.randn(batch_size, 16),)


class Slow(nn.Module):
    """Waits in forward until it is ended."""

    def forward(self, x: Tensor) -> Tensor:
        os.write(1, b"sampling\n")
        signal.pause()
        return x


def slow() -> tuple[nn.Module, tuple[Tensor]]:
    """``Slow`` and an input."""
    return Slow(), (torch.randn(2),)


class Counting(nn.Module):
    """Notes at each call in which process it is, and how many tensors of its weight's shape live in that."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file, self.weight = file, nn.Parameter(torch.randn(131, 7))

    @torch.compiler.disable
    def forward(self, x: Tensor) -> Tensor:
        alive = [item for item in gc.get_objects() if type(item) in (Tensor, nn.Parameter)]
        copies = sum(item.shape == self.weight.shape for item in alive)
        with open(self.file, "a") as file:
            file.write(json.dumps({"process": os.getpid(), "copies": copies}) + "\n")
        return x @ self.weight


def counting(file: str, threads: int) -> tuple[nn.Module, tuple[Tensor]]:
    """``Counting``, which notes in ``file``, and an input of shape (2, 131), in a process of so many threads."""
    torch.set_num_threads(threads)
    return Counting(file), (torch.randn(2, 131),)


class Crashing(AcceleratorAdapter):
    """Its kernels end the process."""

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        def kernel(*inputs: Tensor) -> Sequence[Tensor]:
            os.kill(os.getpid(), signal.SIGSEGV)
            return run_as_traced(gm)(*inputs)

        return kernel


class Refusing(AcceleratorAdapter):
    """Finds a mistake that only compiling can tell."""

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        raise ConfigurationError("backend.options.x: got 1; valid: 2.\nTry: backend.options.x=2")


class Tells(AcceleratorAdapter):
    """Raises what the process's environment says of cuBLAS."""

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        raise RuntimeError(f"workspace={os.environ.get('CUBLAS_WORKSPACE_CONFIG')}")


class Silent(AcceleratorAdapter):
    """Leaves every graph to TorchInductor in silence."""

    name, level = "silent", "dynamo"

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        return compile_fx(gm, list(example_inputs))  # type: ignore[return-value]
