"""The calls that are timed, by the host's clock and by the device's."""

import time
from collections.abc import Callable
from typing import Any

import torch

from models.case import Case

_LEAD_MS = (1.0, 200.0)
"""Least and most that a device is kept busy while a step is queued."""


def stepper(case: Case, function: Callable[..., Any]) -> Callable[[], None]:
    """One synchronised step of ``case`` through ``function``; the result is dropped before it returns."""

    def call() -> None:
        case.step(function)
        case.synchronize()

    return call


def device_timer(case: Case, function: Callable[..., Any]) -> Callable[[], float] | None:
    """What takes one step and returns the milliseconds that the device took for it, by CUDA events; None off CUDA.

    The device is kept busy until the host has queued the step, as far as the host can run ahead: the time is the
    device's work alone, without its waiting for the host.
    """
    if case.device.type != "cuda":
        return None
    from stages.torch_internals.device_clock import occupy

    lead = [0.0]

    def timed() -> float:
        with torch.cuda.device(case.device):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start = time.perf_counter()
            if lead[0]:
                occupy(lead[0])
            begin.record()
            case.step(function)
            queued = time.perf_counter() - start
            end.record()
            case.synchronize()
        lead[0] = min(max(1.5 * queued * 1e3, _LEAD_MS[0]), _LEAD_MS[1])
        return float(begin.elapsed_time(end))

    timed()  # how long the host needs to queue a step
    return timed
