"""Reproductions of what a strict profile refuses, whatever form the rule's value has."""

import pytest
from constrain_graphs import call, graph, placeholder, tensor

from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.accelerators.loading import load_profile
from inductor_debug.stages.graphs.records import TensorRecord
from inductor_debug.stages.repro import NotReproducible
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.measures import measure_of
from inductor_debug.stages.rules.repros import write_repros
from inductor_debug.stages.rules.violation import Violation

MATMUL = graph(
    placeholder("x", 3, 100),
    placeholder("w", 100, 24, role="parameter"),
    call("mm", "aten.mm.default", ["x", "w"], tensor(3, 24)),
)
CONVOLUTION = graph(
    placeholder("x", 3, 4, 16, 16),
    placeholder("w", 8, 4, 3, 3, role="parameter"),
    call("c", "aten.convolution.default", ["x", "w", None, [7, 7], [0, 0], [1, 1], False, [0, 0], 1],
         tensor(3, 8, 2, 2)),
)  # fmt: skip


@pytest.mark.parametrize(
    "rule",
    [
        Rule("dtype", value={"float32": "bfloat16"}),
        Rule("layout", value={"stride": 16, "offset": 16}),
        Rule("size", value={"min": 1, "max": 16}),
        Rule("custom", value={"_target_": "inductor_debug.stages.rules.kernel_limits.batch", "multiple": 8}),
    ],
)
@pytest.mark.parametrize("allow", [[], [Rule("operation", value={"allow": ["aten.add"]})]])
def test_a_rule_with_a_mapping_is_no_allow_list(rule: Rule, allow: list[Rule]) -> None:
    for given in (MATMUL, CONVOLUTION):
        violations = check(given, AccelConfig(strict=True, rules=[rule, *allow]))
        repros = write_repros([given], violations, verified=0)
        assert sum(len(item.rows) for item in (*repros.scripts, *repros.without)) == len(violations)


@pytest.mark.parametrize("name", ["ibm_spyre", "google_tpu", "arm_ethos_u55"])
def test_shipped_profiles_may_be_strict(name: str) -> None:
    violations = check([CONVOLUTION], load_profile(name, strict=True))
    assert violations.failed
    repros = write_repros([CONVOLUTION], violations, verified=0)
    assert sum(len(item.rows) for item in (*repros.scripts, *repros.without)) == violations.by_severity["error"]


def found(rule: str, measured: str, limit: str) -> Violation:
    return Violation(
        "g0.forward", "x", "x", "output", "", "", rule, "reject", "error", measured, limit, None, None, "", ""
    )


@pytest.mark.parametrize(("rule", "measured", "limit"), [("dtype", "quint8", "float32"), ("rank", "2", "1")])
def test_a_dtype_of_unknown_width_is_measured_where_its_width_does_not_matter(
    rule: str, measured: str, limit: str
) -> None:
    tensor = TensorRecord([3, 4], "quint8", [4, 1], "cpu")
    assert measure_of(found(rule, measured, limit), tensor, "x", {}).expected == measured
    with pytest.raises(NotReproducible, match="width of torch"):
        measure_of(found("memory_tensor", "12", "8"), tensor, "x", {})
