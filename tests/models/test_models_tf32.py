"""TF32 is allowed where the configuration says so, and torch's own setting is put back."""

from collections.abc import Callable

import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.tf32 import BY_BACKEND, float32_products, set_float32_products, tf32_allowed
from inductor_debug.stages.sides.global_settings import not_default, settings_put_back

cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul


def settings() -> tuple[str, ...]:
    return cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision, matmul.fp32_precision


def allowed() -> tuple[str, ...]:
    """By the new names and the old one, which torch keeps apart: it raises where they disagree."""
    try:
        return (*settings(), str(torch._C._get_cudnn_allow_tf32()))
    except RuntimeError:
        return (*settings(), "refused")


def put_back(outer: tuple[str, ...]) -> None:
    torch._C._set_cudnn_allow_tf32(True)  # torch's default
    cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision, matmul.fp32_precision = outer


def by_new_names() -> None:
    cudnn.conv.fp32_precision, matmul.fp32_precision = "ieee", "tf32"


def by_old_names() -> None:
    torch._C._set_cudnn_allow_tf32(False)  # torch's own test utilities freeze the public names
    torch._C._set_cublas_allow_tf32(True)


@pytest.mark.parametrize("before", [lambda: None, by_new_names, by_old_names])
@pytest.mark.parametrize("choice", ["none", "convolutions", "all"])
def test_the_choice_holds_inside_alone(choice: str, before: Callable[[], None]) -> None:
    outer, oldest = settings(), float32_products()
    try:
        before()
        found = allowed(), float32_products()
        with tf32_allowed(choice):
            assert (cudnn.allow_tf32, matmul.allow_tf32) == (choice != "none", choice == "all")
        assert allowed() == found[0] and found[1] in (float32_products(), BY_BACKEND)
    finally:
        set_float32_products(oldest)
        put_back(outer)


def test_settings_that_torch_refuses_to_tell_in_one_word_are_told() -> None:
    outer = settings()
    try:
        by_new_names()
        assert float32_products() == BY_BACKEND
        set_float32_products(BY_BACKEND)
        with settings_put_back() as changed:
            assert not_default() == {"torch.set_float32_matmul_precision": BY_BACKEND}
        assert changed == []
    finally:
        put_back(outer)


@pytest.mark.parametrize(
    ("device", "dtype", "choice", "roundoff"),
    [
        ("cpu", torch.float32, "all", 2.0**-24),
        ("cuda", torch.float32, "none", 2.0**-24),
        ("cuda", torch.float32, "convolutions", 2.0**-11),
        ("cuda", torch.float64, "all", 2.0**-53),
        ("cuda", torch.bfloat16, "all", 2.0**-8),
    ],
)
def test_the_roundoff_is_that_of_the_arithmetic(device: str, dtype: torch.dtype, choice: str, roundoff: float) -> None:
    case = Case("x", torch.nn.Identity(), (), {}, "inference", dtype, torch.device(device), tf32=choice)
    assert case.unit_roundoff == roundoff


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("choice", "least", "most"), [("none", 0.0, 1e-5), ("all", 1e-4, 1e-2)])
def test_a_step_computes_as_told(choice: str, least: float, most: float) -> None:
    torch.manual_seed(0)
    module = torch.nn.Linear(512, 512).cuda().eval()
    case = Case(
        "x", module, (torch.randn(64, 512, device="cuda"),), {}, "inference", torch.float32, torch.device("cuda")
    )
    case.tf32 = choice
    exact = case.to_gold().run().output
    assert least <= (case.run().output - exact).abs().max() / exact.abs().max() <= most


def test_torch_exports_after_a_step() -> None:
    """torch.export asks for the old name, and raises where the new ones disagree."""
    with tf32_allowed("none"):
        pass
    torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
