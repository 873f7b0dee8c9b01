"""The switches of torch's compiler, thrown by a rule of ours: passes, patterns, lowerings, decompositions.

The places are those of ``torch._inductor.compiler_bisector``: where the compiler is about to apply something it asks
``CompilerBisector.disable_subsystem``. Here that question is answered from memory. The bisector's own state is in files
of the cache directory, where another program's unfinished bisection replaces the backend of every ``torch.compile``.
While a switchboard is installed nothing is read from there.

Relies on ``CompilerBisector.{disable_subsystem,get_backend,get_subsystem,get_config_change,bisection_enabled}``;
``GraphTransformObserver.{apply_graph_pass,apply_gm_pass,gm,subsystem}``; ``PatternMatcherPass.{apply,patterns}`` with
``PatternEntry.extra_check`` and ``Match.nodes``; ``V.graph.current_node`` and ``V.graph.is_backward``;
``torch._inductor.lowering.{lowerings,fallbacks,needs_realized_inputs,make_fallback}``, the last in
``torch._inductor.graph`` too; ``torch._inductor.decomposition.{decompositions,fast_random_decomps}``; the ``patch`` of
``torch._dynamo.config`` and ``torch._functorch.config``, and ``suppress_errors``, ``inline_inbuilt_nn_modules``,
``automatic_dynamic_shapes`` and ``cse`` in them; ``fx.traceback.get_current_meta``; ``TracingContext.output_strides``.
"""

import contextlib
import functools
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
import torch._inductor.config as inductor_config
from torch import fx
from torch._guards import TracingContext
from torch._inductor.virtualized import V
from torch.fx.passes.graph_transform_observer import GraphTransformObserver

from inductor_debug.stages.torch_internals.switch_records import PASSES, Application, Group, NodeSeen, Switch

_OVERLOAD = re.compile(r"OpOverload\(op='([^']+)', overload='([^']+)'\)")
_MOST_NODES = 16
_GROUPS = {"decomposition": Group.DECOMPOSITION, "lowerings": Group.LOWERINGS, "cudagraphs": Group.CUDAGRAPHS} | {
    name: name for name in PASSES
}
"""torch's name of a subsystem → ours; what else torch asks for is left on."""


class Switchboard:
    """Says of each application whether it is off, and notes it.

    Args:
        off: what is turned off.
        watched: passes (with ``occurrence``) of which the changed nodes are noted.

    Attributes:
        applications: what the compiler came to, in order, whether it was off or not.
    """

    def __init__(self, off: Collection[Switch] = (), watched: Collection[Switch] = ()) -> None:
        self.off, self.watched = frozenset(off), frozenset(watched)
        self.applications: list[Application] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self.running: Application | None = None

    def asked(self, group: Group, key: str, nodes: list[NodeSeen] | None = None, definition: str = "") -> bool:
        """Note one application; True where it is off.

        Args:
            group, key: of the switch.
            nodes: those that it is asked about; None for none.
            definition: ``function file:line`` of the code behind it; empty where that is not known.
        """
        occurrence = self._counts[group, key]
        self._counts[group, key] += 1
        made = Application(group, key, occurrence, nodes or [], definition=definition)
        if group == Group.PATTERNS and self.running is not None:
            made.within = (self.running.group, self.running.key, self.running.occurrence)
        self.applications.append(made)
        return any(switch.covers(group, key, occurrence) for switch in self.off)

    def watches(self, application: Application) -> bool:
        """Whether the nodes that this pass changes are to be noted."""
        found = application.group, application.key, application.occurrence
        return any(switch.covers(*found) for switch in self.watched)


@contextlib.contextmanager
def installed(
    board: Switchboard, *, fallback: Collection[str] = (), undecomposed: Collection[str] = ()
) -> Iterator[None]:
    """Let ``board`` answer for everything that is compiled inside; what compiling leaves in tables is undone.

    Args:
        fallback: overloads, as ``aten.erf.default``, that Inductor is made to call instead of lowering them.
        undecomposed: overloads that are taken out of Inductor's table of decompositions.
    """
    from torch._inductor.compiler_bisector import CompilerBisector

    def disable_subsystem(cls: Any, backend: str, subsystem: str, debug_info: Callable[[], str] | None = None) -> bool:
        group = _GROUPS.get(subsystem)
        if group is None:
            return False
        return _answer(board, group, debug_info)

    ours: dict[str, Any] = {
        "disable_subsystem": classmethod(disable_subsystem),
        "get_backend": classmethod(lambda cls: None),
        "get_subsystem": classmethod(lambda cls: None),
        "get_config_change": classmethod(lambda cls, name: None),
        "bisection_enabled": True,  # keeps compiled graphs out of Inductor's cache, and cached ones out of here
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(CompilerBisector, **ours))
        stack.enter_context(_observed_passes(board))
        stack.enter_context(_switched_patterns(board))
        stack.enter_context(_tables_restored())
        from torch._inductor import graph
        from torch._inductor.decomposition import decompositions, fast_random_decomps
        from torch._inductor.lowering import make_fallback

        # what is not decomposed falls back, which is refused for an operator that the table has
        stack.enter_context(mock.patch.object(graph, "make_fallback", _overriding(make_fallback)))
        for name in fallback:
            make_fallback(overload(name), warn=False, override_decomp=True)
        for name in undecomposed:
            decompositions.pop(overload(name))
        fast_random_decomps.cache_clear()  # a copy of that table
        stack.callback(fast_random_decomps.cache_clear)
        yield


def _overriding(make_fallback: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: make_fallback(*args, **(kwargs | {"override_decomp": True}))


def overload(name: str) -> Any:
    """The operator's overload called ``aten.erf.default``."""
    namespace, packet, which = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), which)


def _answer(board: Switchboard, group: Group, debug_info: Callable[[], str] | None) -> bool:
    if group == Group.LOWERINGS:
        from torch._inductor.lowering import lowerings

        node = V.graph.current_node
        graph = "backward" if getattr(V.graph, "is_backward", False) else "forward"
        definition = definition_of(lowerings.get(node.target))
        return board.asked(group, str(node.target), [seen(node, graph)], definition)
    key = debug_info() if debug_info is not None else group
    if group == Group.DECOMPOSITION:
        found = _OVERLOAD.search(key)
        name = ".".join((found[1].replace("::", "."), found[2])) if found else key
        trace = fx.traceback.get_current_meta().get("stack_trace") or ""
        return board.asked(group, name, [NodeSeen("", "", name, trace)])
    off = board.asked(group, key)
    if group in PASSES and not off:
        board.running = board.applications[-1]
    return off


def seen(node: fx.Node, graph: str) -> NodeSeen:
    """A node as it is told of."""
    return NodeSeen(graph, node.name, str(node.target), node.meta.get("stack_trace") or "")


_GRAPH_OF = {Group.PRE_GRAD: "dynamo", Group.JOINT: "joint", Group.POST_GRAD: ""}


def _observed_passes(board: Switchboard) -> contextlib.AbstractContextManager[Any]:
    """Note of each pass what function it is, when it ends, and of the watched ones which nodes they changed."""
    apply_graph_pass, apply_gm_pass = GraphTransformObserver.apply_graph_pass, GraphTransformObserver.apply_gm_pass

    def observed(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def apply(self: Any, function: Callable[..., Any]) -> Any:
            if self.subsystem not in PASSES:
                return original(self, function)

            def run(graph: Any) -> Any:
                application = board.running
                if application is None:
                    return function(graph)
                application.definition = definition_of(function)
                before = _signatures(self.gm) if board.watches(application) else None
                result = function(graph)
                if before is not None:
                    application.nodes = _changed(before, _signatures(self.gm), _GRAPH_OF[application.group])
                return result

            board.running = None
            try:
                return original(self, run)
            finally:
                board.running = None

        return apply

    changed: dict[str, Any] = {"apply_graph_pass": observed(apply_graph_pass), "apply_gm_pass": observed(apply_gm_pass)}
    return mock.patch.multiple(GraphTransformObserver, **changed)


def _signatures(gm: fx.GraphModule) -> dict[str, tuple[str, fx.Node]]:
    return {node.name: (f"{node.target} {node.args} {node.kwargs}", node) for node in gm.graph.nodes}


def _changed(
    before: Mapping[str, tuple[str, fx.Node]], after: Mapping[str, tuple[str, fx.Node]], graph: str
) -> list[NodeSeen]:
    """Nodes that are new or compute something else, then those that are gone."""
    new = [node for name, (text, node) in after.items() if name not in before or before[name][0] != text]
    gone = [node for name, (_, node) in before.items() if name not in after]
    return [seen(node, graph) for node in [*new, *gone] if node.op != "output"][:_MOST_NODES]


def _switched_patterns(board: Switchboard) -> contextlib.AbstractContextManager[Any]:
    """Ask the board before each replacement that a pattern-matcher pass is about to make."""
    from torch._inductor.pattern_matcher import PatternMatcherPass

    original = PatternMatcherPass.apply

    @functools.wraps(original)
    def apply(self: Any, graph: Any) -> Any:
        entries = {id(entry): entry for found in self.patterns.values() for entry in found}.values()
        checks = [(entry, entry.extra_check) for entry in entries]
        try:
            for entry, check in checks:
                entry.extra_check = functools.partial(_checked, board, entry, check)
            return original(self, graph)
        finally:
            for entry, check in checks:
                entry.extra_check = check

    return mock.patch.object(PatternMatcherPass, "apply", apply)


def _checked(board: Switchboard, entry: Any, check: Callable[[Any], Any], match: Any) -> Any:
    allowed = check(match)
    if not allowed:
        return allowed
    name, definition = pattern_identity(entry, check)
    nodes = [seen(node, "") for node in match.nodes[:_MOST_NODES]]
    return False if board.asked(Group.PATTERNS, name, nodes, definition) else allowed


def pattern_identity(entry: Any, check: Callable[[Any], Any]) -> tuple[str, str]:
    """A pattern's name and the place of its code: the handler, or what is put in the match's place."""
    handler = getattr(entry, "handler", None)
    if handler is None:
        free = inspect.getclosurevars(check).nonlocals if inspect.isfunction(check) else {}
        handler = free.get("replace_fn")
    named = getattr(entry, "pattern_name", None)
    definition = definition_of(handler)
    name = named or definition.partition(" ")[0] or type(entry.pattern).__name__
    return str(name), definition


def definition_of(function: Any) -> str:
    """``name file:line`` of what a callable runs; empty where that can't be told."""
    while isinstance(function, functools.partial):
        function = function.func
    if function is None:
        return ""
    function = inspect.unwrap(function)
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__") and callable(function):
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    return f"{function.__qualname__} {code.co_filename}:{code.co_firstlineno}" if code is not None else ""


@contextlib.contextmanager
def _tables_restored() -> Iterator[None]:
    """Inductor's tables as they were: an operator without a lowering is entered there when it is first met."""
    import torch._inductor.lowering as lowering
    from torch._inductor.decomposition import decompositions

    tables: list[Any] = [lowering.lowerings, lowering.fallbacks, lowering.needs_realized_inputs, decompositions]
    kept = [table.copy() for table in tables]
    try:
        yield
    finally:
        for table, content in zip(tables, kept, strict=True):
            table.clear()
            table.update(content)


@contextlib.contextmanager
def piece_of_a_graph() -> Iterator[None]:
    """Inside, what is compiled is no whole graph of AOTAutograd's: its outputs' strides are not to be reported."""
    context = TracingContext.try_get()
    with contextlib.ExitStack() as stack:
        if context is not None:
            stack.enter_context(mock.patch.object(context, "output_strides", None))
        yield


def patched_options(module: str, options: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
    """A configuration module of torch's, as ``torch._functorch.config``, with ``options``, restored on exit."""
    config = importlib.import_module(module)
    return config.patch(dict(options))


def inductor_defaults() -> dict[str, Any]:
    """TorchInductor's options as they are now, dotted name → value."""
    return dict(inductor_config.get_config_copy())
