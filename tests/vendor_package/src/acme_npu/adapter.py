"""The backends ``acme``: what the chip can do, its decompositions, its compiler; the chip simulated; Dynamo's graph."""

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
    Emulation,
    Findings,
    GraphRecord,
    LoweredKernel,
    Lowering,
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
        fast_erf: take three straight lines for erf.
    """

    name = "acme"
    decompositions: Mapping[Any, Callable[..., Any]] = {aten.gelu.default: gelu}

    def __init__(self, fail: str = "none", lanes: int = 8, programs: int = 1000, fast_erf: bool = False) -> None:
        if fail not in FAILURES:
            raise ValueError(f"fail is {fail!r}, not one of {', '.join(FAILURES)}")
        self.fail, self.lanes, self.programs, self.fast_erf = fail, lanes, programs, fast_erf
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
        return self._program(gm)

    def _program(self, gm: fx.GraphModule) -> "Program":
        return Program(gm, self)

    def lowering(self, compiled: Callable[..., Any]) -> Lowering:
        """Each operation is a kernel of one launch."""
        assert isinstance(compiled, Program)
        calls = [node for node in compiled.module.graph.nodes if node.op.startswith("call_")]
        kernels = [LoweredKernel(f"acme_{node.name}", [node.name], f"; {node.target}", "asm") for node in calls]
        return Lowering({"program.s": "".join(f"launch {kernel.name}\n" for kernel in kernels)}, kernels)

    def switches(self, device: str) -> Mapping[str, Any]:
        tried = {"fast_erf": False, "lanes": 1}
        return {name: value for name, value in tried.items() if getattr(self, name) != value}

    def switched(self, values: Mapping[str, Any]) -> "AcmeAdapter":
        names = ("fail", "lanes", "programs", "fast_erf")
        return type(self)(**{name: getattr(self, name) for name in names} | dict(values))

    def _program_full(self, graph: GraphRecord, node: Any) -> Violation:
        source = f"{node.source.file}:{node.source.line}" if node.source else ""
        return Violation(
            graph=graph.id, node=node.name, target=node.target, operand="output", module=node.module or "",
            source=source, rule="custom", effect="fallback", severity="error", measured=str(self.programs + 1),
            limit=str(self.programs), cost_bytes=None, cost_share=None,
            message=f"an acme program holds {self.programs} matrix multiplications", suggestion="split the graph",
        )  # fmt: skip


class Program(fx.Interpreter):
    """A compiled graph, called with its inputs."""

    def __init__(self, gm: fx.GraphModule, chip: AcmeAdapter) -> None:
        super().__init__(gm)
        self.chip = chip

    def __call__(self, *inputs: Any) -> Any:
        if self.chip.fail == "crash":
            ctypes.string_at(0)  # the kernel reads address 0
        return self.run(*inputs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if self.chip.fast_erf and target is aten.erf.default:
            return args[0].clamp(-1, 1)
        result = super().call_function(target, args, kwargs)
        wrong = self.chip.fail == "wrong_kernel" and target in MATRIX_UNIT
        return result * 1.01 if wrong else result


class AcmeSimulator(AcmeAdapter):
    """The chip simulated on the host: every result is rounded to bfloat16, in which the chip stores numbers."""

    name = "acme_sim"
    roundoff = 2.0**-8

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.findings = Findings()

    def _program(self, gm: fx.GraphModule) -> Program:
        return _Simulated(gm, self, self.record(gm), self.findings)

    def emulation(self) -> Emulation:
        return Emulation("acme", "every result rounded to bfloat16", self.findings)

    def storage_rounding(self) -> AcceleratorAdapter:
        return AcmeSimulator()


class _Simulated(Program):
    def __init__(self, gm: fx.GraphModule, chip: AcmeAdapter, record: GraphRecord, findings: Findings) -> None:
        super().__init__(gm, chip)
        self.record, self.findings = record, findings
        self.nodes = {node.name: node for node in record.nodes}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if not isinstance(result, Tensor) or result.dtype != torch.float32 or n.op == "placeholder":
            return result
        rounded = result.bfloat16().float()
        lost = int(((rounded == 0) & (result != 0)).sum())
        if lost:
            told = f"{lost} of {result.numel()} elements became 0"
            self.findings.add(self.record.id, self.nodes[n.name], "underflow", told, count=lost)
        return rounded


class AcmeTracer(AcmeAdapter):
    """The chip's other compiler, which takes Dynamo's graph."""

    name = "acme_dynamo"
    level = "dynamo"
    decompositions = None


def acme_backend(gm: fx.GraphModule, example_inputs: Sequence[Tensor], **options: Any) -> Callable[..., Any]:
    """``torch.compile(model, backend="acme")``; ``options={"fail": ...}`` are the adapter's arguments."""
    return AcmeAdapter(**(options.get("options") or {})).dynamo_backend()(gm, example_inputs)
