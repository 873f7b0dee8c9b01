"""What flows between boxes: one net for all readers of the same results."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from inductor_debug.stages.graph_pictures.flow import Flow
from inductor_debug.stages.graph_pictures.grouping import Box


@dataclass(frozen=True)
class Net:
    """Results of one box that some others read.

    Attributes:
        source: position of the box that makes them.
        tensors: numbers of the operations that make them.
        targets: positions of the boxes that read exactly these of the source's, in order.
        kept: True where they lead from a joint graph's forward to its backward, which a forward would save.
    """

    source: int
    tensors: tuple[int, ...]
    targets: tuple[int, ...]
    kept: bool = False


def nets(flow: Flow, boxes: Sequence[Box]) -> list[Net]:
    """The nets between boxes of one scope. Symbolic sizes (integers) are no nets."""
    box_of = {number: index for index, box in enumerate(boxes) for number in box.numbers}
    read: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number, target in box_of.items():
        for source in flow.reads[number]:
            if source in box_of and box_of[source] != target and not flow.is_size(source):
                read[box_of[source], target].add(source)
    together: dict[tuple[int, tuple[int, ...], bool], list[int]] = defaultdict(list)
    for (source, target), tensors in sorted(read.items()):
        kept = boxes[target].backward and not boxes[source].backward
        together[source, tuple(sorted(tensors)), kept].append(target)
    return [Net(source, tensors, tuple(targets), kept) for (source, tensors, kept), targets in together.items()]
