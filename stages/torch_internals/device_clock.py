"""A device that is kept busy while work is queued behind it.

Relies on ``torch.cuda._sleep``, which lets the current stream wait for a number of the device's clock cycles.
"""

import torch

_CYCLES_A_MS = 2_000_000
"""Of a device at 2 GHz; a slower one waits longer."""


def occupy(milliseconds: float) -> None:
    """Let the current CUDA stream wait that long, so that what is queued meanwhile need not wait for the host."""
    torch.cuda._sleep(int(milliseconds * _CYCLES_A_MS))
