"""The aot_inductor backend: one small model compiled with its printer, options, and what it can't compile."""

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from picture_geometry import boxes, parse

from inductor_debug.models.case import Case
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.artifacts.files import VALUES
from inductor_debug.stages.backends.aot_inductor import AotInductorAdapter
from inductor_debug.stages.backends.compiled import CompiledCase, compile_case
from inductor_debug.stages.backends.inductor import InductorAdapter
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.lower.stage import graph_files
from inductor_debug.stages.lower.values import ValueObserver
from inductor_debug.stages.settings import BackendConfig
from inductor_debug.stages.torch_internals.generated_kernels import split_cpp_kernels

TORCH_ALONE = """
import torch
program = torch.export.export(torch.nn.Linear(8, 8), (torch.randn(4, 8),))
torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program))(torch.randn(4, 8))
"""

QUICK = {"aot_inductor": {"compile_wrapper_opt_level": "O0"}}


class Divides(torch.nn.Module):
    """A product, then NaN in one element; counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 16)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.add_(1)
        hidden = self.linear(x)
        shifted = hidden - hidden[0, 0]
        return torch.nn.functional.gelu(hidden), shifted / shifted


def adapter_of(options: dict[str, Any], inductor: dict[str, Any] | None = None) -> AotInductorAdapter:
    adapter = build_adapter(BackendConfig("aot_inductor", "aot_inductor", options, inductor or {}))
    assert isinstance(adapter, AotInductorAdapter)
    return adapter


def case_of(module: torch.nn.Module) -> Case:
    torch.manual_seed(0)
    inputs = (torch.randn(4, 8),)
    return Case("small", module.eval(), inputs, {}, "inference", torch.float32, torch.device("cpu"))


@pytest.fixture(scope="module", autouse=True)
def torch_alone_runs_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip where torch's own program ends by a signal: with torch 2.11 built for CUDA, its loader was seen to."""
    if not torch.cuda.is_available():
        return
    program = [sys.executable, "-c", TORCH_ALONE]
    ended = subprocess.run(program, cwd=tmp_path_factory.mktemp("alone"), capture_output=True, text=True)
    if ended.returncode < 0:
        pytest.skip(f"AOTInductor without this project ended by signal {-ended.returncode} here")
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def printed() -> Iterator[tuple[Case, CompiledCase, ValueObserver, AotInductorAdapter]]:
    """The model compiled once, with the printer at level 2, and what it told of the first step."""
    torch._dynamo.reset()
    case = case_of(Divides())
    observer = ValueObserver(level=2)
    adapter = adapter_of({"print_values": 2}, QUICK).printing(observer)
    yield case, compile_case(case, adapter), observer, adapter
    torch._dynamo.reset()


def test_numbers_are_those_of_eager(printed: Any) -> None:
    case, compiled, *_ = printed
    for expected, found in zip(case.run().output, case.run(compiled).output, strict=True):
        torch.testing.assert_close(found, expected, equal_nan=True)
    with torch.no_grad():
        before = case.module.calls.clone()
        compiled(*case.args)
    assert case.module.calls == before + 1
    case.module.calls.copy_(before)


def test_the_printer_leads_to_the_kernel_that_made_the_nan(printed: Any) -> None:
    _, compiled, observer, _ = printed
    table = VALUES.frame(observer.rows).query("call == 0")
    (lowered,) = compiled.graphs.values()
    kernels = {kernel.name for kernel in split_cpp_kernels(lowered.source_code)}
    product, made = table.query("when == 'after'")["kernel"].unique()[:2]
    assert (product, made in kernels) == ("aoti_torch_cpu_addmm_out", True)
    assert set(table["kernel"]) - {""} == kernels | {product}
    first = observer.first("nan")
    assert first is not None and (first.kernel, first.when) == (made, "after")
    buffers = lowered.schedule.buffers
    for row in table.itertuples():
        assert row.shape == str(list(buffers[row.buffer].shape)) and row.dtype == buffers[row.buffer].dtype
    inputs = table.query("when == 'input'")
    assert inputs["elements"].tolist().count(8 * 16) == 1 and inputs["written"].all()
    weight = inputs.query("elements == 128")["mean"].item()
    assert weight == pytest.approx(printed[0].module.linear.weight.mean().item(), abs=1e-5)
    unwritten = table.query("when == 'before' and written == False")
    assert set(unwritten["buffer"]) <= {name for node in lowered.schedule.nodes for name in node.writes}
    assert not table["written"].isna().any() and len(unwritten) >= 2


def test_generated_code_leads_to_the_users_lines(printed: Any) -> None:
    case, compiled, *_ = printed
    (lowered,) = compiled.graphs.values()
    captured = [graph for graph in capture(case).graphs if graph.id == "g0.forward"]
    torch._dynamo.reset()
    files, facts = graph_files(lowered, captured, SourceFinder(case.module))
    assert "AOTInductorModel::run_impl" in files["output_code.cpp"] and "output_code.py" not in files
    assert facts.not_established == []
    assert (facts.kernels, facts.launches, facts.extern_launches) == (1, 2, 1)
    assert facts.kernels_mapped_share == facts.nodes_mapped_share == 1.0
    lines, first = inspect.getsourcelines(Divides)
    wanted = {first + index for index, line in enumerate(lines) if "gelu" in line or "shifted" in line}
    (generated,) = [kernel for kernel in files["provenance.json"].kernels if kernel.kind == "cpp"]
    assert wanted <= {line.line for line in generated.sources}
    assert files[generated.file].startswith('extern "C"')
    (linear,) = [box for box in boxes(parse(files["post_grad.svg"])) if box.nodes == ["addmm"]]
    assert "16 parameters" in " ".join(linear.texts) and "→ aoti_torch_cpu_addmm_out:" in linear.tooltip
    assert "reads 1 buffer, 4 B" in files["post_grad.svg"]
    originals = {node.original for node in files["nodes.json"].nodes}
    assert "aten.gelu.default" in originals  # the operation before decomposition, though the graph was traced again
    compile(files["fx_graph_runnable.py"], "fx_graph_runnable.py", "exec")
    assert "tree_flatten_spec" not in files["fx_graph_runnable.py"]


@pytest.mark.slow
def test_the_runnable_graph_runs_with_the_options(printed: Any, tmp_path: Path) -> None:
    """In a process of its own, without this project."""
    (lowered,) = printed[1].graphs.values()
    text = lowered.runnable
    assert "torch._inductor.config.aot_inductor.compile_wrapper_opt_level = 'O0'\n" in text
    assert "stages." not in text and "CACHE_DIR" not in text and "output_path" not in text
    (tmp_path / "runnable.py").write_text(text, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-P", "-W", "error::UserWarning:__main__", "runnable.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def stepped(case: Case, level: int, kernels: list[str]) -> tuple[CompiledCase, ValueObserver]:
    """The model's first step, with the printer at a level, of some kernels."""
    torch._dynamo.reset()
    observer = ValueObserver(level=level, kernels=kernels)
    options = {"print_values": level, "kernels": kernels}
    return compile_case(case, adapter_of(options, QUICK).printing(observer)), observer


@pytest.mark.slow
def test_the_printer_at_level_2_tells_of_the_kernels_asked_for_alone(capfd: pytest.CaptureFixture[str]) -> None:
    case, product = case_of(Divides()), "aoti_torch_cpu_addmm_out"
    compiled, observer = stepped(case, 2, [product])
    output = capfd.readouterr().out
    (lowered,) = compiled.graphs.values()
    assert len(split_cpp_kernels(lowered.source_code)) == 1  # there is another kernel, of which nothing is told
    table = VALUES.frame(observer.rows)
    assert set(table["kernel"]) == {product} and set(table["when"]) == {"before", "after"}
    assert f"before_launch - {product} - " in output and "_launch - cpp_fused" not in output
    assert observer.silent == []
    (made,) = table.query("when == 'after' and written and shape == '[4, 16]'")["mean"]
    assert made == pytest.approx(case.module.linear(*case.args).mean().item(), abs=1e-5)


@pytest.mark.slow
def test_the_printer_at_level_3_tells_the_kernels_in_order_and_no_value() -> None:
    compiled, observer = stepped(case_of(Divides()), 3, [])
    (lowered,) = compiled.graphs.values()
    (generated,) = split_cpp_kernels(lowered.source_code)
    table = VALUES.frame(observer.rows)
    assert list(zip(table["kernel"], table["when"], strict=True)) == [
        (kernel, when) for kernel in ("aoti_torch_cpu_addmm_out", generated.name) for when in ("before", "after")
    ]
    assert table["buffer"].eq("").all() and table["mean"].isna().all()
    assert observer.silent == [] and observer.files == {}


def test_a_kernel_that_is_not_launched_is_an_error_with_the_names_that_are(printed: Any) -> None:
    adapter = printed[3]
    adapter.kernels = ["aoti_torch_cpu_ADDMM_out"]
    adapter.validate_compiled()
    adapter.kernels = ["aoti_torch_cpu_adm_out"]
    message = (
        r"kernels: got 'aoti_torch_cpu_adm_out'; valid: aoti_torch_cpu_addmm_out, cpp_fused.*\nTry: .*=\[aoti_torch"
    )
    with pytest.raises(ConfigurationError, match=message):
        adapter.validate_compiled()
    adapter.kernels = []


def test_only_the_lower_stages_compilation_prints() -> None:
    adapter = adapter_of({"print_values": 2, "kernels": ["a", "b"]})
    plain, printer = adapter.dynamo_backend(), adapter.printing(lambda lowered, run: run()).dynamo_backend()
    keys = ("aot_inductor.debug_intermediate_value_printer", "aot_inductor.filtered_kernel_names")
    assert [plain.options[key] for key in keys] == ["0", None]  # whatever the environment says
    assert [printer.options[key] for key in keys] == ["2", "a,b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"print_values": 4}, r"print_values: got 4; valid: 0 \(nothing\), 1 \(save tensors\), 2"),
        ({"print_values": True}, "print_values: got True; valid: 0"),
        ({"print_values": "2"}, "print_values: got '2'; valid: 0"),
        ({"print_value": 2}, "backend.options: got 'print_value'; valid: print_values, kernels"),
        ({"print_values": 2, "kernels": "mm"}, r"kernels: got 'mm'; valid: a list.*\nTry: .*kernels=\[mm\]"),
        ({"print_values": 2, "kernels": ["a,b"]}, "valid: a list of kernel names"),
        ({"kernels": ["mm"]}, r"kernels: got mm without .*\nTry: backend\.options\.print_values=2"),
    ],
)
def test_wrong_options_are_configuration_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        adapter_of(options)


@pytest.mark.parametrize(
    ("inductor", "message"),
    [
        ({"aot_inductor": {"debug_intermediate_value_printer": "2"}}, r"Try: backend\.options\.print_values=2"),
        ({"aot_inductor.filtered_kernel_names": "mm"}, r"Try: backend\.options\.kernels=\[NAME\]"),
        ({"aot_inductor.output_path": "x"}, r"Try: without backend\.inductor\.aot_inductor\.output_path"),
        ({"patern_matcher": False}, r"patern_matcher.*valid: pattern_matcher"),
        ({"freezing": True}, r"freezing: got True .*nothing can be frozen.*\nTry: backend=inductor_freezing"),
    ],
)
def test_options_that_the_backend_sets_are_refused(inductor: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        adapter_of({}, inductor).validate()


def test_symbolic_sizes_are_a_configuration_error() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(torch.nn.Linear(8, 8), backend=adapter_of({}).dynamo_backend(), dynamic=True)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught, torch.no_grad():
        compiled(torch.randn(4, 8))
    assert isinstance(caught.value.inner_exception, ConfigurationError)
    assert "g0.forward has symbolic sizes" in str(caught.value.inner_exception)


def test_triton_kernels_stand_in_the_comments_of_their_callers() -> None:
    source = """
template <typename in_type>
static __attribute__((noinline)) void call_triton_poi_0(
    const in_type& in_ptr0,
    int64_t xnumel
){
    /*
    async_compile.triton('triton_poi_0', \'\'\'
    import triton

    @triton.jit
    def triton_poi_0(in_ptr0):
        pass
    \'\'\', device_str='cuda')
    */
    uint32_t grid_0 = 1;
}
extern "C"  void  cpp_fused_add_0(const float* in_ptr0)
{
    {
    }
}
"""
    found = {kernel.name: kernel for kernel in split_cpp_kernels(source)}
    assert {name: kernel.kind for name, kernel in found.items()} == {"triton_poi_0": "triton", "cpp_fused_add_0": "cpp"}
    assert found["triton_poi_0"].source.splitlines()[1:] == [
        *("import triton", "", "@triton.jit", "def triton_poi_0(in_ptr0):", "    pass")
    ]
    assert found["cpp_fused_add_0"].source.endswith("}\n}")


def test_it_loads_no_generated_module_that_could_be_rewritten() -> None:
    """So that no launch of it is said to take no time."""
    assert AotInductorAdapter().rewriting_backend(lambda graph, text: text) is None
    assert InductorAdapter().rewriting_backend(lambda graph, text: text) is not None
