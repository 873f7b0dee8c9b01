"""Which guards dynamic shapes keep, relax or remove."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from inductor_debug.stages.artifacts.guards import Guard
from inductor_debug.stages.guards.records import CompiledFrame
from inductor_debug.stages.torch_internals.guard_text import is_about, is_tensor_check, without_layout

SHAPE_ENV = "SHAPE_ENV"
_Key = tuple[str, str, tuple[str, ...], int]


def compare_frames(frames: Iterable[CompiledFrame], dynamic: Iterable[CompiledFrame]) -> None:
    """Note in each frame's guards what became of them in the frame of the same code compiled with ``dynamic=True``.

    Frames of one code are matched in order. One without a partner says so in ``not_established``.
    """
    partners: dict[Any, list[CompiledFrame]] = defaultdict(list)
    for frame in dynamic:
        partners[frame.place].append(frame)
    for frame in frames:
        waiting = partners[frame.place]
        if waiting:
            compare_guards(frame, waiting.pop(0))
        else:
            frame.not_established = "with dynamic=True this code was not compiled as often"


def compare_guards(frame: CompiledFrame, other: CompiledFrame) -> None:
    """Set ``dynamic`` and ``becomes`` of one frame's guards, and the frame's ``added``."""
    twins = _by_key(other.guards)
    own = _by_key(frame.guards)
    conditions = [condition for guard in other.guards if guard.type == SHAPE_ENV for condition in guard.code]
    every = {condition for guard in other.guards for condition in guard.code}
    new = {key: guard for key, guard in twins.items() if key not in own}
    for key, guard in own.items():
        twin = twins.get(key)
        same = twin is not None and (twin.size, twin.stride) == (guard.size, guard.stride)
        if same or (guard.code and every.issuperset(guard.code)):  # a number made symbolic may be held to its value yet
            guard.dynamic = "kept"
            continue
        guard.becomes = _instead(guard, twin, conditions, new)
        guard.dynamic = "relaxed" if twin is not None or guard.becomes else "gone"
    before = {condition for guard in frame.guards for condition in guard.code}
    frame.added = [condition for condition in dict.fromkeys(conditions) if condition not in before]


def _instead(guard: Guard, twin: Guard | None, conditions: list[str], new: Mapping[_Key, Guard]) -> list[str]:
    """What the dynamic compilation holds the guard's object to, where it is not the guard itself."""
    if not guard.name:
        return []
    found = [condition for condition in conditions if is_about(condition, guard.name, tensor=guard.size is not None)]
    if twin is not None:
        return [f"size={twin.size}, stride={twin.stride}", *found]
    return found + [code for other in new.values() if other.name == guard.name for code in other.code]


def _by_key(guards: Iterable[Guard]) -> dict[_Key, Guard]:
    """Guards by kind, object and conditions, sizes aside; those alike in order."""
    counts: dict[tuple[str, str, tuple[str, ...]], int] = defaultdict(int)
    found: dict[_Key, Guard] = {}
    for guard in guards:
        others = tuple(code for code in guard.code if not is_tensor_check(code))
        tensor = next((without_layout(code) for code in guard.code if is_tensor_check(code)), "")
        key = guard.type, guard.name, (tensor, *others)
        found[(*key, counts[key])] = guard
        counts[key] += 1
    return found


def differences(frame: CompiledFrame, first: CompiledFrame) -> tuple[list[str], list[str]]:
    """Conditions of its first compilation that a frame compiled again has not, and those that are new."""
    before, after = _conditions(first), _conditions(frame)
    return [code for code in before if code not in after], [code for code in after if code not in before]


def _conditions(frame: CompiledFrame) -> dict[str, None]:
    return {code: None for guard in frame.guards for code in guard.code}
