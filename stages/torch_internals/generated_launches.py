"""The launches of a generated module: what each computes, reads and writes."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.inductor import LoweredGraph
    from inductor_debug.stages.torch_internals.inductor_scheduler import BufferInfo, ScheduledNode

_KEY = re.compile(r"(?P<kernel>.+):\d+")
_HANDLES = re.compile(r"\[Provenance debug handles\]\s*(?P<launches>.+?)\s*$")
_NAME = re.compile(r"[A-Za-z_]\w*")
_REUSE = re.compile(r"(?P<new>\w+) = (?P<old>.+?);.*(?:#|//) reuse")
_COMMENTS = ("#", "//")
_NEARBY = 40
"""Lines after a handle in which its launch is looked for."""


@dataclass
class Launch:
    """One call of a kernel.

    Attributes:
        kernel, handle: as in the comment before it in the generated module.
        nodes: the post-grad nodes that it computes.
        generated: False for a library's or ATen's function.
        scheduled: what the scheduler had for it; several where TorchInductor puts more than one into a C++ kernel.
        given: the buffers of its statement; ``reused`` those whose memory it has under another name.
        renamed: name of a buffer after a node overwrote it → the buffer.
        copied: buffers that it writes beside what it computes → the buffer whose elements they have, as in another
            layout.
    """

    kernel: str
    handle: str
    nodes: list[str]
    generated: bool
    scheduled: "list[ScheduledNode]" = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    reused: list[str] = field(default_factory=list)
    renamed: Mapping[str, str] = field(default_factory=dict)
    copied: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """``kernel:handle``."""
        return f"{self.kernel}:{self.handle}"

    @property
    def writes(self) -> list[str]:
        """Buffers that it writes, without those that only it sees."""
        written = {name for node in self.scheduled for name in (*node.writes, *node.mutates)}
        results = [name for node in self.scheduled if node.kind == "output" for name in node.writes]
        return list(dict.fromkeys([*(name for name in self.given if name in written), *results]))

    @property
    def reads(self) -> list[str]:
        """Buffers that others wrote."""
        made = {name for node in self.scheduled for name in node.writes}
        names = [name for node in self.scheduled for name in node.reads if name not in made]
        return list(dict.fromkeys(self.renamed.get(name, name) for name in names))


def kernel_of(key: str) -> str:
    """The kernel of ``kernel:handle``; a name without a handle as it is."""
    match = _KEY.fullmatch(key)
    return match["kernel"] if match else key


def is_key(name: str) -> bool:
    """Whether a name is that of a launch, ``kernel:handle``."""
    return _KEY.fullmatch(name) is not None


def mentioned_launches(source_code: str) -> dict[str, int]:
    """``kernel:handle`` → the line, from 1, of the comment that names it; the launch comes after."""
    return {launch: index + 1 for index, launch in _mentioned(source_code.splitlines())}


def find_launches(lowered: "LoweredGraph", generated: Collection[str]) -> list[Launch]:
    """The launches of a lowered graph, in order.

    Inductor names with each launch also nodes that only led to it. Of an external call those are all that went into its
    operands. Of a generated kernel that prepares an operand they are the call that it is for and that call's other
    operands. An external call is told by its name (``extern_kernels.addmm``, ``torch.ops.aten.convolution.default``). A
    generated kernel can't have computed a node whose inputs it does not read.

    Args:
        generated: the kernels that the module defines.
    """
    launches = _recorded(lowered, generated)
    _assign(lowered.schedule.nodes, launches)
    # one that must only run after another, as random operations must, is wrapped: control_deps
    targets = {node.name: node.target if "." in node.target else node.original or node.target for node in lowered.nodes}
    inputs = {node.name: node.inputs for node in lowered.nodes}
    called: set[str] = set()
    named: set[int] = set()
    for launch in launches:
        if not launch.generated:
            own = [name for name in launch.nodes if _calls(launch.kernel, targets[name])]
            own = own or [name for name in launch.nodes if _packet(launch.kernel) == _packet(targets[name])]
            if own:
                launch.nodes = own
                called |= set(own)
                named.add(id(launch))
    origins: Mapping[str, set[str]] = defaultdict(set)
    for buffer in lowered.schedule.buffers.values():
        if buffer.origin:
            origins[buffer.origin].add(buffer.name)
    parts = _parts(lowered.schedule.nodes, lowered.schedule.buffers)
    places = {name: place for place, name in enumerate(inputs)}
    for launch in launches:
        if id(launch) not in named:
            launch.nodes = [name for name in launch.nodes if name not in called]
            if launch.scheduled:
                launch.nodes = _computable(launch, inputs, places, origins, parts)
            launch.copied = _copied(launch, lowered.schedule.buffers, parts)
    return launches


def _copied(
    launch: Launch, buffers: "Mapping[str, BufferInfo]", parts: Mapping[str, Collection[str]]
) -> dict[str, str]:
    """The copies that none of the launch's own nodes asks for: of a weight, say, in the layout that a call needs.

    What it computes and stores only so, in the layout that is needed, is no copy.
    """
    copies = {name: source for node in launch.scheduled for name, source in node.copies.items()}
    made = {name for node in launch.scheduled for name in node.writes}
    stored = [name for name in launch.writes if name in buffers and buffers[name].role == "buffer"]
    found: dict[str, str] = {}
    for name in (name for name in stored if name in copies):
        source = copies[name]
        while source in copies and source not in stored:
            source = copies[source]
        computed = source in made and source not in stored
        if not computed and {buffers[name].origin, *parts.get(name, ())}.isdisjoint(launch.nodes):
            found[name] = source
    return found


def reused_buffers(source_code: str, buffers: Collection[str]) -> dict[str, str]:
    """Buffer → the buffer whose memory it has, as the generated module says it: with its layout, or another one."""
    found = {}
    for match in _REUSE.finditer(source_code):
        old = next((name for name in _NAME.findall(match["old"]) if name in buffers), None)
        if old is not None:
            found[match["new"]] = old
    return found


def _earlier(names: Iterable[str], reuses: Mapping[str, str], placed: Collection[str]) -> list[str]:
    """The names that the memory of these buffers had before, back to one that was given to a launch itself.

    Args:
        names: of the buffers.
        reuses: new name → the one before.
        placed: what any launch is given. In a chain of library calls each buffer has the memory of all before it.
    """
    found: dict[str, None] = {}
    for name in names:
        while name in reuses and reuses[name] not in found and reuses[name] not in placed:
            name = reuses[name]
            found[name] = None
    return list(found)


def _assign(nodes: "list[ScheduledNode]", launches: list[Launch]) -> None:
    """Give each of the scheduler's nodes to the first launch that is given what it makes: readers come later.

    Where no launch is, to the first that has its memory under another name: a C++ kernel may hold several nodes, one of
    which works in place of another's result.
    """
    makers: dict[str, Launch] = {}
    given, reused = _by_buffer(launches, "given"), _by_buffer(launches, "reused")
    for node in nodes:
        if node.kind == "nop":
            continue
        if node.kind == "output":
            maker = next((makers[name] for name in node.reads if name in makers), None)
            if maker is not None:
                maker.scheduled.append(node)
                makers |= dict.fromkeys(node.writes, maker)
            continue
        origins = set(node.origins)
        for written, places in ((node.writes, given), (node.mutates, given), (node.writes, reused)):
            fitting = (
                launches[number]
                for number in sorted({number for name in written for number in places.get(name, ())})
                if _fits(launches[number], node)
                and (not launches[number].nodes or not origins.isdisjoint(launches[number].nodes))
            )
            launch = next(fitting, None)
            if launch is not None:
                launch.scheduled.append(node)
                makers |= dict.fromkeys(node.writes, launch)
                break


def _by_buffer(launches: list[Launch], places: str) -> dict[str, list[int]]:
    """Buffer → the numbers of the launches that have it in their field ``places``."""
    found: dict[str, list[int]] = defaultdict(list)
    for number, launch in enumerate(launches):
        for name in getattr(launch, places):
            found[name].append(number)
    return found


def _recorded(lowered: "LoweredGraph", generated: Collection[str]) -> list[Launch]:
    """The launches with the nodes and the buffers that torch names, not yet with the scheduler's nodes."""
    buffers = lowered.schedule.buffers
    names = {name for node in lowered.schedule.nodes for name in node.writes} | set(buffers)
    given = launch_buffers(lowered.source_code, names)
    reuses = reused_buffers(lowered.source_code, names)
    graphs: Mapping[str, list[str]] = defaultdict(list)
    for node in lowered.nodes:
        graph, slash, name = node.name.rpartition("/")
        graphs[name].append(graph + slash)
    placed = {name for places in given.values() for name in places}
    launches = []
    for key in dict.fromkeys([*lowered.kernel_nodes, *lowered.kernel_stacks]):
        kernel, _, handle = key.rpartition(":")
        places = given.get(key, [])
        own = {buffers[name].graph for name in places if name in buffers}
        nodes = [graph + name for name in lowered.kernel_nodes.get(key, []) for graph in _graph(graphs[name], own)]
        launch = Launch(
            kernel, handle, nodes, kernel in generated, given=places, reused=_earlier(places, reuses, placed)
        )
        launch.renamed = lowered.schedule.renamed
        launches.append(launch)
    return launches


def _graph(graphs: Sequence[str], own: Collection[str]) -> list[str]:
    """The graph whose node a launch means by a name: torch tells names without it. Empty where not known.

    Args:
        graphs: prefixes of those that have a node of that name.
        own: those of the buffers that the launch is given.
    """
    return list(graphs) if len(graphs) == 1 else [graph for graph in graphs if {graph} == set(own)]


def _fits(launch: Launch, node: "ScheduledNode") -> bool:
    """Whether a kernel, or a library's call, may be what a node became: of an autotuned one it may be either."""
    return node.kind == "template" or launch.generated == (node.kind != "extern")


def _calls(kernel: str, target: str) -> bool:
    """Whether an external kernel's name is that of a post-grad node's target, in Python or in C++."""
    operator = target.split(".")[1] if target.count(".") else target
    in_cpp = kernel.startswith("aoti_torch_") and kernel.removesuffix("_out").endswith(f"_{operator}")
    return in_cpp or kernel in (f"extern_kernels.{operator}", f"torch.ops.{target}")


def _packet(name: str) -> str:
    """``aten.sort`` of a node's target ``aten.sort.default`` and of the call ``torch.ops.aten.sort.stable``."""
    return ".".join(name.removeprefix("torch.ops.").split(".")[:2])


def _parts(nodes: "Iterable[ScheduledNode]", buffers: "Mapping[str, BufferInfo]") -> dict[str, set[str]]:
    """Buffer → the nodes of whose outputs it is a part: a concatenation is no kernel, others write into it."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        if node.kind == "nop":
            wholes = {buffers[name].origin for name in node.writes if name in buffers} - {""}
            for name in node.reads:
                found[name] |= wholes
    return found


def _computable(
    launch: Launch,
    inputs: Mapping[str, tuple[str, ...]],
    places: Mapping[str, int],
    origins: Mapping[str, set[str]],
    parts: Mapping[str, set[str]],
) -> list[str]:
    """Those of a launch's nodes whose inputs it reads or computes itself, and the nodes of which it makes parts.

    Of an external call only those whose outputs it makes, where these are buffers.

    Args:
        inputs: post-grad node → what it reads.
        places: post-grad node → its place in the graph.
        origins: node → the buffers that hold its output.
        parts: from :func:`_parts`.
    """
    made = {name for node in launch.scheduled for name in node.writes}
    at_hand = {name for node in launch.scheduled for name in (*node.reads, *node.writes, *node.mutates)}
    at_hand |= {launch.renamed[name] for name in at_hand if name in launch.renamed}
    verdicts: dict[str, bool] = {}

    def has(source: str) -> bool:
        buffers = origins.get(source, set())
        return not at_hand.isdisjoint(buffers) or verdicts.get(source, not buffers)

    for name in sorted({name for name in launch.nodes if name in places}, key=places.__getitem__):
        verdicts[name] = all(map(has, inputs[name]))
    if launch.generated:
        partly = sorted({node for name in made for node in parts.get(name, ()) if node in inputs})
        return list(dict.fromkeys([*(name for name in launch.nodes if verdicts[name]), *partly]))
    return [name for name in launch.nodes if verdicts[name] and not origins.get(name, made).isdisjoint(made)]


def launch_buffers(source_code: str, buffers: Collection[str]) -> dict[str, list[str]]:
    """``kernel:handle`` → the names among ``buffers`` in the statement that launches it, in order."""
    known = set(buffers)
    lines = source_code.splitlines()
    found: dict[str, list[str]] = {}
    for launch, span in launch_statements(lines).items():
        statement = "\n".join(line for line in lines[span.start : span.stop] if not _is_comment(line))
        names = (name.removesuffix("_handle") for name in _NAME.findall(statement))
        found[launch] = list(dict.fromkeys(name for name in names if name in known))
    return found


def launch_statements(lines: Sequence[str]) -> dict[str, range]:
    """``kernel:handle`` → the lines of the statement that launches it; an empty range where there is none nearby.

    The module may be Python, or C++ with TorchInductor's C++ wrapper. In both a comment with the handle stands before
    the statement, with declarations or the choice of a stream between them.
    """
    return {launch: _statement(lines, index + 1, kernel_of(launch)) for index, launch in _mentioned(lines)}


def _mentioned(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    for index, line in enumerate(lines):
        match = _HANDLES.search(line)
        if match is not None:
            yield from ((index, launch) for launch in match["launches"].split(", "))


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith(_COMMENTS)


def _statement(lines: Sequence[str], start: int, kernel: str) -> range:
    """The first statement from line ``start`` on that names the kernel."""
    name = re.escape(kernel)
    # in C++ also as call_KERNEL; an operator without a function of its own there, aoti_torch_cpu_NAME, as "space::NAME"
    dispatched = re.escape(kernel.removeprefix("aoti_torch_").partition("_")[2] or kernel)
    named = re.compile(rf"(?<![A-Za-z0-9]){name}(?!\w)|aoti_torch_call_dispatcher\(\"\w+::{dispatched}\"")
    text, depth, began = "", 0, None
    for index in range(start, min(start + _NEARBY, len(lines))):
        line = lines[index]
        if _HANDLES.search(line):
            break
        if _is_comment(line):
            continue
        began = index if began is None else began
        text += line + "\n"
        depth += line.count("(") - line.count(")")
        if depth <= 0:
            if named.search(text):
                return range(began, index + 1)
            text, depth, began = "", 0, None
    return range(0)
