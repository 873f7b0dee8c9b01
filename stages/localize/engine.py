"""Looks for the operations at fault in a compiled case."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import fx

from inductor_debug.models.case import Case
from inductor_debug.models.input_draws import drawn_inputs
from inductor_debug.stages.artifacts.localization import Culprit, Localization, MendedRun, NodeRow
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.formatting import counted, in_one_line
from inductor_debug.stages.localize import messages
from inductor_debug.stages.localize.accounting.account import Account, account
from inductor_debug.stages.localize.accounting.frozen import Name
from inductor_debug.stages.localize.accounting.links import Ends, ends_of
from inductor_debug.stages.localize.accounting.shares import Shares
from inductor_debug.stages.localize.carried import Carried
from inductor_debug.stages.localize.config import LocalizeConfig
from inductor_debug.stages.localize.decomposed import wrong_decompositions
from inductor_debug.stages.localize.judging.replay import Local, Replay, is_steady
from inductor_debug.stages.localize.kinds import kind_of
from inductor_debug.stages.localize.looked_at import LookedAt, largest, unchecked
from inductor_debug.stages.localize.mended import Judge, estimated, mended_run
from inductor_debug.stages.localize.neighbours import neighbours
from inductor_debug.stages.localize.runs.kept import Kept
from inductor_debug.stages.localize.runs.observed import Observer
from inductor_debug.stages.localize.runs.reference import reference_run
from inductor_debug.stages.localize.runs.regions import Seen
from inductor_debug.stages.localize.searching.in_place import Search
from inductor_debug.stages.localize.searching.pieces import attempted
from inductor_debug.stages.localize.searching.suspects import Found, explained, narrowed
from inductor_debug.stages.localize.sources import origins_of_lowered
from inductor_debug.stages.numerics.formats import same_bits
from inductor_debug.stages.sides import running as sides

log = logging.getLogger(__name__)

OBSERVED, PIECES = "observed", "pieces"

STEADY = "always in one direction"


@dataclass
class Localized:
    """What was found, and the table of all values that were seen; ``str()`` of it is the message."""

    localization: Localization
    rows: list[NodeRow] = field(default_factory=list)

    def __str__(self) -> str:
        return self.localization.message


class Engine:
    """One search.

    Args:
        case: left as found.
        adapter: whose compiled code is looked at; made anew for this.
        options: of localization.
        factor: error over floor above which a value is wrong.
        progress: told of each step.
    """

    def __init__(
        self,
        case: Case,
        adapter: AcceleratorAdapter,
        options: LocalizeConfig,
        *,
        factor: float,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.case, self.adapter, self.options, self.factor = case, adapter, options, factor
        self.progress = progress
        self.began = time.monotonic()
        self.missing: list[str] = []
        self.left = 0
        self.graphs: list[LookedAt] = []
        self.found: dict[Name, Culprit] = {}
        self.values: dict[Name, set[Name]] = defaultdict(set)
        self.nodes: dict[Name, tuple[Seen, list[fx.Node]]] = {}
        self.floors: float | None = None
        self.before: Sequence[int] = ()
        self.draw = 1
        self.carried = ""
        self.judge: Judge | None = None
        self.ends = Ends()
        self.gold: Ends | None = None

    def run(
        self,
        *,
        calls: Sequence[int] = (1,),
        failed: bool = False,
        test: sides.Leaves | None = None,
        floors: float | None = None,
        judge: Judge | None = None,
        carried: Carried | None = None,
        gold: sides.Leaves | None = None,
    ) -> Localized:
        """Look, in the buffers of the kernels that run where they can be seen, else in parts of the graph.

        Where nothing is found in a first call with the state that the case has, its calls are looked at, and then the
        state that it had later.

        Args:
            calls: draws of the inputs of the calls up to the one that is looked at, 1 the model's own. That one is
                looked at as the first of all, unless it is the repetition of one before; where nothing is found then,
                after the others.
            failed: whether the comparison of outputs was no pass.
            test: what the test side gave in that comparison; None where it is not kept.
            floors: error over floor of the output that is worst.
            judge: gives the verdict of a run by another adapter; None where what is found is not confirmed by one.
            carried: state that training leaves; None where that is not asked.
            gold: what float64 gives in the call that is looked at; None where it is not kept.
        """
        (*before, draw), self.floors, self.judge = calls, floors, judge
        self.gold = None if gold is None else Ends.of(gold)
        found = None if draw in before else self._looked((), draw, failed, test)
        if before and (found is None or not found.localization.culprits):
            self.progress(f"looking again, after {counted(len(before), 'call')}")
            found = self._looked(before, draw, failed, test)
        assert found is not None, "a call that repeats one has one before it"
        if carried is None or found.localization.culprits:
            return found
        self.progress(f"looking again, {carried}")
        with carried.put_in(self.case):
            self.carried, self.gold = str(carried), None
            return self._looked((), 1, failed, None)

    def _looked(self, before: Sequence[int], draw: int, failed: bool, test: sides.Leaves | None) -> Localized:
        """Look at one call."""
        self.missing, self.left, self.graphs, self.before, self.draw = [], 0, [], before, draw
        self.found.clear()
        self.values.clear()
        if self.adapter.rewriting_backend(lambda graph, text: text) is None:
            return self._in_place(draw, failed)
        self.progress("compiling once more, to see what each kernel makes")
        observer = Observer(self.case, self.adapter)
        for number in before:
            with drawn_inputs(self.case, number - 1):
                self.case.run(observer.compiled)
        with drawn_inputs(self.case, draw - 1):
            result = self.case.run(observer)
            probed, self.ends = sides.collect(result), ends_of(self.case, result)
        self.missing += [f"{graph}: {why}" for graph, why in observer.missing.items()]
        if not observer.compiled.graphs:
            self.missing.append("the model, of which no graph was compiled")
        lowered = observer.compiled.graphs
        for seen in observer.seen():
            graph = LookedAt(seen, origins_of_lowered(lowered[seen.id], self.case))
            self.graphs.append(graph)
            self._look(graph)
        same = None if test is None else _same(test, probed)
        return self._localized(OBSERVED, failed, same)

    def _in_place(self, draw: int, failed: bool) -> Localized:
        """Look behind a backend whose values can't be seen: see :mod:`stages.localize.searching.in_place`."""
        self.progress("running each operation by torch, to know what it receives")
        with drawn_inputs(self.case, draw - 1):
            reference = reference_run(self.case, self.adapter)
        self.ends = reference.ends
        earlier: dict[str, Seen] = {}
        if self.before:
            with drawn_inputs(self.case, self.before[-1] - 1):
                earlier = {seen.id: seen for seen in reference_run(self.case, self.adapter).seen if not seen.call}
        if not reference.seen:
            self.missing.append("the model, of which no graph was compiled")
        for seen in reference.seen:
            if self._own_run:
                self._look(graph := LookedAt(seen, reference.origins[seen.id]))
                self.graphs.append(graph)
                continue
            if seen.call:
                self.missing.append(f"{seen.id}, run {seen.call + 1}")
                continue
            if self.before and seen.id not in earlier:
                self.missing.append(f"{seen.id} after other calls, which did not run it")
                continue
            calls = len(self.before) + 1 if self.before else 0  # the step in which the case was compiled is one too
            search = Search(seen, self.adapter, self.factor, lambda: self._over, self.progress, earlier.get(seen.id),
                            calls)  # fmt: skip
            search.run()
            if not search.found:
                search.alone()
            compared = search.compared | {item.local.region.node.name: item.local for item in search.found}
            graph = LookedAt(seen, reference.origins[seen.id], list(compared.values()))
            self.graphs.append(graph)
            self.missing += search.missing + search.otherwise
            for item in search.found:
                operations = list(item.operations)
                kind = "operation" if len(operations) == 1 else "region"
                found = Found(operations, item.local, kind, [item.shows])
                self.found[seen.id, operations[-1].name] = self._culprit(graph, found)
        if self.adapter.level == "dynamo" and not self.adapter.as_traced and not self.found:
            self.missing.append(f"what {self.adapter.name} does to Dynamo's own graphs: it was given AOTAutograd's")
        return self._localized(OBSERVED if self._own_run else PIECES, failed, None)

    def _culprit(self, graph: LookedAt, item: Found) -> Culprit:
        found = graph.culprit(item)
        self.nodes[found.place.graph, found.place.node] = graph.seen, item.nodes
        if self.carried:
            return replace(found, shows=[*found.shows, f"{self.carried}, and not before"])
        if not self.before:
            return (
                found if self.draw == 1 else replace(found, shows=[*found.shows, f"on draw {self.draw} of the inputs"])
            )
        number = len(self.before) + 2  # the step in which the case was compiled was the first
        return replace(found, shows=[*found.shows, f"in call {number} of the compiled graph, and not in the first"])

    @property
    def _own_run(self) -> bool:
        """Whether torch, operation by operation, is what the backend runs."""
        return self.adapter.as_traced and self.adapter.level == "aot"

    @property
    def _over(self) -> bool:
        return time.monotonic() - self.began > self.options.budget_s

    def _look(self, graph: LookedAt) -> None:
        graph.seen.residuals = residuals = Kept[str]() if self.options.shares else None
        replay = Replay(graph.seen, factor=self.factor, residuals=residuals)
        self.progress(f"{graph.seen.id}: {len(replay.regions)} values against float64 of what they received")
        graph.locals = replay.locals(lambda: self._over)
        if len(graph.locals) < len(replay.regions):
            name = replay.regions[len(graph.locals)].node.name
            graph.cut = self._budget
            self.missing.append(f"{graph.seen.id} from {name} on: {graph.cut}")
        known: list[Found] = []
        for local in graph.locals:
            if local.wrong:
                known += self._narrow(graph, replay, local, known)

    @property
    def _budget(self) -> str:
        return f"stages.kerneldiff.localize.budget_s={self.options.budget_s:g} was spent"

    def _narrow(self, graph: LookedAt, replay: Replay, local: Local, known: list[Found]) -> list[Found]:
        """The operations at fault in a wrong value's region, unless those that are known explain it."""
        name = graph.seen.id, local.region.node.name
        value = " ".join(name)
        whole = replay.region(local.region.node, whole=True)
        inside = [item for item in known if item.nodes[-1] in whole.members]
        if explained(replay, whole, inside):
            for item in inside:
                key = graph.seen.id, item.nodes[-1].name
                self.found[key].others.append(value)
                self.values[key].add(name)
            return []
        if len(self.found) >= self.options.most or self._over:
            self.left += 1
            return []
        self.progress(f"{value} is wrong: which of its {len(local.region.operations)} operations is it?")
        found = narrowed(graph.seen, local, self.adapter, factor=self.factor, over=lambda: self._over)
        for item in found:
            key = graph.seen.id, item.nodes[-1].name
            self.values[key].add(name)
            if key in self.found:
                self.found[key].others.append(value)
            else:
                self.found[key] = self._culprit(graph, item)
        return found

    def _localized(self, method: str, failed: bool, same: bool | None) -> Localized:
        culprits = self._varied(list(self.found.values())) or self._slopes() or self._decomposed()
        operations = set[Name]().union(*(graph.operations for graph in self.graphs))
        checked = set[Name]().union(*(graph.checked for graph in self.graphs))
        compared = [local for graph in self.graphs for local in graph.compared]
        if self.left:
            most = f"stages.kerneldiff.localize.most={self.options.most}"
            self.missing.append(f"which operation makes {counted(self.left, 'further value')} wrong ({most})")
        whole = checked >= operations and not self.missing
        kind = kind_of(culprits, failed=failed, same=same, whole=whole)
        accounted = self._accounted(method, kind, culprits)
        if kind == "accumulation" and accounted.altered != {}:
            kind = "graph" if accounted.altered else "none"
        mended = self._mended(culprits, accounted) if failed else []
        culprits, unheld = estimated(culprits, accounted.remains, mended, self.floors, self.ends)
        found = Localization(
            kind=kind,
            method=method,
            message="",
            culprits=culprits,
            wrong=sum(local.wrong for local in compared),
            operations=len(operations),
            checked=len(checked & operations),
            regions=len(compared),
            largest=max((len(local.region.operations) for local in compared), default=0),
            unchecked=unchecked(self.graphs),
            same_bits=same,
            missing=self.missing,
            seconds=round(time.monotonic() - self.began, 3),
            closure=accounted.closure,
            shares=largest(self.graphs, accounted),
            few=[" ".join(name) for name in accounted.few] if kind == "accumulation" else [],
            altered=dict(accounted.altered or {}),
            unaccounted=[*accounted.missing, *unheld],
            mended=mended,
        )
        graphs = [*self.graphs, *(LookedAt(seen, {}) for seen in accounted.sums)]
        rows = [row for graph in graphs for row in graph.rows(accounted.shares or Shares())]
        return Localized(messages.told(found, failed=failed), rows)

    def _varied(self, culprits: Sequence[Culprit]) -> list[Culprit]:
        """The same, the first few with how they do at other shapes."""
        found = list(culprits)
        for number, item in enumerate(found[: messages.FEW]):
            if self._over or self.before:
                break
            self.progress(f"{item.place.graph} {item.place.node} at other shapes")
            seen, nodes = self.nodes[item.place.graph, item.place.node]
            found[number] = replace(item, neighbours=neighbours(seen, nodes, self.adapter, factor=self.factor))
        return found

    def _accounted(self, method: str, kind: str, culprits: list[Culprit]) -> Account:
        """What the errors of the values that were seen cost the outputs; empty where the backend's were not."""
        places = [(item.place.graph, item.place.node) for item in culprits]
        if not self.options.shares or method != OBSERVED or any(place not in self.values for place in places):
            return Account()  # the errors of a decomposition are none of the graph's
        if self._over:
            return Account(missing=[f"shares of the final error: {self._budget}"])
        self.progress("what each value's error makes of the final error")
        asked = kind == "accumulation" and self.floors
        target = self.factor / self.floors if asked and self.floors else None
        wrong = {place: self.values[place] for place in places}
        try:
            gold = self.gold if kind == "accumulation" else None
            return account([graph.seen for graph in self.graphs], self.ends, wrong, target, gold)
        except Exception as error:  # memory too: who is wrong is known by now
            log.exception("localize: the shares of the final error raised")
            return Account(missing=[f"shares of the final error: {in_one_line(error)}"])

    def _decomposed(self) -> list[Culprit]:
        """Where each operation is right for what it received, the decompositions that made them may not be."""
        if self._over or not self.adapter.decompositions:
            return []
        self.progress("the decompositions that the backend asks for, each against its operator")
        found = attempted(lambda: wrong_decompositions(self.case, self.adapter, lambda: self._over))
        if isinstance(found, str):  # who is right for what it received is known by now
            self.missing.append(f"the decompositions that the backend asks for: {found}")
            return []
        return found

    def _mended(self, culprits: Sequence[Culprit], accounted: Account) -> list[MendedRun]:
        """Runs of the case with what was found computed in float64: all of it, and of several each alone."""
        if self.judge is None or self.before or self.carried:
            return []
        each = [[(item.place.graph, name) for name in item.place.operations] for item in culprits]
        if not each:
            each = [[(graph.seen.id, operation.name) for graph in self.graphs for local in graph.locals
                     if (graph.seen.id, local.region.node.name) in accounted.few
                     for operation in local.region.operations]]  # fmt: skip
        every = list(dict.fromkeys(name for names in each for name in names))
        found: list[MendedRun] = []
        for names in [every, *(each[: messages.FEW] if len(each) > 1 else [])] if every else []:
            if self._over:
                break
            self.progress(f"the case again, with {counted(len(names), 'operation')} in float64")
            found.append(mended_run(self.adapter, names, self.judge))
        return found

    def _slopes(self) -> list[Culprit]:
        """What is off in one direction alone, narrowed down to the operation where the region has several."""
        culprits: dict[tuple[str, str], Culprit] = {}
        for graph in self.graphs:
            for local in (item for item in graph.locals if is_steady(item)):
                found = [Found(list(local.region.operations), local, "slope", [STEADY])]
                if len(local.region.operations) > 1 and len(culprits) < self.options.most and not self._over:
                    self.progress(
                        f"{graph.seen.id} {local.region.node.name} is off in one direction: by which operation?"
                    )
                    inner = narrowed(graph.seen, local, self.adapter, factor=self.factor, over=lambda: self._over)
                    single = [item for item in inner if item.kind == "operation"]
                    found = [replace(item, kind="slope", shows=[STEADY, *item.shows]) for item in single] or found
                for item in found:
                    self.values[graph.seen.id, item.nodes[-1].name].add((graph.seen.id, local.region.node.name))
                    culprits.setdefault((graph.seen.id, item.nodes[-1].name), self._culprit(graph, item))
        return list(culprits.values())


def _same(test: sides.Leaves, probed: sides.Leaves) -> bool | None:
    """Whether outputs, loss and gradients are equal bit for bit; None where none of them is on both sides."""
    pairs = [
        (leaf, probed.get(kind, {}).get(path))
        for kind in ("output", "loss", "gradient")
        for path, leaf in test.get(kind, {}).items()
        if isinstance(leaf, torch.Tensor)
    ]
    both = [(leaf, other) for leaf, other in pairs if isinstance(other, torch.Tensor)]
    return all(_equal(*pair) for pair in both) if both else None


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype and bool(same_bits(left, right).all())
