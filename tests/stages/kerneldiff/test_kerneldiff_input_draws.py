"""Faults that one input, or one call, does not show."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.bisect.api import bisect
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.diff import diff
from inductor_debug.stages.kerneldiff.input_draws import LEAST, MOST, draws_of
from inductor_debug.stages.sides import held, running

Tensors = Sequence[torch.Tensor]
Function = Callable[..., Sequence[Any]]


def net(*last: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), *last)


def backend(change: Callable[[Function], Function]) -> Any:
    def compiled(gm: torch.fx.GraphModule, inputs: Tensors) -> Function:
        return change(gm.forward)

    return compiled


def stale(function: Function) -> Function:
    """Returns its first results for ever."""
    kept: list[Tensors] = []

    def call(*inputs: torch.Tensor) -> Tensors:
        if not kept:
            kept.append([tensor.clone() for tensor in function(*inputs)])
        return [tensor.clone() for tensor in kept[0]]

    return call


def third(function: Function) -> Function:
    """Is wrong at every third call, of which compiling takes the first."""
    calls = [0]

    def call(*inputs: torch.Tensor) -> Tensors:
        calls[0] += 1
        results = function(*inputs)
        return [tensor * 1.5 for tensor in results] if calls[0] % 3 == 0 else results

    return call


def shared(function: Function) -> Function:
    """Puts its results where its last ones are."""
    kept: list[torch.Tensor | None] = []

    def call(*inputs: torch.Tensor) -> list[torch.Tensor | None]:
        results = function(*inputs)
        if not kept:
            kept.extend(None if tensor is None else tensor.detach().clone() for tensor in results)
        for mine, tensor in zip(kept, results, strict=True):
            if mine is not None:
                mine.copy_(tensor.detach())
        return [None if mine is None else mine.view(mine.shape) for mine in kept]

    return call


def tied(function: Function) -> Function:
    """Is wrong where few values come again and again."""

    def call(*inputs: torch.Tensor) -> Tensors:
        results = function(*inputs)
        (x,) = (tensor for tensor in inputs if tensor.shape == (5, 8))
        return [tensor * 2 for tensor in results] if x.unique().numel() < x.numel() / 2 else results

    return call


def judged(change: Callable[[Function], Function], **options: Any) -> Any:
    torch._dynamo.reset()
    return diff(net(), (torch.randn(5, 8),), backend=backend(change), perturbations=1, **options)


@pytest.mark.parametrize("change", [stale, third, shared, tied])
def test_a_fault_that_the_first_call_does_not_show_is_a_defect(change: Callable[[Function], Function]) -> None:
    assert judged(change, draws=1).verdict == "exact"
    for draws in (None, LEAST):
        assert judged(change, draws=draws).verdict == "defect"


@pytest.mark.parametrize(
    ("mode", "name"), [("inference", "aot_eager"), ("training", "aot_eager"), ("training", "inductor")]
)
def test_a_clean_backend_passes_all_draws(mode: str, name: str) -> None:
    torch._dynamo.reset()
    found = diff(net(nn.Dropout(0.5)), (torch.randn(5, 8),), backend=name, mode=mode)
    assert not found.failed and f"{MOST} draws of the inputs" in found.message, found.message
    assert all("draw" not in row.path and row.draw == 1 for row in found.rows)


def test_rows_carry_their_draw_and_the_message_counts() -> None:
    found = judged(third, draws=3)
    (row,) = found.failed
    assert (row.path, row.draw) == ("output (draw 2)", 2)
    assert "it does not pass in 1 of 3 draws of the inputs" in found.message
    wrong, right = found.test["output"][row.path], found.reference["output"][row.path]
    torch.testing.assert_close(wrong, right * 1.5)
    assert [change.path for change in found.reviews.changes] in ([], [row.path])


def test_the_first_draw_is_called_again_at_the_end() -> None:
    """The call after those of compiling and of three draws."""

    def fifth(function: Function) -> Function:
        calls = [0]

        def call(*inputs: torch.Tensor) -> Tensors:
            calls[0] += 1
            return [tensor + (calls[0] == 5) for tensor in function(*inputs)]

        return call

    found = judged(fifth, draws=3)
    assert [row.path for row in found.failed] == ["output (draw 1 again)"]
    assert found.failed[0].floor_rms, "gold was brought back"


def test_results_that_a_later_call_overwrites_are_told_at_their_draw() -> None:
    found = judged(shared, draws=3)
    (row,) = found.failed
    assert row.path == "output (draw 1 again)" and "overwrote" in row.message
    assert "it does not pass in 3 of 3 draws of the inputs" in found.message


def test_gradients_that_a_later_call_overwrites_are_told_too() -> None:
    torch._dynamo.reset()
    backend = torch._dynamo.backends.common.aot_autograd(
        fw_compiler=lambda gm, inputs: make_boxed_func(gm.forward),
        bw_compiler=lambda gm, inputs: make_boxed_func(shared(gm.forward)),
    )
    found = diff(net(), (torch.randn(5, 8),), backend=backend, mode="training", draws=3)
    assert found.verdict == "defect"
    assert {(row.kind, "overwrote" in row.message) for row in found.failed} == {("gradient", True)}


def test_what_lies_in_a_cuda_graphs_memory_is_copied_and_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA (test_kerneldiff_cuda), with memory that only this test calls a graph's."""

    def all_of_them(tensors: dict[Any, torch.Tensor]) -> set[Any]:
        return set(tensors)

    for module in (held, running):
        monkeypatch.setattr(module, "in_graph_memory", all_of_them)
    found = judged(shared, draws=3)
    assert not found.failed and "a CUDA graph's next replay may overwrite them" in found.message, found.message
    module, made = net(), dict[str, torch.Tensor]()
    for name, parameter in module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda it, name=name: made.update({name: it.grad}))
    case = Case("net", module, (torch.randn(5, 8),), {}, "training", torch.float32, torch.device("cpu"))
    gradients = running.run_side("test", case, lambda: module).leaves["gradient"]
    assert gradients.keys() == made.keys() != set()
    for name, gradient in gradients.items():
        assert gradient.data_ptr() != made[name].data_ptr() and torch.equal(gradient, made[name])


def test_a_draw_can_be_compared_alone() -> None:
    found = judged(tied, draws=3)
    assert found.draw == 3 and "first in draw 3 (stages.kerneldiff.draw=3" in found.message
    alone = judged(tied, draws=1, draw=3)
    assert alone.verdict == "defect" and [row.path for row in alone.rows] == ["output"]
    assert judged(tied, draws=1, draw=2).verdict == "exact"
    torch.testing.assert_close(alone.test["output"]["output"], found.test["output"]["output (draw 3)"])


def test_bisect_looks_at_the_draw_that_fails() -> None:
    torch._dynamo.reset()
    args, options = (torch.randn(5, 8),), KernelDiffConfig(draws=1, draw=3)
    found = bisect(net(), args, backend=backend(tied), kerneldiff=options)
    assert found.fault is not None and found.verdict != "none", found.answer
    assert bisect(net(), args, backend=backend(tied)).fault is None


def test_a_pass_says_how_rare_a_fault_may_be() -> None:
    found = judged(lambda function: function, draws=3)
    told = "; 3 draws of the inputs, which change the outputs by [0-9]+ % of their RMS: a fault that shows in "
    rare = "63 % of such draws is seen with 95 % certainty, a rarer one may not$"
    assert re.search(f"{told}{rare}", found.message), found.message


class Nearly(nn.Module):
    """Hardly looks at its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1 + 1e-3 * x


def test_a_pass_says_how_much_of_the_outputs_the_inputs_change() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    found = diff(Nearly(), (torch.randn(10_000),), backend="aot_eager", draws=2)
    told = re.search(r"which change the outputs by (\S+) % of their RMS", found.message)
    assert told and float(told[1]) == pytest.approx(0.1 * 2**0.5, rel=0.02), found.message


class Argmin(nn.Module):
    """torch 2.11 to 2.14 give the index in the memory's order, which for some inputs is right: pytorch issue 197739."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.relu(self.linear(x)).t() + 0.5
        return hidden.argmin()


@pytest.mark.slow
def test_torchs_own_wrong_argmin_is_seen_at_every_seed() -> None:
    torch.manual_seed(0)
    module = Argmin().eval()
    torch._dynamo.reset()
    compiled, draws = torch.compile(module), torch.randn(50, 4, 8)
    with torch.no_grad():
        if all(torch.equal(compiled(x), module(x)) for x in draws):
            pytest.skip("this torch compiles argmin of a transposed tensor right")
    one, all_draws = [], []
    for seed in range(10):
        torch.manual_seed(seed)
        module, x = Argmin().eval(), torch.randn(4, 8)
        for count, found in ((1, one), (None, all_draws)):
            torch._dynamo.reset()
            found.append(diff(module, (x,), draws=count).verdict)
    assert all_draws == ["defect"] * 10 and one.count("exact") >= 5


class Aliases(nn.Module):
    """Returns its input, and a buffer that each call writes into: eager's results change later, too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.zeros(5, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        self.state.copy_(x)
        return x, self.state, x * 2


def test_what_eager_overwrites_too_is_no_finding() -> None:
    torch._dynamo.reset()
    found = diff(Aliases(), (torch.randn(5, 8),), backend="aot_eager")
    assert not found.failed, str(found)


class Sorted(nn.Module):
    """Takes no other input than one that rises."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not bool((x.diff() >= 0).all()):
            raise ValueError("not sorted")
        return x * 2


def test_a_model_that_takes_no_other_input_has_one_draw_and_says_so() -> None:
    torch._dynamo.reset()
    found = diff(Sorted(), (torch.arange(5.0),), backend="aot_eager")
    assert found.verdict != "defect"
    assert "one draw of the inputs: on other inputs the reference raised ValueError: not sorted" in found.message


def test_inputs_and_module_are_left_as_found() -> None:
    module, x = Aliases(), torch.randn(5, 8)
    before = x.clone()
    torch._dynamo.reset()
    diff(module, (x,), backend=backend(stale))
    assert torch.equal(x, before) and bool((module.state == 0).all())


def test_a_large_case_has_the_fewest_draws_and_a_small_one_the_most() -> None:
    small, large = (Case.of(nn.Linear(size, size), (torch.ones(size),)) for size in (4, 2000))
    assert draws_of(small, KernelDiffConfig()) == list(range(1, MOST + 1))
    assert draws_of(large, KernelDiffConfig()) == draws_of(small, KernelDiffConfig(), failed=True) == [1, 2, 3]
    assert draws_of(large, KernelDiffConfig(draws=2, special=True)) == [1, 2, 101, 102, 103, 104, 105, 106]


@pytest.mark.parametrize("special", range(5))
def test_special_values_show_faults_of_their_own(special: int) -> None:
    seen = [
        lambda x: ((x == 0) & x.signbit()).any(),
        lambda x: ((x != 0) & (x.abs() < torch.finfo(x.dtype).tiny)).any(),
        lambda x: (x.abs() == torch.finfo(x.dtype).max).any(),
        torch.Tensor.isinf,
        torch.Tensor.isnan,
    ][special]

    def wrong(function: Function) -> Function:
        def call(*inputs: torch.Tensor) -> Sequence[Any]:
            (x,) = (tensor for tensor in inputs if tensor.shape in ((5, 8), (0, 8)))
            return [torch.zeros_like(tensor) if bool(seen(x).any()) else tensor for tensor in function(*inputs)]

        return call

    assert judged(wrong).verdict == "exact"
    found = judged(wrong, draws=2, special=True)
    assert {row.draw for row in found.failed} == {101 + special}, found.message
    assert "it does not pass in 1 of 2 draws of the inputs and 5 with special values" in found.message
    assert judged(wrong, draws=1, draw=101 + special).verdict == "defect"


@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
def test_a_clean_backend_passes_special_values(name: str) -> None:
    torch._dynamo.reset()
    found = diff(net(nn.GELU(), nn.Softmax(-1)), (torch.randn(5, 8),), backend=name, special=True)
    assert not found.failed and "16 draws of the inputs and 5 with special values" in found.message, str(found)


def lagging(function: Function) -> Function:
    """A share of its results is that of the call before."""
    last: list[Tensors] = []

    def call(*inputs: torch.Tensor) -> Tensors:
        results = [tensor if tensor is None else tensor.clone() for tensor in function(*inputs)]
        before = last[-1] if last else results
        last.append(results)
        return [now if now is None else now + 0.01 * (then - now) for now, then in zip(results, before, strict=True)]

    return call


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_call_that_fails_is_not_excused_by_a_later_one_on_the_same_inputs(dropout: float) -> None:
    """Where random numbers are drawn the test side is run again with the reference's."""
    torch._dynamo.reset()
    backend = torch._dynamo.backends.common.aot_autograd(
        fw_compiler=lambda gm, inputs: make_boxed_func(gm.forward),
        bw_compiler=lambda gm, inputs: make_boxed_func(lagging(gm.forward)),
    )
    found = diff(net(nn.Dropout(dropout)), (torch.randn(5, 8),), backend=backend, mode="training", draws=3)
    assert found.verdict == "defect", found.message


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
def test_a_clean_backend_passes_an_empty_batch_and_tells_that_it_compiled_for_it(name: str, mode: str) -> None:
    torch._dynamo.reset()
    module, x = net(), torch.randn(5, 8)
    found = diff(module, (x,), backend=name, mode=mode, draws=2, special=True)
    assert not found.failed, str(found)
    assert "and an empty batch (graphs compiled anew for it: 1)" in found.message
    assert x.shape == (5, 8)


class Summed(nn.Module):
    """Over the batch: 0 where there is none."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sum(0)


def test_a_fault_for_an_empty_batch_alone_is_a_defect() -> None:
    def wrong(function: Function) -> Function:
        def call(*inputs: torch.Tensor) -> Sequence[Any]:
            return [tensor + (inputs[0].numel() == 0) for tensor in function(*inputs)]

        return call

    def found(**options: Any) -> Any:
        torch._dynamo.reset()
        return diff(Summed(), (torch.randn(5, 8),), backend=backend(wrong), perturbations=1, draws=2, **options)

    assert not found().failed
    special = found(special=True)
    assert [(row.path, row.verdict) for row in special.failed] == [("output (draw 106)", "defect")], special.message
    assert special.draw == 106
    torch._dynamo.reset()
    assert diff(Summed(), (torch.randn(5, 8),), backend=backend(wrong), draws=1, draw=106).verdict == "defect"


class Filled(nn.Module):
    """Takes no empty batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.amax()


@pytest.mark.parametrize("x", [torch.randn(5, 8), torch.arange(40).view(5, 8)], ids=["floating", "whole"])
def test_an_empty_batch_that_eager_does_not_take_is_told(x: torch.Tensor) -> None:
    torch._dynamo.reset()
    found = diff(Filled(), (x,), backend="aot_eager", draws=2, special=True)
    assert not found.failed and "2 draws of the inputs" in found.message
    assert "an empty batch, for on other inputs the reference raised" in found.message
    assert ("NaN, for there is no input to vary" in found.message) is not x.is_floating_point()


def test_a_model_without_a_batch_tells_that_there_is_none() -> None:
    torch._dynamo.reset()
    found = diff(net(), (torch.zeros(5, 8),), backend="aot_eager", draws=2, special=True)
    assert "one draw" not in found.message and "and an empty batch" in found.message  # no other values, but a batch
    found = diff(Summed().eval(), (torch.tensor(2.0),), backend="aot_eager", draws=2, special=True)
    assert "an empty batch, for there is no input to vary" in found.message


def test_a_backend_for_fixed_shapes_that_refuses_an_empty_batch_is_told() -> None:
    def fixed(gm: torch.fx.GraphModule, inputs: Tensors) -> Function:
        if any(tensor.numel() == 0 for tensor in inputs if isinstance(tensor, torch.Tensor)):
            raise ValueError("no empty tensors")
        return gm.forward

    torch._dynamo.reset()
    found = diff(net(), (torch.randn(5, 8),), backend=fixed, draws=2, special=True)
    assert found.verdict == "not_established"
    assert "no empty tensors" in found.message and "(draw 106)" in str(found)


def test_draws_below_one_are_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="draws"):
        judged(third, draws=0)
