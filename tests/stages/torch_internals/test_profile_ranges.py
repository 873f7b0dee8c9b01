"""Ranges in the text of generated modules, without compiling any."""

import ast

import pytest

from inductor_debug.stages.torch_internals.generated_ranges import Ranges

PYTHON = """
class Runner:
    def call(self, args):
        with torch.cuda._DeviceGuard(0):
            buf0 = empty_strided_cuda((4, 16), (16, 1), torch.float32)
            # [Provenance debug handles] triton_poi_fused_add_0:1
            stream0 = get_raw_stream(0)
            triton_poi_fused_add_0.run(arg0_1, buf0, 64, stream=stream0)
            # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.addmm]
            # [Provenance debug handles] extern_kernels.addmm:2
            extern_kernels.addmm(bias, reinterpret_tensor(buf0, (4, 16),
                (16, 1), 0), alpha=1, out=buf1)
            del buf0
            # [Provenance debug handles] torch.ops.aten.sort.default:3
            buf2 = torch.ops.aten.sort.default(buf1)
            buf3 = buf2[0]
        return (buf3, )
"""
CPP = '''
cpp_wrapper_src = (
r"""
void inductor_entry_impl() {
    // [Provenance debug handles] cpp_fused_add_0:1
    cpp_fused_add_0((float*)(buf0.data_ptr()));
    // [Provenance debug handles] aoti_torch_cpu_churn:2
    RAIIAtenTensorHandle buf3;
    {
        AOTI_TORCH_ERROR_CODE_CHECK(
            aoti_torch_call_dispatcher("space::churn", "", dispatch_vars.data())
        );
    }
}
"""
)
'''


def ranged(text: str, graph: str = "g0.forward") -> dict[str, str]:
    """Range's name → the code that it holds, of a Python wrapper."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.With) and isinstance(call := node.items[0].context_expr, ast.Call) and call.args:
            name = call.args[0]
            if isinstance(name, ast.Constant) and str(name.value).startswith(f"{graph}|"):
                found[str(name.value)] = "; ".join(map(ast.unparse, node.body))
    return found


def test_each_launch_of_a_python_wrapper_is_in_its_own_range() -> None:
    ranges = Ranges()
    changed = ranges.rewrite("g0.forward", PYTHON)
    held = ranged(changed)
    assert list(held) == [
        "g0.forward|triton_poi_fused_add_0:1", "g0.forward|extern_kernels.addmm:2",
        "g0.forward|torch.ops.aten.sort.default:3",
    ]  # fmt: skip
    for name, code in held.items():
        kernel = name.partition("|")[2].rpartition(":")[0]
        assert f"{kernel}.run(" in code or f"{kernel}(" in code
    assert ranges.missing == {}
    assert changed.count("\n") == PYTHON.count("\n") + 1  # lines stay where they were


def test_nothing_else_of_a_python_wrapper_changes() -> None:
    changed = ast.parse(Ranges().rewrite("g0.forward", PYTHON))

    class Unwrapped(ast.NodeTransformer):
        def visit_With(self, node: ast.With) -> object:
            self.generic_visit(node)
            call = node.items[0].context_expr
            return node.body if isinstance(call, ast.Call) and ast.unparse(call).startswith("profiled_range") else node

    restored = Unwrapped().visit(changed)
    assert isinstance(restored.body.pop(), ast.ImportFrom)
    assert ast.unparse(restored) == ast.unparse(ast.parse(PYTHON))


def test_each_launch_of_a_c_plus_plus_wrapper_is_between_beginning_and_end() -> None:
    ranges = Ranges()
    lines = [line.strip() for line in ranges.rewrite("g1.backward", CPP).splitlines()]
    for number, (name, first) in enumerate(
        [("cpp_fused_add_0:1", "cpp_fused_add_0("), ("aoti_torch_cpu_churn:2", "AOTI_TORCH_ERROR_CODE_CHECK(")]
    ):
        begun = next(index for index, line in enumerate(lines) if f'"g1.backward|{name}"' in line)
        ended = next(index for index, line in enumerate(lines) if line.startswith(f"profiled_range_{number} ="))
        assert lines[begun + 1].startswith(first) and lines[ended - 1].endswith(");")
        assert lines[begun].count("RAIIAtenRecordFunctionHandle") == 1
    assert ranges.missing == {}


def test_a_launch_that_is_not_found_is_said_to_be() -> None:
    ranges = Ranges()
    text = PYTHON.replace("buf2 = torch.ops.aten.sort.default(buf1)", "buf2 = sorted(buf1)")
    held = ranged(ranges.rewrite("g0.forward", text))
    assert list(ranges.missing) == ["g0.forward|torch.ops.aten.sort.default:3"]
    assert "no statement" in ranges.missing["g0.forward|torch.ops.aten.sort.default:3"] and len(held) == 2


def test_a_module_that_ranges_would_break_is_left_as_it_is() -> None:
    ranges = Ranges()
    text = PYTHON.replace("buf2 = torch", "if buf1: buf2 = torch")
    assert ranges.rewrite("g0.forward", text) == text
    assert len(ranges.missing) == 3


@pytest.mark.parametrize("text", ["", "def kernel():\n    pass\n"])
def test_a_module_without_launches_is_left_as_it_is(text: str) -> None:
    ranges = Ranges()
    assert ranges.rewrite("g0.forward", text) == text and ranges == Ranges()
