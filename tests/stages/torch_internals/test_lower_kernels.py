"""Generated modules taken apart: kernels, launches, and what a launch computes."""

import math
from types import SimpleNamespace

import pytest

from inductor_debug.stages.artifacts.lowered_tables import FusionRow
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.lower.decisions import autotuning, fusions, kernel_rows
from inductor_debug.stages.lower.kernel_records import describe_kernels
from inductor_debug.stages.lower.provenance import map_nodes
from inductor_debug.stages.torch_internals import generated_launches
from inductor_debug.stages.torch_internals.generated_kernels import Kernel, split_kernels
from inductor_debug.stages.torch_internals.generated_launches import Launch, find_launches, launch_buffers
from inductor_debug.stages.torch_internals.inductor import LoweredGraph
from inductor_debug.stages.torch_internals.inductor_nodes import PostGradNode
from inductor_debug.stages.torch_internals.inductor_scheduler import Autotuning, BufferInfo, Schedule, ScheduledNode

TRITON_CALL = """
        # [Provenance debug handles] triton_poi_fused_add_0:1
        stream0 = get_raw_stream(0)
        triton_poi_fused_add_0.run(arg0_1, arg1_1, buf0, 64, stream=stream0)
        del arg0_1
        # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.addmm]
        # [Provenance debug handles] extern_kernels.addmm:2
        extern_kernels.addmm(arg2_1, reinterpret_tensor(buf0, (8, 8), (8, 1), 0),
                             arg3_1, alpha=1, beta=1, out=buf1)
"""

CPP_WRAPPER = '''r"""
Compile-time auto-tuning block:

async_compile = AsyncCompile()
triton_poi_0 = async_compile.triton('triton_poi_0', \'\'\'
def triton_poi_0(): pass
\'\'\', device_str='cuda')
"""
cpp_wrapper_src = (
r\'\'\'
extern "C"  void  cpp_fused_add_0(const float* in_ptr0,
                       float* out_ptr0);
void call() {
    // [Provenance debug handles] aoti_torch_cpu_convolution:2
    AtenTensorHandle buf2_handle;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_convolution(buf0, buf1, nullptr, &buf2_handle));
}
extern "C"  void  cpp_fused_add_0(const float* in_ptr0,
                       float* out_ptr0)
{
    { out_ptr0[0] = in_ptr0[0]; }
}
\'\'\')
'''


def buffer(name: str, origin: str = "", role: str = "buffer") -> BufferInfo:
    return BufferInfo(name, role, [8, 8], [8, 1], "float32", "cpu", 256, origin or (name if role == "input" else ""))


def scheduled(
    name: str, reads: list[str], writes: list[str], origins: list[str], kind: str = "generated"
) -> ScheduledNode:
    return ScheduledNode(name, [name], reads, writes, [], origins, kind)


def post(name: str, target: str, *inputs: str, view: bool = False) -> PostGradNode:
    return PostGradNode(name, target, "", None, (), "", "", inputs, view)


def test_the_statement_after_a_handle_tells_the_buffers() -> None:
    names = {"arg0_1", "arg1_1", "arg2_1", "arg3_1", "buf0", "buf1"}
    assert launch_buffers(TRITON_CALL, names) == {
        "triton_poi_fused_add_0:1": ["arg0_1", "arg1_1", "buf0"],
        "extern_kernels.addmm:2": ["arg2_1", "buf0", "arg3_1", "buf1"],
    }
    assert launch_buffers(CPP_WRAPPER, {"buf0", "buf1", "buf2"}) == {
        "aoti_torch_cpu_convolution:2": ["buf0", "buf1", "buf2"]
    }


def test_a_handle_without_its_launch_nearby_has_no_buffers() -> None:
    text = "# [Provenance debug handles] a:1\nother.run(buf0)\n# [Provenance debug handles] b:2\na.run(buf1)"
    assert launch_buffers(text, {"buf0", "buf1"}) == {"a:1": [], "b:2": []}


def test_kernels_of_a_module_with_a_cpp_wrapper() -> None:
    triton, cpp = split_kernels(CPP_WRAPPER)
    assert (triton.name, triton.kind, triton.file) == ("triton_poi_0", "triton", "triton_poi_0.py")
    assert (cpp.name, cpp.kind) == ("cpp_fused_add_0", "cpp")
    assert cpp.source.endswith("{ out_ptr0[0] = in_ptr0[0]; }\n}") and cpp.source.startswith('extern "C"')
    with pytest.raises(SyntaxError):
        split_kernels("int main() {}")
    assert split_kernels("x = async_compile.cpp_pybinding(['a'], r'''code''')") == [Kernel("x", "cpp", "code")]


def lowered(
    code: str, kernel_nodes: dict[str, list[str]], nodes: list[PostGradNode], schedule: Schedule
) -> LoweredGraph:
    return LoweredGraph("g0.forward", source_code=code, kernel_nodes=kernel_nodes, nodes=nodes, schedule=schedule)


def test_a_copy_for_a_call_computes_nothing_that_led_to_the_call() -> None:
    """As on channels-last convolutions: Inductor names the convolution and the ReLU before it with a weight's copy."""
    code = """
        # [Provenance debug handles] cpp_copy:1
        cpp_copy(arg0_1, buf0)
        # [Provenance debug handles] extern_kernels.convolution:2
        buf1 = extern_kernels.convolution(arg1_1, buf0)
        # [Provenance debug handles] cpp_relu:3
        cpp_relu(buf1, buf2)
"""
    nodes = [
        post("convolution", "aten.convolution.default", "arg1_1", "arg0_1"),
        post("relu", "aten.relu.default", "convolution"),
        post("convolution_1", "aten.convolution.default", "relu", "arg0_1"),
    ]
    schedule = Schedule(
        nodes=[
            scheduled("op0", ["arg0_1"], ["buf0"], ["convolution_1", "relu"]),
            scheduled("op1", ["arg1_1", "buf0"], ["buf1"], ["convolution"], "extern"),
            scheduled("op2", ["buf1"], ["buf2"], ["relu"]),
        ],
        buffers={
            item.name: item
            for item in (
                buffer("arg0_1", role="input"), buffer("arg1_1", role="input"), buffer("buf0"),
                buffer("buf1", "convolution"), buffer("buf2", "relu"),
            )
        },
    )  # fmt: skip
    found = {"cpp_copy:1": ["convolution_1", "relu"], "extern_kernels.convolution:2": ["convolution", "relu"],
             "cpp_relu:3": ["relu"]}  # fmt: skip
    nodes_of = {
        launch.key: launch for launch in find_launches(lowered(code, found, nodes, schedule), {"cpp_copy", "cpp_relu"})
    }
    assert nodes_of["cpp_relu:3"].nodes == ["relu"]
    assert nodes_of["extern_kernels.convolution:2"].nodes == ["convolution"]
    assert nodes_of["cpp_copy:1"].nodes == []  # the ReLU reads the first convolution, which the copy does not
    launch = nodes_of["extern_kernels.convolution:2"]
    assert (launch.reads, launch.writes) == (["arg1_1", "buf0"], ["buf1"])


def test_memory_is_followed_back_to_a_launchs_buffer_alone() -> None:
    """In a chain of library calls each buffer has the memory of all before it."""
    code = "".join(
        f"buf{n} = buf{n - 2}; del buf{n - 2}  # reuse\n# [Provenance debug handles] extern_kernels.mm:{n}\n"
        f"extern_kernels.mm(buf{n - 1}, w, out=buf{n})\n"
        for n in range(2, 50)
    )
    code += "buf51 = buf50; del buf50  # reuse\n# [Provenance debug handles] cpp_two:51\ncpp_two(buf49, buf51)\n"
    nodes = [post(f"mm_{n}", "aten.mm.default", f"mm_{n - 1}") for n in range(2, 50)]
    schedule = Schedule(nodes=[], buffers={f"buf{n}": buffer(f"buf{n}") for n in range(52)})
    found = {f"extern_kernels.mm:{n}": [f"mm_{n}"] for n in range(2, 50)} | {"cpp_two:51": []}
    *calls, two = find_launches(lowered(code, found, nodes, schedule), {"cpp_two"})
    assert not any(call.reused for call in calls[2:]) and two.reused == ["buf50"]


def test_each_scheduled_node_looks_at_its_own_launches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, fits = [], generated_launches._fits
    monkeypatch.setattr(generated_launches, "_fits", lambda *both: looked.append(both) or fits(*both))
    handles = [f"# [Provenance debug handles] cpp_{n}:{n}\ncpp_{n}(buf{n}, buf{n + 1})\n" for n in range(300)]
    nodes = [post(f"relu_{n}", "aten.relu.default", f"relu_{n - 1}") for n in range(300)]
    schedule = Schedule(
        nodes=[scheduled(f"op{n}", [f"buf{n}"], [f"buf{n + 1}"], [f"relu_{n}"]) for n in range(300)],
        buffers={f"buf{n + 1}": buffer(f"buf{n + 1}", f"relu_{n}") for n in range(300)},
    )
    found = {f"cpp_{n}:{n}": [f"relu_{n}"] for n in range(300)}
    launches = find_launches(lowered("".join(handles), found, nodes, schedule), {f"cpp_{n}" for n in range(300)})
    assert [[node.name for node in launch.scheduled] for launch in launches] == [[f"op{n}"] for n in range(300)]
    assert len(looked) <= 2 * 300


@pytest.mark.parametrize(
    ("given", "copied"),
    [("arg0_1, arg1_1, buf0, buf1, buf2", {"buf1": "buf0", "buf2": "arg1_1"}),
     ("arg0_1, arg1_1, buf1, buf2", {"buf2": "arg1_1"})],
)  # fmt: skip
def test_a_result_that_is_stored_only_in_the_layout_that_a_call_needs_is_no_copy(
    given: str, copied: dict[str, str]
) -> None:
    """One kernel's ReLU goes into another layout, where its own is stored too or not; beside it a weight's copy."""
    code = f"# [Provenance debug handles] cpp_relu:1\ncpp_relu({given})"
    fused = ScheduledNode("op0_op1", ["op0", "op1"], ["arg0_1"], ["buf0", "buf1"], [], ["relu"], "generated",
                          copies={"buf1": "buf0"})  # fmt: skip
    weight = ScheduledNode("op2", ["op2"], ["arg1_1"], ["buf2"], [], ["relu"], "generated", copies={"buf2": "arg1_1"})
    named = [buffer("arg0_1", role="input"), buffer("arg1_1", role="input"), buffer("buf0", "relu")]
    schedule = Schedule(
        nodes=[fused, weight], buffers={item.name: item for item in (*named, buffer("buf1"), buffer("buf2"))}
    )
    nodes = [post("relu", "aten.relu.default", "arg0_1")]
    (launch,) = find_launches(lowered(code, {"cpp_relu:1": ["relu"]}, nodes, schedule), {"cpp_relu"})
    assert (launch.nodes, launch.copied) == (["relu"], copied)


def test_a_call_by_another_overload_computes_no_more_than_its_operation() -> None:
    """As of sort, which is called as sort.stable: Inductor names all that led to its operand with it."""
    code = """
# [Provenance debug handles] cpp_first:1
cpp_first(arg0_1, buf0)
# [Provenance debug handles] torch.ops.aten.sort.stable:2
buf1 = torch.ops.aten.sort.stable(buf0, stable=False)
# [Provenance debug handles] torch.ops.aten.other.default:3
buf2 = torch.ops.aten.other.default(buf1)
"""
    nodes = [post("mul", "aten.mul.Tensor", "arg0_1"), post("add", "aten.add.Tensor", "mul"),
             post("sort", "aten.sort.default", "add"), post("lost", "control_deps", "sort")]  # fmt: skip
    schedule = Schedule(
        nodes=[
            scheduled("op0", ["arg0_1"], ["buf0"], ["mul", "add"]),
            scheduled("op1", ["buf0"], ["buf1"], ["mul", "add", "sort"], "extern"),
            scheduled("op2", ["buf1"], ["buf2"], ["add", "sort", "lost"], "extern"),
        ],
        buffers={item.name: item for item in (buffer("arg0_1", "arg0_1", role="input"), buffer("buf0", "add"),
                                              buffer("buf1", "sort"), buffer("buf2", "lost"))},
    )  # fmt: skip
    found = {"cpp_first:1": ["mul", "add"], "torch.ops.aten.sort.stable:2": ["mul", "add", "sort"],
             "torch.ops.aten.other.default:3": ["add", "sort", "lost"]}  # fmt: skip
    first, sort, other = find_launches(lowered(code, found, nodes, schedule), {"cpp_first"})
    assert (first.nodes, sort.nodes) == (["mul", "add"], ["sort"])
    assert other.nodes == ["lost"]  # of no known name: what it is given, and what that was made of, others computed


def test_one_kernel_may_hold_several_of_the_schedulers_nodes() -> None:
    code = """
# [Provenance debug handles] cpp_two:1
cpp_two(arg0_1, buf0, buf1)
# [Provenance debug handles] cpp_user:2
cpp_user(buf0, buf1, buf2)
"""
    nodes = [post("relu", "aten.relu.default", "arg0_1"), post("neg", "aten.neg.default", "arg0_1"),
             post("add", "aten.add.Tensor", "relu", "neg")]  # fmt: skip
    schedule = Schedule(
        nodes=[
            scheduled("op0", ["arg0_1"], ["buf0"], ["relu"]),
            scheduled("op1", ["arg0_1"], ["buf1"], ["neg"]),
            scheduled("op2", ["buf0", "buf1"], ["buf2"], ["add"]),
        ],
        buffers={item.name: item for item in (buffer("arg0_1", role="input"), buffer("buf0", "relu"),
                                              buffer("buf1", "neg"), buffer("buf2", "add"))},
    )  # fmt: skip
    found = {"cpp_two:1": ["relu", "neg"], "cpp_user:2": ["add"]}
    two, user = find_launches(lowered(code, found, nodes, schedule), {"cpp_two", "cpp_user"})
    assert [node.name for node in two.scheduled] == ["op0", "op1"] and two.nodes == ["relu", "neg"]
    assert (two.reads, two.writes) == (["arg0_1"], ["buf0", "buf1"])
    assert (user.reads, user.writes, user.nodes) == (["buf0", "buf1"], ["buf2"], ["add"])


@pytest.mark.parametrize("reuse", ["buf1 = buf0; del buf0  # reuse", "auto buf1 = std::move(buf0);  // reuse"])
def test_a_kernel_holds_a_node_whose_result_it_overwrites_in_place(reuse: str) -> None:
    """A sum, then its quotient in the same memory: the sum's own name is not in the launch's statement."""
    code = f"{reuse}\n# [Provenance debug handles] cpp_mean:1\ncpp_mean(buf1, arg0_1);"
    nodes = [post("relu", "aten.relu.default", "arg0_1"), post("mean", "aten.mean.dim", "relu")]
    schedule = Schedule(
        nodes=[
            scheduled("op0", ["arg0_1"], ["buf0"], ["mean", "relu"]),
            scheduled("op1", ["buf0"], ["buf1"], ["mean", "relu"]),
        ],
        buffers={item.name: item for item in (buffer("arg0_1", role="input"), buffer("buf0"), buffer("buf1", "mean"))},
    )
    (mean,) = find_launches(lowered(code, {"cpp_mean:1": ["mean", "relu"]}, nodes, schedule), {"cpp_mean"})
    assert [node.name for node in mean.scheduled] == ["op0", "op1"] and mean.nodes == ["mean", "relu"]
    assert (mean.reads, mean.writes) == (["arg0_1"], ["buf1"])


def test_the_results_of_a_call_with_several_are_written_by_it() -> None:
    code = """
# [Provenance debug handles] torch.ops.aten.topk.default:1
buf0 = torch.ops.aten.topk.default(arg0_1, 2)
buf1 = buf0[0]
# [Provenance debug handles] cpp_neg:2
cpp_neg(buf1, buf3)
"""
    schedule = Schedule(
        nodes=[
            scheduled("op0", ["arg0_1"], ["buf0"], ["topk"], "extern"),
            scheduled("op1", ["buf0"], ["buf1"], ["topk"], "output"),
            scheduled("op2", ["buf0"], ["buf2"], ["topk"], "output"),
            scheduled("op3", ["buf1"], ["buf3"], ["neg"]),
        ],
        buffers={name: buffer(name) for name in ("buf1", "buf2", "buf3")} | {"arg0_1": buffer("arg0_1", role="input")},
    )
    nodes = [post("topk", "aten.topk.default", "arg0_1"), post("neg", "aten.neg.default", "getitem")]
    found = {"torch.ops.aten.topk.default:1": ["topk"], "cpp_neg:2": ["neg"]}
    topk, neg = find_launches(lowered(code, found, nodes, schedule), {"cpp_neg"})
    assert (topk.reads, topk.writes) == (["arg0_1"], ["buf0", "buf1", "buf2"])
    assert (neg.reads, neg.writes) == (["buf1"], ["buf3"])


def test_what_is_overwritten_is_written() -> None:
    code = "# [Provenance debug handles] cpp_add_:1\ncpp_add_(arg0_1, arg1_1)"
    schedule = Schedule(
        nodes=[ScheduledNode("op0", ["op0"], ["arg0_1", "arg1_1"], ["buf0"], ["arg0_1"], ["copy_"], "generated")],
        buffers={name: buffer(name, role="input") for name in ("arg0_1", "arg1_1")},
    )
    nodes = [post("copy_", "aten.copy_.default", "arg0_1", "arg1_1")]
    (launch,) = find_launches(lowered(code, {"cpp_add_:1": ["copy_"]}, nodes, schedule), {"cpp_add_"})
    assert isinstance(launch, Launch) and launch.writes == ["arg0_1"] and launch.reads == ["arg0_1", "arg1_1"]


@pytest.mark.parametrize(("kernel", "kind"), [("extern_kernels.mm", "template"), ("triton_tem_fused_mm_0", "template"),
                                              ("mine_0", "user"), ("extern_kernels.mm", "extern")])  # fmt: skip
def test_what_was_autotuned_is_either_and_a_triton_kernel_of_the_models_is_generated(kernel: str, kind: str) -> None:
    """The schedule is recorded before torch takes a library's function for an operation that has templates."""
    code = f"# [Provenance debug handles] {kernel}:1\n{kernel}(arg0_1, arg1_1, buf0)"
    buffers = {"buf0": buffer("buf0")} | {name: buffer(name, role="input") for name in ("arg0_1", "arg1_1")}
    schedule = Schedule(nodes=[scheduled("op0", ["arg0_1", "arg1_1"], ["buf0"], ["mm"], kind)], buffers=buffers)
    nodes = [post("mm", "aten.mm.default", "arg0_1", "arg1_1")]
    generated = set() if kernel.startswith("extern") else {kernel}
    (launch,) = find_launches(lowered(code, {f"{kernel}:1": ["mm"]}, nodes, schedule), generated)
    assert (launch.nodes, launch.reads, launch.writes) == (["mm"], ["arg0_1", "arg1_1"], ["buf0"])


def test_members_of_fused_nodes_in_a_subgraph_are_told_apart() -> None:
    schedule = Schedule(origins={"true_graph_0_op0": ["true_graph_0/sin"], "true_graph_0_op12": ["true_graph_0/mul"]})
    schedule.refused[("true_graph_0_op0_true_graph_0_op12", "true_graph_0_op0", "why")] += 1
    (row,) = fusions(schedule)
    assert (row.first_nodes, row.second_nodes) == ("true_graph_0/mul true_graph_0/sin", "true_graph_0/sin")


def test_fusion_decisions_name_the_operations_and_the_reason() -> None:
    schedule = Schedule(
        nodes=[ScheduledNode("op0_op1", ["op0", "op1"], [], ["buf0"], [], ["relu", "sum_1"], "generated")],
        origins={"op0": ["relu"], "op1": ["sum_1"], "op2": ["mm"]},
    )
    schedule.refused[("op0_op1", "op2", "no shared data")] += 2
    assert fusions(schedule) == [
        FusionRow("op0", "op1", True, "", 1, "relu", "sum_1"),
        FusionRow("op0_op1", "op2", False, "no shared data", 2, "relu sum_1", "mm"),
    ]


def test_autotuning_lists_the_fastest_first_and_no_time_for_what_failed() -> None:
    item = Autotuning("mm", ["float32[8, 8]", "float32[8, 8]"], [("mm", 0.5), ("triton_mm_1", math.inf)])
    first, second = autotuning(SimpleNamespace(autotuning=[item]))
    assert (first.milliseconds, first.fastest, second.milliseconds, second.fastest) == (0.5, True, None, False)


PREPARED = """
        # [Provenance debug handles] cpp_fused_0:1
        cpp_fused_0(arg0_1, arg1_1, buf0, buf1)
        # [Provenance debug handles] extern_kernels.convolution:2
        buf2 = extern_kernels.convolution(arg2_1, buf0, bias=None)
        # [Provenance debug handles] extern_kernels.convolution:3
        buf3 = extern_kernels.convolution(buf2, buf1, bias=None)
"""


def test_a_kernel_that_prepares_operands_has_the_line_that_it_prepares_most_for() -> None:
    """Two weights, the smaller of which is read first."""
    lines = {"convolution": 2, "convolution_1": 3}
    nodes = [
        PostGradNode(name, "aten.convolution.default", "", None, (), "", f'  File "net.py", line {line}, in forward\n')
        for name, line in lines.items()
    ]
    buffers = {name: buffer(name, origin) for name, origin in (("buf2", "convolution"), ("buf3", "convolution_1"))}
    for name, sizes in (("buf0", [4, 4]), ("buf1", [64, 4])):
        buffers[name] = BufferInfo(name, "buffer", sizes, [sizes[1], 1], "float32", "cpu", 4 * math.prod(sizes))
    inputs = {name: buffer(name, role="input") for name in ("arg0_1", "arg1_1", "arg2_1")}
    schedule = Schedule(
        nodes=[
            scheduled("op0_op1", ["arg0_1", "arg1_1"], ["buf0", "buf1"], ["convolution", "convolution_1"]),
            scheduled("op2", ["arg2_1", "buf0"], ["buf2"], ["convolution"], "extern"),
            scheduled("op3", ["buf2", "buf1"], ["buf3"], ["convolution_1"], "extern"),
        ],
        buffers=buffers | inputs,
    )
    lowered = LoweredGraph(
        "g0.forward",
        nodes=nodes,
        schedule=schedule,
        source_code=PREPARED,
        kernel_nodes={
            "cpp_fused_0:1": [],
            "extern_kernels.convolution:2": ["convolution"],
            "extern_kernels.convolution:3": ["convolution_1"],
        },
    )
    mapped = map_nodes(nodes, [], SourceFinder())
    rows = kernel_rows(describe_kernels(lowered, [Kernel("cpp_fused_0", "cpp", "")], mapped, SourceFinder()))
    assert [row.source for row in rows] == ["net.py:3", "net.py:2", "net.py:3"]
