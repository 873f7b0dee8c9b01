"""A grid against checks point by point: it shares what points have in common, and finds what each check finds."""

import datetime
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from constrain_graphs import call, graph, placeholder, tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.stages.accelerators.config import AccelConfig, Rule, Waiver
from inductor_debug.stages.accelerators.profile import Profile, load_config, profile_names, validate_profile
from inductor_debug.stages.accelerators.rule_kinds import KINDS
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.constrain.grid import check_grid
from inductor_debug.stages.constrain.points import Points
from inductor_debug.stages.graphs.records import GETITEM, GraphRecord
from inductor_debug.stages.rules.affected import AffectedOperations
from inductor_debug.stages.rules.engine import Checked, check

Grid = Mapping[str, Sequence[Any]]


class Net(nn.Module):
    """Convolutions in groups, views, a residual, a matrix product with a constant operand, and an attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 12, 3, padding=1)
        self.groups = nn.Conv2d(12, 18, 3, groups=3)
        self.norm = nn.BatchNorm2d(18)
        self.last = nn.Linear(18, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.groups(F.relu(self.first(x)))))
        x = x.flatten(2).transpose(1, 2)
        x = x + F.scaled_dot_product_attention(x, x, x)
        left, right = self.last(x).chunk(2, -1)
        return (left @ right.transpose(1, 2))[:, 1:]


def captured(mode: str, dynamic: bool = False) -> list[GraphRecord]:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 6)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0, min=2, max=12)
    case = Case("net", Net().train(mode == "training"), (x,), {}, mode, torch.float32, torch.device("cpu"))
    return sorted(capture(case).graphs, key=lambda graph: graph.id)


@pytest.fixture(scope="module")
def captures() -> dict[str, list[GraphRecord]]:
    return {
        "inference": captured("inference"),
        "training": captured("training"),
        "dynamic": captured("training", dynamic=True),
        "dynamo alone": [graph for graph in captured("inference") if graph.kind == "dynamo"],
    }


def point_by_point(
    graphs: list[GraphRecord], config: AccelConfig, grid: Grid, base: Profile | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of the grid's table, each from a check of its own."""
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        found = check(graphs, validate_profile(replace(config, **point), {}, base=base))
        counting = [group for group in found.findings if {row.severity for row in group} & {"error", "warning"}]
        rows = [row for row in found if row.severity in ("error", "warning")]
        affected, groups = AffectedOperations(graphs), {(row.rule, row.effect) for row in rows}
        each = [affected.of([row for row in rows if (row.rule, row.effect) == group]) for group in groups]
        known = None not in [places for places, _ in each]
        rules = Counter(next(row.rule for row in group if row.severity != "waived") for group in counting)
        yield {
            **point,
            "findings": found.by_severity.get("error", 0) + found.by_severity.get("warning", 0),
            "undecided": found.by_severity.get("undecided", 0),
            "waived": found.by_severity.get("waived", 0),
            "nodes": len(set().union(*(places or () for places, _ in each))) if known else None,
            "cost_bytes": sum(cost or 0 for _, cost in each) if known else None,
            **{f"findings_{rule}": rules[rule] for rule in KINDS if rule in rules},
        }


def same(graphs: list[GraphRecord], config: AccelConfig, grid: Grid, base: Profile | None = None) -> None:
    table = check_grid(graphs, config, grid, base).to_dict("records")
    expected = list(point_by_point(graphs, config, grid, base))
    by_rule = sorted({name for row in expected for name in row if name.startswith("findings_")})
    assert [dict.fromkeys(by_rule, 0) | row for row in expected] == table


GRIDS: dict[str, Grid] = {
    "alignment": {"alignment": [*range(1, 20), 36, 100]},
    "alignment by dims": {"alignment_dims": ["last", "last2", "first", "contraction", "all"],
                          "alignment": [1, 3, 16, 18, 100]},
    "limits": {"max_rank": [2, 3], "max_size": [1, 17, 18, 4096]},
    "bytes": {"max_tensor_bytes": [1, 40, 1000, 5184, 10**6], "max_peak_bytes": [1, 20_000, 30_000, 10**9]},
    "layout": {"layout": ["contiguous", "channels_last"], "dynamic_shapes": ["static", "bounded"]},
}  # fmt: skip
WAIVERS = [
    Waiver(rule="alignment", target="aten.convolution*", reason="padded by hand"),
    Waiver(rule="*", target="*relu*", reason="soon", expires="2020-01-31"),
    Waiver(rule="memory_tensor", source="*test_constrain_points.py*", reason="split by hand"),
]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("name", ["inference", "training", "dynamic", "dynamo alone"])
def test_a_grid_over_a_capture_finds_what_each_check_finds(
    captures: dict[str, list[GraphRecord]], name: str, grid: str
) -> None:
    same(captures[name], AccelConfig(), GRIDS[grid])
    same(captures[name], AccelConfig(alignment=4, denied=["aten.relu"], strict=True, waivers=WAIVERS), GRIDS[grid])


@pytest.mark.parametrize("profile", profile_names())
def test_a_grid_of_each_profile_finds_what_each_check_finds(
    captures: dict[str, list[GraphRecord]], profile: str
) -> None:
    config, grid = load_config(profile), {"alignment": [1, 3, 6, 16, 18], "max_rank": [3]}
    same(captures["training"], config, grid, base=validate_profile(load_config("strict16"), {}))
    same(captures["dynamic"], config, {"alignment": [3, 16]})


SIZES = st.sampled_from([0, 1, 2, 3, 4, 6, 8, 12, 16, 18, "s0", "4*s0", "s0 + 1", "u0"])
SYMBOLS = {"s0": {"hint": 4, "min": 2, "max": 9}, "u0": {"hint": None, "min": 0, "max": None}}
TARGETS = ["aten.relu.default", "aten.mm.default", "aten.convolution.default", "aten.split.Tensor", "aten.view.default",
           "aten.detach.default", "aten.einsum.default", "higher_order.cond", GETITEM]  # fmt: skip
ROLES = ["input", "parameter", "buffer", "saved", "tangent"]


@st.composite
def graphs_of(draw: st.DrawFn, kind: str) -> GraphRecord:
    """Inputs, then calls that read what stands before them, with sizes that are repeated often."""
    few = draw(st.lists(st.lists(SIZES, max_size=4).map(tuple), min_size=1, max_size=3))
    dtypes = st.sampled_from(["float32", "float32", "int64", "float8_e8m0fnu"])
    shapes = st.sampled_from(few)
    nodes = [
        placeholder(f"{role}{index}", *draw(shapes), role=role, dtype=draw(dtypes))
        for index, role in enumerate(draw(st.lists(st.sampled_from(ROLES), min_size=1, max_size=3)))
    ]
    for index in range(draw(st.integers(1, 6))):
        target, names = draw(st.sampled_from(TARGETS)), st.sampled_from([node.name for node in nodes])
        read = draw(st.lists(names, min_size=1, max_size=3, unique=True))
        aliases = target in ("aten.view.default", "aten.detach.default")
        read = read[:1] if aliases or target == GETITEM else read
        made = [tensor(*draw(shapes), dtype=draw(dtypes)) for _ in range(2 if "split" in target else 1)]
        if target in (GETITEM, "aten.detach.default"):
            made = next(node for node in nodes if node.name == read[0]).outputs[:1]
        more = {"flops": draw(st.none() | st.integers(0, 9)), "aliases": aliases}
        operands = [*read, 0] if target == GETITEM else read
        nodes.append(call(f"call{index}", target, operands, *made, **more))
    return graph(*nodes, kind=kind, symbols=SYMBOLS)


RULES = st.one_of(
    st.builds(
        Rule,
        st.just("alignment"),
        st.sampled_from(["pad", "reject", "fallback"]),
        st.sampled_from(["last", "last2", "first", "contraction", "all"]),
        st.sampled_from([None, ["activation"], ["compute"], ["result", "parameter"], ["index", "activation"]]),
        st.sampled_from(["elements", "bytes"]),
        st.sampled_from([None, ["aten.mm"], ["!aten.relu"]]),
        st.integers(1, 32),
    ),
    st.builds(Rule, st.just("tile"), dims=st.sampled_from(["all", "free"]), value=st.sampled_from([[4], [3, 8]]),
              roles=st.sampled_from([None, ["compute"]])),
    st.builds(Rule, st.just("size"), st.sampled_from(["reject", "pad"]),
              value=st.sampled_from([4, {"min": 4}, {"min": 2, "max": 8}])),
    st.builds(Rule, st.just("memory_tensor"), value=st.integers(1, 300), unit=st.sampled_from(["bytes", "span_bytes"])),
    st.builds(Rule, st.just("layout"), value=st.sampled_from(["contiguous", {"stride": 4, "offset": 2}])),
    st.builds(Rule, st.just("dtype"), value=st.sampled_from([["float32"], {"int64": "int32"}]),
              roles=st.sampled_from([None, ["compute"], ["storage"]])),
    st.builds(Rule, st.just("operation"), value=st.sampled_from([["aten.relu"], {"allow": ["aten.mm", "aten.view"]}])),
    st.builds(Rule, st.just("dynamic_shape"), value=st.sampled_from(["static", "bounded"])),
    st.builds(Rule, st.just("memory_peak"), value=st.integers(1, 2000)),
)  # fmt: skip
AXES = st.one_of(
    st.fixed_dictionaries({"alignment": st.lists(st.integers(1, 20), min_size=1, max_size=8)}),
    st.fixed_dictionaries({"max_tensor_bytes": st.lists(st.integers(1, 400), min_size=1, max_size=4),
                           "max_size": st.lists(st.integers(4, 20), min_size=1, max_size=2)}),
    st.fixed_dictionaries({"max_peak_bytes": st.lists(st.integers(1, 2000), min_size=1, max_size=6),
                           "max_rank": st.lists(st.integers(1, 4), min_size=1, max_size=2)}),
)  # fmt: skip


@settings(deadline=None, max_examples=100)
@given(
    graphs=st.sampled_from([("forward",), ("forward", "backward"), ("dynamo",), ("dynamo", "forward"), ("joint",)])
    .flatmap(lambda kinds: st.tuples(*map(graphs_of, kinds)))
    .map(list),
    rules=st.lists(RULES, max_size=4),
    grid=AXES,
    strict=st.booleans(),
    waived=st.booleans(),
)
def test_a_grid_of_any_rules_over_any_graphs_finds_what_each_check_finds(
    graphs: list[GraphRecord], rules: list[Rule], grid: Grid, strict: bool, waived: bool
) -> None:
    waivers = [Waiver(target="*relu*", reason="r"), Waiver("memory_*", reason="r")] if waived else []
    same(graphs, AccelConfig(strict=strict, rules=rules, waivers=waivers), grid)


def test_two_rules_alike_count_a_tensors_bytes_once(captures: dict[str, list[GraphRecord]]) -> None:
    graphs = [graph for graph in captures["inference"] if graph.kind == "forward"]
    rule = Rule("operation", value=["aten.relu"])
    once, twice = (
        check_grid(graphs, AccelConfig(strict=True, rules=[rule] * count), {"alignment": [1]}) for count in (1, 2)
    )
    assert list(twice["cost_bytes"]) == list(once["cost_bytes"]) != [0]


def test_what_points_have_in_common_is_made_once(
    captures: dict[str, list[GraphRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred values look once, and make the rows of those alone that leave other sizes unaligned."""
    calls: Counter[str] = Counter()
    for name in ("look", "violations"):
        inner = getattr(Checked, name)
        monkeypatch.setattr(Checked, name, lambda *given, name=name, inner=inner: calls.update([name]) or inner(*given))
    graphs = captures["inference"]
    table = check_grid(graphs, AccelConfig(), {"alignment": range(1, 101)})
    assert calls["look"] == len(graphs)
    assert 1 < calls["violations"] < 15 and table["cost_bytes"].nunique() > 50


def test_what_many_rules_find_is_not_kept_for_ever(
    captures: dict[str, list[GraphRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inductor_debug.stages.constrain.points.RULES_KEPT", 3)
    points = Points(captures["inference"])
    for limit in (4, 5, 6, 7, 4):
        points.at(validate_profile(AccelConfig(alignment=limit)))
    assert len(points._rules) == 3
    same(captures["inference"], AccelConfig(), {"max_rank": [1, 2], "alignment": range(1, 9)})


def test_the_day_decides_over_waivers_at_every_point(captures: dict[str, list[GraphRecord]]) -> None:
    waived = AccelConfig(alignment=7, waivers=[Waiver("alignment", reason="r", expires="2030-01-31")])
    before, after = (Points(captures["inference"], datetime.date(year, 1, 1)) for year in (2029, 2031))
    assert before.at(validate_profile(waived)).severities.keys() == {"waived"}
    assert after.at(validate_profile(waived)).severities.keys() == {"warning"}
