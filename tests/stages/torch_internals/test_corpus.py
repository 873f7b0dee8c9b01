"""The parsers of torch's text on what each supported release wrote (``tests/corpus``), without compiling anything."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from inductor_debug.stages.torch_internals.break_text import BreakKind, break_kind, parse_break, setting_named
from inductor_debug.stages.torch_internals.generated_kernels import split_cpp_kernels, split_kernels
from inductor_debug.stages.torch_internals.generated_launches import (
    is_key,
    kernel_of,
    launch_buffers,
    launch_statements,
    mentioned_launches,
    reused_buffers,
)
from inductor_debug.stages.torch_internals.generated_ranges import Ranges
from inductor_debug.stages.torch_internals.guard_text import (
    FailureKind,
    failure_kind,
    is_tensor_check,
    parse_reason,
    size_mismatch,
    tensor_named,
    with_layout,
    without_counters,
    without_layout,
)
from inductor_debug.stages.torch_internals.inductor_scheduler import fused_members
from inductor_debug.stages.torch_internals.printer_output import (
    PrintedValue,
    named_by_path,
    parse_printer_output,
    without_printing,
)
from inductor_debug.stages.torch_internals.profiling import CPP_RANGE
from inductor_debug.stages.torch_internals.versions import NEWEST, OLDEST

CORPUS = Path(__file__).parents[2] / "corpus"
VERSIONS = sorted(CORPUS.glob("torch-*"), key=lambda folder: int(folder.name.rpartition(".")[2]))
PYTHON = ("python_inference", "python_forward", "python_backward")
TRITON = ("triton_inference", "triton_forward", "triton_backward")
MODULES = (*PYTHON, "cpp_wrapper", "aot_inductor", *TRITON)

each_version = pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
each_module = pytest.mark.parametrize("module", MODULES)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())


def facts(folder: Path, module: str) -> dict[str, list[str]]:
    return read(folder, "triton" if module in TRITON else "facts")["modules"][module]


def text_of(folder: Path, module: str) -> str:
    return (folder / f"{module}.txt").read_text()


def generated(launches: list[str]) -> set[str]:
    names = {launch.rpartition(":")[0] for launch in launches}
    return {name for name in names if name.startswith(("cpp_", "triton_"))}


def test_every_supported_release_has_a_corpus() -> None:
    found = [tuple(map(int, folder.name.removeprefix("torch-").split("."))) for folder in VERSIONS]
    assert found == [(OLDEST[0], minor) for minor in range(OLDEST[1], NEWEST[1] + 1)]
    for folder in VERSIONS:
        for name in ("facts", "triton"):
            assert read(folder, name)["torch"].startswith(folder.name.removeprefix("torch-") + ".")


@each_version
@each_module
def test_the_kernels_are_those_that_torch_launches(folder: Path, module: str) -> None:
    split = split_cpp_kernels if module == "aot_inductor" else split_kernels
    kernels = {kernel.name: kernel for kernel in split(text_of(folder, module))}
    assert set(kernels) == generated(facts(folder, module)["launches"]) != set()
    for kernel in kernels.values():
        if module in TRITON:
            assert kernel.kind == "triton" and f"def {kernel.name}(" in kernel.source and "@triton.jit" in kernel.source
        else:
            assert kernel.kind == "cpp" and "for(int64_t" in kernel.source and kernel.source.rstrip().endswith("}")


@each_version
@each_module
def test_every_launch_of_torchs_table_has_its_statement(folder: Path, module: str) -> None:
    lines = text_of(folder, module).splitlines()
    found = launch_statements(lines)
    assert sorted(found) == facts(folder, module)["launches"]
    for launch, span in found.items():
        kernel = launch.rpartition(":")[0]
        statement = "\n".join(lines[span.start : span.stop])
        assert re.search(rf"\b{re.escape(kernel)}\b", statement), launch
        assert statement.count("(") == statement.count(")") > 0


@each_version
@each_module
def test_a_launch_is_given_buffers(folder: Path, module: str) -> None:
    known = facts(folder, module)
    given = launch_buffers(text_of(folder, module), known["buffers"])
    assert sorted(given) == known["launches"] and all(given.values())
    if module in (*PYTHON, *TRITON):  # a library's product writes where it is told to, last
        lines = text_of(folder, module).splitlines()
        for launch, span in launch_statements(lines).items():
            out = re.search(r"out=(\w+)", "\n".join(lines[span.start : span.stop]))
            assert out is None or given[launch][-1] == out[1]


@each_version
@each_module
def test_memory_that_is_used_again_is_known(folder: Path, module: str) -> None:
    text, known = text_of(folder, module), facts(folder, module)["buffers"]
    said = re.findall(r"^.*\b(buf\d+) = (?:std::move\()?(buf\d+)\b.*(?:#|//) reuse", text, re.MULTILINE)
    found = reused_buffers(text, known)
    assert dict(said).items() <= found.items()
    assert len(found) == len(re.findall(r"(?:#|//) reuse$", text, re.MULTILINE)) > 0


@each_version
@pytest.mark.parametrize("module", (*PYTHON, "cpp_wrapper", *TRITON))
def test_each_launch_gets_a_range(folder: Path, module: str) -> None:
    ranges = Ranges()
    changed = ranges.rewrite("g0.forward", text_of(folder, module))
    assert ranges.missing == {} and (CPP_RANGE in changed) == (module == "cpp_wrapper")
    for launch in facts(folder, module)["launches"]:
        assert changed.count(f"g0.forward|{launch}") == 1


@each_version
@each_module
def test_a_stored_module_tells_where_each_launch_is_mentioned(folder: Path, module: str) -> None:
    text = text_of(folder, module)
    lines, found = text.splitlines(), mentioned_launches(text)
    assert sorted(found) == facts(folder, module)["launches"]
    for launch, number in found.items():
        assert launch in lines[number - 1] and launch_statements(lines)[launch].start >= number
        assert is_key(launch) and f"{kernel_of(launch)}:{launch.rpartition(':')[2]}" == launch
        assert not is_key(kernel_of(launch)) and kernel_of(kernel_of(launch)) == kernel_of(launch)


@each_version
@pytest.mark.parametrize("module", TRITON)
def test_a_fused_node_is_called_after_its_members(folder: Path, module: str) -> None:
    fused: Any = facts(folder, module)["fused"]
    assert fused
    for name, members in fused.items():
        assert fused_members(name) == members
        inside = "_".join(f"subgraph_{member}" for member in members)
        assert fused_members(inside) == [f"subgraph_{member}" for member in members]


@each_version
def test_the_printers_statements_are_taken_out(folder: Path) -> None:
    """What is left is what the model computes: its kernels, its launches, and the memory used again."""
    text, known = text_of(folder, "aot_inductor"), facts(folder, "aot_inductor")
    left = without_printing(text)
    assert len(re.findall(r"^ *aoti_torch_print_tensor_handle\(", text, re.MULTILINE)) > 10
    assert not re.search(r"^ *(aoti_torch_print_tensor_handle|printf)\(", left, re.MULTILINE)
    assert split_cpp_kernels(left) == split_cpp_kernels(text) != []
    assert sorted(launch_statements(left.splitlines())) == known["launches"]
    assert reused_buffers(left, known["buffers"]) == reused_buffers(text, known["buffers"])
    assert without_printing('  printf("[  n: 4  ]");\n  call(n);\n') == "  call(n);\n"


@each_version
def test_a_saved_tensor_is_named_by_its_file(folder: Path) -> None:
    printed = parse_printer_output(text_of(folder, "printed"))
    known = facts(folder, "aot_inductor")["buffers"]
    told = [item for item in printed if item.when != "input" and item.buffer in known]
    assert told
    for item in told:
        path = f"/tmp/values/{item.when}_launch_{item.kernel}_{item.buffer}_cpu.pt"
        found = named_by_path(PrintedValue(item.when, path=path), known)
        assert (found.kernel, found.buffer, found.device) == (item.kernel, item.buffer, "cpu")
    unknown = named_by_path(PrintedValue("after", path="/tmp/values/after_launch_kernel_other_cpu.pt"), known)
    assert (unknown.kernel, unknown.buffer) == ("", "after_launch_kernel_other_cpu")


@each_version
def test_the_printers_lines_are_read(folder: Path) -> None:
    """One call: three inputs and more, then what each launch was given and made."""
    printed = parse_printer_output(text_of(folder, "printed"))
    kernels = {item.kernel for item in printed if item.when != "input"}
    launched = facts(folder, "aot_inductor")["launches"]
    assert {name for name in kernels if name.startswith("cpp_")} == generated(launched)
    assert len(kernels) == len({launch.rpartition(":")[0] for launch in launched})  # the others by names of its own
    inputs = [item for item in printed if item.when == "input"]
    (x,) = (item for item in inputs if item.shape == "[4, 8]")
    assert (x.elements, x.dtype, x.stride, x.device) == (32, "float32", "[8, 1]", "cpu")
    assert (x.minimum, x.maximum, x.state) == (-1.0, 1.0, "finite")
    assert x.mean == pytest.approx(0, abs=1e-6)
    assert sorted(item.shape for item in inputs) == ["[16, 8]", "[16]", "[4, 8]", "[8, 16]", "[8]"]
    tensors = [item for item in printed if item.buffer]
    assert all(item.elements and item.mean is not None for item in tensors) and len(tensors) > 10
    assert {item.when for item in printed} == {"input", "before", "after"}


@each_version
def test_guards_of_two_compilations_differ_in_what_changed_alone(folder: Path) -> None:
    first, second = read(folder, "guards")
    names = [[(item["type"], without_counters(item["name"])) for item in guards] for guards in (first, second)]
    assert sorted(names[0]) == sorted(names[1])
    codes = [{without_counters(code) for item in guards for code in item["code"]} for guards in (first, second)]
    gone, new = codes[0] - codes[1], codes[1] - codes[0]
    (before,), (after,) = gone, new
    assert is_tensor_check(before) and without_layout(before) == without_layout(after.replace("[5, 8]", "[4, 8]"))
    assert with_layout(before, [4, 8], [8, 1]).endswith("requires_grad=False, size=[4, 8], stride=[8, 1])")


FAILURES = {
    "dtype": FailureKind.DTYPE,
    "gradient": FailureKind.GRADIENT,
    "rank": FailureKind.RANK,
    "stride": FailureKind.STRIDE,
    "grad_mode": FailureKind.GLOBAL_STATE,
    "value": FailureKind.VALUE,
    "symbolic_size": FailureKind.SYMBOLIC_SIZE,
    "aliasing": FailureKind.ALIASING,
}


@each_version
@pytest.mark.parametrize("changed", FAILURES)
def test_why_a_frame_is_compiled_again_is_known(folder: Path, changed: str) -> None:
    (reason,) = map(parse_reason, read(folder, "recompiles")[changed])
    assert reason.failed == "0/0" and failure_kind(reason.guard) == FAILURES[changed]
    assert "#" not in reason.guard and "User stack" not in reason.guard
    named = changed in ("dtype", "gradient", "rank", "stride")
    assert tensor_named(reason.guard) == ("x" if named else None)
    commented = changed in ("value", "symbolic_size")
    assert (reason.place is not None) == commented
    if reason.place is not None and changed == "value":
        assert reason.place[0].endswith("tests/corpus/models.py")


@each_version
def test_a_size_that_changed_is_read(folder: Path) -> None:
    (reason,) = map(parse_reason, read(folder, "recompiles")["size"])
    size = size_mismatch(reason.guard)
    assert size is not None and (size.name, size.dim, size.old, size.new) == ("x", 1, 6, 7)


BREAKS = {
    "branch": (BreakKind.BRANCH, None),
    "print": (BreakKind.PRINT, None),
    "scalar": (BreakKind.SCALAR, ("capture_scalar_outputs", True)),
    "dynamic_size": (BreakKind.DYNAMIC_SIZE, ("capture_dynamic_output_shape_ops", True)),
    "logging": (BreakKind.LOGGING, None),
    "disabled": (BreakKind.SKIPPED, None),
    "gradient": (BreakKind.GRADIENT, None),
    "lstm": (None, ("allow_rnn", True)),
}


@each_version
@pytest.mark.parametrize("what", BREAKS)
def test_what_broke_a_graph_is_known(folder: Path, what: str) -> None:
    kind, setting = BREAKS[what]
    detail = read(folder, "breaks")[what][-1]
    assert break_kind(detail) == kind and setting_named(detail) == setting
    text = parse_break(detail)
    assert text.reason and text.explanation and text.reason in " ".join(detail.split())
    assert text.documentation is not None and re.fullmatch(r"https://\S+\.html", text.documentation)
    assert "Hint:" not in text.explanation + " ".join(text.hints) and "debug context" not in text.explanation


@each_version
def test_the_reason_of_a_break_that_is_put_off_is_told(folder: Path) -> None:
    text = parse_break(read(folder, "breaks")["lstm"][0])
    assert "RNN, GRU, or LSTM" in text.reason
