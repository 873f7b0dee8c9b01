"""One step of a case: what it returns, and that it leaves everything as it was."""

import random
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.nested import map_tensors, named_tensors


class Intrusive(nn.Module):
    """Changes in one forward all that a forward can change."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("rebound", torch.zeros(3))
        self.calls = 0
        self.plain = torch.zeros(2)
        self.history: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = self.dropout(self.norm(self.linear(x.clone())))
        with torch.no_grad():
            x.mul_(2)
        self.linear.bias.data.add_(1)  # .data: no version counter notices
        self.linear.weight.requires_grad_(True)
        self.rebound = self.rebound + 1
        self.calls += 1
        self.plain.add_(1)
        self.history.append(self.calls)
        self.extra = 1
        random.random()
        numpy.random.rand()
        return output


def intrusive_case(mode: str = "training") -> Case:
    torch.manual_seed(0)
    module = Intrusive().train(mode == "training")
    return Case("intrusive", module, (torch.randn(6, 4),), {}, mode, torch.float32, torch.device("cpu"), seed=3)


def state_of(case: Case) -> dict[str, Any]:
    module = case.module
    assert isinstance(module, Intrusive)
    tensors = {**module.state_dict(), **case.named_inputs(), "plain": module.plain}
    return {
        "bits": {name: tensor.detach().numpy().tobytes() for name, tensor in tensors.items()},
        "objects": {name: id(tensor) for name, tensor in [*module.named_parameters(), *module.named_buffers()]},
        "gradients": {name: None if p.grad is None else p.grad.tolist() for name, p in module.named_parameters()},
        "flags": [child.training for child in module.modules()],
        "counters": (module.calls, list(module.history), hasattr(module, "extra")),
        "random": (torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].tolist()),
    }


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_run_leaves_module_inputs_and_generators_as_found(mode: str) -> None:
    case = intrusive_case(mode)
    case.module.linear.weight.grad = torch.full((4, 4), 7.0)
    before = state_of(case)
    case.run()
    assert state_of(case) == before


def test_run_restores_after_an_exception() -> None:
    case = intrusive_case()
    before = state_of(case)

    def failing(x: torch.Tensor) -> torch.Tensor:
        case.module(x)
        case.module.eval()
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        case.run(failing)
    assert state_of(case) == before


def test_preserved_restores_bits_that_compare_equal() -> None:
    case = intrusive_case()
    weight = case.module.linear.weight
    with torch.no_grad():
        weight.fill_(-0.0)
    with case.preserved(), torch.no_grad():
        weight.fill_(0.0)
    assert torch.signbit(weight).all()


def test_two_runs_are_bit_equal_and_another_seed_is_not() -> None:
    case = intrusive_case()
    first, second = case.run(), case.run()
    case.seed += 1
    other = case.run()
    assert torch.equal(first.output, second.output)
    assert not torch.equal(first.output, other.output)  # another dropout mask


def test_training_step_returns_loss_gradients_and_buffers_after_the_step() -> None:
    case = intrusive_case()
    result = case.run()
    assert result.loss is not None
    assert result.loss.shape == () and not result.own_loss
    assert set(result.gradients) == {"linear.weight", "linear.bias", "norm.weight", "norm.bias"}
    assert result.written["buffer"]["norm.num_batches_tracked"] == 1
    assert result.written["buffer"]["rebound"].tolist() == [1, 1, 1]


def test_gradients_do_not_accumulate_over_steps() -> None:
    module = nn.Linear(3, 2)
    case = Case("linear", module, (torch.ones(1, 3, requires_grad=True),), {}, "training", torch.float32,
                torch.device("cpu"))  # fmt: skip
    case.step()
    once = module.weight.grad.clone()
    case.step()
    assert torch.equal(module.weight.grad, once)
    assert "input.input" in case.run().gradients


def test_inference_builds_no_autograd_graph() -> None:
    output, loss = intrusive_case("inference").step()
    assert loss is None
    assert not output.requires_grad


class HardCoded(nn.Module):
    """Asks for float32 by name in every way that models do."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.full((4,), 0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float() / 3
        wide = wide + x.to(torch.float32) / 7 + x.type(torch.float32) / 11
        wide = torch.softmax(wide, -1, dtype=torch.float32) * torch.full((4,), 1 / 3)
        bits = torch.ones(1, dtype=torch.int32).view(torch.int32)
        return (wide * self.scale * bits) @ torch.eye(4)


def test_gold_computes_in_float64_what_the_code_asks_for_in_float32() -> None:
    x = torch.randn(2, 4)
    case = Case("hard", HardCoded().eval(), (x,), {}, "inference", torch.float32, torch.device("cpu"))
    gold = case.to_gold().run().output
    wide = x.double() / 3 + x.double() / 7 + x.double() / 11
    expected = torch.softmax(wide, -1) * (1 / 3) * torch.full((4,), 0.1).double()
    assert gold.dtype == torch.float64
    torch.testing.assert_close(gold, expected, rtol=1e-14, atol=0)
    assert case.module.scale.dtype == torch.float32
    assert torch.get_default_dtype() == torch.float32


def test_gold_starts_from_rounded_weights_and_leaves_the_case() -> None:
    case = intrusive_case()
    case.module.to(torch.bfloat16)
    gold = case.to_gold()
    assert torch.equal(gold.module.linear.weight, case.module.linear.weight.double())
    assert case.module.linear.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("transposed", [False, True])
def test_eager_cpu_dropout_mask_does_not_depend_on_dtype(dtype: torch.dtype, transposed: bool) -> None:
    masks = []
    for kind in (torch.float64, dtype):
        x = torch.ones(37, 129, dtype=kind)
        torch.manual_seed(5)
        masks.append(torch.nn.functional.dropout(x.t() if transposed else x, 0.3) == 0)
    assert torch.equal(*masks)
    assert masks[0].any()


def test_nested_outputs_keep_their_structure() -> None:
    class Pair(NamedTuple):
        first: Any
        second: Any

    from collections import OrderedDict

    value = {"a": [torch.ones(1), Pair(torch.ones(2), "text")], "b": OrderedDict(c=None, d=torch.ones(3))}
    assert [path for path, _ in named_tensors(value, "output")] == ["output.a.0", "output.a.1.first", "output.b.d"]
    doubled = map_tensors(lambda tensor: tensor * 2, value)
    assert isinstance(doubled["a"][1], Pair)
    assert type(doubled["b"]) is OrderedDict
    assert doubled["b"]["d"].tolist() == [2, 2, 2]


class Aliased(torch.nn.Module):
    """Writes into one input and reads it through another that shares its memory."""

    def forward(self, whole: torch.Tensor, half: torch.Tensor, again: torch.Tensor) -> torch.Tensor:
        whole.mul_(2)
        return half.sum() + again.sum()


@pytest.mark.parametrize("shared", [True, False])
def test_inputs_that_share_memory_still_do_in_gold(shared: bool) -> None:
    whole = torch.ones(2, 4)
    inputs = (whole, whole[:, 1:3], whole) if shared else (whole, torch.ones(2, 2), torch.ones(2, 4))
    case = Case("aliased", Aliased(), inputs, {}, "inference", torch.float32, torch.device("cpu"))
    expected = 24.0 if shared else 12.0
    assert case.run().output.item() == case.to_gold().run().output.item() == expected
    assert whole.sum().item() == 8.0
    gold = case.to_gold()
    assert (gold.args[0] is gold.args[2]) is shared and gold.args[1].dtype == torch.float64
    assert gold.args[1].stride() == inputs[1].stride()


class Redirected(nn.Module):
    """Makes one parameter show another's memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.zeros(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.first.data = self.second.data
        return x @ self.first


def test_a_parameter_that_a_step_redirects_shows_its_own_memory_again() -> None:
    module = Redirected()
    memory = module.first.data_ptr()
    Case("redirected", module, (torch.ones(1, 2),), {}, "inference", torch.float32, torch.device("cpu")).run()
    assert module.first.data_ptr() == memory
    assert module.first.eq(1).all() and module.second.eq(0).all()


def test_gold_widens_complex_numbers_and_copies_what_torch_refuses_to_copy() -> None:
    module = torch.nn.utils.weight_norm(nn.Linear(4, 4))
    module.register_buffer("phases", torch.polar(torch.ones(4), torch.arange(4.0)))
    case = Case("linear", module, (torch.ones(2, 4),), {}, "inference", torch.float32, torch.device("cpu"))
    gold = case.to_gold()
    assert gold.module.phases.dtype == torch.complex128
    assert torch.equal(gold.module.phases, module.phases.to(torch.complex128))
    torch.testing.assert_close(gold.run().output, case.run().output.double())
