"""The selective scan against a plain loop, its stability, and the size of its graph."""

import pytest
import torch
from torch import Tensor

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.ssm import SelectiveStateSpaceModel, SSMConfig, build, selective_scan


def loop_scan(x: Tensor, delta: Tensor, decay: Tensor, into: Tensor, out: Tensor) -> Tensor:
    """The recurrence as it is written down, one position after the other."""
    state = torch.zeros(x.shape[0], x.shape[2], decay.shape[1], dtype=x.dtype)
    outputs = []
    for t in range(x.shape[1]):
        state = (delta[:, t, :, None] * decay).exp() * state
        state = state + (delta[:, t] * x[:, t])[..., None] * into[:, t, None]
        outputs.append((state * out[:, t, None]).sum(-1))
    return torch.stack(outputs, 1)


def operands(length: int, dtype: torch.dtype = torch.float64, step: float = 0.1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    decay = -(normal(3, 5).exp())
    x, into, out = normal(2, length, 3), normal(2, length, 5), normal(2, length, 5)
    return [item.to(dtype) for item in (x, step * normal(2, length, 3).exp(), decay, into, out)]


@pytest.mark.parametrize("length", [1, 3, 4, 5, 16, 31, 64])
@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_scan_equals_the_loop(length: int, chunk: int) -> None:
    given = operands(length)
    torch.testing.assert_close(selective_scan(*given, chunk=chunk), loop_scan(*given), rtol=1e-12, atol=1e-13)


def test_scan_gradients_equal_the_loops() -> None:
    gradients = []
    for function in (lambda *a: selective_scan(*a, chunk=4), loop_scan):
        given = [item.requires_grad_() for item in operands(19)]
        function(*given).square().sum().backward()
        gradients.append([item.grad for item in given])
    for ours, loops in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, loops, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("step", [1e-4, 1.0, 50.0])
def test_scan_is_stable_for_slow_and_violent_decay(step: float) -> None:
    """Long sequences whose total decay is exp(-10 000) or so: no overflow, float32 accuracy, finite gradients."""
    exact = operands(512, step=step)
    single = [item.float().requires_grad_() for item in exact]
    result = selective_scan(*single)
    expected = loop_scan(*[item.detach().double() for item in single])
    error = (result.double() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert error < 2e-6
    result.sum().backward()
    assert all(item.grad is not None and item.grad.isfinite().all() for item in single)


def test_scan_in_bfloat16_is_as_good_as_its_format() -> None:
    rounded = operands(128, torch.bfloat16)
    result = selective_scan(*rounded)
    expected = loop_scan(*[item.double() for item in rounded])
    assert result.dtype == torch.bfloat16
    assert (result.double() - expected).square().mean().sqrt() < 2**-8 * expected.square().mean().sqrt()


def test_selection_depends_on_the_input_and_the_model_is_causal() -> None:
    torch.manual_seed(0)
    model = SelectiveStateSpaceModel(SSMConfig(vocabulary=50, width=16, layers=2)).double().eval()
    tokens = torch.randint(50, (1, 40))
    changed = tokens.clone()
    changed[0, 20] = (changed[0, 20] + 1) % 50
    difference = (model(tokens) - model(changed)).abs().sum(-1)[0]
    assert (difference[:20] == 0).all()
    assert (difference[20:] > 0).all()


def node_count(model: torch.nn.Module, inputs: Tensor) -> int:
    return len(torch.export.export(model, (inputs,)).run_decompositions().graph.nodes)


@pytest.mark.slow
def test_graph_does_not_grow_with_the_sequence_and_stays_under_2000_nodes() -> None:
    model = SelectiveStateSpaceModel(SSMConfig(vocabulary=50, width=16)).eval()
    counts = [node_count(model, torch.zeros(1, length, dtype=torch.int64)) for length in (128, 256)]
    assert counts[0] == counts[1]
    assert counts[0] < 2000


def test_continuous_inputs() -> None:
    model, (inputs,) = build(2, 20, vocabulary=0, width=16, layers=1)
    assert inputs.shape == (2, 20, 16)
    assert model(inputs).shape == (2, 20, 16)


def test_chunk_must_be_a_power_of_two() -> None:
    with pytest.raises(ConfigurationError, match=r"chunk: got 12; valid: a power of two"):
        SSMConfig(chunk=12)
