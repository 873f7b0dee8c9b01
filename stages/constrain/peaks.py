"""Whether what a profile says of an accelerator's best bandwidth and FLOP/s can be meant. Free of torch."""

import math

from models.errors import ConfigurationError, invalid_choice
from stages.constrain.config import PeaksConfig
from stages.graphs import ITEM_BYTES


def validate_peaks(config: PeaksConfig) -> None:
    """ConfigurationError for a rate that is none, or one of a dtype that torch does not have."""
    if config.bandwidth is not None:
        _rate(config.bandwidth, "accel.peaks.bandwidth", "bytes per second", "3.35e12")
    for dtype, rate in config.flops.items():
        if dtype not in ITEM_BYTES:
            raise invalid_choice("accel.peaks.flops", dtype, ITEM_BYTES, example="accel.peaks.flops.{}=1e12")
        _rate(rate, f"accel.peaks.flops.{dtype}", "floating-point operations per second", "1e12")


def _rate(value: object, key: str, unit: str, example: str) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(float(value)) or float(value) <= 0:  # type: ignore[arg-type]
        raise ConfigurationError(f"{key}: got {value!r}; valid: {unit}, above 0.\nTry: {key}={example}")
