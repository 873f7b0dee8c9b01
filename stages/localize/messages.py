"""What localization tells a person."""

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from inductor_debug.stages.artifacts.localization import Culprit, Localization, MendedRun, Neighbour
from inductor_debug.stages.formatting import counted, in_lines, short, times
from inductor_debug.stages.localize.config import TRUSTED

FEW = 3
"""Culprits, and other things, that a message describes."""


def told(found: Localization, *, failed: bool) -> Localization:
    """The same with its message; ``failed``: whether the comparison of outputs was no pass."""
    parts = [_head(found, failed=failed), _coverage(found), _accounted(found)]
    if found.same_bits is False:
        parts.append("The run that was looked at did not give the bits of the run that was compared.")
    parts.append(_mended(found.mended))
    if found.missing:
        parts.append(f"Not looked at: {_first(found.missing)}.")
    return replace(found, message=in_lines(*parts))


def _head(found: Localization, *, failed: bool) -> str:
    if found.culprits:
        measured = {name for run in found.mended if len(run.operations) == 1 for name in run.operations}
        names = [_culprit(item, measured) for item in _foremost(found.culprits)]
        more = len(found.culprits) - FEW
        several = ""
        if found.kind == "systematic":
            several = f"{counted(len(found.culprits), 'value')} are off in one direction, each within its floor."
        elif found.wrong > 1 or len(names) > 1:
            several = f"Wrong for what they received: {counted(found.wrong, 'value')}, by "
            (most, count), *_ = Counter(item.place.target for item in found.culprits).most_common(1)
            of_them = "all" if count == len(found.culprits) else f"{count} of them"
            alike = f", {of_them} {most}" if count > FEW else ""
            several += f"{counted(len(found.culprits), 'operation')} as far as was looked{alike}."
        further = f"{counted(more, 'further one')} in diagnosis.json." if more > 0 else ""
        return in_lines(several, *names, further)
    if not found.checked:
        return "Which operation is wrong is not established: none could be checked."
    if found.kind == "probe_effect":
        return (
            "No operation is wrong in the run that was looked at. It gave other bits than the one that failed: to look "
            "changes it."
        )
    if found.kind == "graph":
        worst = max(found.altered, key=lambda path: float(found.altered[path]))
        return (
            "Each operation that was checked is right for what it received, but the graph is not the model's: in "
            f"float64 it gives {counted(len(found.altered), 'other output')} or gradients, {worst} by "
            f"{share(found.altered[worst])}. A pass over the graph, before it was compiled, changed what it computes."
        )
    if found.kind == "accumulation":
        return "Each operation that was checked is right for what it received. Their rounding adds up to the defect."
    if failed:
        return (
            "No operation that was checked is wrong for what it received. The fault is in what was not checked, in a "
            "pass over the graph before it was compiled, in what happens between calls, or in rounding that adds up."
        )
    return "No operation that was checked is wrong for what it received."


def _foremost(culprits: Sequence[Culprit]) -> list[Culprit]:
    """The first, and those without which the least of the final error remains; in the graph's order."""
    others = sorted(culprits[1:], key=lambda item: 1.0 if item.remains is None else float(item.remains))
    chosen = [*culprits[:1], *others[: FEW - 1]]
    return [item for item in culprits if any(item is other for other in chosen)]


def _culprit(item: Culprit, measured: Container[str]) -> str:
    """What is wrong with it; an estimate of what remains without it stands where no run ``measured`` that."""
    place = item.place
    what = f"{place.target} ({place.graph} {place.node})"
    if item.kind == "region":
        each = [f"{name} at {source}" if source else name
                for name, source in zip(place.operations, place.sources, strict=True)]  # fmt: skip
        what = f"The result of {counted(len(each), 'operation')} ({_first(each)}) that end in {what}"
    line = f" at {place.source}" if place.source else ""
    module = f" of {place.module}" if place.module else ""
    kernel = f", kernel {place.kernel}" if place.kernel else ""
    if item.kind == "slope":
        size = f"is off by a factor of {1 + float(item.slope or 0):.6g} on the whole"
    elif item.ratio is None:
        size = "is not what any right computation gives"
    else:
        size = f"is off by {times(item.ratio)} times its own rounding noise"
    got, expected = short(item.got), short(item.expected)
    if got == expected and isinstance(item.got, float) and isinstance(item.expected, float):
        got, expected = f"{item.got:.9g}", f"{item.expected:.9g}"
    worst = "" if item.index is None else f"; worst at {item.index}: {got}, not {expected}"
    others = f" It makes {counted(len(item.others), 'further value')} wrong." if item.others else ""
    remains = (
        ""
        if item.remains is None or f"{place.graph} {place.node}" in measured
        else f" By estimate {share(item.remains)} of the final error remains with that alone right."
    )
    shapes = _neighbours(item.neighbours)
    return f"{what}{line}{module}{kernel} {size}{worst}. It shows {', '.join(item.shows)}.{shapes}{others}{remains}"


def _neighbours(tried: Sequence[Neighbour]) -> str:
    """At which other shapes an operation is wrong, by the sizes on which that depends."""
    known = [item for item in tried if item.state in ("wrong", "right")]
    right = [item for item in known if item.state == "right"]
    if not known:
        return ""
    if not right:
        return f" So it does at each of {counted(len(known), 'other shape')} that were tried."
    if len(right) == len(known):
        return f" It shows at this shape alone: at none of {counted(len(known), 'other')} that were tried."
    parts = []
    for size in dict.fromkeys(item.size for item in right):
        if size is None:
            parts.append("It is right where what it receives is contiguous.")
            continue
        own = [item for item in known if item.size == size]
        states = {state: sorted(item.other or 0 for item in own if item.state == state) for state in ("right", "wrong")}
        told = [f"{state} at {', '.join(map(str, others))}" for state, others in states.items() if others]
        parts.append(f"It depends on the size {size}: {' and '.join(told)} in its place.")
    return " " + " ".join(parts)


def _coverage(found: Localization) -> str:
    if not found.operations:
        return "No operation was seen."
    largest = f", at most {found.largest} operations at a time" if found.largest > 1 else ""
    return (
        f"{found.checked} of {found.operations} operations of the compiled graphs, views left out, were checked, in "
        f"{counted(found.regions, 'value')}{largest}."
    )


def _accounted(found: Localization) -> str:
    """Which values the final error comes from."""
    missing = f"Not accounted for: {_first(found.unaccounted)}." if found.unaccounted else ""
    if found.closure is None:
        return missing
    closure = float(found.closure)
    if not abs(closure - 1) <= TRUSTED:
        told = f"Shares of the final error add up to {closure:.3g} of it: first order does not account for it."
        each = [f"{share(item.share)} ({item.graph} {item.node})" for item in found.shares[:FEW]]
        replayed = f"With one value at a time right for what it received it is smaller by {', '.join(each)}."
        return " ".join(part for part in (told, replayed if each else "", missing) if part)
    first, *others = [
        (share(item.share), f"to {item.graph} {item.node} ({item.target})") for item in found.shares[:FEW]
    ]
    largest = [f"{first[0]} arises on the way {first[1]}", *map(" ".join, others)]
    parts = [f"Of the square of the final error {', '.join(largest)} (all shares add up to {closure:.4f})."]
    if found.few:
        parts.append(
            f"Computed in a wider format, {counted(len(found.few), 'value')} would bring it down to what the verdict "
            f"allows: {_first(found.few)}."
        )
    return " ".join(part for part in (*parts, missing) if part)


def _mended(runs: Sequence[MendedRun]) -> str:
    """What runs with what was found mended say."""
    told = []
    for number, run in enumerate(runs):
        if number == 0:
            what = "that" if len(run.operations) == 1 else f"these {len(run.operations)} operations"
        else:
            what = f"{_first(run.operations)} alone"
        ratio = "" if run.ratio is None else f", the worst tensor at {times(run.ratio)} times its floor"
        told.append(f"With {what} computed right and the rest by the backend, the verdict is {run.verdict}{ratio}.")
    return in_lines(*told)


def share(value: Any) -> str:
    """A part of a whole."""
    return f"{100 * float(value):.3g} %"


def _first(items: list[str]) -> str:
    return "; ".join(items[:FEW]) + "; …" * (len(items) > FEW)
