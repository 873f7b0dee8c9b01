"""What a profile comes to, in words and as ``profile/summary.json``."""

import numpy

from inductor_debug.stages.artifacts.measurements import ProfileFacts, Surroundings
from inductor_debug.stages.benchmark.timing import interquartile_range
from inductor_debug.stages.formatting import counted, place
from inductor_debug.stages.profile.section import NOISY
from inductor_debug.stages.profile.tables import Profile, Timed, line_rows, rates, roofline

TOP = 10
"""Kernels, lines and operators that the summary names."""


def message(profile: Profile) -> str:
    """One line for a person: where the time goes, what is outside kernels, how close to the ceiling the longest is."""
    top = profile.longest()
    step = f"{profile.step / 1e3:.3g} ms" if profile.step < 1e6 else f"{profile.step / 1e3:.0f} ms"
    if not top:
        return f"not established: no kernel was seen in {counted(profile.observation.steps, 'step')} of {step}"
    noun = "operation" if top[0].work.kind in ("operation", "operator", "backward") else "kernel launch"
    launches = counted(round(sum(item.launches for item in top)), noun, None if noun == "operation" else noun + "es")
    inside, outside = profile.inside / profile.step, profile.outside / profile.step
    parts = [f"{percent(inside)} of a step of {step} in {launches}, {percent(outside)} outside them"]
    lines = [row for row in line_rows(profile) if row.source]
    if lines:
        parts.append(f"most at {place(lines[0].source)} ({percent(lines[0].share or 0.0)}: {lines[0].code})")
    parts.append(f"longest: {describe(profile, top[0])}")
    spread, told = _spread(profile), profile.kernels / profile.step
    if spread > NOISY:
        parts.append(f"the steps differ (interquartile range {percent(spread)}): was the machine busy?")
    if abs(told - inside) > NOISY:
        parts.append(f"the tables' medians add up to {percent(told)}")
    added = _added(profile)
    if added > max(NOISY, spread):
        parts.append(f"recording adds {percent(added)} to a step")
    if profile.not_established:
        parts.append(f"{counted(len(profile.not_established), 'thing')} not established")
    return "; ".join(parts)


def _spread(profile: Profile) -> float:
    """Interquartile range over median: of the recorded steps or the unprofiled ones, where it is larger."""
    steps = (profile.observation.unprofiled, profile.steps)
    return max(interquartile_range(each) / float(numpy.median(each) or 1.0) for each in steps)


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
