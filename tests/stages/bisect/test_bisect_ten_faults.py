"""Ten faults, none known to the bisection, and what it must name for each."""

import contextlib
import re
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from bisect_faults import (
    Logarithm,
    Perceptron,
    Plant,
    Pointwise,
    injected_bug,
    wrong_gelu_decomposition,
    wrong_joint_pattern,
    wrong_lowering,
    wrong_post_grad_pass,
    wrong_pre_grad_pass,
)
from faulty_adapters import CrashOnOperation, WrongOperation

from inductor_debug.stages.bisect.api import bisect
from inductor_debug.stages.bisect.records import Bisection
from inductor_debug.stages.torch_internals.switches import Switchboard, installed

aten = torch.ops.aten


@dataclass(frozen=True)
class Named:
    """A fault and what the answer must hold.

    Attributes:
        plant: makes the compiler wrong.
        subsystem, group, name: what must be named.
        line: a piece of the model's line that must be shown.
        remedy: what the person is told to type must match it; empty: there is nothing to type.
        backend: the backend, Inductor by default.
        more: other arguments of ``bisect``.
    """

    plant: Plant
    subsystem: str
    group: str
    name: str
    line: str
    remedy: str = ""
    model: type[torch.nn.Module] = Pointwise
    backend: Any = "inductor"


FALLBACK = r"make_fallback\(torch\.ops\.{}, override_decomp=True\)$"
NAMED = {
    "lowering of erf": Named(
        lambda: wrong_lowering(aten.erf.default), "inductor", "lowerings", "aten.erf.default", "torch.erf(x)",
        FALLBACK.format("aten.erf.default"),
    ),
    "lowering of a reduction": Named(
        lambda: wrong_lowering(aten.sum.dim_IntList), "inductor", "lowerings", "aten.sum.dim_IntList", ".sum(-1)",
        FALLBACK.format("aten.sum.dim_IntList"),
    ),
    "post-grad pass": Named(
        wrong_post_grad_pass, "inductor", "post_grad_passes", "post_grad_custom_post_pass", "* self.scale",
        "^backend.inductor.disabled_passes=post_grad_custom_post_pass$",
    ),
    "pre-grad pass": Named(
        wrong_pre_grad_pass, "inductor", "pre_grad_passes", "pre_grad_custom_pass", "torch.relu(",
        "^backend.inductor.disabled_passes=pre_grad_custom_pass$",
    ),
    "joint-graph pattern": Named(
        wrong_joint_pattern, "inductor", "joint_graph_passes", "pass_pattern_1", "* self.scale",
        "^backend.inductor.disabled_passes=pass_pattern_1$",
    ),
    "decomposition of gelu": Named(
        wrong_gelu_decomposition, "decompositions", "decompositions", "aten.gelu.default", "gelu(self.up(x))",
        r"decompositions\.pop\(torch\.ops\.aten\.gelu\.default\)$", Perceptron,
    ),
    "torch's injected relu bug": Named(
        injected_bug, "inductor", "lowerings", "aten.relu.default", "torch.relu(",
        FALLBACK.format("aten.relu.default"),
    ),
    "torch's injected log1p bug": Named(
        lambda: injected_bug("cpp.inject_log1p_bug_TESTING_ONLY"), "inductor", "lowerings", "aten.log1p.default",
        "torch.log1p(", FALLBACK.format("aten.log1p.default"), Logarithm,
    ),
    "custom backend": Named(
        contextlib.nullcontext, "backend", "operations", "aten.sigmoid.default", "torch.sigmoid(",
        model=Perceptron, backend=WrongOperation(),
    ),
    "crashing custom backend": Named(
        contextlib.nullcontext, "backend", "operations", "aten.gelu.default", "gelu(self.up(x))",
        model=Perceptron, backend=CrashOnOperation(),
    ),
}  # fmt: skip
SLOW = ("custom backend", "lowering of a reduction", "post-grad pass", "pre-grad pass", "torch's injected relu bug",
        "torch's injected log1p bug")  # fmt: skip


def found(name: str, mode: str = "inference") -> Bisection:
    case = NAMED[name]
    torch.manual_seed(0)
    module = case.model().train(mode == "training")
    x = torch.randn(4, 8, requires_grad=mode == "training")
    with case.plant():
        return bisect(module, (x,), backend=case.backend, mode=mode)


def assert_named(result: Bisection, case: Named) -> None:
    assert (result.verdict, result.subsystem, result.group) == ("found", case.subsystem, case.group), result.answer
    assert result.names == [case.name]
    nodes = [node for item in [*result.applications, *result.pattern] for node in item.nodes]
    assert any(case.line in node.code and "bisect_faults.py:" in node.source for node in nodes), nodes
    off, on = (result.probes[result.confirmed[key] - 1] for key in ("off", "on"))
    assert {switch.key for switch in off.setting.off} == {case.name} and off.fault == "gone"
    assert not on.setting.off and on.fault == "present"
    assert bool(result.remedy) == bool(case.remedy), result.answer
    if result.remedy is not None:
        assert re.search(case.remedy, result.remedy.text)
        assert result.probes[result.remedy.probe - 1].fault == "gone"
        assert result.remedy.text in result.answer
    assert case.name in result.answer


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NAMED])
def test_the_culprit_is_named(name: str) -> None:
    result = found(name)
    assert_named(result, NAMED[name])
    if name == "joint-graph pattern":
        assert "fold_scale" in result.pattern[0].key and "bisect_faults.py:" in result.pattern[0].definition


def test_a_healthy_compiler_with_a_wrong_model_has_no_culprit() -> None:
    x = torch.randn(4, 8)
    result = bisect(Pointwise(2.6), (x,), backend="aot_eager", reference=Pointwise())
    assert result.verdict == "none" and result.fault is not None and result.subsystem is None
    told = "No part of the compiler: the model without any compiler has the fault too. It is the model that is wrong, "
    assert result.answer.startswith(told), result.answer


def test_nothing_is_wrong() -> None:
    result = bisect(Pointwise(), (torch.randn(4, 8),), backend="aot_eager")
    assert result.verdict == "none" and result.fault is None and len(result.probes) == 1
    assert result.answer.startswith("There is nothing to bisect: exact")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["decomposition of gelu", "custom backend", "crashing custom backend", "pre-grad pass"]
)
def test_the_culprit_is_named_in_training(name: str) -> None:
    assert_named(found(name, "training"), NAMED[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lowering of a reduction", "decomposition of gelu"])
def test_what_is_to_be_run_in_python_helps(name: str) -> None:
    result, case = found(name), NAMED[name]
    module, x = case.model(), torch.randn(4, 8)

    def error() -> float:
        torch._dynamo.reset()
        with torch.no_grad():
            return float((torch.compile(module, options={"fallback_random": True})(x) - module(x)).abs().max())

    with case.plant(), installed(Switchboard()):  # which puts Inductor's tables back
        assert error() > 1e-4
        assert result.remedy is not None
        exec(result.remedy.text, {})
        assert error() < 1e-5


@pytest.mark.slow
def test_a_lowering_is_named_once_for_forward_and_backward() -> None:
    """erf is lowered in both graphs, and it takes both to be right."""
    torch.manual_seed(0)
    with wrong_lowering(aten.erf.default):
        result = bisect(Perceptron().train(), (torch.randn(4, 8),), mode="training")
    assert (result.verdict, result.names) == ("found", ["aten.erf.default"])
    assert {node.graph for item in result.applications for node in item.nodes} == {"forward", "backward"}
    assert "(all 2 applications)" in result.answer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "failures"),
    [
        ("compile_error", ["CalledProcessError", "CppCompileError"]),
        ("runtime_error", ["RuntimeError: unhandled error"]),
    ],
)
def test_an_injected_failure_is_bisected_too(kind: str, failures: list[str]) -> None:
    """torch's C++ compiler refuses what is generated for a ReLU, or the kernel throws when it runs."""
    with injected_bug(kind=kind):
        result = bisect(Pointwise(), (torch.randn(4, 8),))
    assert result.fault is not None and result.fault.kind == "raised"
    assert result.fault.failure in failures
    assert (result.verdict, result.subsystem, result.group) == ("found", "inductor", "lowerings"), result.answer
    assert result.names == ["aten.relu.default"]


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", ["accuracy", "compile_error"])
def test_the_injected_bug_of_triton_is_named(kind: str) -> None:
    """``runtime_error`` is a device-side assertion, after which the process can't use the device any more."""
    torch.manual_seed(0)
    with injected_bug("triton.inject_relu_bug_TESTING_ONLY", kind):
        result = bisect(Pointwise().cuda(), (torch.randn(4, 8, device="cuda"),))
    assert result.fault is not None and result.fault.kind == ("defect" if kind == "accuracy" else "raised")
    assert (result.verdict, result.subsystem, result.group) == ("found", "inductor", "lowerings"), result.answer
    assert result.names == ["aten.relu.default"]
    (node,) = {node.code for item in result.applications for node in item.nodes}
    assert "torch.relu(" in node
