"""One fault or two, where two switches must be off: told by what is left when one of them is excluded."""

import math
from collections.abc import Callable, Iterable

import pytest
import torch
from faulty_adapters import CrashOnOperation, WrongOperation
from made_up_compilers import OPERATIONS_OF_A_MODEL, Compiler, Failing, TwoFaults, behind, bisected
from torch import Tensor, fx, nn

from inductor_debug.stages.bisect.api import bisect
from inductor_debug.stages.bisect.kinds import Verdict
from inductor_debug.stages.bisect.messages import answer, record_of
from inductor_debug.stages.bisect.probing import told_by
from inductor_debug.stages.bisect.records import BackendFacts, Outcome
from inductor_debug.stages.torch_internals.switch_records import Group

NOT_TOLD = "(not established: one fault that any of the 2 keeps, or several)"


def quadrature(errors: Iterable[float]) -> float:
    return math.sqrt(sum(error**2 for error in errors))


@pytest.mark.parametrize("combined", [quadrature, sum])
@pytest.mark.parametrize("second", [2.0, 2.1])
def test_two_errors_of_one_size_are_two_faults_where_both_together_are_larger(
    combined: Callable[[Iterable[float]], float], second: float
) -> None:
    wrong = {("gelu", 1): {"output": 2.0}, ("mm", 3): {"output": second}}
    result = bisected(TwoFaults(OPERATIONS_OF_A_MODEL, wrong, combined))
    assert (result.verdict, result.faults) == ("found", [["mm"], ["gelu"]])
    assert "2 independent faults: one goes away without the lowering of mm at node_6; " in result.answer
    assert result.compilations == bisected(TwoFaults(OPERATIONS_OF_A_MODEL, wrong)).compilations  # none for that


def test_what_is_not_told_apart_is_not_established() -> None:
    wrong = {("gelu", 1): {"output": 2.0}, ("mm", 3): {"output": 2.0}}
    assert NOT_TOLD in bisected(TwoFaults(OPERATIONS_OF_A_MODEL, wrong)).answer


def test_of_three_each_pair_is_asked_once() -> None:
    wrong = {("mm", 0): {"output": 2.0}, ("gelu", 0): {"output": 2.0}, ("add", 0): {"output": 2.0}}
    for combined, faults in ((sum, 3), (max, 1)):
        result = bisected(TwoFaults(OPERATIONS_OF_A_MODEL, wrong, combined))
        assert len(result.faults) == faults, result.answer
        both = [probe.setting for probe in result.probes if probe.purpose.startswith("what is it with")]
        assert len(both) == len(set(both)) <= 3


def test_two_wrong_results_of_one_size_differ_in_other_figures() -> None:
    first = Outcome(Verdict.DEFECT, errors={"output": (2.0, True)}, other_figures={"output": (1.0, 0.0, 0.0, "")})
    for other_figures in ((0.1, 0.0, 0.0, ""), (1.0, 3.0, 0.0, ""), (1.0, 0.0, 0.0, "dtype: float64")):
        assert not first.same_result(
            Outcome(Verdict.DEFECT, errors=first.errors, other_figures={"output": other_figures})
        )
    assert first.same_result(
        Outcome(Verdict.DEFECT, errors={"output": (2.1, True)}, other_figures={"output": (1.05, 0.0, 0.0, "")})
    )


def test_failures_of_one_class_at_their_own_places_are_two() -> None:
    result = bisected(Failing(OPERATIONS_OF_A_MODEL, {"gelu": "no code", "add": "no code"}))
    assert (result.verdict, sorted(result.faults)) == ("found", [["add"], ["gelu"]])
    assert "the lowering of gelu at node_1 and at node_5" in result.answer
    assert "the lowering of add at node_3 and at node_7" in result.answer  # after the first failure


def test_failures_that_say_other_things_are_two_where_the_first_is_what_was_seen() -> None:
    compiler = Failing(OPERATIONS_OF_A_MODEL, {"gelu": "buffer of gelu", "add": "buffer of add"}, at="the last")
    assert sorted(bisected(compiler).faults) == [["add"], ["gelu"]]


def test_a_failure_that_either_operation_leads_to_is_not_called_two() -> None:
    result = bisected(Failing(OPERATIONS_OF_A_MODEL, {"gelu": "no code", "add": "no code"}, at="the last"))
    assert [sorted(fault) for fault in result.faults] == [["add", "gelu"]] and NOT_TOLD in result.answer


def test_operations_that_fail_compiled_by_themselves_are_two_whatever_they_say() -> None:
    for fails in ({"gelu": "no", "add": "no"}, {"gelu": "First: no", "add": "Second: no"}):
        result = bisected(Failing(OPERATIONS_OF_A_MODEL, fails, Group.OPERATIONS))
        assert (result.verdict, sorted(result.faults)) == ("found", [["add"], ["gelu"]]), result.answer
        assert "something else fails" not in result.answer


def test_two_options_are_told_as_what_the_faults_go_away_with() -> None:
    rule = behind("backend", lambda off: Verdict.OK if {"x=1", "y=2"} <= off else Verdict.DEFECT)
    result = bisected(Compiler(rule, {Group.LOWERINGS: list("abc")}, options={Group.OPTIONS: ["x=1", "y=2"]}))
    assert f"it goes away with x=1 and y=2 {NOT_TOLD}" in result.answer
    result.faults = [["x=1"], ["y=2"]]

    told = "2 independent faults: one goes away with x=1; one goes away with y=2. To be rid of them, "
    assert told in answer(result, BackendFacts(inductor=True))


def test_probes_that_are_used_up_later_leave_what_was_found() -> None:
    wrong = {("gelu", 1): {"output": 2.0}, ("mm", 3): {"output": 2.0}}
    whole = bisected(TwoFaults(OPERATIONS_OF_A_MODEL, wrong))
    found = bisected(TwoFaults(OPERATIONS_OF_A_MODEL, wrong), max_probes=max(whole.confirmed.values()))
    assert (found.verdict, found.names, found.ended) == ("found", whole.names, True)
    assert "did not suffice to ask more (stages.bisect.max_probes)" in found.answer
    assert "comes and goes" not in found.answer and record_of(found).ended


def test_what_a_failure_says_is_told_without_what_each_compilation_names_anew() -> None:
    first, second = (
        told_by({"type": "CppCompileError", "message": f"C++ compile error in /tmp/{name}/c{name}.cpp: buf{number}"})
        for name, number in (("ab", 3), ("xy", 14))
    )
    assert first == second == "CppCompileError: C++ compile error in … buf#"


class Branches(nn.Module):
    """Two operations whose results are added: neither's fault is in the other's way."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(x) + torch.tanh(y)


PLACES = ["aten.sigmoid.default", "aten.tanh.default"]


class Both(WrongOperation):
    """Wrong by the same amount at two operations, or without code for both."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def compile(self, gm: fx.GraphModule, example_inputs: object) -> Callable[..., object]:  # type: ignore[override]
        if self.kind == "raised":
            for operation in PLACES:
                CrashOnOperation(operation).compile(gm, ())
            return gm.forward

        class Wrong(fx.Interpreter):
            def run_node(self, n: fx.Node) -> object:
                found = super().run_node(n)
                return found + 0.5 * torch.sign(torch.sin(1e4 * found)) if str(n.target) in PLACES else found

        return Wrong(gm).run


@pytest.mark.parametrize("kind", ["defect", "raised"])
def test_two_faults_of_a_real_backend_that_look_alike_are_told_as_two(kind: str) -> None:
    torch.manual_seed(0)
    result = bisect(Branches(), (torch.randn(40, 20), torch.randn(40, 20)), backend=Both(kind))
    assert (result.verdict, sorted(result.faults)) == ("found", [[name] for name in PLACES]), result.answer
    assert "2 independent faults: " in result.answer and "together" not in result.answer
    assert result.compilations <= 16
