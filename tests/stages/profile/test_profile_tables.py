"""Tables of a profile from times by hand, rates against ceilings, and what can't be told."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from profile_models import lopsided_case

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig, PeaksConfig
from inductor_debug.stages.accelerators.profile import load_config, validate_profile
from inductor_debug.stages.artifacts.lowering import CapturedNode
from inductor_debug.stages.artifacts.measurements import Ceiling
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord
from inductor_debug.stages.lower.attribution import Part, weights
from inductor_debug.stages.profile.ceiling import last_level_cache, measured_ceiling, named_ceiling, share_of
from inductor_debug.stages.profile.messages import message, summary
from inductor_debug.stages.profile.observation import Observation, Times, _steps
from inductor_debug.stages.profile.stage import unseen
from inductor_debug.stages.profile.tables import Profile, kernel_rows, line_rows, module_rows, operation_rows, timed
from inductor_debug.stages.profile.trace import annotated
from inductor_debug.stages.profile.work import Work, _Flops


def part(operation: str, module: str, line: int, weight: float) -> Part:
    return Part(operation, module, f"net.py:{line}", f"line {line}", weight)


def work(name: str, parts: list[Part], **more: Any) -> Work:
    return Work("g0.forward", name, 1, "cpp", f"g0.forward|{name}:1", parts, **more)


def times(*microseconds: float, calls: int = 1) -> Times:
    return Times([calls] * len(microseconds), list(microseconds), list(microseconds))


FUSED = work("fused", [part("gelu", "block.act", 1, 0.5), part("softmax", "block", 2, 0.5)])
PLAIN = work("plain", [part("gelu", "block.act", 1, 1.0)], bytes_read=3000, bytes_written=1000)
PRODUCT = work("mm", [part("mm", "", 3, 1.0)], bytes_read=100, bytes_written=100, flops=8_000_000, dtype="float32")


def profile(works: list[Work], ranges: dict[str, Times], **more: Any) -> Profile:
    steps = len(next(iter(ranges.values())).calls) if ranges else 2
    on_device = more.pop("on_device", False)
    observed = more.pop("observed", [100.0] * steps)
    observation = Observation([90.0] * steps, observed, ranges, range_floor=0.2, on_device=on_device)
    return Profile(timed(works, observation), observation, more.pop("measured", None), more.pop("named", None), [])


@pytest.fixture
def three() -> Profile:
    found = {FUSED.range: times(20, 30, 40), PLAIN.range: times(10, 10, 10), PRODUCT.range: times(40, 40, 40)}
    return profile([FUSED, PLAIN, PRODUCT], found)


def test_a_fused_kernel_is_put_down_in_parts_and_both_ends_are_told(three: Profile) -> None:
    rows = {row.source: row for row in line_rows(three)}
    assert [row.source for row in line_rows(three)] == ["net.py:3", "net.py:1", "net.py:2"]
    first = rows["net.py:1"]
    assert (first.time_us, first.alone_us, first.at_most_us) == (25.0, 10.0, 40.0)
    assert first.share == pytest.approx(0.25) and first.launches == 2
    assert first.kernels == "g0.forward|fused:1 g0.forward|plain:1" and first.code == "line 1"
    assert (rows["net.py:2"].alone_us, rows["net.py:2"].at_most_us) == (0.0, 30.0)
    assert sum(row.time_us for row in operation_rows(three)) == pytest.approx(three.kernels) == 80


def test_operations_weigh_what_the_elements_that_they_handle_do() -> None:
    """A gradient of a table of embeddings beside a sum over a few of its rows."""
    assert weights([300, 100]) == [0.75, 0.25] and weights([5]) == [1.0]
    assert weights([300, None]) == weights([0, 0]) == [0.5, 0.5] and weights([]) == []


def test_a_module_contains_those_inside_it(three: Profile) -> None:
    rows = {row.module: row for row in module_rows(three)}
    assert {name: row.time_us for name, row in rows.items()} == {"": 80.0, "block": 40.0, "block.act": 25.0}
    assert rows["block"].alone_us == rows["block"].at_most_us == 40.0  # all of the fused kernel is inside it
    assert rows["block.act"].alone_us == 10.0 and rows["block.act"].depth == 2


def test_times_are_medians_with_their_spread(three: Profile) -> None:
    row = kernel_rows(three)[0]
    assert (row.time_us, row.iqr_us, row.share) == (30.0, 10.0, pytest.approx(0.3))
    assert three.inside == 80.0 and three.outside == 20.0


def test_what_is_outside_is_told_step_by_step() -> None:
    """Where one step is slow all over, what is inside and outside still add up to the step."""
    found = profile([PLAIN], {PLAIN.range: times(10, 90, 20)}, observed=[15.0, 100.0, 24.0])
    assert (found.inside, found.outside) == (pytest.approx(20.0), pytest.approx(4.0)) and found.step == 24.0


def test_a_devices_kernels_are_shares_of_the_step_without_the_profiler() -> None:
    """It holds up the host, not the kernels: of a recorded step they would seem less than they are."""
    found = profile([PLAIN], {PLAIN.range: times(10, 20, 30)}, observed=[80.0, 100.0, 90.0])
    found.observation.unprofiled, found.observation.on_device = [40.0, 60.0, 50.0], True
    assert (found.step, found.inside, found.outside) == (50.0, 20.0, 30.0)
    assert kernel_rows(found)[0].share == pytest.approx(0.4)
    facts = summary(found, "inductor", {})
    assert (facts.step_us, facts.recorded_us, facts.observation_us) == (50.0, 90.0, 40.0)
    said = "A step takes 0.05 ms, 40 % of it in 1 kernel launch. The line net.py:1 takes 40 % of the step: "
    assert message(found).startswith(f"{said}line 1. ")


def test_a_step_of_a_second_is_told_in_milliseconds_on_both_sides() -> None:
    found = profile([PLAIN], {PLAIN.range: times(10, 10)}, observed=[1.7e6, 1.7e6])
    found.observation.unprofiled = [1.05e6, 1.05e6]
    assert message(found).startswith("A step takes 1700 ms while recorded (1050 ms without), ")


def test_rates_are_shares_of_the_measured_and_of_the_profiles_ceiling() -> None:
    measured = Ceiling("measured", 8e8, {"float32": 4e11}, {"last_level_cache_bytes": 10**6})
    named = Ceiling("profile", None, {"float32": 8e11})
    found = profile(
        [PLAIN, PRODUCT], {PLAIN.range: times(20, 20, calls=2), PRODUCT.range: times(40, 40)},
        measured=measured, named=named,
    )  # fmt: skip
    plain, product = kernel_rows(found)
    assert plain.gb_s == pytest.approx(0.4)  # 4000 bytes a launch of 10 µs
    assert (plain.bandwidth_share, plain.bound, plain.flops_share) == (pytest.approx(0.5), "memory", None)
    assert plain.profile_bandwidth_share is None and plain.flops is None and plain.gflop_s is None
    assert product.gflop_s == pytest.approx(200.0)
    assert (product.flops_share, product.profile_flops_share) == (pytest.approx(0.5), pytest.approx(0.25))
    assert (product.roofline_share, product.bound) == (pytest.approx(0.5), "compute")
    assert (product.profile_roofline_share, product.profile_bound) == (pytest.approx(0.25), "compute")
    assert (plain.profile_roofline_share, plain.profile_bound) == (None, "")
    assert "50 % of the measured compute ceiling and 25 % of the profile's compute ceiling, 200 GFLOP/s" in message(
        found
    )
    assert summary(found, "inductor", {}).longest[1].endswith("at 50 % of the measured memory ceiling, 0.4 GB/s")


def test_two_ceilings_may_bound_a_kernel_differently() -> None:
    """4000 bytes and 1e6 FLOP in 10 µs: memory bounds it on this machine, and arithmetic on the profile's chip."""
    item = work("both", [part("mm", "", 3, 1.0)], bytes_read=4000, bytes_written=0, flops=10**6, dtype="float32")
    ceilings = {"measured": Ceiling("measured", 8e8, {"float32": 1e12}),
                "named": Ceiling("profile", 4e10, {"float32": 2e12})}  # fmt: skip
    found = profile([item], {item.range: times(10, 10)}, **ceilings)
    (row,) = kernel_rows(found)
    assert (row.roofline_share, row.bound) == (pytest.approx(0.5), "memory")
    assert (row.profile_roofline_share, row.profile_bound) == (pytest.approx(0.05), "compute")
    told = "at 50 % of the measured memory ceiling and 5 % of the profile's compute ceiling, 0.4 GB/s and 100 GFLOP/s"
    assert told in message(found)


@pytest.mark.parametrize(("which", "told"), [("measured", "50 % of the measured memory ceiling, 0.4 GB/s"),
                                             ("named", "50 % of the profile's memory ceiling, 0.4 GB/s")])  # fmt: skip
def test_one_ceiling_alone_is_the_one_that_is_told(which: str, told: str) -> None:
    found = profile([PLAIN], {PLAIN.range: times(10, 10)}, **{which: Ceiling(which, 8e8, {})})
    (row,) = kernel_rows(found)
    assert (row.roofline_share, row.bound) == (pytest.approx(0.5), "memory") and f"at {told}" in message(found)
    facts = summary(found, "inductor", {})
    assert [ceiling.source for ceiling in facts.ceilings] == [which] and "ceiling and" not in message(found)


def test_more_than_memory_can_do_is_named_and_no_error() -> None:
    small = Ceiling("measured", 1e8, {}, {"last_level_cache_bytes": 10**6})
    (row,) = kernel_rows(profile([PLAIN], {PLAIN.range: times(10, 10)}, measured=small))
    assert row.bandwidth_share == pytest.approx(4.0) and "fit in the last-level cache" in row.note
    large = Ceiling("measured", 1e8, {}, {"last_level_cache_bytes": 100})
    (row,) = kernel_rows(profile([PLAIN], {PLAIN.range: times(10, 10)}, measured=large))
    assert "a cache had part of it" in row.note


def test_what_was_not_seen_has_no_time() -> None:
    found = profile([FUSED, PLAIN], {PLAIN.range: times(0.3, 0.3)})
    fused, plain = kernel_rows(found)
    assert fused.time_us is None and fused.note == "not seen in the recorded steps" and fused.launches == 0
    assert plain.note == "as short as an empty range"
    assert unseen(found.timed) == []
    nothing = profile([FUSED], {})
    assert "none of its launches was seen" in unseen(nothing.timed)[0]
    assert message(nothing) == "Where the time goes is not established: no kernel was seen in 2 steps of 0.1 ms."
    assert summary(nothing, "inductor", {}).lines_share is None


def test_a_launch_without_a_device_kernel_has_no_time() -> None:
    found = profile([PLAIN], {PLAIN.range: Times([1, 1], [0.0, 0.0], [5.0, 5.0])}, on_device=True)
    (row,) = kernel_rows(found)
    assert row.time_us is None and row.gb_s is None and row.note == "no device kernel was seen in its range"


def test_flops_are_counted_once() -> None:
    """A node that two launches compute is no one's; a captured node stands in where it came to one launch alone."""
    nodes = [SimpleNamespace(name="mm", flops=100), SimpleNamespace(name="shared", flops=10),
             SimpleNamespace(name="packed", flops=None), SimpleNamespace(name="split", flops=None)]  # fmt: skip
    both = [CapturedNode("g0.forward", "addmm_1")]
    records = [
        SimpleNamespace(nodes=["mm", "shared"], captured=[CapturedNode("g0.forward", "addmm")]),
        SimpleNamespace(nodes=["shared"], captured=[]),
        SimpleNamespace(nodes=["packed"], captured=[CapturedNode("g0.forward", "convolution")]),
        SimpleNamespace(nodes=["split"], captured=both),
        SimpleNamespace(nodes=["split"], captured=both),
    ]
    calls = [NodeRecord(name, "call_function", "x", flops=flops)
             for name, flops in (("addmm", 7), ("convolution", 50), ("addmm_1", 30))]  # fmt: skip
    flops = _Flops(SimpleNamespace(nodes=nodes), records, [GraphRecord("g0.forward", "forward", calls)])
    assert [flops.of(record) for record in records] == [100, None, 50, None, None]


def test_the_ceiling_is_measured_in_the_dtypes_asked_for() -> None:
    case = lopsided_case()
    found = measured_ceiling(case, ["float32"])
    assert found.bandwidth is not None and found.bandwidth > 0 and set(found.flops) == {"float32"}
    assert found.facts["copy"]["array_bytes"] >= 64 * 2**20 and found.facts["threads"] == torch.get_num_threads()
    assert found.facts["last_level_cache_bytes"] == last_level_cache(case.device)
    assert found.flops["float32"] > 0 and found.facts["matmul_float32"]["size"] >= 256


def test_shares_of_nothing_are_unknown() -> None:
    assert share_of(None, 1.0) is None and share_of(1.0, None) is None and share_of(1.0, 4.0) == 0.25


def test_a_profile_may_name_its_ceiling() -> None:
    assert named_ceiling(PeaksConfig(), "none") is None
    found = named_ceiling(PeaksConfig(2e12, {"bfloat16": 1e15}, "data sheet", "1.0"), "chip")
    assert found is not None and (found.bandwidth, found.flops) == (2e12, {"bfloat16": 1e15})
    assert found.facts == {"profile": "chip", "source": "data sheet", "version": "1.0"}


def test_a_ceiling_is_read_from_a_profiles_file(tmp_path: Path) -> None:
    file = tmp_path / "chip.yaml"
    file.write_text("name: chip\npeaks: {bandwidth: 3.35e12, flops: {bfloat16: 9.89e14}, source: data sheet}\n")
    assert load_config(file).peaks == PeaksConfig(3.35e12, {"bfloat16": 9.89e14}, "data sheet")


@pytest.mark.parametrize(("peaks", "key"), [
    (PeaksConfig(bandwidth=0), "bandwidth: got 0"), (PeaksConfig(bandwidth=float("inf")), "bandwidth: got inf"),
    (PeaksConfig(flops={"float32": -1.0}), "flops.float32: got -1.0"),
    (PeaksConfig(flops={"fp32": 1e12}), "flops: got 'fp32'"),
])  # fmt: skip
def test_a_ceiling_that_is_none_is_refused(peaks: PeaksConfig, key: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"accel\.peaks\.{key}(.|\n)*Try: "):
        validate_profile(AccelConfig("chip", peaks=peaks), {})


def test_the_trace_tells_what_a_range_covers() -> None:
    import gzip
    import json

    events = [{"ph": "X", "name": FUSED.range, "args": {"id": 1}}, {"ph": "X", "name": "aten::mm"}, {"ph": "M"}]
    stored = annotated(json.dumps({"traceEvents": events}).encode(), {FUSED.range: FUSED})
    first, second, third = json.loads(gzip.decompress(stored))["traceEvents"]
    assert first["args"] == {"id": 1, "operations": ["gelu", "softmax"], "modules": ["block.act", "block"],
                             "sources": ["net.py:1", "net.py:2"]}  # fmt: skip
    assert [second, third] == events[1:]


def test_slow_steps_end_with_the_budget() -> None:
    assert len(_steps(lambda: 10.0, 8, 1.0)) == 8
    assert len(_steps(lambda: 2e6, 8, 9.0)) == 5
    assert len(_steps(lambda: 1e9, 8, 9.0)) == 3 and len(_steps(lambda: 1e9, 2, 9.0)) == 2
