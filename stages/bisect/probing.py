"""One probe: the case compiled afresh with some switches off, and kerneldiff's verdict on it."""

import contextlib
import dataclasses
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from inductor_debug.models.case import Case
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import CompiledCase, compile_case
from inductor_debug.stages.backends.eager import AotEagerAdapter, EagerAdapter
from inductor_debug.stages.backends.execution import Watch
from inductor_debug.stages.backends.inductor_switches import inductor_switches
from inductor_debug.stages.bisect.kinds import CONFIG_MODULES, Link, Verdict
from inductor_debug.stages.bisect.messages import as_python
from inductor_debug.stages.bisect.options import OF_AOT, OF_DYNAMO, option_values
from inductor_debug.stages.bisect.partial import PartialAdapter
from inductor_debug.stages.bisect.records import BackendFacts, Outcome, Setting
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.diff import compared
from inductor_debug.stages.kerneldiff.records import Comparison
from inductor_debug.stages.kerneldiff.standard import Standard, opened_baseline, standard_of
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.torch_internals import dynamo
from inductor_debug.stages.torch_internals.compile_workers import first_raised
from inductor_debug.stages.torch_internals.inductor_options import patched_config
from inductor_debug.stages.torch_internals.switch_records import Application, Group
from inductor_debug.stages.torch_internals.switches import (
    Switchboard,
    definition_of,
    inductor_defaults,
    installed,
    overload,
    patched_options,
)

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_PATH = re.compile(r"\S*/\S+")
_GENERIC = ("AssertionError", "Exception", "KeyError", "NotImplementedError", "RuntimeError", "TypeError", "ValueError")
"""Types that say little of a failure: the first line of its message belongs to its class then."""


def failure_class(error: Mapping[str, str]) -> str:
    """The class of a failure: its type, and of a generic one the message's first line without its numbers.

    The same wherever torch compiled: in this process, or in one of its pool, which may come up between two probes.

    Args:
        error: ``type`` and ``message``, as ``stages.sides.running.describe`` gives them.
    """
    kind, message = first_raised(error["type"], error["message"])
    if kind not in _GENERIC:
        return kind
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return f"{kind}: {_NUMBERS.sub('#', first)}"


def told_by(error: Mapping[str, str]) -> str:
    """A failure's type and message without its numbers and paths, which change from compilation to compilation."""
    return f"{error['type']}: {_NUMBERS.sub('#', _PATH.sub('…', error['message']))}"


class Uncompiled(CompiledCase):
    """The case's module as it is, in the place of a compiled one."""

    def __init__(self, case: Case) -> None:
        self.adapter = EagerAdapter()
        self.backend = "no compiler"
        self.options = {}
        self.given = 0
        self.watch = Watch()
        self.compile_s = None
        self._compiler = self._function = case.module


class _Decomposed(AotEagerAdapter):
    """AOTAutograd's graphs with a backend's decompositions, executed by torch."""

    name = "aot_eager with decompositions"

    def __init__(self, decompositions: Mapping[Any, Callable[..., Any]]) -> None:
        self.decompositions = decompositions


class Prober:
    """Probes of one case. Reference and gold are run once, in the first.

    Args:
        context: of the run. ``context.live["compiled"]`` is dropped: compiling anew forgets it.
        options: how kerneldiff judges.
        adapter: makes the backend's adapter anew for each probe, so that none remembers another.
        right: a case whose module is right, where the context's own in eager is not what to compare with.
    """

    def __init__(
        self,
        context: StageContext,
        options: KernelDiffConfig,
        adapter: Callable[[], AcceleratorAdapter],
        right: Case | None = None,
    ) -> None:
        options = dataclasses.replace(
            options, plots=False, repeats=1, draws=1, special=False, steps=0, store_baseline=False, sensitivity=False
        )
        self._context = dataclasses.replace(context, progress=lambda text: None)  # a probe is told as a whole
        self._adapter, self._right = adapter, right
        self._options = options
        self._standard: Standard | None = None
        self._finder: SourceFinder | None = None
        self._definitions: dict[str, str] = {}

    def facts(self) -> BackendFacts:
        adapter = self._adapter()
        return BackendFacts(
            name=adapter.name,
            links=self._links(adapter),
            inductor=adapter.inductor_options() is not None,
            switch_key=adapter.switch_key,
            own_front=adapter.own_front,
            disabled_passes="disabled_passes" in inductor_defaults(),
            options={
                Group.OPTIONS: list(self._values(Group.OPTIONS, adapter)),
                Group.FLAGS: list(self._values(Group.FLAGS, adapter)),
                Group.DYNAMO_OPTIONS: OF_DYNAMO,
                Group.AOT_OPTIONS: OF_AOT,
            },
        )

    def probe(self, setting: Setting) -> Outcome:
        """Compile with ``setting``, run one step and judge it; the case is left as it was."""
        if self._standard is None:
            baseline = opened_baseline(self._context, self._options)
            self._standard = standard_of(self._context, self._options, baseline, self._right)
        began = time.perf_counter()
        board = Switchboard(setting.off, setting.watched)
        made: list[CompiledCase] = []
        self._context.live.pop("compiled", None)
        dynamo.reset()

        def compiled() -> CompiledCase:
            made.append(self._compiled(setting, board))
            return made[0]

        try:
            with self._switched(setting, board):
                comparison = compared(self._context, self._options, self._standard, compiled)
        finally:
            dynamo.reset()
        outcome = outcome_of(comparison)
        outcome.seconds = time.perf_counter() - began
        outcome.graphs = made[0].given if made else 0
        outcome.applications = [self._located(item) for item in board.applications]
        if outcome.verdict == Verdict.RAISED and board.applications:
            outcome.raised_at = board.applications[-1].key
        return outcome

    @contextlib.contextmanager
    def _switched(self, setting: Setting, board: Switchboard) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(patched_config(self._changed(Group.OPTIONS, setting, self._adapter())))
            for group in (Group.DYNAMO_OPTIONS, Group.AOT_OPTIONS):
                values = dict(as_python(switch.key) for switch in setting.off if switch.group == group)
                stack.enter_context(patched_options(CONFIG_MODULES[group], values))
            stack.enter_context(installed(board, fallback=setting.fallback, undecomposed=setting.undecomposed))
            yield

    def _values(self, group: Group, adapter: AcceleratorAdapter) -> dict[str, tuple[str, Any]]:
        """Options to try as typed → (name, value): TorchInductor's, or of another adapter its own (``flags``).

        TorchInductor's are tried behind any backend, which may call it.
        """
        device, by_inductor = self._context.case.device.type, adapter.inductor_options() is not None
        if group == Group.FLAGS:
            return {} if by_inductor else option_values(adapter.switches(device))
        return option_values(adapter.switches(device) if by_inductor else inductor_switches({}, device))

    def _changed(self, group: Group, setting: Setting, adapter: AcceleratorAdapter) -> dict[str, Any]:
        """Options of the group that the setting changes."""
        values = self._values(group, adapter)
        return dict(values.get(switch.key) or as_python(switch.key) for switch in setting.off if switch.group == group)

    def _links(self, adapter: AcceleratorAdapter) -> list[Link]:
        """The links of the chain below the backend. One that compiles nothing adds nothing to theirs, so that a fault
        behind it is Dynamo's or AOTAutograd's.
        """
        links = [Link.UNCOMPILED, Link.DYNAMO, Link.AOT]
        if adapter.as_traced:
            return links[:2] if adapter.level == "dynamo" else links
        return [*links, Link.DECOMPOSITIONS] if adapter.level == "aot" and adapter.decompositions else links

    def _compiled(self, setting: Setting, board: Switchboard) -> CompiledCase:
        case = self._context.case
        if setting.link == Link.UNCOMPILED:
            return Uncompiled(case)
        return compile_case(case, self._linked(setting, board))

    def _linked(self, setting: Setting, board: Switchboard) -> AcceleratorAdapter:
        if setting.link == Link.DYNAMO:
            return EagerAdapter()
        if setting.link == Link.AOT:
            return AotEagerAdapter()
        adapter = self._adapter()
        if setting.link == Link.DECOMPOSITIONS:
            return _Decomposed(adapter.decompositions or {})
        assert setting.link == Link.BACKEND
        changed = self._changed(
            Group.OPTIONS if adapter.inductor_options() is not None else Group.FLAGS, setting, adapter
        )
        if changed:
            adapter = adapter.switched(changed)
        if setting.split or any(switch.group == Group.OPERATIONS for switch in setting.off):
            return PartialAdapter(adapter, board)
        return adapter

    def _located(self, application: Application) -> Application:
        """With the model's own line of each node, in the place of its stack trace."""
        if self._finder is None:
            self._finder = SourceFinder(self._context.case.module)
        if application.group == Group.DECOMPOSITION:
            application.definition = self._decomposed_by(application.key)
        for node in application.nodes:
            line = self._finder.find(node.trace)
            node.trace = ""
            if line is not None:
                node.source, node.code = f"{line.file}:{line.line}", line.code
        return application

    def _decomposed_by(self, name: str) -> str:
        """The code of a decomposition of the adapter's."""
        if name not in self._definitions:
            table = self._adapter().decompositions or {}
            self._definitions[name] = definition_of(table.get(overload(name)))
        return self._definitions[name]


def outcome_of(comparison: Comparison) -> Outcome:
    """What a comparison comes to."""
    error, compared_as = comparison.error, comparison.verdict
    if error is not None and error.get("side") == "test":
        return Outcome(Verdict.RAISED, failure_class(error), comparison.message, compared_as, told=told_by(error))
    if compared_as == "not_established":
        return Outcome(Verdict.UNKNOWN, "", comparison.message, compared_as)
    rows = {f"{row.kind} {row.path}": row for row in comparison.rows}
    errors = {name: (_number(row.rmse), row.verdict == "defect") for name, row in rows.items()}
    other_figures = {name: _other_figures(row) for name, row in rows.items()}
    verdict = Verdict.DEFECT if compared_as == "defect" else Verdict.OK
    return Outcome(verdict, "", comparison.message, compared_as, errors=errors, other_figures=other_figures)


def _other_figures(row: TensorComparison) -> tuple[float, float, float, str]:
    """What else tells two wrong results apart: see :class:`Outcome`."""
    words = "" if row.rmse is not None else f"{row.bound}: {row.message}"
    return _number(row.mean_abs), _number(row.nan_test), _number(row.inf_test), words


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
