"""What profile stores beside its tables, and what both it and benchmark tell of the machine."""

from dataclasses import dataclass, field
from typing import Any

from inductor_debug.models.shapes import Number


@dataclass(frozen=True)
class Surroundings:
    """What may disturb a timing.

    Attributes:
        load_average: of 1, 5 and 15 minutes; None, like the others, where the system does not tell.
        cpu_count, cpu_usable: processors there are, and those that this process may use.
        threads, interop_threads: torch's, within an operation and between operations.
        cpu_mhz: processor frequency.
    """

    load_average: list[Number] | None
    cpu_count: int | None
    cpu_usable: int | None
    threads: int
    interop_threads: int
    cpu_mhz: Number | None
    memory_available_bytes: int


@dataclass
class Ceiling:
    """Bandwidth in bytes per second, and FLOP/s by dtype; None or missing where not known.

    Attributes:
        source: ``measured``, or what the profile names.
        facts: how it was measured: sizes, caches, threads.
    """

    source: str
    bandwidth: float | None = None
    flops: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ProfileFacts:
    """profile/summary.json. Times are microseconds of a step, medians over the steps.

    Attributes:
        times: whose they are: ``device kernels`` or ``host``.
        steps: that were recorded.
        plain_us, recorded_us: a step of the code as it is, and a recorded one, each with the third quartile less the
            first (``_iqr_us``); ``observation_us`` is what they differ by.
        step_us: the one that shares are of: plain where a device's kernels are timed, which recording leaves as they
            are, else recorded.
        kernels_us: what the tables add up to, the sum of the kernels' medians.
        inside_us, outside_us: in kernels, and the rest of that step.
        operators_outside_us: in torch's own operators outside (the loss, what the graphs leave out).
        device_us: on a device all of its kernels' time.
        range_floor_us, range_cost_us: what an empty range is recorded with, and what it costs.
        launches: in a step.
        lines_share: of the kernels' time, for which a source line is known.
        longest: launches in words, the longest first.
        operators_outside: name → time, the longest first.
        environment: ``before`` and ``after``.
    """

    schema: int = 1
    backend: str
    times: str
    steps: int
    plain_us: Number
    plain_iqr_us: Number
    recorded_us: Number
    recorded_iqr_us: Number
    step_us: Number
    kernels_us: Number
    inside_us: Number
    outside_us: Number
    operators_outside_us: Number
    observation_us: Number
    device_us: Number | None
    range_floor_us: Number
    range_cost_us: Number
    launches: Number
    lines_share: Number | None
    ceilings: list[Ceiling]
    longest: list[str]
    operators_outside: dict[str, Number]
    environment: dict[str, Surroundings]
    not_established: list[str]
