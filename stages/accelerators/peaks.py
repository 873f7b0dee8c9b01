"""Whether what a profile says of an accelerator's best bandwidth and FLOP/s can be meant."""

from dataclasses import replace

from inductor_debug.models.errors import invalid_choice
from inductor_debug.models.options import LARGEST, Range, check_declared
from inductor_debug.stages.accelerators.config import PeaksConfig
from inductor_debug.stages.graphs.records import ITEM_BYTES

RATE = Range(0, LARGEST, whole=False, above=True)


def validate_peaks(config: PeaksConfig) -> None:
    """ConfigurationError for a rate that is none, or one of a dtype that torch does not have."""
    check_declared(config, "accel.peaks")
    for dtype, rate in config.flops.items():
        if dtype not in ITEM_BYTES:
            raise invalid_choice("accel.peaks.flops", dtype, ITEM_BYTES, example="accel.peaks.flops.{}=1e12")
        replace(RATE, example="1e12").check(rate, f"accel.peaks.flops.{dtype}")
