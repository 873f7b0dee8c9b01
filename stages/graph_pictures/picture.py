"""A graph record as an SVG picture."""

from collections.abc import Mapping, Sequence

from inductor_debug.stages.formatting import counted
from inductor_debug.stages.graph_pictures.flow import Flow
from inductor_debug.stages.graph_pictures.grouping import BUDGET, SMALL, Box, all_boxes, fold
from inductor_debug.stages.graph_pictures.labels import WORST_FIRST, Findings, Words, amount
from inductor_debug.stages.graph_pictures.scene import INPUTS, Composer
from inductor_debug.stages.graph_pictures.svg import Heading, Writer
from inductor_debug.stages.graphs.records import GraphRecord

KINDS = {
    "dynamo": "what Dynamo captured", "joint": "forward and backward before they are parted",
    "forward": "AOTAutograd's forward", "backward": "AOTAutograd's backward",
}  # fmt: skip
FILES = (".py", ".json")
EMPTY = "This graph has no operation: what it returns, it was given."


def draw_graph(
    record: GraphRecord,
    findings: Findings | None = None,
    *,
    budget: int = BUDGET,
    small: int = SMALL,
    page: bool = False,
    what: str = "",
    files: Sequence[str] = (),
    notes: Mapping[str, str] | None = None,
) -> str:
    """An SVG picture of a graph: top to bottom, what is read above what reads it.

    Operations are folded to boxes by module; see :mod:`stages.graph_pictures.grouping`. Each operation is in the
    ``data-nodes`` (a JSON list) of exactly one box. The same record gives the same text.

    Args:
        record: the graph, captured or read from ``capture/graphs/<id>.json``.
        findings: node name → (effect, message); boxes with one are outlined in the effect's color and say so.
        budget: boxes that folding may leave, those inside frames included.
        small: a graph of fewer operations is drawn operation by operation.
        page: for inside HTML: without XML's namespace, and without links to the record's files.
        what: what the graph is, for the heading; by default what capture calls its kind.
        files: names of files beside the picture that hold the same graph; by default those of a captured one.
        notes: node name → what else a tooltip says of it.

    Returns:
        The document, UTF-8 without a declaration.
    """
    flow = Flow(record)
    words = Words(flow, findings or {}, notes or {})
    if not flow.operations:
        return Writer(words, [record.id, EMPTY], page=page).write(None)
    boxes = fold(flow, budget, small)
    head = _head(flow, words, boxes, what)
    if not page:
        names = files or [f"{record.id}{ending}" for ending in FILES]
        head.insert(2, [(name, name) for name in names])
    return Writer(words, head, page=page).write(Composer(flow, words).scene(boxes))


def _head(flow: Flow, words: Words, boxes: list[Box], what: str) -> list[Heading]:
    record = flow.record
    calls = sum(node.is_call and not flow.is_item(number) for number, node in enumerate(flow.operations))
    flops = words.flops(range(len(flow.operations)))
    drawn = sum(not box.inside for box in all_boxes(boxes))
    by_module = f" in {drawn} boxes, folded by module" if drawn < calls else ", each a box"
    counts = f"{counted(calls, 'operation')}{by_module}" + (f"; {amount(flops)}FLOP" if flops else "")
    lines: list[Heading] = [f"{record.id}: {what or KINDS.get(record.kind, record.kind)}", counts + "."]
    lines.append("Parameters, buffers and saved tensors are counted in the boxes that read them;")
    lines.append("what a box returns are results of the graph: outputs, and what a forward saves.")
    if flops:
        lines.append("The darker a box, the more of the graph's FLOPs.")
    if any(box.backward for box in boxes):
        lines.append("Dashed: the backward, and what the forward keeps for it.")
    if len([node for node in record.nodes if node.op == "placeholder" and node.role in ("input", "tangent")]) > INPUTS:
        lines.append("There are too many inputs to draw each.")
    if record.symbols or any(flow.is_size(number) for number in range(len(flow.operations))):
        hints = {name: symbol.get("hint") for name, symbol in sorted(record.symbols.items())[:8]}
        sizes = ", ".join(f"{name} = {'unknown' if hint is None else hint}" for name, hint in hints.items())
        lines.append(f"No lines are drawn for symbolic sizes{f' ({sizes})' if sizes else ''}.")
    if words.findings:
        effects = [effect for effect in WORST_FIRST if any(found == effect for found, _ in words.findings.values())]
        lines.append(f"Outlined: findings against the profile ({', '.join(effects) or 'other'}).")
    return lines
