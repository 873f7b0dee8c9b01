"""Options of the lower stage."""

from dataclasses import dataclass


@dataclass
class LowerConfig:
    """Options of the lower stage."""
