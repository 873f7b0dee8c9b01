"""Does the verdict hang on eager's kernels? They are replaced by better and by worse right ones, on either side.

A step is run by four kinds of kernels, which are right and round otherwise. Nothing of the tool is used for them but
the list of decompositions.

- ``eager``: torch's own.
- ``wide``: each operation in float64, its results rounded once.
- ``plain``: operations decomposed; sums and products added one term after another in float32.
- ``split``: products, convolutions and sums in four parts, which are added in float32.

Each is the reference, and each other one is judged by it, as it is and with a planted error: of 0.1 % in float32, of
``STEPS`` times the noise of the four in bfloat16. It is in the first output, and in training in the gradient of the
last weight too, each tensor for itself. What is right has to pass, whatever the reference, and an error has to be a
defect.

Usage: ``python tests/trials/replaced_kernels.py [--model resnet18 bert ssm] [--mode inference training]
[--dtype float32 bfloat16] [--json FILE]``. Prints a line a judgement and one a case: how many tensors passed, the
largest error over its floor of what is right, and the least of what is planted (the limit is 4). Exit code 1 where a
verdict is another.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "performance"), str(TESTS / "stages")]

from detection import BUILDS  # noqa: E402
from kept_draws import kept_draws  # noqa: E402
from plain_sums import Decomposed  # noqa: E402

from inductor_debug.models.build import build_case  # noqa: E402
from inductor_debug.models.config import ModelConfig  # noqa: E402
from inductor_debug.stages.contract import MemoryArtifacts, StageContext  # noqa: E402
from inductor_debug.stages.kerneldiff.bias import BiasedFloor  # noqa: E402
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig  # noqa: E402
from inductor_debug.stages.kerneldiff.diff import projected_noise  # noqa: E402
from inductor_debug.stages.kerneldiff.evidence import Evidence  # noqa: E402
from inductor_debug.stages.kerneldiff.other_rounding import OtherRounding  # noqa: E402
from inductor_debug.stages.kerneldiff.reviews import reviewed  # noqa: E402
from inductor_debug.stages.numerics.comparison import KernelDiff  # noqa: E402
from inductor_debug.stages.numerics.records import TensorComparison  # noqa: E402
from inductor_debug.stages.numerics.verdict import Reason  # noqa: E402
from inductor_debug.stages.settings import Settings  # noqa: E402
from inductor_debug.stages.sides import running as sides  # noqa: E402
from inductor_debug.stages.sides.gold import gold_side  # noqa: E402
from inductor_debug.stages.sides.mirrored import one_step  # noqa: E402

aten = torch.ops.aten
NARROW = (torch.float32, torch.bfloat16)
SHARE = 1e-3
"""The planted error in float32, as a share of the tensor."""
STEPS = 16
"""The planted error in bfloat16, in RMS distances from gold of the kernels that are farthest from it."""
PARTS = 4
"""Of a sum in ``split``."""


class Wide(TorchDispatchMode):
    """Each operation that writes nothing and draws nothing in float64; its results are rounded once, to nearest."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        aliased = any(returned.alias_info is not None for returned in func._schema.returns)
        if aliased or func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
            return result
        if not any(tensor.dtype in NARROW for tensor in given):
            return result
        try:
            exact = func(*pytree.tree_map(_wide, args), **pytree.tree_map(_wide, kwargs))
        except (RuntimeError, TypeError, ValueError):  # it lacks float64
            return result
        leaves, form = pytree.tree_flatten(result)
        rounded = [_rounded(leaf, other) for leaf, other in zip(leaves, pytree.tree_leaves(exact), strict=True)]
        return pytree.tree_unflatten(rounded, form)


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in NARROW:
        return value.double()
    return torch.float64 if value in NARROW else value


def _rounded(leaf: Any, exact: Any) -> Any:
    narrow = isinstance(leaf, torch.Tensor) and leaf.dtype in NARROW and isinstance(exact, torch.Tensor)
    return torch.empty_like(leaf).copy_(exact) if narrow else leaf


class Products(Decomposed):
    """Decomposed operations with sums one term after another, products and convolutions too.

    Args:
        parts: given, sums are added in so many parts in place of one term after another, and nothing is decomposed.
    """

    def __init__(self, parts: int | None = None) -> None:
        super().__init__()
        self.parts = parts

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        own = _OWN.get(func)
        if own is not None and args[0].dtype in NARROW:
            result = own(self, *args, **kwargs)
            if result is not None:
                return result
        if self.parts is not None:
            return func(*args, **kwargs)
        return super().__torch_dispatch__(func, types, args, kwargs)

    def product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """``left @ right`` in float32, [..., m, k] and [..., k, n]."""
        left, right = left.float(), right.float()
        terms = left.shape[-1]
        step = 1 if self.parts is None else max(1, math.ceil(terms / self.parts))
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        total = left.new_zeros(*batch, left.shape[-2], right.shape[-1])
        for first in range(0, terms, step):
            one, other = left[..., first : first + step], right[..., first : first + step, :]
            total = total.addcmul_(one, other) if step == 1 else total.add_(one @ other)
        return total

    def sum(self, x: torch.Tensor, dims: Any, keepdim: bool) -> torch.Tensor | None:
        """In parts along the first dimension that is summed over; None where it has too few elements for that."""
        dims = [dims] if isinstance(dims, int) else list(dims or range(x.dim()))
        if self.parts is None or not dims or x.shape[dims[0]] < 2 * self.parts:
            return None
        parts = x.float().tensor_split(self.parts, dims[0])
        total = parts[0].sum(dims, keepdim)
        for part in parts[1:]:
            total = total + part.sum(dims, keepdim)
        return total


def _mm(mode: Products, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return mode.product(left, right).to(left.dtype)


def _addmm(
    mode: Products, bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    return (bias.float() * beta + mode.product(left, right) * alpha).to(left.dtype)


def _sum(mode: Products, x: torch.Tensor, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    total = mode.sum(x, dims, keepdim)
    return None if total is None else total.to(dtype or x.dtype)


def _mean(mode: Products, x: torch.Tensor, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    total = mode.sum(x, dims, keepdim)
    return None if total is None else (total * (total.numel() / x.numel())).to(dtype or x.dtype)


def _convolution(
    mode: Products, x: torch.Tensor, weight: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> torch.Tensor | None:  # fmt: skip
    """As a product, of two spatial dimensions and one group; None of any other."""
    if x.dim() != 4 or transposed or groups != 1:
        return None
    columns = functional.unfold(x.float(), weight.shape[2:], dilation, padding, stride)
    shape = aten.convolution.default(
        x[:1, :1].to("meta"), weight[:1, :1].to("meta"), None, stride, padding, dilation, False, output_padding, 1
    ).shape[2:]
    found = mode.product(weight.flatten(1), columns).view(x.shape[0], weight.shape[0], *shape)
    return (found if bias is None else found + bias.float().view(-1, 1, 1)).to(x.dtype)


def _convolution_backward(
    mode: Products, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, sizes: Any, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    if x.dim() != 4 or transposed or groups != 1 or mask[2]:
        return None
    kernel, rows = weight.shape[2:], grad.float().flatten(2)
    columns = functional.unfold(x.float(), kernel, dilation, padding, stride)
    back = mine = None
    if mask[0]:
        spread = mode.product(weight.flatten(1).T, rows)
        back = functional.fold(spread, x.shape[2:], kernel, dilation, padding, stride).to(x.dtype)
    if mask[1]:
        places = rows.transpose(0, 1).flatten(1), columns.transpose(0, 1).flatten(1).T
        mine = mode.product(*places).view(weight.shape).to(weight.dtype)
    return back, mine, None


_OWN: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _mm,
    aten.bmm.default: _mm,
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _addmm,
    aten.sum.dim_IntList: _sum,
    aten.mean.dim: _mean,
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
}
KERNELS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "eager": nullcontext,
    "wide": Wide,
    "plain": Products,
    "split": lambda: Products(PARTS),
}


@dataclass
class Line:
    """One judgement.

    Attributes:
        planted: kind, path and size of the error, as a share of the tensor; empty where the test side is right.
        rows: tensors; passed: of them; by_other: those that other rounding let pass.
        most, least: of their errors over their floors.
    """

    model: str
    mode: str
    dtype: str
    reference: str
    test: str
    planted: str
    rows: int
    passed: int
    by_other: int
    most: float
    least: float
    failed: list[str]
    seconds: float

    @property
    def right(self) -> bool:
        return self.passed == (0 if self.planted else self.rows)

    def __str__(self) -> str:
        told = f"{self.model} {self.mode} {self.dtype} {self.test:5} by {self.reference:5} {self.planted:32}"
        found = f"{self.passed} of {self.rows} passed, {self.by_other} by other rounding; {self.least:.3g} to "
        other = "" if self.right else f"; ANOTHER VERDICT {self.failed[:3]}"
        return f"{told} {found}{self.most:.3g} floors, {self.seconds:.0f} s{other}"


class Study:
    """One case, its steps by each kind of kernels, and gold."""

    def __init__(self, model: str, mode: str, dtype: str) -> None:
        self.names = (model, mode, dtype)
        config = ModelConfig(model, BUILDS[model])
        self.case = build_case(config, mode=mode, dtype=dtype, device="cpu", seed=0)
        self.context = StageContext(Settings(config, mode=mode, dtype=dtype), MemoryArtifacts(), {"case": self.case})
        self.sides = {name: self._ran(name, kernels) for name, kernels in KERNELS.items()}
        self.gold = gold_side(self.case, wanted=True, drew=self.sides["eager"].drew)
        if self.gold.error:
            raise RuntimeError(self.gold.error["message"])
        for side in self.sides.values():
            sides.keep_changed(self.case, self.sides["eager"], side, self.gold)

    def _ran(self, name: str, kernels: Callable[[], AbstractContextManager[Any]]) -> sides.Side:
        began = time.monotonic()
        with kernels():
            side = one_step(name, self.case)
        if side.error:
            raise RuntimeError(side.error["traceback"])
        print(f"{' '.join(self.names)}: a step by {name} took {time.monotonic() - began:.1f} s", flush=True)
        return side

    def planted(self) -> list[tuple[str, str]]:
        """Kind and path of the tensors that get an error."""
        found = [(kind, path) for kind, path, _ in self._floating("output")][:1]
        return found + [(kind, path) for kind, path, leaf in self._floating("gradient") if leaf.ndim > 1][-1:]

    def _floating(self, kind: str) -> list[tuple[str, str, torch.Tensor]]:
        leaves = self.gold.leaves.get(kind, {}).items()
        return [
            (kind, path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        ]

    def error(self, kind: str, path: str) -> float:
        """The size of a planted error, as a share of the tensor."""
        if self.case.dtype == torch.float32:
            return SHARE
        gold = self.gold.leaves[kind][path]
        apart = [(side.leaves[kind][path].double() - gold).norm() / gold.norm() for side in self.sides.values()]
        return STEPS * float(max(apart))

    def judged(self, reference: str, test: str, place: tuple[str, str] | None) -> Line:
        """A test side as it is; or, with an error, the one tensor that has it."""
        began, told = time.monotonic(), ""
        mine, theirs, gold = (replace(side) for side in (self.sides[reference], self.sides[test], self.gold))
        if place:
            kind, path = place
            size = self.error(kind, path)
            told = f"{100 * size:.2g} % {kind} {path[:16]}"
            leaf = theirs.leaves[kind][path]
            torch.manual_seed(0)
            noise = (
                torch.randn(leaf.shape, dtype=torch.float64)
                * size
                * self.gold.leaves[kind][path].square().mean().sqrt()
            )
            theirs.leaves = {kind: {path: (leaf.double() + noise).to(leaf.dtype)}}
            mine.leaves, gold.leaves = ({kind: {path: side.leaves[kind][path]}} for side in (mine, gold))
        difference = KernelDiff(roundoff=self.case.unit_roundoff)
        for kind in theirs.leaves:
            noise_of_loss = projected_noise(difference.rows) if kind == "loss" and not theirs.own_loss else None
            found = (side.leaves.get(kind, {}) for side in (mine, theirs, gold))
            difference.compare_leaves(*found, kind=kind, noise=noise_of_loss)
        none: Any = None
        evidence = Evidence(self.context, KernelDiffConfig(), self.case, self.case, mine, theirs, gold, none, none)
        done = reviewed((OtherRounding(), BiasedFloor()), evidence, difference.rows)
        return self._line(reference, test, told, difference.rows, len(done.changes), time.monotonic() - began)

    def _line(
        self, reference: str, test: str, planted: str, rows: Sequence[TensorComparison], changes: int, seconds: float
    ) -> Line:
        failed = [f"{row.kind} {row.path}: {row.message}" for row in rows if row.failed]
        ratios = [row.ratio for row in rows if row.ratio is not None and row.bound != "conditioning"]
        other = sum(row.reason in (Reason.OTHER_ROUNDING, Reason.JUMP) and not row.failed for row in rows)
        return Line(
            *self.names, reference, test, planted, len(rows), len(rows) - len(failed), other,
            max(ratios, default=0.0), min(ratios, default=0.0), failed, seconds,
        )  # fmt: skip


def study(model: str, mode: str, dtype: str, told: Callable[[Line], None]) -> list[Line]:
    """All judgements of one case."""
    case = Study(model, mode, dtype)
    lines = []
    with kept_draws(case.case):
        for place in (None, *case.planted()):
            for reference in KERNELS:
                for test in KERNELS:
                    if reference != test:
                        lines.append(case.judged(reference, test, place))
                        told(lines[-1])
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", nargs="+", default=["resnet18", "bert", "ssm"])
    parser.add_argument("--mode", nargs="+", default=["inference", "training"])
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--json", type=Path, help="a file for the lines")
    options = parser.parse_args()
    lines: list[Line] = []

    def told(line: Line) -> None:
        print(line, flush=True)
        lines.append(line)
        if options.json:
            options.json.write_text(json.dumps([asdict(each) for each in lines], indent=1) + "\n")

    for model in options.model:
        for mode in options.mode:
            for dtype in options.dtype:
                found = study(model, mode, dtype, told)
                right, wrong = ([line for line in found if bool(line.planted) == planted] for planted in (False, True))
                print(
                    f"{model} {mode} {dtype}: right kernels passed in {sum(line.right for line in right)} of "
                    f"{len(right)} judgements (at most {max(line.most for line in right):.3g} floors), an error was a "
                    f"defect in {sum(line.right for line in wrong)} of {len(wrong)} (at least "
                    f"{min(line.least for line in wrong):.3g} floors)",
                    flush=True,
                )
    return int(not all(line.right for line in lines))


if __name__ == "__main__":
    sys.exit(main())
