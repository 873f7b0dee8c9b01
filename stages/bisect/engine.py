"""The bisection: first how much of the compiler it takes, then which switch in it."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from inductor_debug.stages.artifacts.bisection import FaultRecord, RemedyRecord
from inductor_debug.stages.bisect.config import BisectConfig
from inductor_debug.stages.bisect.independence import Independence
from inductor_debug.stages.bisect.kinds import CONFIG_MODULES, Fault, Link, Verdict
from inductor_debug.stages.bisect.messages import answer, as_override, as_python
from inductor_debug.stages.bisect.records import BackendFacts, Bisection, Outcome, Probe, Setting, keys_of
from inductor_debug.stages.bisect.search import Search, TooMany
from inductor_debug.stages.torch_internals.switch_records import OPTION_GROUPS, PASSES, Application, Group, Switch

log = logging.getLogger(__name__)

AFTER_THE_GRAPH = (Group.OPTIONS, Group.LOWERINGS, Group.CUDAGRAPHS)
"""Groups of TorchInductor's that act on what it makes of a graph. A graph that a pass made wrong stays wrong whatever
they are set to: with all lowerings off, what is wrong is the graph."""

INSIDE_INDUCTOR = (*PASSES, Group.PATTERNS, *AFTER_THE_GRAPH)


class Probing(Protocol):
    """What a bisection asks: see :class:`stages.bisect.probing.Prober`."""

    def facts(self) -> BackendFacts: ...

    def probe(self, setting: Setting) -> Outcome: ...


class OutOfProbes(Exception):
    """``max_probes`` are used up."""


class Investigation:
    """One bisection.

    Args:
        prober: runs the probes.
        config: the stage's options.
        progress: told what is tried.
    """

    def __init__(
        self, prober: Probing, config: BisectConfig, progress: Callable[[str], None] = lambda text: None
    ) -> None:
        self.prober, self.config, self.progress = prober, config, progress
        self.result = Bisection()
        self.fault: Outcome | None = None
        self.facts = BackendFacts()
        self.narrow = True

    def run(self) -> Bisection:
        """Find what makes the fault go away. The answer says so where nothing does."""
        try:
            self._run()
        except OutOfProbes:
            self.result.ended = bool(self.result.confirmed)
            self.result.verdict = self.result.verdict if self.result.ended else Verdict.UNKNOWN
        self.result.answer = answer(self.result, self.facts)
        return self.result

    def _run(self) -> None:
        self.facts = self.prober.facts()
        first = self._probe(Setting(), "is the fault there?")
        if first.outcome.verdict == Verdict.OK:
            self.result.verdict = "none"
            return
        if first.outcome.verdict == Verdict.UNKNOWN:
            return
        self.fault = first.outcome
        self.result.fault = FaultRecord(self.fault.verdict, self.fault.failure, self.fault.message)
        first.fault = Fault.PRESENT
        link = self._first_faulty_link()
        if link == Link.UNCOMPILED:
            self.result.verdict = "none"
            return
        self.result.subsystem = "inductor" if link == Link.BACKEND and self.facts.inductor else link
        self.result.verdict = "subsystem"
        if not any(self._explained_by(group, link, first.outcome) for group in self._groups(link, first.outcome)):
            self._repeats(link)

    def _first_faulty_link(self) -> Link:
        for link in Link:
            if link not in self.facts.links:
                continue
            if self._probe(Setting(link), f"is it there with no more than: {link}?").fault == Fault.PRESENT:
                return link
        return Link.BACKEND

    def _probe(self, setting: Setting, purpose: str, *, confirms: bool = False) -> Probe:
        if len(self.result.probes) >= self.config.max_probes:
            raise OutOfProbes
        number = len(self.result.probes) + 1
        self.progress(f"probe {number}: {setting.link}{f', {purpose}' if setting.words else ''}")
        outcome = self.prober.probe(setting)
        probe = Probe(number, setting, outcome, self._state(outcome), purpose, confirms)
        self.result.probes.append(probe)
        log.info("bisect: probe %d, %s %s: %s", number, setting.link, setting.words, probe.fault)
        return probe

    def _state(self, outcome: Outcome) -> str:
        if outcome.verdict == Verdict.OK:
            return Fault.GONE
        if self.fault is None:
            return Fault.OTHER
        return Fault.PRESENT if outcome.same_fault(self.fault) else Fault.OTHER

    # which group, which switches

    def _groups(self, link: Link, first: Outcome) -> list[Group]:
        """Groups to look in at a link of the chain, in order."""
        if link != Link.BACKEND:
            of = {Link.DYNAMO: Group.DYNAMO_OPTIONS, Link.AOT: Group.AOT_OPTIONS}
            return [of.get(link, Group.DECOMPOSITION)]
        # what a backend decomposes in a front of its own was not looked at by the chain
        own = [Group.DECOMPOSITION] if self.facts.own_front and not self.facts.inductor else []
        if not (self.facts.inductor or first.died or keys_of(first.applications, Group.LOWERINGS)):
            return [Group.FLAGS, Group.OPERATIONS, *own]
        if self._without_all(Group.LOWERINGS, link).fault == Fault.GONE:
            return [Group.FLAGS, *AFTER_THE_GRAPH, *PASSES, Group.PATTERNS, Group.OPERATIONS, *own]
        return [Group.FLAGS, *PASSES, Group.PATTERNS, *AFTER_THE_GRAPH, Group.OPERATIONS, *own]

    def _without_all(self, group: Group, link: Link) -> Probe:
        """The probe with all of a group off."""
        setting = Setting(link, frozenset({Switch(group)}))
        made = next((probe for probe in self.result.probes if probe.setting == setting), None)
        return made or self._probe(setting, f"is it in the {group}?")

    def _explained_by(self, group: Group, link: Link, first: Outcome) -> bool:
        known = keys_of(first.applications, group)
        tried: dict[frozenset[Switch], str] = {}
        if group in OPTION_GROUPS:
            switches = [Switch(group, key) for key in self.facts.options[group]] if self.config.options else []
        elif group == Group.OPERATIONS:
            switches = self._operations()
        elif not known and not first.died and link == Link.BACKEND:
            switches = []  # the compiler never came to any
        else:
            probe = self._without_all(group, link)
            if probe.fault == Fault.PRESENT:
                return False
            met = keys_of([*first.applications, *probe.outcome.applications], group)
            switches = [Switch(group, key) for key in met]
            tried[frozenset(switches)] = probe.fault
        if not switches:
            return False
        found = self._search(switches, link, f"which of the {group}?", tried)
        if not found:
            return False
        self._narrow(found, link)
        return True

    def _operations(self) -> list[Switch]:
        """The operations of the backend's graphs, where the fault is there too when they reach it through our front."""
        probe = self._probe(Setting(Link.BACKEND, split=True), "is it there behind AOTAutograd alone?")
        if probe.fault != Fault.PRESENT:
            return []
        if probe.outcome.died:
            probe = self._without_all(Group.OPERATIONS, Link.BACKEND)
        return [Switch(Group.OPERATIONS, key) for key in keys_of(probe.outcome.applications, Group.OPERATIONS)]

    def _search(
        self,
        switches: Iterable[Switch],
        link: Link,
        purpose: str,
        tried: Mapping[frozenset[Switch], str] | None = None,
        with_off: frozenset[Switch] = frozenset(),
    ) -> list[Switch] | None:
        def ask(off: frozenset[Switch]) -> str:
            return self._probe(Setting(link, with_off | off), purpose).fault

        search = Search(ask, tried)
        try:
            found = search.explain(switches)
        except TooMany:
            return None
        self.narrow = search.narrow
        return found

    def _narrow(self, found: list[Switch], link: Link) -> None:
        """From names to applications, to the pattern in a pass, and to what a person can type."""
        result, group, narrow = self.result, found[0].group, self.narrow
        result.group, result.names = group, [switch.key for switch in found]
        applied = self._applications(found, link)
        single = self._single_out(found, applied, link)
        off = frozenset(single)
        if not self._confirm(off, link):
            return
        result.verdict, result.applied = "found" if narrow else "narrowed", len(applied)
        result.faults = [result.names]
        if link == Link.BACKEND and group in INSIDE_INDUCTOR:
            result.subsystem = "inductor"
        elif group == Group.DECOMPOSITION:
            result.subsystem = Link.DECOMPOSITIONS
        watched = self.result.probes[result.confirmed["on"] - 1].outcome
        came_to = {(item.group, item.key, item.occurrence) for item in watched.applications}
        later = [item for item in applied if (item.group, item.key, item.occurrence) not in came_to]
        known = [*watched.applications, *later]  # a failure ends the compilation before it comes to the next
        result.applications = [item for item in known if _covered(item, single)]
        if narrow or group == Group.OPERATIONS:
            result.faults = self._faults(single, link)
            if 1 < len(result.names) == len(result.faults):
                result.verdict = "found"
        if group in PASSES and len(single) == 1:
            self._find_pattern(single[0], known, link)
        if group == Group.OPTIONS:
            self._find_lowerings(link)
        self._find_remedy(found, link)

    def _single_out(self, found: list[Switch], applied: list[Application], link: Link) -> list[Switch]:
        """The applications that must be off, each name's looked for with the other names off; a name where it is all.

        ``located`` becomes False where that could not be told of a name.
        """
        chosen = list(found)
        for switch in found:
            each = [Switch(item.group, item.key, item.occurrence) for item in applied if item.key == switch.key]
            if len(each) < 2:
                continue
            others = frozenset(other for other in chosen if other.key != switch.key)
            purpose = f"which application of {switch.key}?"
            some = self._search(each, link, purpose, {frozenset(each): Fault.GONE}, with_off=others)
            self.result.located &= some is not None and self.narrow
            if some is not None and len(some) < len(each):
                place = chosen.index(switch)
                chosen[place : place + 1] = some
        return chosen

    def _faults(self, single: list[Switch], link: Link) -> list[list[str]]:
        """The names by fault: see :class:`Independence`."""

        def ask(off: frozenset[Switch], purpose: str) -> Probe:
            return self._made(link, off) or self._probe(Setting(link, off), purpose)

        applied = (item for probe in self.result.probes for item in probe.outcome.applications)
        keys = keys_of(applied, Group.OPERATIONS) if single[0].group == Group.OPERATIONS else []
        return Independence(single, [Switch(Group.OPERATIONS, key) for key in keys], ask).faults()

    def _made(self, link: Link, off: frozenset[Switch]) -> Probe | None:
        """The probe that was made with these switches off; with none, the one that confirmed the fault."""
        if not off:
            return self.result.probes[self.result.confirmed["on"] - 1]
        return next((probe for probe in self.result.probes if probe.setting == Setting(link, off)), None)

    def _applications(self, switches: list[Switch], link: Link) -> list[Application]:
        """The applications of these switches, from the latest probe at this link in which the compiler ended well."""
        found: list[Application] = []
        for probe in self.result.probes:
            if probe.setting.link == link:
                here = [item for item in probe.outcome.applications if _covered(item, switches)]
                found = here if len(here) > len(found) else found
        return found

    def _confirm(self, off: frozenset[Switch], link: Link) -> bool:
        """Once more with what was found alone off, and once with everything on."""
        passes = frozenset(switch for switch in off if switch.group in PASSES)
        split = any(switch.group == Group.OPERATIONS for switch in off)
        without = self.result.probes[-1]
        if without.setting != Setting(link, off):
            without = self._probe(Setting(link, off), "confirm: only this off", confirms=True)
        again = self._probe(Setting(link, split=split, watched=passes), "confirm: everything on", confirms=True)
        self.result.confirmed = {"off": without.number, "on": again.number}
        if without.fault == Fault.GONE and again.fault == Fault.PRESENT:
            return True
        self.result.verdict = Verdict.UNKNOWN
        return False

    def _repeats(self, link: Link) -> None:
        """Whether a fault that nothing explains is there once more."""
        if self._probe(Setting(link), "is it there again?").fault != Fault.PRESENT:
            self.result.verdict, self.result.repeats = Verdict.UNKNOWN, False

    # more about what was found

    def _find_pattern(self, found: Switch, applications: list[Application], link: Link) -> None:
        """The one pattern of a pattern-matcher pass without which the fault goes away."""
        inside = [
            item for item in applications
            if item.group == Group.PATTERNS and item.within is not None and found.covers(*item.within)
        ]  # fmt: skip
        ones = self._search(
            [Switch(Group.PATTERNS, key) for key in keys_of(inside, Group.PATTERNS)], link, "which pattern of it?"
        )
        if ones is not None and len(ones) == 1:
            self.result.pattern = [item for item in inside if item.key == ones[0].key]

    def _find_lowerings(self, link: Link) -> None:
        """The lowerings without which the fault goes away too, where it does with an option."""
        probe = self._without_all(Group.LOWERINGS, link)
        if probe.fault == Fault.GONE:
            keys = [Switch(Group.LOWERINGS, key) for key in keys_of(probe.outcome.applications, Group.LOWERINGS)]
            found = self._search(keys, link, "at which lowerings?") or []
            self.result.also = [switch.key for switch in found]

    def _find_remedy(self, found: list[Switch], link: Link) -> None:
        group, names = found[0].group, [switch.key for switch in found]
        if group in OPTION_GROUPS:
            self._option_remedy(found, self.result.confirmed["off"])
        elif group == Group.LOWERINGS:
            calls = "; ".join(f"make_fallback(torch.ops.{name}, override_decomp=True)" for name in names)
            text = f"import torch; from torch._inductor.lowering import make_fallback; {calls}"
            self._try_remedy(Setting(link, fallback=tuple(names)), "does make_fallback help?", "python", text)
        elif group == Group.DECOMPOSITION and self.facts.inductor:
            pops = "; ".join(f"decompositions.pop(torch.ops.{name})" for name in names)
            text = f"import torch; from torch._inductor.decomposition import decompositions; {pops}"
            setting = Setting(Link.BACKEND, undecomposed=tuple(names))
            self._try_remedy(setting, "does it help the whole backend?", "python", text)
        elif group == Group.DECOMPOSITION:
            text = f"leave {', '.join(names)} out of the decompositions of {self.facts.name}"
            setting = Setting(Link.BACKEND, frozenset(found))
            self._try_remedy(setting, "does it help the whole backend?", "edit", text)
        elif group in (*PASSES, Group.PATTERNS, Group.CUDAGRAPHS):
            self._pass_remedy(found, link)

    def _try_remedy(self, setting: Setting, purpose: str, kind: str, text: str) -> None:
        probe = self._probe(setting, purpose)
        if probe.fault == Fault.GONE:
            self.result.remedy = RemedyRecord(kind, text, probe.number)

    def _pass_remedy(self, found: list[Switch], link: Link) -> None:
        tries = ["triton.cudagraphs=false"] if found[0].group == Group.CUDAGRAPHS else []
        if found[0].group in PASSES and self.facts.disabled_passes:
            tries = [f"disabled_passes={','.join(dict.fromkeys(switch.key for switch in found))}"]
        for text in [*tries, "pattern_matcher=false"]:
            option = Switch(Group.OPTIONS, text)
            probe = self._probe(Setting(link, frozenset({option})), "does an option help?")
            if probe.fault == Fault.GONE:
                self._option_remedy([option], probe.number)
                return

    def _option_remedy(self, options: list[Switch], probe: int) -> None:
        group = options[0].group
        if group == Group.FLAGS or (self.facts.inductor and group == Group.OPTIONS):
            text = " ".join(f"{self.facts.switch_key}.{as_override(option.key)}" for option in options)
            self.result.remedy = RemedyRecord("option", text, probe)
            return
        module = CONFIG_MODULES[group]
        lines = "; ".join("{}.{} = {!r}".format(module, *as_python(option.key)) for option in options)
        self.result.remedy = RemedyRecord("python", f"import {module}; {lines}", probe)


def _covered(application: Application, switches: Iterable[Switch]) -> bool:
    found = application.group, application.key, application.occurrence
    return any(switch.covers(*found) for switch in switches)
