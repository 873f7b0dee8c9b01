"""Options of the capture stage."""

from dataclasses import dataclass


@dataclass
class CaptureConfig:
    """``dynamic``: None lets torch decide, True traces with symbolic sizes, False never."""

    dynamic: bool | None = None
