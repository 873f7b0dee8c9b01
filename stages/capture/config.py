"""Options of the capture stage."""

from dataclasses import dataclass


@dataclass
class CaptureConfig:
    """Options of the capture stage.

    Attributes:
        dynamic: True traces all sizes as symbolic, False none; None lets torch decide.
    """

    dynamic: bool | None = None
