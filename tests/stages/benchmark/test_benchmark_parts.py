"""A training step by part: where a part ends, and what the parts of all processes come to."""

import time
from dataclasses import replace

import pytest
import torch
from test_benchmark_warmup import result_of, sampled

from inductor_debug.models.case import Case
from inductor_debug.stages.benchmark import timing
from inductor_debug.stages.benchmark.calls import OptimizerClock, PartClock, stepper
from inductor_debug.stages.benchmark.processes import Sampled
from inductor_debug.stages.sides.training_steps import OPTIMIZERS


def case_of(mode: str = "training") -> Case:
    return Case.of(torch.nn.Linear(4, 3), (torch.randn(2, 4),), mode=mode)


def test_between_forward_and_backward_there_is_a_loss_and_no_gradient() -> None:
    case, seen = case_of(), []
    case.step()
    case.bare_step(lambda x: (seen.append("forward"), case.module(x))[1],
                   between=lambda: seen.append(case.module.weight.grad))  # fmt: skip
    assert seen == ["forward", None] and case.module.weight.grad is not None


def test_a_step_on_the_cpu_tells_where_forward_ended() -> None:
    case = case_of()
    ended: list[float] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = case.module(x)
        ended.append(time.perf_counter())
        output.register_hook(lambda gradient: ended.append(time.perf_counter()))
        return output

    middle = stepper(case, forward)()
    assert middle is not None and ended[0] <= middle <= ended[1]


def test_a_step_without_backward_or_on_a_device_tells_of_no_parts() -> None:
    inference = case_of("inference")
    with inference.surroundings():
        assert stepper(inference, inference.module)() is None
    device = torch.device("cuda")
    beside = replace(case_of(), device=device)
    beside.synchronize = lambda: None  # type: ignore[method-assign]
    assert stepper(beside, beside.module)() is None


def test_a_device_is_waited_for_at_the_end_of_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    case, now = case_of(), [0.0]
    waits = iter([1.0, 2.0])
    monkeypatch.setattr(case, "synchronize", lambda: now.__setitem__(0, now[0] + next(waits)))
    monkeypatch.setattr("inductor_debug.stages.benchmark.calls.time.perf_counter", lambda: now[0])
    assert PartClock(case, case.module)() == (1000.0, 2000.0)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_an_optimizers_step_leaves_the_weights_as_they_are(name: str) -> None:
    case = case_of()
    case.step()
    before = {name: value.clone() for name, value in case.module.state_dict().items()}
    steps = []
    clock = OptimizerClock(case, OPTIMIZERS[name])
    clock._optimizer.register_step_post_hook(lambda *_: steps.append(1))
    assert clock() > 0 and len(steps) == 1
    assert all(torch.equal(value, before[name]) for name, value in case.module.state_dict().items())


def test_without_a_trained_parameter_there_is_no_optimizer() -> None:
    with pytest.raises(ValueError, match="no parameter that is trained"):
        OptimizerClock(
            Case.of(torch.nn.ReLU(), (torch.randn(2, requires_grad=True),), mode="training"), torch.optim.SGD
        )


def test_forward_is_measured_from_the_calls_own_start() -> None:
    now = [100.0]

    def call(forward: float, backward: float) -> float:
        now[0] += forward
        middle = now[0]
        now[0] += backward
        return middle

    calls = {"reference": lambda: call(0.2, 0.3), "test": lambda: call(0.1, 0.4)}
    samples = timing.interleave(calls, repeats=3, max_repeats=3, relative_ci=1.0, budget_s=9.0, clock=lambda: now[0])
    assert samples.forward["reference"] == pytest.approx([200.0] * 3)
    assert samples.forward["test"] == pytest.approx([100.0] * 3)
    assert samples.milliseconds["test"] == pytest.approx([500.0] * 3)


def test_sides_take_turns_in_parts_too() -> None:
    order: list[str] = []
    clocks = {side: lambda side=side: order.append(side) or len(order) for side in timing.SIDES}
    assert timing.in_turn(clocks, 2, first=1) == {"test": [1, 4], "reference": [2, 3]}
    assert order == ["test", "reference", "reference", "test"]


def trained(index: int, optimizer: bool = True) -> Sampled:
    """A process whose test side has half the forward, and whose backward and optimizer are alike."""
    found = sampled(index, [5.0 + index / 100] * 4, [4.0] * 4)
    forward = {"reference": 2.0 + index / 100, "test": 1.0}
    found.rows = [replace(row, forward_ms=forward[row.side], backward_ms=3.0,
                          optimizer_ms=0.5 if optimizer and row.index < 3 else None) for row in found.rows]  # fmt: skip
    return found


def test_each_part_has_its_latency_and_its_speed_up_with_intervals() -> None:
    result = result_of([trained(index) for index in range(3)])
    told = result.summary["benchmark"]
    assert told.test.forward_ms == pytest.approx(1.0) and told.reference.forward_ms == pytest.approx(2.01, rel=1e-3)
    low, high = told.reference.forward_ci95_ms
    assert 1.9 < low < 2.01 < high < 2.1
    assert told.parts["forward"].speedup == pytest.approx(2.01, rel=1e-3)
    assert told.parts["backward"].speedup == pytest.approx(1.0) and told.parts["optimizer"].ci95 is not None
    assert "forward 2.01 ms → 1 ms, backward 3 ms → 3 ms, optimizer 0.5 ms → 0.5 ms" in result.message
    table = result.artifacts["benchmark/summary.csv"].set_index("side")
    assert table.loc["reference", "forward_ci95_low_ms"] == low and table.loc["test", "optimizer_ms"] == 0.5


def test_an_optimizer_that_was_not_timed_is_said() -> None:
    found = [trained(index, optimizer=False) for index in range(3)]
    for each in found:
        each.without_optimizer = "RuntimeError: sparse"
    result = result_of(found)
    told = result.summary["benchmark"]
    assert "The optimizer was not timed: RuntimeError: sparse." in result.message.splitlines()
    assert set(told.parts) == {"forward", "backward"} and told.test.optimizer_ms is None


def test_in_inference_there_are_no_parts() -> None:
    told = result_of([sampled(index, [2.0] * 4, [1.0] * 4) for index in range(3)]).summary["benchmark"]
    assert told.parts is told.test.forward_ms is None
