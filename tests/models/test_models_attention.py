"""Attention's formulas against torch's unfused attention in float64, each called by the schema of its operator."""

import math
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from inductor_debug.models.attention import formulas
from inductor_debug.models.float64 import LacksFloat64, substituted

aten = torch.ops.aten
FORWARD = sorted((op for op in formulas() if "backward" not in str(op)), key=str)
SIZES = {"plain": (4, 4, 33, 33), "causal": (4, 4, 17, 17), "grouped": (6, 2, 5, 40), "bias": (4, 4, 33, 20)}
NAMES = {
    "grad_out": "gradient", "grad_out_": "gradient", "out": "result", "log_sumexp": "logsumexp",
    "attn_bias": "bias", "attn_mask": "bias",
}  # fmt: skip


def drawn(form: str) -> dict[str, Any]:
    """Query, key, value, bias, and a gradient of the result."""
    heads, groups, queries, keys = SIZES[form]
    generator = torch.Generator().manual_seed(3)
    shapes = {"query": (2, heads, queries, 8), "key": (2, groups, keys, 8), "value": (2, groups, keys, 8),
              "bias": (2, 1, queries, keys), "gradient": (2, heads, queries, 8)}  # fmt: skip
    found: dict[str, Any] = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()
    }
    return found if form == "bias" else {**found, "bias": None}


def called(target: Any, given: dict[str, Any]) -> Any:
    """An operator's formula, with the arguments that its schema asks for."""
    args, kwargs = [], {}
    for argument in target._schema.arguments:
        value = given.get(NAMES.get(argument.name, argument.name), argument.default_value)
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return formulas()[target](*args, **kwargs)


def unfused(values: dict[str, Any], form: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The result, and the gradients, by torch."""
    leaves = {name: values[name].clone().requires_grad_() for name in ("query", "key", "value", "bias")
              if values[name] is not None}  # fmt: skip
    with sdpa_kernel(SDPBackend.MATH):
        result = torch.nn.functional.scaled_dot_product_attention(
            leaves["query"], leaves["key"], leaves["value"], leaves.get("bias"), is_causal=form == "causal", scale=0.3,
            enable_gqa=form == "grouped",
        )  # fmt: skip
    result.backward(values["gradient"])
    return result.detach(), {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}


@pytest.mark.parametrize("form", SIZES)
@pytest.mark.parametrize("target", FORWARD, ids=str)
def test_a_fused_attention_and_its_gradients_are_those_of_the_unfused_one(target: Any, form: str) -> None:
    takes_bias = any(argument.name in ("attn_bias", "attn_mask") for argument in target._schema.arguments)
    if form == "bias" and not takes_bias:
        pytest.skip("it takes no bias")
    values = drawn(form)
    result, gradients = unfused(values, form)
    given = {**values, "scale": 0.3, "is_causal": form == "causal", "dropout_p": 0.0, "compute_log_sumexp": True}
    found = called(target, given)
    assert len(found) == len(target._schema.returns)
    torch.testing.assert_close(found[0], result)
    factor, group = 0.3, SIZES[form][0] // SIZES[form][1]
    scores = factor * values["query"] @ values["key"].repeat_interleave(group, 1).mT
    if form == "causal":
        scores = scores.masked_fill(torch.ones(17, 17).triu(1).bool(), -math.inf)
    logarithms = (scores if values["bias"] is None else scores + values["bias"]).logsumexp(-1)
    torch.testing.assert_close(found[1].reshape(2, SIZES[form][0], -1)[..., : logarithms.shape[-1]], logarithms)

    backward = getattr(aten, f"{target._opname}_backward").default
    asked = {"grad_input_mask": [True, True, True, values["bias"] is not None]}
    back = called(backward, {**given, **asked, "result": result, "logsumexp": found[1]})
    assert len(back) == len(backward._schema.returns)
    for name, gradient in zip(("query", "key", "value", "bias"), back, strict=False):
        if name in gradients:
            torch.testing.assert_close(gradient, gradients[name])


def test_attention_that_draws_its_dropout_has_no_formula() -> None:
    values = drawn("plain")
    for target in formulas():
        given = {**values, "scale": 0.3, "is_causal": False, "dropout_p": 0.1, "grad_input_mask": [True] * 4}
        assert called(target, given) is NotImplemented


def test_a_kernel_without_float64_is_computed_by_its_formula() -> None:
    values = drawn("plain")
    args = values["query"], values["key"], values["value"]
    kernel = aten._scaled_dot_product_fused_attention_overrideable.default
    with pytest.raises(RuntimeError):
        kernel(*args)
    with sdpa_kernel(SDPBackend.MATH):
        right = torch.nn.functional.scaled_dot_product_attention(*args)
    with substituted():
        torch.testing.assert_close(kernel(*args)[0], right)
    with substituted(), pytest.raises(LacksFloat64):
        kernel(*args, dropout_p=0.5)
