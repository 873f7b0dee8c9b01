"""A model that misbehaves as it is told, for the trial of kills and faults. On PYTHONPATH there."""

import fcntl
import os
import subprocess
import sys

import torch
from torch import nn


class Small(nn.Module):
    """Two projections."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 24), nn.Linear(24, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def build(misbehaviour: str = "none") -> tuple[nn.Module, tuple[torch.Tensor]]:
    """``Small`` and an input of shape (4, 16).

    Args:
        misbehaviour: ``none``; ``foreign``, bytes into every open pipe; ``closes``, every open pipe is closed;
            ``recursion``, a low limit; ``prints``, 64 MiB, by a child. Whatever it is, a child in a session of its own
            stays.
    """
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(900)"], start_new_session=True, **quiet)
    if misbehaviour in ("foreign", "closes"):
        for descriptor in _pipes():
            if misbehaviour == "closes":
                os.close(descriptor)
            elif fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                os.write(descriptor, b'{"event": "done"}\n{"event": "stage_finished"\n\x00\xff7\n[]\nforeign')
    elif misbehaviour == "recursion":
        sys.setrecursionlimit(40)
    elif misbehaviour == "prints":
        subprocess.run(["head", "-c", str(64 << 20), "/dev/zero"], check=True)
    return Small(), (torch.randn(4, 16),)


def _pipes() -> list[int]:
    """Pipes that this process has open beyond the standard streams."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                found.append(int(name))
        except FileNotFoundError:  # the listing's own
            continue
    return found
