"""Whom a launch's time is put down to: its operations, their lines and what it copies beside them."""

from types import SimpleNamespace
from typing import Any

import pytest

from inductor_debug.stages.artifacts.lowering import BufferRecord, CopyRecord, LaunchRecord, LineRecord
from inductor_debug.stages.graphs.records import SourceLine
from inductor_debug.stages.lower.attribution import Part
from inductor_debug.stages.profile.work import lowered_work


class Lines:
    """A finder: what stands for a stack trace is the line itself."""

    def find(self, trace: str, module: str = "") -> SourceLine | None:
        file, _, line = trace.partition(":")
        return SourceLine(file, int(line), f"line {line}") if trace else None

    def is_own(self, line: SourceLine) -> bool:
        return line.file == "net.py"


def node(name: str, trace: str = "", elements: int = 100, view: bool = False, pre_grad: tuple[str, ...] = ()) -> Any:
    return SimpleNamespace(
        inputs=(),
        name=name, stack_trace=trace, elements=elements, view=view, pre_grad=pre_grad, flops=None,
        target=f"aten.{name}", original=f"aten.{name}", module="", sequence=None,
    )  # fmt: skip


def record(handle: int, nodes: list[str], lines: list[str], **more: Any) -> LaunchRecord:
    found = [Lines().find(line) for line in lines]
    sources = [LineRecord(line.file, line.line, line.code, line.file == "net.py") for line in found if line]
    known: dict[str, Any] = {"reads": [], "writes": [], "bytes_read": 0, "bytes_written": 0}
    return LaunchRecord(
        name="cpp_fused", handle=handle, kind="cpp", file=None, nodes=nodes, sources=sources, **known | more
    )


def buffer(name: str, elements: int) -> BufferRecord:
    return BufferRecord(name, "buffer", [elements], "float32", 4 * elements, 4 * elements)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    def of(records: list[LaunchRecord], nodes: list[Any], pre_grad: tuple[Any, ...] = ()) -> list[Part]:
        monkeypatch.setattr("inductor_debug.stages.profile.work.describe_kernels", lambda *_: records)
        monkeypatch.setattr("inductor_debug.stages.profile.work.kernels_of", lambda lowered: ([], []))
        lowered: Any = SimpleNamespace(id="g0.forward", nodes=nodes, pre_grad_nodes=pre_grad)
        finder: Any = Lines()
        first, *_ = lowered_work(lowered, [], finder)
        assert sum(part.weight for part in first.parts) == pytest.approx(1)
        return first.parts

    return of


def by_source(parts: list[Part]) -> dict[str, float]:
    return {part.source: sum(item.weight for item in parts if item.source == part.source) for part in parts}


def test_an_operation_of_no_line_is_not_put_down_to_another_ones(parts: Any) -> None:
    found = parts([record(1, ["known", "unknown"], ["net.py:10"])], [node("known", "net.py:10"), node("unknown")])
    assert by_source(found) == {"net.py:10": 0.5, "": 0.5}
    assert {part.operation: part.code for part in found} == {"aten.known": "line 10", "aten.unknown": ""}


def test_an_operation_of_a_library_keeps_its_line(parts: Any) -> None:
    nodes = [node("known", "net.py:10"), node("inside", "library.py:3")]
    assert by_source(parts([record(1, ["known", "inside"], ["net.py:10", "library.py:3"])], nodes)) == {
        "net.py:10": 0.5, "library.py:3": 0.5,
    }  # fmt: skip


def test_an_operation_has_the_lines_of_those_that_it_was_made_of(parts: Any) -> None:
    """A kernel none of whose nodes has a line of the model's gets those of their Dynamo nodes; each its own."""
    nodes = [node("mean", pre_grad=("norm",)), node("sum", "library.py:3", pre_grad=("add", "norm"))]
    pre_grad = (node("norm", "net.py:10"), node("add", "net.py:12"))
    found = parts([record(1, ["mean", "sum"], ["net.py:10", "net.py:12", "library.py:3"])], nodes, pre_grad)
    assert by_source(found) == {"net.py:10": 0.75, "net.py:12": 0.25}


def test_a_kernel_without_operations_is_put_down_to_its_lines(parts: Any) -> None:
    assert by_source(parts([record(1, [], ["net.py:10", "net.py:11"])], [])) == {"net.py:10": 0.5, "net.py:11": 0.5}
    views = [node("view", "net.py:10", view=True)]
    assert by_source(parts([record(1, ["view"], ["net.py:10"])], views)) == {"net.py:10": 1.0}


def test_a_kernel_that_only_copies_is_put_down_to_the_call_that_it_is_for(parts: Any) -> None:
    copying = record(1, ["view"], ["net.py:10"], copies=[CopyRecord("buf0", "arg0_1", "cpp_fused:2")],
                     writes=[buffer("buf0", 300)])  # fmt: skip
    nodes = [node("view", "net.py:10", view=True), node("conv", "net.py:20")]
    assert by_source(parts([copying, record(2, ["conv"], ["net.py:20"])], nodes)) == {"net.py:20": 1.0}


@pytest.mark.parametrize(("accessed", "copied"), [(1200, 0.75), (None, 0.5)])
def test_what_is_copied_for_several_calls_is_copied_once(parts: Any, accessed: int | None, copied: float) -> None:
    copying = record(
        1, ["add"], ["net.py:10"], reads=[buffer("arg0_1", 100), buffer("arg1_1", 300)],
        copies=[CopyRecord("buf0", "arg1_1", f"cpp_fused:{handle}") for handle in (2, 3)],
        writes=[buffer("buf1", 100), BufferRecord("buf0", "buffer", ["s0"], "float32", accessed, accessed)],
        bytes_written=accessed,
    )  # fmt: skip
    nodes = [node("add", "net.py:10"), node("conv", "net.py:20"), node("pool", "net.py:30")]
    users = [record(2, ["conv"], ["net.py:20"]), record(3, ["pool"], ["net.py:30"])]
    assert by_source(parts([copying, *users], nodes)) == {
        "net.py:10": 1 - copied, "net.py:20": copied / 2, "net.py:30": copied / 2,
    }  # fmt: skip


def test_a_copy_has_its_share_of_the_bytes_however_many_operations_are_computed(parts: Any) -> None:
    """Four operations in one loop, of equal sizes, and a weight's copy of as many bytes as they move together."""
    names = ["sub", "mul", "add", "relu"]
    both = record(
        1, names, ["net.py:10"], copies=[CopyRecord("buf1", "arg1_1", "cpp_fused:2")],
        reads=[buffer("arg0_1", 100), buffer("arg1_1", 100)], writes=[buffer("buf0", 100), buffer("buf1", 100)],
    )  # fmt: skip
    nodes = [*(node(name, "net.py:10") for name in names), node("conv", "net.py:20")]
    assert by_source(parts([both, record(2, ["conv"], ["net.py:20"])], nodes)) == {"net.py:10": 0.5, "net.py:20": 0.5}


def test_what_is_copied_for_no_launch_of_a_known_line_is_put_down_to_none(parts: Any) -> None:
    both = record(
        1, ["add"], ["net.py:10"], copies=[CopyRecord("buf1", "arg1_1", None)],
        reads=[buffer("arg0_1", 100), buffer("arg1_1", 100)], writes=[buffer("buf0", 100), buffer("buf1", 100)],
    )  # fmt: skip
    assert by_source(parts([both], [node("add", "net.py:10")])) == {"net.py:10": 0.5, "": 0.5}
