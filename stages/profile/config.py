"""Options of the profile stage."""

from dataclasses import dataclass

from inductor_debug.models.options import real, whole


@dataclass
class ProfileConfig:
    """Attributes:
    warmup: steps before those that are timed, with ranges and without; one more of each is taken in any case, the one
        with ranges under the profiler.
    steps: steps that are recorded, and as many without the profiler that they are compared with.
    budget_s: seconds after which no further step is recorded, ``steps`` or not, once there are 3; likewise without the
        profiler.
    trace_steps: further steps that ``profile/trace.json.gz`` shows; 0 for no trace.
    ceiling: measure this device's bandwidth and FLOP/s, which takes some seconds; False leaves the profile's
        (``accel.peaks``) alone.
    """

    warmup: int = whole(2)
    steps: int = whole(10, least=1)
    budget_s: float = real(60.0, above=0)
    trace_steps: int = whole(1)
    ceiling: bool = True
