"""What TorchInductor's value printer says of small models with a NaN in them."""

import math
from collections.abc import Sequence

import torch

from inductor_debug.stages.lower.values import ValueObserver
from inductor_debug.stages.torch_internals.inductor import LoweredGraph
from inductor_debug.stages.torch_internals.inductor_scheduler import BufferInfo, Schedule, ScheduledNode

from native_printer import print_tensor  # isort: skip

NAN, ONES = torch.full((70,), math.nan), torch.ones(70)


CODE = """
    // [Provenance debug handles] mm_out:1
    mm_out(buf0, arg0_1);
    auto buf1 = std::move(buf0);  // reuse
    // [Provenance debug handles] cpp_relu:2
    cpp_relu(buf1);
    // [Provenance debug handles] mm_out:3
    mm_out(buf2, buf1);
    auto buf3 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf2, 1, int_array_0, int_array_1, 0L)); // reuse
    // [Provenance debug handles] cpp_relu:4
    cpp_relu(buf3);
"""  # noqa: E501


def lowered() -> LoweredGraph:
    """A product, in place of it another kernel, and the same again."""
    names = ("arg0_1", "buf0", "buf1", "buf2", "buf3")
    roles = dict.fromkeys(names, "buffer") | {"arg0_1": "input"}
    buffers = {name: BufferInfo(name, roles[name], [70], [1], "float32", "cpu", 280) for name in names}
    nodes = [
        ScheduledNode(f"op{index}", [f"op{index}"], [names[index]], [f"buf{index}"], [], [],
                      "generated" if index % 2 else "extern")
        for index in range(4)
    ]  # fmt: skip
    kernel = '#include "x.h"\nextern "C"  void  cpp_relu(float* in_out_ptr0)\n{\n}\n'
    return LoweredGraph(
        "g0.forward",
        language="cpp",
        schedule=Schedule(nodes=nodes, buffers=buffers),
        source_code=kernel + CODE,
        kernel_nodes={key: [] for key in ("mm_out:1", "cpp_relu:2", "mm_out:3", "cpp_relu:4")},
    )


def observed(*labels: tuple[str, torch.Tensor], kernels: Sequence[str] = ()) -> ValueObserver:
    observer = ValueObserver(level=2, kernels=kernels)

    def run() -> Sequence[torch.Tensor]:
        for label, tensor in labels:
            print_tensor(tensor, label)
        return [ONES]

    observer(lowered(), run)
    return observer
