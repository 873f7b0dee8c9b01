"""Who executed what a backend was given: the record of it, and what it says in words."""

from dataclasses import dataclass

from inductor_debug.stages.formatting import counted

Count = int | None


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Who executed one step of a compiled case.

    Graphs are those that were called. Forward and backward count apart; a backward that neither this program nor
    TorchInductor made of an AOT graph counts where autograd recorded the forward.

    Attributes:
        backend: the name of what compiled it.
        executor: who is to execute the graphs: ``own``, ``inductor`` or ``torch``, see
            :attr:`stages.backends.adapter.AcceleratorAdapter.executor`. The fields from ``inductor`` on are known of
            ``own`` alone.
        given: graphs that it was given up to the end of the step.
        graphs: those that were called in the step; ``calls``: how often, together.
        inductor: graphs whose results TorchInductor's code computed of what the graph was given.
        inductor_parts: those of which it computed something, and others the rest.
        as_traced: those that the backend gave back unchanged, so that torch executed them.
        torch_operations: operations that torch executed within calls of the remaining graphs, and
            ``graph_operations``: those that these hold. Operations that make or change a tensor count, views do not.
        outside: operations of the forward that torch executed outside of all graphs.
    """

    backend: str
    executor: str
    given: int
    graphs: int
    calls: int
    inductor: Count = None
    inductor_parts: Count = None
    as_traced: Count = None
    torch_operations: Count = None
    graph_operations: Count = None
    outside: Count = None

    @property
    def elsewhere(self) -> str:
        """Why nothing that ran was the backend's own code; empty where something was, or may have been."""
        if self.given and not self.graphs:
            graphs = counted(self.given, "graph")
            return f"{self.backend} was given {graphs}, of which none was called, so that all of the model ran in eager"
        if not self.graphs or (self.inductor or 0) + (self.as_traced or 0) < self.graphs:
            return ""
        return self._in_place()

    @property
    def told(self) -> str:
        """What others executed, as the end of a message; empty where that is nothing."""
        parts = [self._in_place()]
        if self.inductor_parts:
            parts.append(f"TorchInductor executed parts of {_of(self.inductor_parts, self.graphs)} of {self.backend}")
        if self.torch_operations:
            operations = counted(self.torch_operations, "operation")
            within = f"within the code of {self.backend}, whose graphs hold {self.graph_operations}"
            parts.append(f"torch executed {operations} {within}")
        if self.outside:
            parts.append(f"{counted(self.outside, 'operation')} ran in eager outside of all graphs")
        return "".join(f"; {part}" for part in parts if part)

    def _in_place(self) -> str:
        parts = []
        if self.inductor:
            parts.append(f"TorchInductor executed {_of(self.inductor, self.graphs)}")
        if self.as_traced:
            parts.append(f"torch itself executed {_of(self.as_traced, self.graphs)} as traced")
        return f"{' and '.join(parts)} in place of {self.backend}" if parts else ""


def _of(count: int, total: int) -> str:
    if total == 1:
        return "the only graph"
    return f"all {total} graphs" if count == total else f"{count} of {total} graphs"
