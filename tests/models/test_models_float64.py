"""Operations without a float64 kernel: what gold computes in their place, forward and backward."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from inductor_debug.models.float64 import LacksFloat64, substituted

OFFSETS = torch.tensor([2, 2, 8], dtype=torch.int32)
"""Three groups, of which one is empty."""

SHAPES = {
    "rows in groups": ((8, 16), (3, 16, 24)),
    "columns in groups": ((3, 24, 16), (16, 8)),
    "inner dimension in groups": ((24, 8), (8, 16)),
    "batched": ((3, 8, 16), (3, 16, 24)),
}


@torch.library.custom_op("inductor_debug_tests::single_precision", mutates_args=())
def single_precision(x: torch.Tensor) -> torch.Tensor:
    if x.dtype != torch.float32:
        raise RuntimeError("float32 alone")
    return x * 2


def with_gradients(function: Callable[..., torch.Tensor], *operands: torch.Tensor) -> list[torch.Tensor]:
    """The result, and the gradients of a weighted sum of it."""
    leaves = [operand.detach().requires_grad_() for operand in operands]
    result = function(*leaves)
    weights = torch.linspace(-1, 1, result.numel(), dtype=torch.float64).view(result.shape)
    (result.double() * weights).sum().backward()
    return [result.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", SHAPES)
def test_a_grouped_product_in_float64_differs_by_rounding_alone(form: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    operands = [torch.randn(shape).to(dtype) for shape in SHAPES[form]]
    offsets = None if form == "batched" else OFFSETS
    reference = with_gradients(lambda a, b: F.grouped_mm(a, b, offs=offsets), *operands)
    with substituted():
        gold = with_gradients(
            lambda a, b: F.grouped_mm(a, b, offs=offsets), *(operand.double() for operand in operands)
        )
    assert len(gold) == len(reference) == 3
    for mine, exact in zip(reference, gold, strict=True):
        assert exact.dtype == torch.float64 and exact.shape == mine.shape
        assert (mine.double() - exact).abs().max() <= 4 * torch.finfo(dtype).eps * exact.abs().max()


def test_products_of_narrow_formats() -> None:
    torch.manual_seed(0)
    left, right = (torch.randn(16, 32).to(torch.float8_e4m3fn) for _ in range(2))
    scales = torch.tensor(0.5), torch.tensor(0.25)
    reference = torch._scaled_mm(left, right.t(), *scales, out_dtype=torch.bfloat16)
    weights, rows = torch.randint(-9, 9, (32, 32), dtype=torch.int8), torch.rand(32, dtype=torch.bfloat16)
    packed = torch._weight_int8pack_mm(left.bfloat16(), weights, rows)
    with substituted():
        gold = torch._scaled_mm(left.double(), right.double().t(), *scales, out_dtype=torch.float64)
        unpacked = torch._weight_int8pack_mm(left.double(), weights, rows.double())
    assert gold.dtype == unpacked.dtype == torch.float64
    torch.testing.assert_close(reference.double(), gold, rtol=2**-7, atol=1e-3)
    torch.testing.assert_close(packed.double(), unpacked, rtol=2**-6, atol=0.1)


def test_attention_by_a_kernel_that_has_no_float64() -> None:
    query = torch.randn(1, 2, 4, 8, dtype=torch.float64)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        with pytest.raises(RuntimeError, match=r"No available kernel|No viable backend"):
            F.scaled_dot_product_attention(query, query, query)
        with substituted():
            found = F.scaled_dot_product_attention(query, query, query)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(query, query, query))


def test_what_has_neither_formula_nor_decomposition_is_named() -> None:
    told = "inductor_debug_tests.single_precision.default has no float64: float32 alone"
    with substituted(), pytest.raises(LacksFloat64, match=told):
        single_precision(torch.ones(2, dtype=torch.float64))


def test_an_error_that_is_not_of_float64_stays_what_it_is() -> None:
    with substituted(), pytest.raises(RuntimeError, match="mat1 and mat2") as raised:
        nn.functional.linear(torch.ones(2, 3), torch.ones(2, 4))
    assert not isinstance(raised.value, LacksFloat64)
