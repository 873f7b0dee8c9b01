"""Records the Triton code that the installed torch generates: ``python tests/corpus/record_triton.py``, without a GPU.

Leaves in ``tests/corpus/torch-VERSION/`` the modules ``triton_inference.txt``, ``triton_forward.txt`` and
``triton_backward.txt``. ``triton.json`` has of each its launches by torch's own provenance table, the scheduler's
buffers, and its fused nodes, each with its members.

What torch asks of the device is answered with the properties of an H100; nothing is built or launched. It takes a build
of torch with CUDA, but no driver. Inference is traced on fake CUDA tensors. Training is traced on the CPU, for autograd
asks the driver for the device itself; its graphs are moved to CUDA before TorchInductor gets them.
"""

import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._dynamo.device_interface
import torch._inductor.async_compile
import torch._inductor.fx_passes.joint_graph
import triton
from torch._functorch.aot_autograd import make_boxed_func
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map_only
from triton.backends.compiler import GPUTarget

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from record import lowered, portable, write  # noqa: E402 - this folder's

from inductor_debug.stages.torch_internals.inductor import LoweredGraph, RecordingCompiler  # noqa: E402

GPU = torch.device("cuda:0")

H100 = SimpleNamespace(
    name="NVIDIA H100", major=9, minor=0, gcnArchName="", multi_processor_count=132, regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32, total_memory=80 * 2**30,
    shared_memory_per_block=48 * 2**10, shared_memory_per_block_optin=227 * 2**10, L2_cache_size=50 * 2**20,
)  # fmt: skip


class Driver:
    """What is asked of Triton's driver."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)


class PrintingCompiler(RecordingCompiler):
    """Records what is generated for CUDA; the graph itself runs in its place."""

    def _inner_compile(
        self, common: Any, gm: torch.fx.GraphModule, inputs: Sequence[Any], *rest: Any, **more: Any
    ) -> Callable[..., Any]:
        as_it_was = copy.deepcopy(gm)
        super()._inner_compile(common, gm, moved(gm, inputs), *rest, **more)
        return make_boxed_func(as_it_was.forward)


def moved(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """The inputs on CUDA; so are then the graph's example values, and what it makes itself."""
    on_gpu = functools.partial(tree_map_only, torch.Tensor, lambda tensor: tensor.to(GPU))
    valued = [node for node in gm.graph.nodes if "val" in node.meta]
    with next(value.fake_mode for node in valued if isinstance(value := node.meta["val"], FakeTensor)):
        for node in valued:
            node.meta["val"] = on_gpu(node.meta["val"])
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": GPU}
        return [on_gpu(value) for value in inputs]


def always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


@contextlib.contextmanager
def pretended_gpu() -> Iterator[None]:
    """Inside, what is generated for ``cuda:0`` is for an H100."""
    torch._C._ensureCUDADeviceGuardSet()  # as fake tensors do where there is no GPU
    answers = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_properties": H100,
        "get_device_capability": (9, 0), "get_device_name": H100.name, "is_bf16_supported": True,
        "_exchange_device": 0, "_maybe_exchange_device": 0, "_lazy_init": None, "synchronize": None,
        "set_rng_state": None, "is_current_stream_capturing": False,
    }  # fmt: skip
    asked = {
        "is_available": True, "device_count": 1, "current_device": 0, "get_device_properties": H100,
        "exchange_device": 0, "maybe_exchange_device": 0, "get_raw_stream": 0,
    }  # fmt: skip
    interface = torch._dynamo.device_interface.CudaInterface
    with contextlib.ExitStack() as stack:
        for name, value in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, always(value)))
        for name, value in asked.items():
            stack.enter_context(mock.patch.object(interface, name, staticmethod(always(value))))
            if hasattr(interface.Worker, name):
                stack.enter_context(mock.patch.object(interface.Worker, name, staticmethod(always(value))))
        state = lambda *args: torch.zeros(16, dtype=torch.uint8, device="cpu")  # noqa: E731
        stack.enter_context(mock.patch.object(torch.cuda, "get_rng_state", state))
        stack.enter_context(mock.patch.object(torch._C, "_cuda_getCurrentRawStream", always(0), create=True))
        stack.enter_context(mock.patch.object(torch._inductor.fx_passes.joint_graph, "lazy_init", always(None)))
        stack.enter_context(mock.patch.object(torch._subclasses.fake_tensor, "init_gpu_context", always(None)))
        stack.enter_context(mock.patch.object(torch._inductor.async_compile.AsyncCompile, "triton", always(None)))
        triton.runtime.driver.set_active(Driver())  # and stays: putting it back would look for a real one
        yield


def found_in(graph: LoweredGraph) -> dict[str, Any]:
    return {
        "launches": sorted({*graph.kernel_nodes, *graph.kernel_stacks}),
        "buffers": sorted({buffer for node in graph.schedule.nodes for buffer in node.writes}),
        "fused": {node.name: node.members for node in graph.schedule.nodes if len(node.members) > 1},
    }


def main() -> None:
    folder = HERE / f"torch-{'.'.join(torch.__version__.split('.')[:2])}"
    with pretended_gpu():
        with FakeTensorMode(), GPU:
            (inference,) = lowered(PrintingCompiler())
        forward, backward = lowered(PrintingCompiler(), training=True)
    graphs = {"triton_inference": inference, "triton_forward": forward, "triton_backward": backward}
    for name, graph in graphs.items():
        (folder / f"{name}.txt").write_text(portable(graph.source_code))
    modules = {name: found_in(graph) for name, graph in graphs.items()}
    write(folder / "triton.json", {"torch": torch.__version__, "modules": modules})


if __name__ == "__main__":
    main()
