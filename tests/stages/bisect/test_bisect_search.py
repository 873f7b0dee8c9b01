"""The search, in made-up compilers: what is named, and that nothing is claimed which was not shown."""

from collections.abc import Callable, Collection

import pytest
from made_up_compilers import OPERATIONS_OF_A_MODEL, Compiler, TwoFaults, behind, bisected

from inductor_debug.stages.bisect.kinds import Link, Verdict
from inductor_debug.stages.bisect.messages import record_of
from inductor_debug.stages.bisect.search import MOST, Search, TooMany
from inductor_debug.stages.torch_internals.switch_records import Group, Switch

OK, DEFECT, RAISED = Verdict.OK, Verdict.DEFECT, Verdict.RAISED

LETTERS = [Switch(Group.LOWERINGS, letter) for letter in "abcdefghij"]


def search(gone: Callable[[set[str]], str], switches: Collection[Switch] = LETTERS) -> tuple[list[str] | None, int]:
    """Keys that were found, and how many sets were asked for."""
    asked = []

    def ask(off: frozenset[Switch]) -> str:
        assert off not in asked
        asked.append(off)
        return gone({switch.key for switch in off})

    found = Search(ask).explain(switches)
    return (None if found is None else sorted(switch.key for switch in found)), len(asked)


@pytest.mark.parametrize("culprit", "abcdefghij")
def test_one_switch_is_found_in_few_steps(culprit: str) -> None:
    found, asked = search(lambda off: "gone" if culprit in off else "present")
    assert found == [culprit] and asked <= 6


@pytest.mark.parametrize("culprits", [{"a", "b"}, {"a", "j"}, {"c", "f", "i"}, {"a", "d", "e", "j"}])
def test_switches_that_must_be_off_together(culprits: set[str]) -> None:
    found, _ = search(lambda off: "gone" if culprits <= off else "present")
    assert found == sorted(culprits)


def test_too_many_switches_explain_nothing() -> None:
    with pytest.raises(TooMany):
        search(lambda off: "gone" if len(off) > MOST else "present")


def test_nothing_is_found_where_nothing_helps() -> None:
    assert search(lambda off: "present") == (None, 1)
    assert search(lambda off: "gone", []) == (None, 0)


def test_another_failure_is_not_gone() -> None:
    """Without b the compiler fails in another way; the culprit is found in what is left."""
    found, _ = search(lambda off: "other" if "b" in off else "gone" if "g" in off else "present")
    assert found == ["g"]
    assert search(lambda off: "other")[0] is None


def test_a_set_is_not_called_smallest_where_a_smaller_one_could_not_be_tried() -> None:
    rule = {frozenset("ab"): "gone", frozenset("a"): "other", frozenset("b"): "present"}
    search = Search(lambda off: rule[frozenset(switch.key for switch in off)])
    assert search.explain(LETTERS[:2]) == LETTERS[:2] and not search.narrow
    both = Search(lambda off: "gone" if len(off) == 2 else "present")
    assert both.explain(LETTERS[:2]) == LETTERS[:2] and both.narrow


def from_link(link: str) -> Callable[[str, set[str]], str]:
    """A fault from that link of the chain on."""
    return lambda where, off: DEFECT if list(Link).index(where) >= list(Link).index(link) else OK


@pytest.mark.parametrize("link", [Link.DYNAMO, Link.AOT, Link.BACKEND])
def test_the_first_faulty_link_is_the_subsystem(link: str) -> None:
    result = bisected(Compiler(from_link(link), {}))
    assert (result.verdict, result.subsystem) == ("subsystem", "inductor" if link == Link.BACKEND else link)
    assert "no single switch in it explains the fault" in result.answer


def test_a_fault_without_a_compiler_is_none() -> None:
    result = bisected(Compiler(from_link("uncompiled"), {}))
    assert result.verdict == "none" and len(result.probes) == 2 and result.compilations == 1


def test_no_fault_is_nothing_to_bisect() -> None:
    result = bisected(Compiler(lambda link, off: OK, {}))
    told = "There is nothing to bisect: it said ok.\nIt took 1 compilation, 0.5 s."
    assert result.verdict == "none" and result.answer == told


def test_what_could_not_be_compared_is_not_established() -> None:
    result = bisected(Compiler(lambda link, off: Verdict.UNKNOWN, {}))
    assert result.verdict == "not_established" and len(result.probes) == 1


def test_an_option_of_dynamo_is_told_in_python() -> None:
    rule = from_link(Link.DYNAMO)
    compiler = Compiler(
        lambda link, off: OK if "suppress_errors=true" in off else rule(link, off), {},
        options={Group.DYNAMO_OPTIONS: ["a=1", "suppress_errors=true"]},
    )  # fmt: skip
    result = bisected(compiler)
    assert (result.verdict, result.subsystem, result.names) == ("found", Link.DYNAMO, ["suppress_errors=true"])
    assert result.remedy is not None
    assert result.remedy.text == "import torch._dynamo.config; torch._dynamo.config.suppress_errors = True"


def test_two_lowerings_that_are_both_wrong_are_both_named() -> None:
    rule = behind(Link.BACKEND, lambda off: OK if {"b", "d"} <= off else DEFECT)
    result = bisected(Compiler(rule, {Group.LOWERINGS: list("abcde")}))
    assert (result.verdict, result.names) == ("found", ["b", "d"])
    assert "it goes away without 2 lowerings together: b and d" in result.answer


def test_two_faults_that_have_nothing_to_do_with_each_other_are_told_as_two() -> None:
    wrong = {("gelu", 1): {"output": 2.0}, ("mm", 3): {"output": 5.0}}
    compiler = TwoFaults(OPERATIONS_OF_A_MODEL, wrong)
    result = bisected(compiler)
    assert (result.verdict, result.names, result.faults) == ("found", ["mm", "gelu"], [["mm"], ["gelu"]])
    assert [(item.key, item.occurrence) for item in result.applications] == [("gelu", 1), ("mm", 3)]
    told = "2 independent faults: one goes away without the lowering of mm at node_6; "
    assert told + "one goes away without the lowering of gelu at node_5. " in result.answer
    assert len(compiler.settings) <= 30
    off = next(probe for probe in result.probes if probe.number == result.confirmed["off"])
    assert off.setting.off == {Switch(Group.LOWERINGS, "gelu", 1), Switch(Group.LOWERINGS, "mm", 3)}


def test_one_fault_that_two_operations_keep_is_one() -> None:
    """Either of them makes the same error, so that both must be off: nothing says that these are two faults."""
    wrong = {("gelu", 1): {"output": 2.0}, ("mm", 3): {"output": 2.0}}
    result = bisected(TwoFaults(OPERATIONS_OF_A_MODEL, wrong))
    assert result.faults == [["mm", "gelu"]]
    assert "goes away without 2 lowerings together: mm at node_6 and gelu at node_5" in result.answer


def test_a_fault_in_another_output_is_another_fault() -> None:
    wrong = {("gelu", 0): {"logits": 2.0}, ("add", 1): {"loss": 2.0}, ("mm", 0): {"logits": 2.0}}
    result = bisected(TwoFaults(OPERATIONS_OF_A_MODEL, wrong))
    assert result.faults == [["mm", "gelu"], ["add"]]


def test_places_of_one_operation_are_all_told() -> None:
    wrong = {("mm", 0): {"output": 2.0}, ("mm", 3): {"output": 5.0}}
    result = bisected(TwoFaults(OPERATIONS_OF_A_MODEL, wrong))
    assert "the lowering of mm (2 of 4 applications) at node_0 and at node_6. " in result.answer


def test_no_place_is_named_that_was_not_tried() -> None:
    """More applications than the search looks for together: all that is known is the operation."""
    wrong = {("mm", place): {"output": 2.0} for place in range(MOST + 1)}
    result = bisected(TwoFaults(["mm"] * (MOST + 3), wrong))
    assert not result.located and "node_" not in result.answer and "the lowering of mm" in result.answer


def test_what_was_seen_is_data() -> None:
    rule = behind(Link.BACKEND, lambda off: OK if "c" in off else DEFECT)
    found = record_of(bisected(Compiler(rule, {Group.LOWERINGS: list("abc")})))
    assert (found.relation, found.names, found.faults) == ("goes_away_without", ["c"], [["c"]])
    told, *figures = found.answer.split("\n")
    assert "The fault comes in with TorchInductor: it goes away without the lowering of c. " in told
    assert "What makes a fault go away hides it. The fault need not lie there." in figures
    assert record_of(bisected(Compiler(from_link(Link.DYNAMO), {}))).relation is None


def test_an_option_is_typed_and_its_lowerings_are_told() -> None:
    rule = behind(Link.BACKEND, lambda off: OK if off & {"cpp.simdlen=1", "c"} else DEFECT)
    result = bisected(
        Compiler(rule, {Group.LOWERINGS: list("abcde")}, options={Group.OPTIONS: ["x=1", "cpp.simdlen=1", "y=2"]})
    )
    assert (result.group, result.names, result.also) == (Group.OPTIONS, ["cpp.simdlen=1"], ["c"])
    assert record_of(result).relation == "goes_away_with"
    assert result.remedy is not None and result.remedy.text == "backend.inductor.cpp.simdlen=1"
    told, *figures = result.answer.split("\n")
    way = f"it goes away with cpp.simdlen=1. To be rid of it, set {result.remedy.text}"
    assert told.endswith(way), told
    assert "It goes away too without the lowering of c." in figures


def test_options_are_left_alone_where_the_user_says_so() -> None:
    rule = behind(Link.BACKEND, lambda off: OK if off & {"x=1", "c"} else DEFECT)
    result = bisected(Compiler(rule, {Group.LOWERINGS: list("abc")}, options={Group.OPTIONS: ["x=1"]}), options=False)
    assert (result.group, result.names) == (Group.LOWERINGS, ["c"])


def test_passes_that_it_takes_together_are_one_quoted_override() -> None:
    rule = behind(Link.BACKEND, lambda off: OK if {"p", "r"} <= off or "disabled_passes=p,r" in off else DEFECT)
    result = bisected(Compiler(rule, {Group.POST_GRAD: list("pqr")}))
    assert result.remedy is not None
    assert result.remedy.text == "backend.inductor.disabled_passes=\"'p,r'\""


def test_what_could_not_be_told_apart_is_narrowed_down() -> None:
    rule = behind(
        Link.BACKEND,
        lambda off: OK if {"a", "b"} <= off else f"{RAISED} Other" if "a" in off else DEFECT,
    )
    result = bisected(Compiler(rule, {Group.LOWERINGS: list("abcd")}))
    assert (result.verdict, result.names) == ("narrowed", ["a", "b"])
    assert "2 lowerings together: a and b; with fewer of them off something else fails" in result.answer


def test_a_lowering_is_not_taken_for_the_pass_that_leads_to_it() -> None:
    """Without the pass no such node is made, so the fault is gone too; but a wrong graph would stay wrong."""
    lowering = behind(Link.BACKEND, lambda off: OK if off & {"p", "c"} else DEFECT)
    result = bisected(Compiler(lowering, {Group.LOWERINGS: list("abc"), Group.POST_GRAD: list("pq")}))
    assert (result.group, result.names) == (Group.LOWERINGS, ["c"])
    wrong_pass = behind(Link.BACKEND, lambda off: OK if "p" in off else DEFECT)
    result = bisected(Compiler(wrong_pass, {Group.LOWERINGS: list("abc"), Group.POST_GRAD: list("pq")}))
    assert (result.group, result.names) == (Group.POST_GRAD, ["p"])


def test_without_a_pass_the_compiler_fails_otherwise() -> None:
    """All passes off, something else breaks: that is no way for the fault to go away."""
    rule = behind(
        Link.BACKEND,
        lambda off: f"{RAISED} Other" if "needed" in off else OK if "bad" in off else DEFECT,
    )
    result = bisected(Compiler(rule, {Group.POST_GRAD: ["a", "needed", "b", "bad"]}))
    assert (result.verdict, result.names) == ("found", ["bad"])
    assert {probe.fault for probe in result.probes if "needed" in str(probe.setting.words)} <= {"other"}


def test_another_failure_is_not_the_fault_that_was_looked_for() -> None:
    rule = behind(Link.BACKEND, lambda off: f"{RAISED} Second" if "a" in off else f"{RAISED} First")
    result = bisected(Compiler(rule, {Group.LOWERINGS: ["a", "b"]}))
    assert result.verdict == "subsystem" and result.fault is not None and result.fault.failure == "First"


def test_another_failure_lower_in_the_chain_is_not_the_fault() -> None:
    failures = {Link.DYNAMO: f"{RAISED} Second", Link.BACKEND: f"{RAISED} First"}
    assert bisected(Compiler(lambda link, off: failures.get(link, OK), {})).subsystem == "inductor"


def test_a_defect_in_the_place_of_a_crash_is_not_gone() -> None:
    rule = behind(Link.BACKEND, lambda off: DEFECT if "a" in off else f"{RAISED} First")
    assert bisected(Compiler(rule, {Group.LOWERINGS: ["a", "b"]})).verdict == "subsystem"


def test_a_fault_that_does_not_repeat_is_not_established() -> None:
    answers = iter([DEFECT, *[OK] * 50])
    result = bisected(Compiler(lambda link, off: next(answers), {Group.LOWERINGS: list("ab")}))
    assert result.verdict == "not_established" and "the fault comes and goes with the same setting" in result.answer


def test_the_search_ends_where_its_probes_are_used_up() -> None:
    compiler = Compiler(behind(Link.BACKEND, lambda off: DEFECT), {Group.LOWERINGS: list("abc")})
    result = bisected(compiler, max_probes=4)
    assert result.verdict == "not_established" and len(compiler.settings) == 4
    assert "4 probes did not suffice (stages.bisect.max_probes)" in result.answer


def test_every_probe_but_those_of_the_chain_keeps_all_else_on() -> None:
    """The last word is a probe with the culprit alone off, and one with nothing off."""
    compiler = Compiler(
        behind(Link.BACKEND, lambda off: OK if "c" in off else DEFECT),
        {Group.LOWERINGS: list("abcdefgh")},
    )
    result = bisected(compiler)
    off, on = (result.probes[result.confirmed[key] - 1] for key in ("off", "on"))
    assert off.setting.off == {Switch(Group.LOWERINGS, "c")} and not on.setting.off
    assert [probe.number for probe in result.probes] == list(range(1, len(compiler.settings) + 1))


@pytest.mark.parametrize("culprit", "abcdefghij")
def test_where_many_switches_together_break_something_else_both_halves_are_searched(culprit: str) -> None:
    found, _ = search(lambda off: "other" if len(off) > 2 else "gone" if culprit in off else "present")
    assert found == [culprit]


def test_what_two_switches_of_the_second_half_explain_is_narrow_though_the_first_half_breaks_something_else() -> None:
    def ask(off: frozenset[Switch]) -> str:
        keys = {switch.key for switch in off}
        return "other" if keys & set("abcde") and len(off) < 10 else "gone" if {"g", "i"} <= keys else "present"

    looking = Search(ask)
    assert looking.explain(LETTERS) == [LETTERS[6], LETTERS[8]] and looking.narrow
