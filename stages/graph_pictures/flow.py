"""A graph record as operations by number: who reads whom, which module each belongs to."""

from itertools import takewhile

from inductor_debug.stages.graphs.records import GETITEM, GraphRecord, NodeRecord

Path = tuple[str, ...]
"""A module's path in parts: ``("encoder", "layer", "0")``; empty for the model itself."""

SUMS = ("aten.add.Tensor", "aten.add_.Tensor")
"""What autograd adds gradients up with, where several readers of a tensor give one each."""
CASTS = ("prims.convert_element_type.default", "aten._to_copy.default")
"""What autograd makes of a gradient or a mask in another dtype, with what it reads."""


class Flow:
    """What folding and drawing ask of a record. Operations are its calls, each numbered after those that it reads.

    The order is the record's order, with two exceptions: views of what comes into the graph, and in a joint graph what
    only the backward reads. They come right before their first reader, beside what they belong to.

    Attributes:
        record: the record.
        operations: its calls, ``_operator.getitem`` included.
        number: name → number.
        reads: of each operation the numbers of the operations that it reads, in order.
        readers: of each operation the numbers of those that read it.
        inputs: of each operation the placeholders and attributes that it reads.
        returned: numbers of the operations whose results leave the graph.
        backward: of each operation of a joint graph whether it is behind a tangent, or read by such operations alone;
            False in every other graph, whose kind tells.
        paths: of each operation the module that it is drawn in: its own or, for a sum or a cast of gradients, which
            torch knows no module of, see :meth:`_home`.
    """

    def __init__(self, record: GraphRecord) -> None:
        self.record = record
        self._others = {node.name: node for node in record.nodes if not node.is_call and node.op != "output"}
        self._ends = {name for node in record.nodes if node.op == "output" for name in node.inputs}
        self._order([node for node in record.nodes if node.is_call])
        self._order([self.operations[number] for number in self._late()])
        self.backward = self._backward()
        self.paths = self._paths()

    def _order(self, operations: list[NodeRecord]) -> None:
        self.operations = operations
        self.number = {node.name: number for number, node in enumerate(operations)}
        self.reads = [
            [self.number[name] for name in node.inputs if self.number.get(name, number) < number]
            for number, node in enumerate(operations)
        ]
        self.readers: list[list[int]] = [[] for _ in operations]
        for number, reads in enumerate(self.reads):
            for read in reads:
                self.readers[read].append(number)
        self.inputs = [[self._others[name] for name in node.inputs if name in self._others] for node in operations]
        self.returned = {self.number[name] for name in self._ends if name in self.number}

    def _late(self) -> list[int]:
        """All operations, some as late as can be: see the class."""
        found = list(zip(self._backward(), self._behind(), strict=True))
        late = {number for number, both in enumerate(found) if both == (True, False)}
        for number, node in enumerate(self.operations):
            if node.aliases and self.readers[number] and late.issuperset(self.reads[number]):
                late.add(number)
        order: list[int] = []
        placed: set[int] = set()
        for number in range(len(self.operations)):
            waiting = [] if number in late else [number]
            while waiting:
                missing = [read for read in self.reads[waiting[-1]] if read not in placed]
                if missing:
                    waiting += missing
                    continue
                last = waiting.pop()
                if last not in placed:
                    placed.add(last)
                    order.append(last)
        return order

    def _behind(self) -> list[bool]:
        """Of each operation of a joint graph whether a tangent comes into it."""
        behind: list[bool] = []
        joint = self.record.kind == "joint"
        for reads, inputs in zip(self.reads, self.inputs, strict=True):
            behind.append(joint and (any(node.role == "tangent" for node in inputs) or any(behind[i] for i in reads)))
        return behind

    def _backward(self) -> list[bool]:
        found = self._behind()
        for number in reversed(range(len(found))):
            readers = self.readers[number]
            if readers and number not in self.returned and all(found[reader] for reader in readers):
                found[number] = not self.is_item(number)
        return found

    def _paths(self) -> list[Path]:
        paths: list[Path] = []
        for number, node in enumerate(self.operations):
            path, reads = parts(node.module), self.reads[number]
            gradients = self.record.kind == "backward" or self.backward[number]
            if not path and gradients and reads:
                if node.target in SUMS:
                    path = self._home([paths[read] for read in reads])
                elif node.target in CASTS:
                    path = paths[reads[0]]
            paths.append(path)
        return paths

    @staticmethod
    def _home(paths: list[Path]) -> Path:
        """The module in which a tensor had the readers whose gradients are added.

        It is the innermost module that made all the gradients. But it lies within the innermost numbered module (a
        layer of many) that made the last of them. What comes from the layer above has only passed along a residual
        connection.
        """
        together, last = common(paths), paths[-1]
        numbered = [depth for depth in range(1, len(last)) if last[depth - 1].isdigit()]
        return last[: numbered[-1]] if numbered and numbered[-1] > len(together) else together

    def is_item(self, number: int) -> bool:
        """True where the operation only takes one of another's several results."""
        reads = self.reads[number]
        return (
            self.operations[number].target == GETITEM and len(reads) == 1 and len(self.operations[reads[0]].outputs) > 1
        )

    def is_size(self, number: int) -> bool:
        """True where the operation makes an integer (a symbolic size) and no tensor."""
        node = self.operations[number]
        return node.value is not None and not node.outputs

    def placeholder(self, role: str) -> list[NodeRecord]:
        """The placeholders of a role."""
        return [node for node in self.record.nodes if node.op == "placeholder" and node.role == role]


def parts(path: str) -> Path:
    """``"layer1.0"`` → ``("layer1", "0")``."""
    return tuple(part for part in path.split(".") if part)


def common(paths: list[Path]) -> Path:
    """The longest path that all begin with."""
    together = takewhile(lambda pair: pair[0] == pair[1], zip(min(paths), max(paths), strict=False))
    return tuple(part for part, _ in together)
