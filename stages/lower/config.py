"""Options of the lower stage. Free of torch."""

from dataclasses import dataclass


@dataclass
class LowerConfig:
    """Options of the lower stage."""
