"""A seeded draw over torch's operator database: an operator, a dtype, one sample of its inputs."""

import copy
import itertools
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from inductor_debug.models.gold import double_arithmetic
from inductor_debug.models.nested import map_tensors
from inductor_debug.stages.numerics.structure import flatten

SEED = 0
LOOKED_AT = 24
"""Samples of an operator among which one is drawn."""

KINDS = {
    "floating": (torch.float32, torch.bfloat16, torch.float16, torch.float64),
    "integer": (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32),
    "bool": (torch.bool,),
    "complex": (torch.complex64, torch.complex128),
}
SHARES = {"floating": 6, "integer": 2, "bool": 1, "complex": 1}
"""How often each kind is drawn, for an operator that has it."""

RANDOM = (
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "nn.functional.alpha_dropout",
    "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.multi_head_attention_forward", "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention", "normal", "pca_lowrank", "rand_like", "randint", "randint_like",
    "randn", "randn_like", "svd_lowrank", "uniform",
)  # fmt: skip
UNINITIALIZED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
LEFT_OUT = dict.fromkeys(
    RANDOM, "random numbers: the database seeds them in a wrapper that Dynamo can't trace"
) | dict.fromkeys(UNINITIALIZED, "memory that nobody wrote")
"""Operator → why a difference between two runs of it would say nothing."""
NOT_ON_THE_CPU = "jiterator_"
"""Start of the names of operators that the database lists and that run on a GPU alone."""
NO_GOLD = {
    "as_strided_partial_views": "a view beyond its own elements, which a copy in another dtype does not have",
    "hash_tensor": "its result is of its input's bits, not of its values",
}
"""Operator with its variant → why its result in float64 says nothing of its result in another dtype."""

NOT_REPRODUCIBLE = {"linalg.lstsq": "LAPACK's gelsy gives other last bits in two calls on equal inputs"}
"""Operator → why eager against itself is within the floor, not exact."""


@dataclass(frozen=True)
class Drawn:
    """One draw: ``op`` on copies of ``input``, ``args`` and ``kwargs``, in ``dtype``."""

    op: Any
    dtype: torch.dtype
    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.op.formatted_name}-{str(self.dtype).removeprefix('torch.')}"

    def inputs(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Fresh copies, so that an operator that writes to its inputs leaves the draw alone."""
        copied: tuple[Any, tuple[Any, ...], dict[str, Any]] = map_tensors(_copied, (self.input, self.args, self.kwargs))
        return copied

    def eager(self) -> Any:
        input, args, kwargs = self.inputs()
        with torch.no_grad():
            return self.op(input, *args, **kwargs)

    def gold(self) -> Any:
        """The result in float64 or complex128; None where the operator does not support it or has integer inputs."""
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            return None
        wide = torch.complex128 if self.dtype.is_complex else torch.float64
        if wide not in self.op.supported_dtypes("cpu") or self.op.formatted_name in NO_GOLD:
            return None
        input, args, kwargs = map_tensors(_double, self.inputs())
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(double_arithmetic())
            return self.op(input, *args, **kwargs)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with its strides and all of its storage; of a sparse tensor, its values."""
    return copy.deepcopy(tensor.detach()) if tensor.layout == torch.strided else tensor.detach().clone()


def _double(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def operators() -> list[Any]:
    """Operators of the database that run on the CPU, left-out ones included."""
    return [op for op in op_db if kinds_of(op) and not op.name.startswith(NOT_ON_THE_CPU)]


def kinds_of(op: Any) -> dict[str, list[torch.dtype]]:
    """Kind → dtypes that ``op`` has on the CPU; kinds without any are missing."""
    supported = op.supported_dtypes("cpu")
    found = {kind: [dtype for dtype in dtypes if dtype in supported] for kind, dtypes in KINDS.items()}
    return {kind: dtypes for kind, dtypes in found.items() if dtypes}


def draw(seed: int = SEED, kind: str | None = None, every: int = 1) -> Iterator[Drawn]:
    """One sample of each operator that is not left out, in the database's order; of those that have ``kind`` alone.

    ``every``: one operator of so many, the first among them.
    """
    for op in operators()[::every]:
        if op.name not in LEFT_OUT and (kind is None or kind in kinds_of(op)):
            yield draw_one(op, seed, kind)


def draw_one(op: Any, seed: int, kind: str | None = None) -> Drawn:
    """A sample of ``op`` that depends on nothing but the arguments, with a result that has elements where one has."""
    choice = random.Random(f"{seed} {op.formatted_name} {kind}")
    dtypes = kinds_of(op)
    dtype = choice.choice(dtypes[kind or choice.choices(list(dtypes), [SHARES[each] for each in dtypes])[0]])
    torch.manual_seed(choice.randrange(2**31))
    samples = list(itertools.islice(op.sample_inputs("cpu", dtype), LOOKED_AT))
    choice.shuffle(samples)
    candidates = [Drawn(op, dtype, sample.input, sample.args, sample.kwargs) for sample in samples]
    return next((drawn for drawn in candidates if elements(drawn.eager())), candidates[0])


def elements(result: Any) -> int:
    """Numbers in an operator's result."""
    numbers = [leaf for leaf in flatten(result).values() if isinstance(leaf, (torch.Tensor, int, float, complex))]
    return sum(leaf.numel() if isinstance(leaf, torch.Tensor) else 1 for leaf in numbers)


def leaves(result: Any) -> dict[str, Any]:
    """A result's leaves by path, sparse ones dense."""
    found = flatten(result)
    return {
        path: leaf.to_dense() if isinstance(leaf, torch.Tensor) and leaf.layout != torch.strided else leaf
        for path, leaf in found.items()
    }


def wide(gold: dict[str, Any]) -> dict[str, Any]:
    """Without complex32, which no operator supports well enough to be compared with itself as gold."""
    return {path: leaf for path, leaf in gold.items() if getattr(leaf, "dtype", None) != torch.complex32}
