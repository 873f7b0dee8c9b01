"""What the two sides' settings say of the comparison: whether they ran the same case, held to the same measures."""

from collections.abc import Mapping
from typing import Any

from inductor_debug.pipeline.query.gate.judgement import Scales

CASE = ("model", "mode", "dtype", "precision", "tf32", "seed", "device", "reference")
"""What a result is of. Another model's result, or another dtype's, can't be held to this one's."""
FREE = "backend"
"""What is under test: it may differ in all."""
BUILD = "model.build."
"""The builder's arguments: one that a side lacks is a difference. Elsewhere a newer version may have added the key."""


def case_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Keys of the case that differ, in order; settings are by dotted key."""
    return [key for key in _differing(a, b) if key.partition(".")[0] in CASE]


def measure_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Keys of what they were measured by that differ: the profile, and options of stages."""
    return [key for key in _differing(a, b) if key.partition(".")[0] not in (*CASE, FREE)]


def told(keys: list[str], a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """``dtype (float32, bfloat16), seed (0, 1)``."""
    return ", ".join(f"{key} ({a.get(key)}, {b.get(key)})" for key in keys)


def hold_case(scales: Scales, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Hold B's case to A's; whether it is the same."""
    keys = case_differences(a, b)
    limit = scales.limit("case")
    if limit is not None and len(keys) > limit:
        for key in keys:
            why = "another case, whose result can't be held to A's"
            scales.unknown("case", key, a.get(key), b.get(key), why, fails=True)
    return not keys


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    keys = dict.fromkeys([*a, *b])
    return [key for key in keys if a.get(key) != b.get(key) and ((key in a and key in b) or key.startswith(BUILD))]
