"""What a picture says: the lines in a box, on a line, in a tooltip."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from inductor_debug.stages.drawing import shorten
from inductor_debug.stages.formatting import counted, human_bytes, place
from inductor_debug.stages.graph_pictures.flow import Flow, Path
from inductor_debug.stages.graph_pictures.grouping import Box, targets
from inductor_debug.stages.graphs.records import NodeRecord, TensorRecord

MOST = 40
"""Characters in a line of a box."""
LISTED = 24
"""Operations in a tooltip, by name."""
WORST_FIRST = ("reject", "fallback", "copy", "cast", "pad")
"""Effects of findings, the worst first; any other comes last."""

Findings = Mapping[str, tuple[str, str]]
"""Node name → (effect, message) of what a check found there."""


def cells(text: str) -> int:
    """Columns that a text takes in a monospaced font."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def fitted(text: str, most: int = MOST) -> str:
    """A text of at most so many columns; what is missing is missing in the middle."""
    found = shorten(text, most)
    while cells(found) > most:
        found = shorten(text, len(found) - 1)
    return found


def tensor_words(tensor: TensorRecord) -> str:
    """``1×128×768 float32``; of a scalar ``scalar float32``."""
    return f"{'×'.join(str(size) for size in tensor.shape) or 'scalar'} {tensor.dtype}"


def amount(value: float) -> str:
    """Three digits and a decimal prefix: ``7.09 M``."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5:
            return f"{value:.3g} {prefix}".rstrip()
        value /= 1000
    return f"{value:.3g} P"


def short_target(target: str) -> str:
    """``aten.addmm.default`` → ``addmm``, ``mylib.op.default`` → ``mylib.op``, a Python callable's own name."""
    names = target.split(".")
    if names[0] in ("aten", "prims") and len(names) > 1:
        return names[1]
    if len(names) == 3 and names[2] == "default":
        return f"{names[0]}.{names[1]}"
    return names[-1] or target


def dotted(path: Path, scope: Path = ()) -> str:
    """A module's path, without that of the module that it is shown in."""
    inner = path[len(scope) :] if path[: len(scope)] == scope and len(path) > len(scope) else path
    return ".".join(inner)


class Words:
    """Texts about boxes of one graph. ``notes``: node name → what else its tooltip line says."""

    def __init__(self, flow: Flow, findings: Findings, notes: Mapping[str, str] | None = None) -> None:
        self.flow, self.findings, self.notes = flow, findings, notes or {}

    def title(self, box: Box, scope: Path = ()) -> str:
        """The first line: which module, or which operation."""
        only = self._only(box)
        if only is not None and not box.whole:
            return short_target(only.target)
        if box.span is not None and len(box.paths) == 1:
            return f"operations {box.span[0] + 1} … {box.span[1] + 1}"
        if box.paths:
            return f"{dotted(box.paths[0], scope)} … {dotted(box.paths[-1], box.paths[0][:-1])}"
        return dotted(box.path, scope) or "the model"

    def lines(self, box: Box, scope: Path = ()) -> list[str]:
        """The lines under the title of a closed box."""
        only = self._only(box)
        found = []
        if only is not None:
            found += [dotted(box.path, scope) if not box.whole else short_target(only.target)] if box.path else []
            if only.outputs and not self.flow.readers[self.flow.number[only.name]]:  # else a line tells
                found.append(tensor_words(only.outputs[0]))
            found += [f"visit {box.visit}"] if box.visit else []
        else:
            found += _packed([self._count(box), self._targets(box)], ": ")
            found += [self._lines_of_code(box)] if box.span is not None else []
        return [*filter(None, found), *_packed(self._work(box, bytes_too=only is None) + self._outside(box))]

    def header(self, box: Box, scope: Path = ()) -> list[str]:
        """The lines under the title of a frame."""
        if not box.members:
            return _packed([self._count(box), *self._work(box, bytes_too=True), *self._outside(box)])
        chained = all(
            any(read in previous for number in member for read in self.flow.reads[number])
            for previous, member in zip(map(set, box.members), box.members[1:], strict=False)
        )
        how = "one after the other" if chained else "side by side"
        which = "backward, " if box.backward else ""
        each = counted(self._operations(box.members[0]), "operation")
        return [
            f"{which}{len(box.members)} alike, {how}, {each} each",
            f"below: {dotted(box.paths[0], scope)}; figures here are for all",
            *_packed(self._work(box, bytes_too=True) + self._outside(box), most=60),
        ]

    def tooltip(self, box: Box) -> list[str]:
        """Everything about a box: counts, targets, operations with shapes and source lines."""
        lines = [self.title(box) if self._only(box) is None else dotted(box.path) or "the model"]
        if box.members:
            lines.append(", ".join(dotted(path) for path in box.paths))
        if box.backward:
            lines.append("backward")
        times = len(box.stands) // len(box.numbers)
        lines.append(self._count(box) + (f", in each of {times} modules" if times > 1 else ""))
        known = [number for number in box.numbers if self.flow.operations[number].flops is not None]
        lines.append(f"FLOPs are known of {len(known)} of {len(box.numbers)}")
        lines += [f"{count} × {name}" for name, count in targets(self.flow, box.numbers).most_common(8)]
        lines += [""] + [self.node(self.flow.operations[number]) for number in box.drawn[:LISTED]]
        if len(box.drawn) > LISTED:
            lines.append(f"… and {len(box.drawn) - LISTED} more")
        found = [f"{effect}: {message}" for _, effect, message in self.found(box)]
        return lines + [""] * bool(found) + found[:8] + ["…"] * (len(found) > 8)

    def node(self, node: NodeRecord) -> str:
        """One line about a node."""
        made = ", ".join(tensor_words(tensor) for tensor in node.outputs) or str(node.value or "")
        where = place(str(node.source)) if node.source else ""
        return "  ".join(part for part in (node.name, node.target, made, where, self.notes.get(node.name)) if part)

    def tensors(self, numbers: Sequence[int]) -> str:
        """What a line between boxes carries: shape and dtype where it is one tensor, else how many."""
        made = [tensor for number in numbers for tensor in self.flow.operations[number].outputs]
        if len(made) == 1:
            return tensor_words(made[0])
        return counted(len(made), "tensor") if made else ""

    def found(self, box: Box) -> list[tuple[str, str, str]]:
        """The findings at a box's operations and the parameters that they read, the worst first, as
        (node, effect, message)."""
        if not self.findings:
            return []
        names = [self.flow.operations[number].name for number in box.stands]
        names += [node.name for number in box.stands for node in self.flow.inputs[number]]
        rows = [(name, *self.findings[name]) for name in dict.fromkeys(names) if name in self.findings]
        return sorted(rows, key=lambda row: rank(row[1]))

    def flops(self, numbers: Iterable[int]) -> int:
        """FLOPs of the operations of which they are known."""
        return sum(self.flow.operations[number].flops or 0 for number in numbers)

    def _only(self, box: Box) -> NodeRecord | None:
        """The operation of a box that has one alone, items taken out of its results aside."""
        numbers = [number for number in box.numbers if not self.flow.is_item(number)]
        return self.flow.operations[numbers[0]] if len(numbers) == 1 else None

    def _operations(self, numbers: Iterable[int]) -> int:
        return sum(not self.flow.is_item(number) for number in numbers)

    def _count(self, box: Box) -> str:
        if box.members:
            each = counted(self._operations(box.members[0]), "operation")
            text = f"{len(box.members)} alike, {each} each"
        else:
            own = "" if box.whole or box.span or not box.path else "own "
            text = counted(self._operations(box.numbers), f"{own}operation")
        return ", ".join(["backward"] * box.backward + [f"visit {box.visit}"] * bool(box.visit) + [text])

    def _lines_of_code(self, box: Box) -> str:
        """``net.py:12 … 40``, where all operations come from one file."""
        sources = [node.source for node in (self.flow.operations[number] for number in box.numbers) if node.source]
        if len({source.file for source in sources}) != 1:
            return ""
        lines = [source.line for source in sources]
        file = sources[0].file.rpartition("/")[2]
        return f"{file}:{min(lines)}" + (f" … {max(lines)}" if max(lines) > min(lines) else "")

    def _targets(self, box: Box) -> str:
        """The most frequent calls that make something new; views are left to the tooltip."""
        numbers = [number for number in box.numbers if not self.flow.operations[number].aliases] or box.numbers
        counts: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for number in numbers:
            if not self.flow.is_item(number):
                name = short_target(self.flow.operations[number].target)
                counts[name] += 1
                sizes[name] += sum(tensor.nbytes or 0 for tensor in self.flow.operations[number].outputs)
        words, left = "", False
        for name, count in sorted(counts.items(), key=lambda pair: (-pair[1], -sizes[pair[0]])):
            more = f"{words}{', ' if words else ''}{f'{count} ' if count > 1 else ''}{name}"
            if cells(more) > MOST - 3 and words:
                left = True
            else:
                words = fitted(more)
        return f"{words}, …" if left else words

    def _work(self, box: Box, *, bytes_too: bool) -> list[str]:
        flops = self.flops(box.numbers)
        parts = [f"{amount(flops)}FLOP" if amount(flops)[-1].isalpha() else f"{flops} FLOP"] if flops else []
        made = [
            tensor.nbytes
            for number in box.numbers
            for tensor in self.flow.operations[number].outputs
            if not self.flow.operations[number].aliases and not self.flow.is_item(number)
        ]
        known = [size for size in made if size is not None]
        if bytes_too and known:
            parts.append(("≥ " if len(known) < len(made) else "") + human_bytes(sum(known)) + " made")
        return [" · ".join(parts)] if parts else []

    def _outside(self, box: Box) -> list[str]:
        """Parameters, saved tensors and the graph's own results, which no line is drawn for."""
        read = {node.name: node for number in box.numbers for node in self.flow.inputs[number]}
        lines = []
        weights = [tensor for node in read.values() if node.role == "parameter" for tensor in node.outputs]
        if weights:
            sizes = [tensor.numel for tensor in weights if tensor.numel is not None]
            lines.append(f"{amount(sum(sizes))} parameters")
        for role, words in (("buffer", "buffer"), ("saved", "saved tensor"), ("constant", "constant")):
            lines += self._sum(words, [node for node in read.values() if node.role == role])
        returned = [self.flow.operations[number] for number in box.numbers if number in self.flow.returned]
        return lines + self._sum("result", returned, "returns")

    def _sum(self, words: str, nodes: Sequence[NodeRecord], verb: str = "reads") -> list[str]:
        if not nodes:
            return []
        sizes = [tensor.nbytes for node in nodes for tensor in node.outputs]
        known = [size for size in sizes if size is not None]
        return [f"{verb} {counted(len(nodes), words)}, {human_bytes(sum(known))}"]


def _packed(parts: Sequence[str], joint: str = " · ", most: int = MOST) -> list[str]:
    """Parts in lines, as many on each as there is room for."""
    lines: list[str] = []
    for part in filter(None, parts):
        if lines and cells(lines[-1] + joint + part) <= most:
            lines[-1] += joint + part
        else:
            lines.append(part)
    return lines


def rank(effect: str) -> int:
    """How bad an effect is, 0 the worst."""
    return WORST_FIRST.index(effect) if effect in WORST_FIRST else len(WORST_FIRST)
