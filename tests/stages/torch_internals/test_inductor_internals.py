"""Names every private API of TorchInductor that lowering relies on: a new torch release breaks here first."""

import inspect
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from inductor_debug.stages.torch_internals.inductor import RecordingCompiler


def test_compilation_names() -> None:
    import torch._inductor.config as inductor_config
    import torch._inductor.debug as inductor_debug
    from torch._dynamo.repro import after_aot
    from torch._dynamo.utils import is_parameter_freezing
    from torch._inductor import compile_fx

    assert "inner_compile" in inspect.signature(compile_fx.compile_fx).parameters
    assert callable(compile_fx.compile_fx_inner)
    assert next(iter(inspect.signature(compile_fx._recursive_joint_graph_passes).parameters)) == "gm"
    assert list(inspect.signature(after_aot.save_graph_repro).parameters)[:3] == ["fd", "gm", "args"]
    assert compile_fx.get_cpp_wrapper_config()["triton.store_cubin"] is True
    assert callable(inductor_debug.reset_provenance_globals)
    known = inductor_config.get_config_copy()
    assert {"_pre_fusion_custom_pass", "_post_fusion_custom_pass", "trace.provenance_tracking_level"} <= set(known)
    assert {"fx_graph_cache", "fx_graph_remote_cache"} <= set(known)
    assert inductor_config.get_type("pattern_matcher") is bool
    assert "torch._inductor.config.freezing" in inspect.getsource(is_parameter_freezing)


def test_scheduler_names() -> None:
    from torch._inductor import ir, scheduler, select_algorithm
    from torch._inductor.graph import GraphLowering
    from torch._inductor.sizevars import SizeVarAllocator

    refuse = scheduler.WhyNoFuse.__call__
    assert list(inspect.signature(refuse).parameters)[:2] == ["self", "reason"]
    assert {"name1", "name2"} <= set(scheduler.WhyNoFuse.__annotations__)
    names = {"debug_str", "get_name", "get_nodes", "get_outputs", "is_extern", "is_template"}
    assert names <= set(dir(scheduler.BaseSchedulerNode))
    assert {"get_name", "get_mutations"} <= set(dir(scheduler.SchedulerBuffer))
    assert issubclass(scheduler.NopKernelSchedulerNode, scheduler.BaseSchedulerNode)
    assert {"get_size", "get_dtype", "get_device", "maybe_get_stride", "has_tensor_output"} <= set(dir(ir.Buffer))
    assert issubclass(ir.MultiOutput, ir.ExternKernel)
    assert isinstance(GraphLowering, type) and isinstance(SizeVarAllocator, type)
    select_algorithm.add_feedback_saver(print)
    savers = select_algorithm.get_algorithm_selector_cache().feedback_saver_fns
    assert savers.pop() is print


def test_access_names() -> None:
    from torch._inductor.dependencies import MemoryDep, WeakDep
    from torch._inductor.loop_body import LoopBody
    from torch._inductor.scheduler import SchedulerNode

    assert callable(SchedulerNode.get_ranges)
    assert callable(LoopBody.is_memory_copy) and "_body" in SchedulerNode.__annotations__
    assert "name" in WeakDep.__annotations__
    assert {"name", "index", "var_names", "size"} <= set(MemoryDep.__annotations__)
    assert callable(MemoryDep.is_indirect)


def test_a_template_has_no_loops_that_could_be_a_copys() -> None:
    from torch._inductor.ir import TemplateBuffer

    template = SimpleNamespace(get_size=lambda: [64, 32])
    assert TemplateBuffer.simplify_and_reorder(cast(Any, template))[1] is None


def test_loading_names() -> None:
    from torch._inductor import graph, output_code
    from torch._inductor.codecache import PyCodeCache

    assert next(iter(inspect.signature(PyCodeCache.write).parameters)) == "source_code"
    assert list(inspect.signature(PyCodeCache.load_by_key_path).parameters)[:4] == ["key", "path", "linemap", "attrs"]
    assert "PyCodeCache.load_by_key_path(" in inspect.getsource(graph.GraphLowering)
    assert "open(graph.cache_path)" in inspect.getsource(output_code.CompiledFxGraph)  # the original's file


def test_profiling_names() -> None:
    from torch._C._profiler import _RecordFunctionFast
    from torch.autograd.profiler_util import FunctionEvent

    with _RecordFunctionFast("name"):
        pass
    names = set(inspect.signature(FunctionEvent.__init__).parameters)
    assert {"sequence_nr", "is_async", "is_user_annotation", "device_type", "thread", "start_us", "end_us"} <= names
    assert {"device_time_total", "cpu_time_total"} <= set(dir(FunctionEvent))


def test_history_names() -> None:
    from torch.fx.traceback import NodeSource

    assert {"name", "from_node"} <= set(dir(NodeSource)) | set(NodeSource.__annotations__)


def test_aot_inductor_names() -> None:
    import torch
    import torch._inductor.config as inductor_config
    import torch._inductor.debug as inductor_debug
    from torch._guards import TracingContext, detect_fake_mode, tracing
    from torch._inductor.codegen.debug_utils import DebugPrinterManager
    from torch._inductor.compile_fx import compile_fx_aot
    from torch._inductor.output_code import CompiledAOTI
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    assert {"inner_compile", "config_patches"} <= set(inspect.signature(compile_fx_aot).parameters)
    assert "filename" in CompiledAOTI.__dataclass_fields__
    assert callable(torch._C._aoti.AOTIModelContainerRunnerCpu)
    assert callable(inductor_debug.dump_inductor_provenance_info)
    assert isinstance(inductor_debug._inductor_kernel_stack_trace, dict)
    assert "kernel_name" in inspect.signature(DebugPrinterManager.set_printer_args).parameters
    options = ("debug_intermediate_value_printer", "filtered_kernel_names", "output_path")
    assert {f"aot_inductor.{name}" for name in options} <= set(inductor_config.get_config_copy())
    assert isinstance(cache_dir(), str) and callable(tracing) and callable(detect_fake_mode)
    assert isinstance(TracingContext, type)


def test_the_runnable_graph_is_written_where_nobody_listens_to_torchs_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """From torch 2.15 it is written for a listener alone. pytest listens, a run of the pipeline does not."""
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "handlers", [])
    torch._dynamo.reset()
    compiler = RecordingCompiler()
    torch.compile(torch.sin, backend=compiler)(torch.ones(4))
    (lowered,) = compiler.graphs.values()
    assert "torch.ops.aten.sin" in lowered.runnable and lowered.not_established == []


def test_a_loops_text_is_that_of_torch() -> None:
    from torch._inductor import config
    from torch._inductor.loop_body import LoopBodyBlock

    from inductor_debug.stages.torch_internals.inductor_scheduler import block_text

    found: list[tuple[str, str]] = []

    def look(nodes: list[Any]) -> list[Any]:
        bodies = [member._body for node in nodes for member in node.get_nodes() if hasattr(member, "_body")]
        for block in (block for body in bodies for block in (body.root_block, *body.subblocks.values())):
            found.append((block_text(block, "body"), LoopBodyBlock.debug_str(block, "body")))
        return nodes

    def model(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x.softmax(-1), x[at].sin()).cumsum(0) + torch.rand_like(x)

    torch._dynamo.reset()
    with config.patch(_pre_fusion_custom_pass=look, _post_fusion_custom_pass=look):
        torch.compile(model)(torch.randn(8, 32), torch.arange(8))
    assert len(found) > 4 and all(ours == theirs and ours.startswith("def body(") for ours, theirs in found)
