"""Compilers that are made up: they answer the probes of a bisection from a rule."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from inductor_debug.stages.bisect.config import BisectConfig
from inductor_debug.stages.bisect.engine import Investigation
from inductor_debug.stages.bisect.kinds import Link, Verdict
from inductor_debug.stages.bisect.records import BackendFacts, Bisection, Outcome, Setting
from inductor_debug.stages.torch_internals.switch_records import OPTION_GROUPS, Application, Group, NodeSeen


class Compiler:
    """Answers probes from a rule.

    Args:
        rule: keys that are off at a link → ``ok``, ``defect``, or ``raised CLASS``; the other words are failures.
        keys: group → what is applied; a key with a number is applied so often.
        options: group → options to try.
    """

    def __init__(
        self,
        rule: Callable[[str, set[str]], str],
        keys: dict[str, list[str]],
        inductor: bool = True,
        options: dict[Group, list[str]] | None = None,
    ) -> None:
        self.rule, self.keys = rule, keys
        self._facts = BackendFacts(
            name="made_up",
            links=list(Link)[:-1],
            inductor=inductor,
            switch_key="backend.inductor" if inductor else "backend.options",
            own_front=True,
            disabled_passes=True,
            options={group: (options or {}).get(group, []) for group in OPTION_GROUPS},
        )
        self.settings: list[Setting] = []

    def facts(self) -> BackendFacts:
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


def behind(link: str, rule: Callable[[set[str]], str]) -> Callable[[str, set[str]], str]:
    return lambda where, off: rule(off) if where == link else Verdict.OK


class TwoFaults(Compiler):
    """Operations that come several times, each at a node of its own; ``wrong`` tells what each costs that is on.

    Args:
        keys: the operations, in order.
        wrong: (operation, occurrence) → output → error.
        combined: what errors of one output come to. One fault that either operation keeps: the largest.
    """

    def __init__(
        self,
        keys: list[str],
        wrong: dict[tuple[str, int], dict[str, float]],
        combined: Callable[[Iterable[float]], float] = max,
    ) -> None:
        super().__init__(lambda link, off: Verdict.OK, {})
        self.wrong, self.combined = wrong, combined
        self.applied = [
            Application(Group.LOWERINGS, key, keys[:place].count(key), [NodeSeen("", f"node_{place}", key)])
            for place, key in enumerate(keys)
        ]

    def probe(self, setting: Setting) -> Outcome:
        self.settings.append(setting)
        on = [] if setting.link != Link.BACKEND else [
            errors for place, errors in self.wrong.items()
            if not any(switch.covers(Group.LOWERINGS, *place) for switch in setting.off)
            and place[0] not in setting.fallback
        ]  # fmt: skip
        names = {name for errors in on for name in errors}
        errors = {name: (self.combined(each.get(name, 0.0) for each in on), True) for name in names}
        return Outcome(Verdict.DEFECT if on else Verdict.OK, "", "", "", 0.5, 1, list(self.applied), errors=errors)


OPERATIONS_OF_A_MODEL = ["mm", "gelu", "mm", "add", "mm", "gelu", "mm", "add"]


class Failing(TwoFaults):
    """Raises at the first operation that is on and that it can't compile.

    Args:
        group: lowerings of TorchInductor's, or operations of a backend's.
        fails: operation → what its failure says, ``CLASS: message`` where it is of a class of its own.
        at: key of what the compiler comes to last before it raises; default: the operation.
    """

    def __init__(
        self, keys: list[str], fails: dict[str, str], group: str = Group.LOWERINGS, at: str | None = None
    ) -> None:
        super().__init__(keys, {})
        self.fails, self.at, self.group = fails, at, group
        for application in self.applied:
            application.group = group
        self._facts = replace(self._facts, inductor=group == Group.LOWERINGS)

    def probe(self, setting: Setting) -> Outcome:
        self.settings.append(setting)
        for application in self.applied if setting.link == Link.BACKEND else []:
            off = any(switch.covers(self.group, application.key, application.occurrence) for switch in setting.off)
            if application.key in self.fails and not off and application.key not in setting.fallback:
                kind, _, told = self.fails[application.key].rpartition(": ")
                at = (application.key if self.at is None else self.at) * (self.group != Group.OPERATIONS)
                come_to = self.applied.index(application) + 1 if at else None  # operations are noted before any fails
                applied = self.applied[:come_to]
                return Outcome(Verdict.RAISED, kind or "NotSupported", "", "", 0.5, 1, applied, told=told, raised_at=at)
        return Outcome(Verdict.OK, "", "", "", 0.5, 1, list(self.applied))
