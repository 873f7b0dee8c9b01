"""The profile stage on a model one line of which takes nearly all of the time."""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pandas
import pytest
import torch
from profile_models import Block, line_of, lopsided_case

from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.artifacts import files, time_tables
from inductor_debug.stages.artifacts.lowering import LaunchRecord
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.profile.config import ProfileConfig
from inductor_debug.stages.profile.stage import ProfileStage
from inductor_debug.stages.report.config import ReportConfig
from inductor_debug.stages.report.stage import ReportStage
from inductor_debug.stages.settings import BackendConfig, Settings

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))

FILES = [f"profile/{name}" for name in (
    "kernels.csv", "lines.csv", "modules.csv", "operations.csv", "summary.json", "trace.json.gz")]  # fmt: skip
SLOW = "profile_tests.churn.default"


class Finished:
    """A stage that ran."""

    def __init__(self, context: StageContext, result: StageResult, artifacts: MemoryArtifacts) -> None:
        self.context, self.result, self.artifacts = context, result, artifacts

    def table(self, name: str) -> pandas.DataFrame:
        return pandas.read_csv(io.StringIO(self.artifacts.read_text(f"profile/{name}.csv")), keep_default_na=True)

    @property
    def summary(self) -> dict[str, Any]:
        return self.artifacts.read_json("profile/summary.json")

    @property
    def events(self) -> list[dict[str, Any]]:
        return json.loads(gzip.decompress(self.artifacts.content["profile/trace.json.gz"]))["traceEvents"]


def run(mode: str = "training", options: dict[str, Any] | None = None, **backend: Any) -> Finished:
    torch._dynamo.reset()  # a process compiles one function for so many backends alone
    artifacts = MemoryArtifacts()
    settings = Settings(ModelConfig("lopsided"), backend=BackendConfig(**backend), mode=mode)
    context = StageContext(settings, artifacts, {"case": lopsided_case(mode)})
    stage = ProfileStage(ProfileConfig(**{"steps": 5, "warmup": 1, "ceiling": False} | (options or {})))
    stage.check(context)
    result = stage.run(context)
    artifacts.add(result)
    return Finished(context, result, artifacts)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small loops on several threads wait for each other where other processes run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def inductor(one_thread: None) -> Finished:
    return run(options={"ceiling": True})


@pytest.fixture(scope="module")
def eager(one_thread: None) -> Finished:
    return run(name="eager", adapter="eager")


@pytest.fixture(scope="module")
def aot_eager(one_thread: None) -> Finished:
    return run(name="aot_eager", adapter="aot_eager")


@pytest.fixture(params=["inductor", "eager", "aot_eager"])
def any_backend(request: pytest.FixtureRequest) -> Finished:
    return request.getfixturevalue(request.param)


def test_every_file_is_there(any_backend: Finished) -> None:
    assert any_backend.result.status == "passed"
    assert any_backend.artifacts.names() == FILES
    assert any_backend.summary["not_established"] == []
    assert jsonable(files.PROFILE.read(any_backend.artifacts)) == any_backend.summary


def test_the_slow_line_is_on_top(any_backend: Finished) -> None:
    slow = line_of("churn(hidden)")
    lines, operations = any_backend.table("lines"), any_backend.table("operations")
    assert lines.source[0] == slow
    assert lines.code[0] == "hidden = torch.ops.profile_tests.churn(hidden)"
    assert "churn" in operations.operation[0]
    kernels = any_backend.table("kernels").sort_values("time_us", ascending=False)
    assert kernels.iloc[0].sources == slow and "churn" in kernels.iloc[0].kernel
    told = any_backend.result.message.partition("\n")[0]
    most = rf"\. The line {re.escape(slow)} takes [\d.]+ % of the step: {re.escape(lines.code[0])}\."
    assert re.search(most, told)


def test_the_tables_add_up_to_what_was_observed(any_backend: Finished) -> None:
    total = any_backend.table("kernels").time_us.sum()
    summary = any_backend.summary
    assert total == pytest.approx(summary["kernels_us"])
    assert 0 < summary["inside_us"] < summary["step_us"] and summary["outside_us"] > 0
    for name in ("operations", "lines"):
        assert any_backend.table(name).time_us.sum() == pytest.approx(total)
    modules = any_backend.table("modules").fillna({"module": ""}).set_index("module")
    assert modules.time_us[""] == pytest.approx(total) == pytest.approx(modules.alone_us[""])
    for name in ("operations", "lines", "modules"):
        table = any_backend.table(name)
        assert (table.alone_us <= table.time_us + 1e-6).all() and (table.time_us <= table.at_most_us + 1e-6).all()


def test_every_launch_of_the_generated_code_has_a_time(inductor: Finished) -> None:
    kernels = inductor.table("kernels")
    timed = {f"{row.graph}|{row.kernel}:{row.handle}": row for row in kernels.itertuples()}
    graphs = inductor.context.live["compiled"].graphs
    assert set(timed) == {f"{graph}|{key}" for graph, lowered in graphs.items() for key in lowered.kernel_nodes}
    assert {row.graph for row in timed.values()} == {"g0.forward", "g0.backward"}
    assert all(row.launches == 1 and row.time_us > 0 for row in timed.values())


def test_a_range_holds_the_launch_that_it_is_named_after(inductor: Finished) -> None:
    """In the trace, where the ranges and what ran inside them stand side by side."""
    spans = [event for event in inductor.events if event.get("ph") == "X"]
    ranges = [event for event in spans if event["name"].startswith(("g0.forward|", "g0.backward|"))]
    assert len(ranges) == len(inductor.table("kernels"))
    for event in ranges:
        end = event["ts"] + event["dur"]
        inside = [item for item in spans if event["ts"] < item["ts"] and item["ts"] + item["dur"] <= end]
        first = min(inside, key=lambda item: item["ts"], default=None)
        kernel = event["name"].partition("|")[2].rpartition(":")[0]
        if kernel.startswith("cpp_"):
            assert first is None
        else:  # extern_kernels.mm → aten::mm; torch.ops.profile_tests.churn.default → profile_tests::churn
            operator = kernel.removeprefix("torch.ops.").removesuffix(".default")
            expected = operator.replace("extern_kernels.", "aten.").replace(".", "::")
            # from torch 2.14 the profiler has no record of a custom operator that Python calls by its overload
            expected = "aten::linspace" if "churn" in expected and TORCH >= (2, 14) else expected
            assert first is not None and first["name"] == expected
            assert event["args"]["operations"]
        assert event["args"]["sources"]


def test_rates_are_bytes_and_flops_over_the_time(inductor: Finished) -> None:
    kernels = inductor.table("kernels").set_index("kernel")
    product = kernels.loc["extern_kernels.addmm"].iloc[0]
    assert (product.bytes_read, product.bytes_written) == (4 * (32 + 16 * 32 + 32 * 32), 4 * 16 * 32)
    assert product.flops == 2 * 16 * 32 * 32 and product["dtype"] == "float32"
    assert product.gflop_s == pytest.approx(product.flops / product.time_us / 1e3)
    assert product.gb_s == pytest.approx((product.bytes_read + product.bytes_written) / product.time_us / 1e3)
    (ceiling,) = inductor.summary["ceilings"]
    assert product.flops_share == pytest.approx(product.gflop_s * 1e9 / ceiling["flops"]["float32"])
    assert product.bandwidth_share == pytest.approx(product.gb_s * 1e9 / ceiling["bandwidth"])
    assert product.roofline_share == max(product.flops_share, product.bandwidth_share)
    loops = kernels[kernels.kind == "cpp"]
    assert len(loops) and loops.flops.isna().all()  # no formula is known, which is not 0


def test_a_lookup_reads_the_rows_that_it_looks_up(inductor: Finished) -> None:
    kernels = inductor.table("kernels")
    lookup = kernels[(kernels.graph == "g0.forward") & kernels.operations.str.contains("embedding")].iloc[0]
    assert lookup.bytes_read == 4 * 16 * 32 + 8 * 16 + 4 * 16 * 32  # what it multiplies, the index, 16 rows of 2000
    (launch,) = (
        record for record in provenance(inductor, "g0.forward")
        if (record.name, record.handle) == (lookup.kernel, lookup.handle)
    )  # fmt: skip
    assert launch.bytes_read == lookup.bytes_read + 4 * (2000 - 16) * 32


def provenance(finished: Finished, graph: str) -> list[LaunchRecord]:
    from inductor_debug.stages.graphs.sources import SourceFinder
    from inductor_debug.stages.lower.stage import graph_files

    lowered = finished.context.live["compiled"].graphs[graph]
    files, _ = graph_files(lowered, [], SourceFinder(finished.context.case.module))
    return files["provenance.json"].kernels


def test_modules_contain_what_is_inside_them(inductor: Finished) -> None:
    modules = inductor.table("modules").fillna({"module": ""}).set_index("module")
    assert {"", "first", "first.linear", "second", "second.linear"} <= set(modules.index)
    assert modules.time_us["first.linear"] <= modules.time_us["first"] < modules.time_us[""]
    assert list(modules.depth[["", "first", "first.linear"]]) == [0, 1, 2]


def test_the_backward_of_eager_is_told_by_autograds_numbers(eager: Finished) -> None:
    kernels = eager.table("kernels")
    backward = kernels[kernels.kind == "backward"]
    timed = backward[backward.time_us > 0]
    assert {line_of("relu", Block), line_of("torch.tanh")} <= set(timed.sources)
    assert timed.flops.isna().all()


def test_the_graphs_of_aot_eager_are_told_by_node(aot_eager: Finished) -> None:
    kernels = aot_eager.table("kernels")
    assert set(kernels.graph) == {"g0.forward", "g0.backward"} and set(kernels.kind) == {"operation"}
    tanh = kernels[kernels.operations == "aten.tanh.default"].iloc[0]
    assert (tanh.bytes_read, tanh.bytes_written) == (4 * 16 * 32, 4 * 16 * 32)
    product = kernels[kernels.operations == "aten.addmm.default"].iloc[0]
    assert product.flops == 2 * 16 * 32 * 32


class Opaque(AcceleratorAdapter):
    """Executes graphs in a way that shows nothing of them."""

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        return lambda *args: gm(*args)


def test_a_backend_that_shows_no_code_is_told_by_operator() -> None:
    finished = run("inference", {"trace_steps": 0}, name="opaque", adapter=f"{__name__}.Opaque")
    assert finished.result.status == "passed"
    assert "profile/trace.json.gz" not in finished.artifacts.names()
    (note,) = finished.summary["not_established"]
    assert "modules and source lines" in note and "Opaque" in note
    operations = finished.table("operations")
    assert "longest: aten." in finished.result.message
    assert operations.operation[0] in ("aten.tan", "aten.sin") and {"aten.addmm", "aten.tanh"} <= set(
        operations.operation
    )
    assert finished.table("lines").source.isna().all() and finished.summary["lines_share"] == 0


@pytest.mark.slow
def test_a_c_plus_plus_wrapper_is_told_by_launch() -> None:
    finished = run("inference", name="inductor", inductor={"cpp_wrapper": True})
    assert finished.summary["not_established"] == []
    kernels = finished.table("kernels")
    assert (kernels.time_us > 0).all() and (kernels.kernel == "aoti_torch_cpu_addmm_out").sum() == 2
    assert finished.table("lines").source[0] == line_of("churn(hidden)")
    names = [event["name"] for event in finished.events if event.get("ph") == "X"]
    assert names.index("g0.forward|aoti_torch_cpu_addmm_out:1") < names.index("g0.forward|aoti_torch_cpu_addmm_out:5")


def test_ranges_at_the_wrong_launch_would_show(monkeypatch: pytest.MonkeyPatch, inductor: Finished) -> None:
    """The fault that the tests above are there for: names moved on by one launch."""
    from inductor_debug.stages.torch_internals import generated_ranges as ranges

    place = ranges._in_python

    def moved(lines: list[str], spans: dict[str, range]) -> str:
        names = list(spans)
        return place(lines, dict(zip([*names[1:], names[0]], spans.values(), strict=True)))

    monkeypatch.setattr(ranges, "_in_python", moved)
    wrong = run("inference")
    with pytest.raises(AssertionError):
        test_a_range_holds_the_launch_that_it_is_named_after(wrong)
    with pytest.raises(AssertionError):
        test_the_slow_line_is_on_top(wrong)


def test_the_report_has_a_section(inductor: Finished) -> None:
    message = inductor.result.message
    stages = [{"name": "profile", "status": inductor.result.status, "message": message}]
    stored = MemoryArtifacts({"summary.json": {"run": {}, "verdict": "passed", "stages": stages}})
    stored.content |= inductor.artifacts.content
    result = ReportStage(ReportConfig(max_rows=3)).run(StageContext(inductor.context.settings, stored))
    html, data = result.artifacts["report/report.html"], result.artifacts["report/report.json"]
    assert "Where does the time go?" in html and "hidden = torch.ops.profile_tests.churn(hidden)" in html
    assert data["profile"]["lines"]["rows_total"] == len(inductor.table("lines"))
    told, *figures = message.splitlines()
    assert told in data["findings"] and told.startswith("Forward and backward take ")
    assert line_of("churn(hidden)") in told
    (longest,) = [line for line in figures if line.startswith("The longest: ")]
    (entry,) = [entry for entry in data["contents"] if entry.key == "profile"]
    assert SLOW in longest and list(entry.figures) == figures
    assert f"<li>{longest.partition(' (')[0]} (" in html
    without = ReportStage(ReportConfig()).run(StageContext(inductor.context.settings, MemoryArtifacts()))
    assert "Where does the time go?" not in without.artifacts["report/report.html"]


@pytest.mark.parametrize(("key", "value"), [("steps", 0), ("warmup", -1), ("trace_steps", -1)])
def test_a_number_of_steps_that_is_none_is_refused(key: str, value: int) -> None:
    context = StageContext(Settings(ModelConfig("lopsided")), MemoryArtifacts())
    with pytest.raises(ConfigurationError, match=rf"stages\.profile\.{key}: got {value}; valid: .*\n.*Try: "):
        ProfileStage(ProfileConfig(**{key: value})).check(context)


def test_the_columns_are_those_that_are_documented(inductor: Finished) -> None:
    rows = (time_tables.KernelTimeRow, time_tables.OperationTimeRow, time_tables.ModuleTimeRow, time_tables.LineTimeRow)
    text = "".join(part.__doc__ or "" for row in rows for part in row.__mro__[:-1])
    for name in ("kernels", "operations", "modules", "lines"):
        header = next(csv.reader(io.StringIO(inductor.artifacts.read_text(f"profile/{name}.csv"))))
        for column in header:
            assert column in text or column in ("bytes_written", "module", "depth", "source", "code", "operation",
                                                "profile_bandwidth_share", "profile_flops_share",
                                                "profile_roofline_share", "profile_bound"), column  # fmt: skip
