"""The calls that are timed, by the host's clock and by the device's."""

import time
from collections.abc import Callable
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.torch_internals.device_clock import occupy

_LEAD_MS = (1.0, 200.0)
"""Least and most that a device is kept busy while a step is queued."""


def stepper(case: Case, function: Callable[..., Any]) -> Callable[[], None]:
    """One synchronised step of ``case`` through ``function``; the result is dropped before it returns.

    To be called in the case's surroundings, whose making is no part of a step.
    """

    def call() -> None:
        case.bare_step(function)
        case.synchronize()

    return call


class DeviceClock:
    """Takes steps of ``case`` through ``function`` and tells how long the device took for each, by CUDA events.

    The device is kept busy until the host has queued the step, as far as the host can run ahead. The time is then the
    device's work alone, without its waiting for the host. A step that itself waits for the device (``item()``) takes
    that lead away. To be made and called in the case's surroundings.

    Attributes:
        waited: whether the device began a step before all of it was queued, so that waiting is in its times.
    """

    def __init__(self, case: Case, function: Callable[..., Any]) -> None:
        self.case, self.function = case, function
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
            begin.record()
            self.case.bare_step(self.function)
            self.waited = self.waited or begin.query()
            end.record()
            self.case.synchronize()
        return float(begin.elapsed_time(end))
