"""A bisection in words, as JSON and as a table."""

from typing import Any

from inductor_debug.stages.artifacts.bisection import (
    SUBSYSTEMS,
    ApplicationRecord,
    BisectionRecord,
    ChainProbe,
    ChangedNode,
    Established,
    PatternRecord,
)
from inductor_debug.stages.artifacts.tables import ProbeRow
from inductor_debug.stages.bisect.kinds import Link, Verdict
from inductor_debug.stages.bisect.records import BackendFacts, Bisection
from inductor_debug.stages.formatting import because, counted, in_lines
from inductor_debug.stages.torch_internals.switch_records import OPTION_GROUPS, Application, Group

HIDES = "What makes a fault go away hides it. The fault need not lie there."
UNKNOWN = "Which part of the compiler it is, is not established"
FEWER = "with fewer of them off something else fails"
SHOWN = 3
"""Places of one switch that a message shows."""


def answer(result: Bisection, facts: BackendFacts) -> str:
    """What makes the fault go away and what to type, or why nothing does; below it what else was seen, and the cost."""
    return in_lines(_finding(result, facts), *_beside(result), f"It took {cost(result)}.")


def cost(result: Bisection) -> str:
    """``12 compilations, 31.5 s``."""
    return f"{counted(result.compilations, 'compilation')}, {result.seconds:.1f} s"


def _finding(result: Bisection, facts: BackendFacts) -> str:
    if result.verdict == "none":
        return _none(result)
    if result.verdict == Verdict.UNKNOWN:
        return _not_established(result)
    where = _subsystem(result, facts)
    if result.verdict == "subsystem":
        return f"The fault comes in with {where}, but no single switch in it explains the fault."
    told = f"The fault comes in with {where}: {_gone_with(result)}."
    if result.remedy is None:
        return f"{told} No option that was tried makes it go away."
    how = {"option": "set ", "python": "run in Python first: ", "edit": ""}[result.remedy.kind]
    return f"{told} To be rid of {'them' if len(result.faults) > 1 else 'it'}, {how}{result.remedy.text}"


def _beside(result: Bisection) -> list[str]:
    """What else was seen of what makes the fault go away."""
    if not result.names or result.verdict in ("none", "subsystem", Verdict.UNKNOWN):
        return []
    told = [f"It goes away too without the lowering of {_names(result.also)}."] if result.also else []
    told.append(HIDES)
    if result.ended:
        probes = counted(len(result.probes), "probe")
        told.append(f"{probes} did not suffice to ask more (stages.bisect.max_probes).")
    return told


def _none(result: Bisection) -> str:
    if result.fault is None:
        return because("There is nothing to bisect", result.probes[0].outcome.message)
    return (
        "No part of the compiler: the model without any compiler has the fault too. It is the model that is wrong, or "
        "what it is compared with."
    )


def _not_established(result: Bisection) -> str:
    if result.fault is None:
        return because(UNKNOWN, result.probes[0].outcome.message)
    if result.confirmed or not result.repeats:
        why = "the fault comes and goes with the same setting"
    else:
        why = f"{counted(len(result.probes), 'probe')} did not suffice (stages.bisect.max_probes)"
    return because(UNKNOWN, why)


def _subsystem(result: Bisection, facts: BackendFacts) -> str:
    if result.subsystem == Link.DECOMPOSITIONS:
        return f"the decompositions of {'TorchInductor' if facts.inductor else facts.name}"
    if result.subsystem == Link.BACKEND:
        return f"the backend {facts.name}"
    if result.subsystem == "inductor" and not facts.inductor:
        return f"TorchInductor behind the backend {facts.name}"
    return SUBSYSTEMS.get(str(result.subsystem), str(result.subsystem))


def _gone_with(result: Bisection) -> str:
    """What was seen: with what the fault goes away, fault by fault where there are several."""
    if result.group in OPTION_GROUPS:
        each = [f"goes away with {_names(names)}{_one_or_several(names)}" for names in result.faults]
    else:
        each = [f"goes away without {_switches(result, names)}{_one_or_several(names)}" for names in result.faults]
    if len(each) > 1:
        least = "at least " if len(result.names) > len(each) else ""
        return f"{least}{len(each)} independent faults: {'; '.join(f'one {told}' for told in each)}"
    if result.verdict == "narrowed":
        return f"it goes away without {_switches(result, result.names)}; {FEWER}"
    return f"it {each[0]}"


def _one_or_several(names: list[str]) -> str:
    """What is not known of switches that were not told apart."""
    return f" (not established: one fault that any of the {len(names)} keeps, or several)" if len(names) > 1 else ""


def _switches(result: Bisection, names: list[str]) -> str:
    """``the lowering of aten.erf.default at erf, nets.py:3: …``; no place where none was tried apart."""
    assert result.group is not None
    noun = result.group.singular
    chosen = [item for item in result.applications if item.key in names]
    if len(names) > 1:
        plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
        places = (f"{name}{_nodes([item for item in chosen if item.key == name])}" for name in names)
        told = _names([*places] if result.located else names)
        return f"{len(names)} {plural} together: {told}"
    of = "of " if result.group in (Group.LOWERINGS, Group.DECOMPOSITION) else ""
    share = ""
    if len(result.names) == 1 and result.applied > 1:
        count = len(chosen)
        share = (
            f" (all {count} applications)"
            if count == result.applied
            else f" ({count} of {result.applied} applications)"
        )
    place = "" if result.pattern else _code(chosen)
    told = f"the {noun} {of}{names[0]}{share}{place}"
    if result.pattern:
        told += f", there {_names([result.pattern[0].key])}{_code(result.pattern)}"
    return told + (_nodes(result.pattern or chosen) if result.located else "")


def _code(applications: list[Application]) -> str:
    places = list(dict.fromkeys(item.definition for item in applications if item.definition))
    return f" [{places[0]}]" if places else ""


def _names(names: list[str]) -> str:
    return " and ".join(names)


def _nodes(applications: list[Application]) -> str:
    """The first node that each application acts on, with the model's line; of many applications the first few."""
    places = list(dict.fromkeys(filter(None, map(_node, applications))))
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return f" at {' and at '.join(places[:SHOWN])}{more}" if places else ""


def _node(application: Application) -> str:
    nodes = application.nodes
    best = next((node for node in nodes if node.source), nodes[0] if nodes else None)
    if best is None or not (best.name or best.source):
        return ""
    graph = f" of the {best.graph} graph" if best.graph and best.name else ""
    source = f"{best.source}: {best.code}" if best.source else ""
    return ", ".join(filter(None, (f"{best.name}{graph}", source)))


def rows(result: Bisection) -> list[ProbeRow]:
    """``bisect/probes.csv``."""
    return [
        ProbeRow(
            probe=probe.number,
            purpose=probe.purpose,
            compiler=probe.setting.link,
            setting=probe.setting.words,
            fault=probe.fault,
            verdict=probe.outcome.compared or probe.outcome.verdict,
            failure=probe.outcome.failure,
            graphs=probe.outcome.graphs,
            seconds=round(probe.outcome.seconds, 3),
            message=probe.outcome.message,
        )
        for probe in result.probes
    ]


def record_of(result: Bisection) -> BisectionRecord:
    """``bisect/bisect.json``."""
    pattern = PatternRecord(result.pattern[0].key, [*map(_application, result.pattern)]) if result.pattern else None
    chain: dict[str, ChainProbe] = {
        probe.setting.link: ChainProbe(probe.number, probe.fault)
        for probe in result.probes
        if not probe.setting.words and not probe.confirms
    }
    return BisectionRecord(
        verdict=result.verdict,
        answer=result.answer,
        fault=result.fault,
        subsystem=result.subsystem,
        kind=None if result.group is None else result.group.singular,
        relation=_relation(result),
        names=result.names,
        faults=result.faults,
        located=result.located,
        ended=result.ended,
        applied=result.applied,
        applications=[*map(_application, result.applications)],
        pattern=pattern,
        also=result.also,
        remedy=result.remedy,
        established=Established(chain, result.confirmed),
        probes=len(result.probes),
        compilations=result.compilations,
        seconds=round(result.seconds, 3),
    )


def _relation(result: Bisection) -> str | None:
    """What was seen of the names: with an option set, or with the other switches off, the fault goes away."""
    if not result.names:
        return None
    return "goes_away_with" if result.group in OPTION_GROUPS else "goes_away_without"


def _application(item: Application) -> ApplicationRecord:
    nodes = [ChangedNode(node.graph, node.name, node.target, node.source, node.code) for node in item.nodes]
    return ApplicationRecord(item.key, item.occurrence, item.definition, nodes)


def as_typed(name: str, value: Any) -> str:
    """``name=value`` as on the command line."""
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"{name}={text}"


def as_override(option: str) -> str:
    """``name=value`` for a shell's command line: a value with a comma is no sweep."""
    name, _, text = option.partition("=")
    return f"{name}=\"'{text}'\"" if "," in text else option


def as_python(option: str) -> tuple[str, Any]:
    """``name=value`` as typed, → name and value."""
    name, _, text = option.partition("=")
    values = {"true": True, "false": False, "null": None}
    return name, values[text] if text in values else (int(text) if text.lstrip("-").isdigit() else text)
