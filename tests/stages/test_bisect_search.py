"""The search, in made-up compilers: what is named, and that nothing is claimed which was not shown."""

from collections.abc import Callable, Collection
from typing import Any

import pytest

from stages.bisect.config import BisectConfig
from stages.bisect.engine import Investigation
from stages.bisect.records import (
    AOT,
    AOT_OPTIONS,
    BACKEND,
    CHAIN,
    DEFECT,
    DYNAMO,
    DYNAMO_OPTIONS,
    LOWERINGS,
    OK,
    OPTIONS,
    POST_GRAD,
    RAISED,
    UNKNOWN,
    Application,
    Bisection,
    Outcome,
    Setting,
    Switch,
)
from stages.bisect.search import MOST, Search, TooMany

LETTERS = [Switch(LOWERINGS, letter) for letter in "abcdefghij"]


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


class Compiler:
    """Answers probes from a rule.

    Args:
        rule: keys that are off at a link → ``ok``, ``defect``, or ``raised CLASS``; the other words are failures.
        keys: group → what is applied; a key with a number is applied so often.
    """

    def __init__(
        self, rule: Callable[[str, set[str]], str], keys: dict[str, list[str]], inductor: bool = True, **facts: Any
    ) -> None:
        self.rule, self.keys = rule, keys
        self._facts = {"name": "made_up", "links": list(CHAIN[:-1]), "inductor": inductor, "own_front": True}
        self._facts["disabled_passes"] = True
        self._facts |= {OPTIONS: [], DYNAMO_OPTIONS: [], AOT_OPTIONS: []} | facts
        self.settings: list[Setting] = []

    def facts(self) -> dict[str, Any]:
        return self._facts

    def probe(self, setting: Setting) -> Outcome:
        self.settings.append(setting)
        groups = {switch.group for switch in setting.off if switch.key == "*"}
        off = {key for group in groups for key in self.keys.get(group, [])}
        off |= {switch.key for switch in setting.off} | set(setting.fallback)
        verdict, _, failure = self.rule(setting.link, off).partition(" ")
        applied = [Application(group, key, 0) for group, keys in self.keys.items() for key in keys]
        return Outcome(verdict, failure, f"it said {verdict}", verdict, 0.5, 1, applied)


def bisected(compiler: Compiler, **config: Any) -> Bisection:
    return Investigation(compiler, BisectConfig(**config)).run()


def from_link(link: str) -> Callable[[str, set[str]], str]:
    """A fault from that link of the chain on."""
    return lambda where, off: DEFECT if CHAIN.index(where) >= CHAIN.index(link) else OK


@pytest.mark.parametrize("link", [DYNAMO, AOT, BACKEND])
def test_the_first_faulty_link_is_the_subsystem(link: str) -> None:
    result = bisected(Compiler(from_link(link), {}))
    assert (result.verdict, result.subsystem) == ("subsystem", "inductor" if link == BACKEND else link)
    assert "no single switch in it explains the fault" in result.answer


def test_a_fault_without_a_compiler_is_none() -> None:
    result = bisected(Compiler(from_link("uncompiled"), {}))
    assert result.verdict == "none" and len(result.probes) == 2 and result.compilations == 1


def test_no_fault_is_nothing_to_bisect() -> None:
    result = bisected(Compiler(lambda link, off: OK, {}))
    assert result.verdict == "none" and result.answer == "nothing to bisect: it said ok; 1 compilation, 0.5 s"


def test_what_could_not_be_compared_is_not_established() -> None:
    result = bisected(Compiler(lambda link, off: UNKNOWN, {}))
    assert result.verdict == "not_established" and len(result.probes) == 1


def behind(link: str, rule: Callable[[set[str]], str]) -> Callable[[str, set[str]], str]:
    return lambda where, off: rule(off) if where == link else OK


def test_an_option_of_dynamo_is_told_in_python() -> None:
    rule = from_link(DYNAMO)
    compiler = Compiler(
        lambda link, off: OK if "suppress_errors=true" in off else rule(link, off), {},
        **{DYNAMO_OPTIONS: ["a=1", "suppress_errors=true"]},
    )  # fmt: skip
    result = bisected(compiler)
    assert (result.verdict, result.subsystem, result.names) == ("found", DYNAMO, ["suppress_errors=true"])
    assert result.remedy is not None
    assert result.remedy.text == "import torch._dynamo.config; torch._dynamo.config.suppress_errors = True"


def test_two_lowerings_that_are_both_wrong_are_both_named() -> None:
    rule = behind(BACKEND, lambda off: OK if {"b", "d"} <= off else DEFECT)
    result = bisected(Compiler(rule, {LOWERINGS: list("abcde")}))
    assert (result.verdict, result.names) == ("found", ["b", "d"])
    assert "it takes 2 lowerings together: b and d" in result.answer


def test_an_option_is_typed_and_its_lowerings_are_told() -> None:
    rule = behind(BACKEND, lambda off: OK if off & {"cpp.simdlen=1", "c"} else DEFECT)
    result = bisected(Compiler(rule, {LOWERINGS: list("abcde")}, **{OPTIONS: ["x=1", "cpp.simdlen=1", "y=2"]}))
    assert (result.group, result.names, result.also) == (OPTIONS, ["cpp.simdlen=1"], ["c"])
    assert result.remedy is not None and result.remedy.text == "backend.inductor.cpp.simdlen=1"


def test_options_are_left_alone_where_the_user_says_so() -> None:
    rule = behind(BACKEND, lambda off: OK if off & {"x=1", "c"} else DEFECT)
    result = bisected(Compiler(rule, {LOWERINGS: list("abc")}, **{OPTIONS: ["x=1"]}), options=False)
    assert (result.group, result.names) == (LOWERINGS, ["c"])


def test_passes_that_it_takes_together_are_one_quoted_override() -> None:
    rule = behind(BACKEND, lambda off: OK if {"p", "r"} <= off or "disabled_passes=p,r" in off else DEFECT)
    result = bisected(Compiler(rule, {POST_GRAD: list("pqr")}))
    assert result.remedy is not None
    assert result.remedy.text == "backend.inductor.disabled_passes=\"'p,r'\""


def test_what_could_not_be_told_apart_is_narrowed_down() -> None:
    rule = behind(BACKEND, lambda off: OK if {"a", "b"} <= off else f"{RAISED} Other" if "a" in off else DEFECT)
    result = bisected(Compiler(rule, {LOWERINGS: list("abcd")}))
    assert (result.verdict, result.names) == ("narrowed", ["a", "b"])
    assert "among 2 lowerings together: a and b; with fewer of them off something else fails" in result.answer


def test_a_lowering_is_not_taken_for_the_pass_that_leads_to_it() -> None:
    """Without the pass no such node is made, so the fault is gone too; but a wrong graph would stay wrong."""
    lowering = behind(BACKEND, lambda off: OK if off & {"p", "c"} else DEFECT)
    result = bisected(Compiler(lowering, {LOWERINGS: list("abc"), POST_GRAD: list("pq")}))
    assert (result.group, result.names) == (LOWERINGS, ["c"])
    wrong_pass = behind(BACKEND, lambda off: OK if "p" in off else DEFECT)
    result = bisected(Compiler(wrong_pass, {LOWERINGS: list("abc"), POST_GRAD: list("pq")}))
    assert (result.group, result.names) == (POST_GRAD, ["p"])


def test_without_a_pass_the_compiler_fails_otherwise() -> None:
    """All passes off, something else breaks: that is no way for the fault to go away."""
    rule = behind(BACKEND, lambda off: f"{RAISED} Other" if "needed" in off else OK if "bad" in off else DEFECT)
    result = bisected(Compiler(rule, {POST_GRAD: ["a", "needed", "b", "bad"]}))
    assert (result.verdict, result.names) == ("found", ["bad"])
    assert {probe.fault for probe in result.probes if "needed" in str(probe.setting.words)} <= {"other"}


def test_another_failure_is_not_the_fault_that_was_looked_for() -> None:
    rule = behind(BACKEND, lambda off: f"{RAISED} Second" if "a" in off else f"{RAISED} First")
    result = bisected(Compiler(rule, {LOWERINGS: ["a", "b"]}))
    assert result.verdict == "subsystem" and result.fault is not None and result.fault["failure"] == "First"


def test_another_failure_lower_in_the_chain_is_not_the_fault() -> None:
    failures = {DYNAMO: f"{RAISED} Second", BACKEND: f"{RAISED} First"}
    assert bisected(Compiler(lambda link, off: failures.get(link, OK), {})).subsystem == "inductor"


def test_a_defect_in_the_place_of_a_crash_is_not_gone() -> None:
    rule = behind(BACKEND, lambda off: DEFECT if "a" in off else f"{RAISED} First")
    assert bisected(Compiler(rule, {LOWERINGS: ["a", "b"]})).verdict == "subsystem"


def test_a_fault_that_does_not_repeat_is_not_established() -> None:
    answers = iter([DEFECT, *[OK] * 50])
    result = bisected(Compiler(lambda link, off: next(answers), {LOWERINGS: list("ab")}))
    assert result.verdict == "not_established" and "does not repeat" in result.answer


def test_the_search_ends_where_its_probes_are_used_up() -> None:
    compiler = Compiler(behind(BACKEND, lambda off: DEFECT), {LOWERINGS: list("abc")})
    result = bisected(compiler, max_probes=4)
    assert result.verdict == "not_established" and len(compiler.settings) == 4
    assert "4 probes did not suffice (stages.bisect.max_probes)" in result.answer


def test_every_probe_but_those_of_the_chain_keeps_all_else_on() -> None:
    """The last word is a probe with the culprit alone off, and one with nothing off."""
    compiler = Compiler(behind(BACKEND, lambda off: OK if "c" in off else DEFECT), {LOWERINGS: list("abcdefgh")})
    result = bisected(compiler)
    off, on = (result.probes[result.confirmed[key] - 1] for key in ("off", "on"))
    assert off.setting.off == {Switch(LOWERINGS, "c")} and not on.setting.off
    assert [probe.number for probe in result.probes] == list(range(1, len(compiler.settings) + 1))
