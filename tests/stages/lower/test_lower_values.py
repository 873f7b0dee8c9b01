"""AOTInductor's printer of intermediate values, read: what native code printed and saved becomes a table and files."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from inductor_debug.stages.artifacts.files import VALUES
from inductor_debug.stages.lower import values
from inductor_debug.stages.lower.values import ValueObserver
from inductor_debug.stages.native_output import copied_stdout
from inductor_debug.stages.torch_internals.inductor import LoweredGraph
from inductor_debug.stages.torch_internals.inductor_scheduler import BufferInfo, Schedule, ScheduledNode
from inductor_debug.stages.torch_internals.printer_output import PrintedValue, parse_printer_output

from native_printer import print_tensor, save_tensor  # isort: skip

NAN, ONES = torch.full((70,), math.nan), torch.ones(70)

CODE = """
    // [Provenance debug handles] mm_out:1
    aoti_torch_print_tensor_handle(arg0_1, "before_launch - mm_out - arg0_1");
    mm_out(buf0, arg0_1);
    // [Provenance debug handles] mm_out:2
    mm_out(buf1, buf0);
    // [Provenance debug handles] odd_kernel:3
    unknown_call(buf2);
"""


def lowered() -> LoweredGraph:
    """A graph of two products, the second of the first, and a launch that is not found in the generated code."""
    buffers = {
        name: BufferInfo(name, "input" if name == "arg0_1" else "buffer", [70], [1], "float32", "cpu", 280)
        for name in ("arg0_1", "buf0", "buf1", "buf2")
    }
    nodes = [
        ScheduledNode(f"op{index}", [f"op{index}"], [read], [f"buf{index}"], [], [], "extern")
        for index, read in enumerate(("arg0_1", "buf0"))
    ]
    return LoweredGraph(
        "g0.forward",
        schedule=Schedule(nodes=nodes, buffers=buffers),
        source_code=CODE,
        kernel_nodes={"mm_out:1": [], "mm_out:2": [], "odd_kernel:3": []},
    )


def printing(*labels: tuple[str, torch.Tensor]) -> Callable[[], Sequence[torch.Tensor]]:
    """A run that prints tensors under their labels."""

    def run() -> Sequence[torch.Tensor]:
        for label, tensor in labels:
            print_tensor(tensor, label)
        return [ONES]

    return run


def saving(*items: tuple[str, str, str, torch.Tensor]) -> Callable[[], Sequence[torch.Tensor]]:
    """A run that saves (when, kernel, buffer, tensor)."""

    def run() -> Sequence[torch.Tensor]:
        for when, kernel, buffer, tensor in items:
            save_tensor(tensor, buffer, f"{when}_launch", kernel)
        return []

    return run


def printed(*tensors: torch.Tensor, folder: Path) -> list[PrintedValue]:
    with copied_stdout(folder / "text"):
        for tensor in tensors:
            print_tensor(tensor, "after_launch - kernel_0 - buf0")
    return parse_printer_output((folder / "text").read_text())


def test_every_dtype_is_read_as_torch_prints_it(tmp_path: Path) -> None:
    kinds = [*(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.bool),
             *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)]  # fmt: skip
    tensors = [(torch.arange(80).reshape(8, 10) % 2).to(dtype) for dtype in kinds]
    found = printed(*tensors, folder=tmp_path)
    assert [item.dtype for item in found] == [str(dtype).removeprefix("torch.") for dtype in kinds]
    for item in found:
        assert (item.when, item.kernel, item.buffer) == ("after", "kernel_0", "buf0")
        assert (item.elements, item.shape, item.stride, item.device) == (80, "[8, 10]", "[10, 1]", "cpu")
        assert (item.mean, item.minimum, item.maximum, item.state) == (0.5, 0.0, 1.0, "finite")


def test_what_has_no_minimum_is_not_called_finite(tmp_path: Path) -> None:
    found = printed(torch.empty(0, 3), torch.randn(70, dtype=torch.complex64), folder=tmp_path)
    assert [(item.elements, item.dtype, item.state) for item in found] == [(0, "float32", ""), (70, "complex64", "")]


def test_nan_and_infinity_are_told_apart_in_small_tensors_too(tmp_path: Path) -> None:
    tensors = [torch.tensor(values) for values in ([1.0, math.nan, math.inf], [1.0, -math.inf], [1.0, 2.0])]
    assert [item.state for item in printed(*tensors, folder=tmp_path)] == ["nan", "inf", "finite"]


def test_names_numbers_and_others_lines() -> None:
    text = "[ before_launch: k_0 ]\nnoise\n[ after_launch: k_0 ]\n[  before_launch - k_1 - 5: 5  ]\\n[  other - x  ]:\n"
    assert parse_printer_output(text) == [
        PrintedValue("before", "k_0"),
        PrintedValue("after", "k_0"),
        PrintedValue("before", "k_1", "5", value="5"),
    ]
    assert parse_printer_output("") == []


def test_the_first_nan_is_not_the_memory_that_a_kernel_is_about_to_write() -> None:
    observer = ValueObserver(level=2)
    run = printing(
        ("aoti_model_inputs - arg0_1", ONES),
        ("before_launch - mm_out - buf0", NAN),  # not written yet
        ("before_launch - mm_out - arg0_1", ONES),
        ("after_launch - mm_out - buf0", ONES),
        ("before_launch - mm_out - buf1", NAN),  # the same kernel, launched again
        ("before_launch - mm_out - buf0", ONES),
        ("after_launch - mm_out - buf1", NAN),
        ("before_launch - odd_kernel - buf2", NAN),
    )
    assert observer(lowered(), run) == [ONES]
    table = VALUES.frame(observer.rows)
    assert table["launch"].isna().tolist() == [True] + [False] * 7
    assert table["launch"].tolist()[1:] == [0, 0, 0, 1, 1, 1, 2]
    assert table["written"].tolist()[:7] == [True, False, True, True, False, True, True]
    assert table["written"].isna().tolist()[7]  # its launch was not found: unknown, and not blamed
    assert "7 values" not in observer.describe() and "8 values around 3 launches" in observer.describe()
    assert observer.describe().endswith("the first NaN is in g0.forward, after mm_out, in buf1")


def test_values_that_nothing_was_looked_for_in_are_not_called_free_of_nan(tmp_path: Path) -> None:
    observer = ValueObserver(2)
    observer(lowered(), printing(("after_launch - mm_out - buf0", torch.ones(70, dtype=torch.complex64))))
    assert "; not established of 1 value; no NaN or infinity among the others" in observer.describe()
    real = torch.ones(2)
    (row,) = observer.rows
    assert values.described(row, torch.complex(real, NAN[:2])).state == "nan"
    assert values.described(row, torch.complex(real, real).conj()).state == "finite"


def test_an_input_that_was_nan_is_named_first_and_calls_are_counted() -> None:
    observer = ValueObserver(level=2)
    graph = lowered()
    observer(graph, printing(("aoti_model_inputs - arg0_1", ONES)))
    told = "the printer told 1 value around 0 launches, nothing of mm_out, odd_kernel; no NaN or infinity among them"
    assert observer.describe() == told
    observer(graph, printing(("aoti_model_inputs - arg0_1", NAN), ("after_launch - mm_out - buf0", NAN)))
    assert VALUES.frame(observer.rows)["call"].tolist() == [0, 1, 1]
    assert observer.silent == ["mm_out", "odd_kernel"]  # of the first call; each is named once
    assert observer.describe().endswith("the first NaN is in g0.forward, among its inputs, in arg0_1")


def test_the_filter_keeps_the_named_kernels() -> None:
    observer = ValueObserver(level=3, kernels=["MM_out"])
    names = "[ before_launch: {0} ]\n[ after_launch: {0} ]\n"

    def run() -> Sequence[torch.Tensor]:
        os.write(1, (names.format("mm_out") + names.format("odd_kernel")).encode())
        return []

    observer(lowered(), run)
    assert VALUES.frame(observer.rows)["kernel"].tolist() == ["mm_out", "mm_out"]
    assert observer.describe() == "the printer named 1 launch"


def test_saved_tensors_are_stored_without_what_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    observer = ValueObserver(level=1)
    run = saving(
        ("before", "mm_out", "buf0", NAN),
        ("before", "mm_out", "arg0_1", ONES),
        ("after", "mm_out", "buf0", 2 * ONES),
        ("after", "mm_out", "arg0_1", ONES),
        ("before", "mm_out", "buf1", ONES),
    )
    observer(lowered(), run)
    assert list(tmp_path.iterdir()) == [] and Path.cwd() == tmp_path
    table = VALUES.frame(observer.rows)
    assert table["kernel"].tolist() == ["mm_out"] * 5
    assert table["buffer"].tolist() == ["buf0", "arg0_1", "buf0", "arg0_1", "buf1"]
    stored, unwritten, unchanged = "", "not stored: not yet written", "not stored: unchanged by the launch"
    assert table["note"].tolist() == [unwritten, stored, stored, unchanged, unwritten]
    (name,) = set(table["file"]) - {""}
    tensors = load(observer.artifacts()[name])
    assert name.startswith("lower/values/g0.forward/") and set(tensors) == {"before.arg0_1", "after.buf0"}
    assert torch.equal(tensors["after.buf0"], 2 * ONES)
    assert table["mean"].tolist()[1:4] == [1.0, 2.0, 1.0]
    told = (
        "the printer saved 1 file of 5 values around 2 launches, nothing of odd_kernel; no NaN or infinity among them"
    )
    assert observer.describe() == told


def test_what_is_left_out_of_the_stored_tensors_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "STORED_LIMIT", 2 * 280)
    observer = ValueObserver(level=1)
    observer(
        lowered(),
        saving(
            ("after", "mm_out", "buf0", ONES),
            ("before", "odd_kernel", "buf0", ONES),
            ("after", "odd_kernel", "buf1", NAN),
            ("after", "odd_kernel", "buf2", ONES.to(torch.complex64)),
            ("after", "mm_out", "buf0", 3 * ONES),
        ),
    )
    notes = VALUES.frame(observer.rows)["note"].tolist()
    assert "overwritten" in notes[0] and notes[1] == ""
    assert notes[2] == "" and "complex64" in notes[3] and "over the limit" in notes[4]
    assert VALUES.frame(observer.rows)["state"].tolist() == ["", "finite", "nan", "finite", "finite"]
    assert observer.stored_bytes == 2 * 280 and "1 over the limit" in observer.describe()


def test_a_value_that_torch_could_not_save_is_told_and_not_called_finite() -> None:
    observer = ValueObserver(level=1)
    kernel = "cpp_fused_" + "x" * 250
    observer(lowered(), saving(("after", kernel, "buf0", NAN), ("after", "mm_out", "buf1", ONES)))
    table = VALUES.frame(observer.rows)
    assert table["kernel"].tolist() == [kernel, "mm_out"] and table["state"].tolist() == ["", "finite"]
    assert table["note"].tolist() == ["not saved by torch: File name too long; level 2 tells of this value", ""]
    assert "not established of 1 value" in observer.describe()


def test_a_run_that_raises_leaves_what_was_told() -> None:
    observer = ValueObserver(level=2)

    def run() -> Sequence[torch.Tensor]:
        print_tensor(ONES, "after_launch - mm_out - buf0")
        raise RuntimeError("the kernel gave up")

    with pytest.raises(RuntimeError, match="gave up"):
        observer(lowered(), run)
    assert VALUES.frame(observer.rows)["buffer"].tolist() == ["buf0"]


@pytest.mark.parametrize(
    ("ending", "code", "afterwards"), [("pass", 0, "afterwards\n"), ("os.kill(os.getpid(), 9)", -signal.SIGKILL, "")]
)
def test_the_copy_goes_where_the_output_went_also_before_a_crash(
    tmp_path: Path, ending: str, code: int, afterwards: str
) -> None:
    script = (
        "import os, sys; from pathlib import Path; from inductor_debug.stages.native_output import copied_stdout\n"
        "with copied_stdout(Path(sys.argv[1])):\n"
        "    print('from Python', flush=True)\n"
        f"    os.write(1, b'from below\\n'); {ending}\n"
        "print('afterwards')"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "copy")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert finished.returncode == code, finished.stderr
    assert (tmp_path / "copy").read_text() == "from Python\nfrom below\n"
    assert finished.stdout == "from Python\nfrom below\n" + afterwards


def test_no_run_stores_more_than_64_mib_of_values() -> None:
    observer = ValueObserver(level=1)
    large = ("after", "mm_out", "buf0", torch.zeros(2**24 + 1))
    observer(lowered(), saving(large, ("after", "odd_kernel", "buf1", NAN)))
    assert VALUES.frame(observer.rows)["note"].tolist() == ["not stored: over the limit of 64 MiB in all", ""]
    assert observer.stored_bytes == NAN.numel() * NAN.element_size()
