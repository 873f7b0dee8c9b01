"""The backend ``acme``: what the chip can do, its decompositions, and its compiler."""

import ctypes
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from acme_npu.device import register
from inductor_debug import (
    AccelConfig,
    AcceleratorAdapter,
    GraphRecord,
    Profile,
    Violation,
    Violations,
    validate_profile,
)

log = logging.getLogger(__name__)

FAILURES = ("none", "compile_error", "crash", "wrong_kernel")
aten = torch.ops.aten
MATRIX_UNIT = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default)


class AcmeCompileError(RuntimeError):
    """The chip's compiler gave up on a graph."""


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """The chip has a unit for erf and one for tanh, and none for GELU."""
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))


class AcmeAdapter(AcceleratorAdapter):
    """The chip behind the door. Its arguments are ``backend.options``.

    Args:
        fail: what goes wrong on request, one of :data:`FAILURES`.
        lanes: width of the vector unit, in elements.
        programs: matrix multiplications that one program may hold.
    """

    name = "acme"
    decompositions: Mapping[Any, Callable[..., Any]] = {aten.gelu.default: gelu}

    def __init__(self, fail: str = "none", lanes: int = 8, programs: int = 1000) -> None:
        if fail not in FAILURES:
            raise ValueError(f"fail is {fail!r}, not one of {', '.join(FAILURES)}")
        self.fail, self.lanes, self.programs = fail, lanes, programs
        register()

    def capabilities(self) -> Profile:
        """What can be said as data: any rule of ``accel``."""
        return validate_profile(AccelConfig(name="acme", alignment=self.lanes))

    def check(self, graph: GraphRecord) -> Violations:
        """What can't: a graph is one program, which holds so many matrix multiplications."""
        found = super().check(graph)
        names = {str(operation) for operation in MATRIX_UNIT}
        beyond = [node for node in graph.nodes if node.target in names][self.programs :]
        rows = [self._program_full(graph, node) for node in beyond]
        return replace(found, rows=(*found.rows, *rows))

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """Forward and backward come here apart, decomposed. This compiler makes one launch of the whole graph."""
        if self.fail == "compile_error":
            raise AcmeCompileError(f"ACME-E042: no schedule for a graph of {len(gm.graph.nodes)} nodes")
        operations = dict.fromkeys(str(node.target) for node in gm.graph.nodes if node.op == "call_function")
        log.info("acme: a graph of %s", ", ".join(operations))
        run = _WrongMatrixUnit(gm).run if self.fail == "wrong_kernel" else gm.forward

        def launch(*inputs: Any) -> Sequence[Any]:
            if self.fail == "crash":
                ctypes.string_at(0)  # the kernel reads address 0
            return run(*inputs)

        return launch

    def _program_full(self, graph: GraphRecord, node: Any) -> Violation:
        source = f"{node.source.file}:{node.source.line}" if node.source else ""
        return Violation(
            graph=graph.id, node=node.name, target=node.target, operand="output", module=node.module or "",
            source=source, rule="custom", effect="fallback", severity="error", measured=str(self.programs + 1),
            limit=str(self.programs), cost_bytes=None, cost_share=None,
            message=f"an acme program holds {self.programs} matrix multiplications", suggestion="split the graph",
        )  # fmt: skip


class _WrongMatrixUnit(fx.Interpreter):
    """The graph with every matrix multiplication 1 % too large."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        result = super().call_function(target, args, kwargs)
        return result * 1.01 if target in MATRIX_UNIT else result


def acme_backend(gm: fx.GraphModule, example_inputs: Sequence[Tensor], **options: Any) -> Callable[..., Any]:
    """``torch.compile(model, backend="acme")``; ``options={"fail": ...}`` are the adapter's arguments."""
    return AcmeAdapter(**(options.get("options") or {})).dynamo_backend()(gm, example_inputs)
