"""What a profile comes to, in words and as ``profile/summary.json``."""

import numpy

from inductor_debug.stages.artifacts.measurements import ProfileFacts, Surroundings
from inductor_debug.stages.benchmark.timing import interquartile_range
from inductor_debug.stages.formatting import closed, counted, in_lines, place
from inductor_debug.stages.profile.section import NOISY
from inductor_debug.stages.profile.tables import Profile, Timed, line_rows, rates, roofline

TOP = 10
"""Kernels, lines and operators that the summary names."""


def message(profile: Profile, *, training: bool = False) -> str:
    """Where the time goes, in a sentence; below it how close to the ceiling the longest is, and what weakens it.

    Args:
        profile: of steps, which end before the optimizer's.
        training: whether they have a backward.
    """
    top = profile.longest()
    step = _milliseconds(profile.step)
    unknown = f"Not established: {'; '.join(profile.not_established)}." if profile.not_established else ""
    if not top:
        seen = f"no kernel was seen in {counted(profile.observation.steps, 'step')} of {step}"
        return in_lines(f"Where the time goes is not established: {seen}.", unknown)
    noun = "operation" if top[0].work.kind in ("operation", "operator", "backward") else "kernel launch"
    launches = counted(round(sum(item.launches for item in top)), noun, None if noun == "operation" else noun + "es")
    inside, outside = profile.inside / profile.step, profile.outside / profile.step
    lines = [row for row in line_rows(profile) if row.source]
    most = ""
    if lines and profile.kernels:
        share = percent(lines[0].share or 0.0)
        most = f" The line {place(lines[0].source)} takes {share} of the step: {closed(lines[0].code)}"
    spread, told, added = _spread(profile), profile.kernels / profile.step, _added(profile)
    busy = f" The steps differ by {percent(spread)} (interquartile range): was the machine busy? Shares may be off."
    whole = "Forward and backward take" if training else "A step takes"
    if added > NOISY:
        step += f" while recorded ({_milliseconds(profile.step / (1 + added))} without)"
    return in_lines(
        f"{whole} {step}, {percent(inside)} of it in {launches}.{most}{busy if spread > NOISY else ''}",
        f"Outside of kernels: {percent(outside)} of the step.",
        f"The longest: {describe(profile, top[0])}.",
        f"The tables' medians add up to {percent(told)} of the step." if abs(told - inside) > NOISY else "",
        f"Recording adds {percent(added)} to a step." if added > max(NOISY, spread) else "",
        unknown,
    )


def _milliseconds(microseconds: float) -> str:
    return f"{microseconds / 1e3:.3g} ms" if microseconds < 999_500 else f"{microseconds / 1e3:.0f} ms"


def _spread(profile: Profile) -> float:
    """Interquartile range over median of the steps that shares are of."""
    return interquartile_range(profile.steps) / (profile.step or 1.0)


def _added(profile: Profile) -> float:
    """What recording adds to the step that shares are of, over one without it; 0 on a device, whose step is without."""
    plain = float(numpy.median(profile.observation.unprofiled))
    return profile.step / plain - 1 if plain else 0.0


def describe(profile: Profile, item: Timed) -> str:
    """A launch with its share of the step, its line and how close to the ceiling it comes."""
    sources = item.work.distinct("source")
    name = f"{item.work.graph} {item.work.name}".strip()
    more = f" and {counted(len(sources) - 1, 'more line')}" if len(sources) > 1 else ""
    text = f"{name} ({percent((item.time or 0.0) / profile.step)}"
    text += f", {place(sources[0])}{more})" if sources else ")"
    told = [(whose, *roofline(item, ceiling)) for whose, ceiling in profile.ceilings.items()]
    known = [(whose, share, bound) for whose, share, bound in told if share is not None]
    if not known:
        return text
    bandwidth, flops = rates(item)
    bounds = list(dict.fromkeys(bound for _, _, bound in known))
    achieved = {"compute": f"{(flops or 0.0) / 1e9:.3g} GFLOP/s", "memory": f"{(bandwidth or 0.0) / 1e9:.3g} GB/s"}
    of = " and ".join(f"{percent(share)} of the {whose} {bound} ceiling" for whose, share, bound in known)
    return f"{text} at {of}, {' and '.join(achieved[bound] for bound in bounds)}"


def percent(share: float) -> str:
    """Two digits below ten percent, else whole ones."""
    return f"{100 * share:.2g} %" if abs(share) < 0.1 else f"{100 * share:.0f} %"


def summary(profile: Profile, backend: str, environment: dict[str, Surroundings]) -> ProfileFacts:
    """``profile/summary.json``."""
    observation = profile.observation
    plain, recorded = (float(numpy.median(steps)) for steps in (observation.unprofiled, observation.observed))
    outside = {name: float(numpy.median(times.microseconds)) for name, times in observation.outside.items()}
    known = sum(
        (item.time or 0.0) * part.weight for item in profile.longest() for part in item.work.parts if part.source
    )
    return ProfileFacts(
        backend=backend,
        times="device kernels" if observation.on_device else "host",
        steps=observation.steps,
        plain_us=plain,
        plain_iqr_us=interquartile_range(observation.unprofiled),
        recorded_us=recorded,
        recorded_iqr_us=interquartile_range(observation.observed),
        step_us=profile.step,
        kernels_us=profile.kernels,
        inside_us=profile.inside,
        outside_us=profile.outside,
        operators_outside_us=sum(outside.values()),
        observation_us=recorded - plain,
        device_us=None if observation.device is None else float(numpy.median(observation.device)),
        range_floor_us=observation.range_floor,
        range_cost_us=observation.range_cost,
        launches=sum(item.launches for item in profile.timed),
        lines_share=known / profile.kernels if profile.kernels else None,
        ceilings=[*profile.ceilings.values()],
        longest=[describe(profile, item) for item in profile.longest()[:TOP]],
        operators_outside=dict(sorted(outside.items(), key=lambda pair: -pair[1])[:TOP]),
        environment=environment,
        not_established=profile.not_established,
    )
