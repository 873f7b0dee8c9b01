"""The calls that are timed, by the host's clock and by the device's."""

import time
from collections.abc import Callable
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.torch_internals.device_clock import occupy

_LEAD_MS = (1.0, 200.0)
"""Least and most that a device is kept busy while a step is queued."""


def stepper(case: Case, function: Callable[..., Any]) -> Callable[[], float | None]:
    """One synchronised step of ``case`` through ``function``; the step's result is dropped before it returns.

    To be called in the case's surroundings, whose making is no part of a step.

    Returns:
        A call, which gives the clock's seconds at the end of forward and loss: in training on the CPU, where forward
        has ended by then. Else None: a device would have to be waited for, which is no part of a step.
    """
    marks: list[float] = []

    def call() -> None:
        case.bare_step(function)
        case.synchronize()

    def marked() -> float:
        case.bare_step(function, between=lambda: marks.append(time.perf_counter()))
        return marks.pop()

    return marked if case.mode == "training" and case.device.type == "cpu" else call


class PartClock:
    """Takes training steps of ``case`` through ``function`` by part, the device synchronised after each.

    For devices that run beside the host: there a part's end has to be waited for, so that these are steps of their own.

    Args:
        before: called before each step, outside its time.
    """

    def __init__(self, case: Case, function: Callable[..., Any], before: Callable[[], None] = lambda: None) -> None:
        self.case, self.function, self.before = case, function, before

    def __call__(self) -> tuple[float, float]:
        """One step; its milliseconds of forward with loss, and of backward."""
        self.before()
        marks = [time.perf_counter()]

        def mark() -> None:
            self.case.synchronize()
            marks.append(time.perf_counter())

        self.case.bare_step(self.function, between=mark)
        mark()
        start, middle, end = marks
        return (middle - start) * 1e3, (end - middle) * 1e3


class OptimizerClock:
    """Takes steps of a plain optimizer over a case's parameters, with the gradients that they have.

    The learning rate is 0: the work is the same, and the weights stay as they are.

    Args:
        case: whose parameters are trained; a step of it was taken.
        kind: the optimizer's class.

    Raises:
        ValueError: no parameter is trained.
        Exception: what the optimizer raises, of sparse gradients for example.
    """

    def __init__(self, case: Case, kind: Callable[..., torch.optim.Optimizer]) -> None:
        parameters = [parameter for parameter in case.module.parameters() if parameter.requires_grad]
        if not parameters:
            raise ValueError("the model has no parameter that is trained")
        self.case, self._optimizer = case, kind(parameters, lr=0.0)
        self()  # its state is allocated in the first step

    def __call__(self) -> float:
        """One step; its milliseconds."""
        self.case.synchronize()
        start = time.perf_counter()
        self._optimizer.step()
        self.case.synchronize()
        return (time.perf_counter() - start) * 1e3


class DeviceClock:
    """Takes steps of ``case`` through ``function`` and tells how long the device took for each, by CUDA events.

    The device is kept busy until the host has queued the step, as far as the host can run ahead. The time is then the
    device's work alone, without its waiting for the host. A step that itself waits for the device (``item()``) takes
    that lead away. To be made and called in the case's surroundings.

    Args:
        before: queues work that is done before each step and not in its time.

    Attributes:
        waited: whether the device began a step before all of it was queued, so that waiting is in its times.
    """

    def __init__(self, case: Case, function: Callable[..., Any], before: Callable[[], None] = lambda: None) -> None:
        self.case, self.function, self.before = case, function, before
        self.waited = False
        case.synchronize()
        start = time.perf_counter()
        case.bare_step(function)
        case.synchronize()
        self._lead = min(max(1.5e3 * (time.perf_counter() - start), _LEAD_MS[0]), _LEAD_MS[1])

    def __call__(self) -> float:
        """One step; its milliseconds on the device."""
        with torch.cuda.device(self.case.device):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            occupy(self._lead)
            self.before()
            begin.record()
            self.case.bare_step(self.function)
            self.waited = self.waited or begin.query()
            end.record()
            self.case.synchronize()
        return float(begin.elapsed_time(end))


class L2Flush:
    """Writes twice the L2 cache of a CUDA device, so that nothing in it is left of an earlier call."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
        self._buffer = torch.empty(size, dtype=torch.uint8, device=device)

    def __call__(self) -> None:
        """Flush, and wait for it: it is in no time that is taken afterwards."""
        self.queue()
        torch.cuda.synchronize(self._device)

    def queue(self) -> None:
        """Flush once the device gets to it."""
        self._buffer.zero_()
