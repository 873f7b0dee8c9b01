"""Whether float32 on a CUDA device means float32, or TF32: 8 bits of exponent, 10 of mantissa, added up in float32.

torch lets cuDNN's convolutions use TF32 where nobody asks for it, and matrix products where they are told to. Which
convolution does use it depends on the algorithm that cuDNN picks, by shape and memory format. Eager and a compiler that
changes the format then differ by TF32's roundoff in one place and by float32's in another.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from inductor_debug.models.torch_private import allow_tf32, cudnn_allows_tf32

ROUNDOFF = 2.0**-11
"""Unit roundoff of TF32."""


BY_BACKEND = "by backend"
"""The precision of float32 products where torch tells none, for its new names set that of each backend."""


def float32_products() -> str:
    """``torch.get_float32_matmul_precision()``, or :data:`BY_BACKEND` where that raises."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return BY_BACKEND


def set_float32_products(precision: str) -> None:
    """``torch.set_float32_matmul_precision``; nothing for :data:`BY_BACKEND`."""
    if precision != BY_BACKEND:
        torch.set_float32_matmul_precision(precision)


@contextmanager
def tf32_allowed(choice: str) -> Iterator[None]:
    """Let no operation (``none``), convolutions (torch's default) or matrix products too (``all``) use TF32.

    What torch was told before, through its old names or its new ones, is put back on exit.
    """
    cudnn: Any = torch.backends.cudnn
    matmul: Any = torch.backends.cuda.matmul
    before = cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision, matmul.fp32_precision
    convolutions = cudnn_allows_tf32()  # which torch keeps apart from the new names, and raises where they disagree
    products = float32_products()  # torch 2.15 raises it with what allows TF32, and leaves it so
    allow_tf32(convolutions=choice != "none", products=choice == "all")
    try:
        yield
    finally:
        if float32_products() != products:
            set_float32_products(products)
        allow_tf32(convolutions=convolutions, products=None)
        cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision, matmul.fp32_precision = before
