"""Stored captures against a grid of profile values, and over a set of models.

::

    from inductor_debug.stages.constrain.grid import check_grid, draw_grid, parse_grid
    table = check_grid(graphs, config, parse_grid(["alignment=1:128"]))
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from inductor_debug.models.errors import ConfigurationError, closest_first, invalid_choice
from inductor_debug.models.units import VALID_BYTES, parse_bytes
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.accelerators.profile import Profile, validate_profile
from inductor_debug.stages.accelerators.rule_kinds import IN_BYTES, KINDS
from inductor_debug.stages.constrain.points import Points
from inductor_debug.stages.graphs.records import GraphRecord

if TYPE_CHECKING:
    import pandas

FIELDS = {
    "alignment": "1:128", "alignment_dims": "last,all", "max_rank": "2:6", "max_size": "4096,65536",
    "max_tensor_bytes": "1MiB,64MiB", "max_peak_bytes": "1GiB,4GiB", "layout": "contiguous,channels_last",
    "dynamic_shapes": "static,bounded",
}  # fmt: skip
"""Scalar fields of a profile that a grid may run over, and values of each."""
MOST_POINTS = 100_000


def parse_grid(overrides: Sequence[str]) -> dict[str, list[Any]]:
    """``["alignment=1:128", "max_tensor_bytes=1MiB,2MiB"]`` as fields and their values, sizes in bytes.

    A range ``A:B`` or ``A:B:STEP`` holds both ends; a list is written with commas. A field may come twice, with further
    values; each value is one point.

    Raises:
        ConfigurationError: no such field, or a value that is not one of its.
    """
    if not overrides:
        raise ConfigurationError("--grid: got nothing; valid: FIELD=VALUES.\nTry: --grid alignment=1:128")
    numbers = {item.name for item in fields(AccelConfig) if item.type in ("int | None", int | None)} | IN_BYTES
    grid: dict[str, list[Sequence[Any]]] = {}
    for override in overrides:
        name, sign, text = override.partition("=")
        name = name.removeprefix("accel.")
        if not sign or not text:
            raise ConfigurationError(f"--grid: got {override!r}; valid: FIELD=VALUES.\nTry: --grid alignment=1:128")
        if name not in FIELDS:
            nearest = closest_first(name, FIELDS)[0]
            raise invalid_choice("--grid", name, FIELDS, example=f"--grid {nearest}={FIELDS[nearest]}")
        parts = text.split(",")
        values = [_numbers(part, override, in_bytes=name in IN_BYTES) if name in numbers else [part] for part in parts]
        grid.setdefault(name, []).extend(values)
    points = math.prod(sum(map(len, values)) for values in grid.values())  # no range is written out for that
    if points > MOST_POINTS:
        raise ConfigurationError(f"--grid: got {points:,} points; valid: at most {MOST_POINTS:,}.\nTry: a larger step")
    return {name: list(dict.fromkeys(itertools.chain.from_iterable(values))) for name, values in grid.items()}


def _numbers(part: str, override: str, *, in_bytes: bool) -> Sequence[int]:
    ends = [parse_bytes(item) if in_bytes else _whole(item) for item in part.split(":")]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends) or len(ends) > 3 or ends[2:] == [0] or (len(known) > 1 and known[1] < known[0]):
        size = f"a size ({VALID_BYTES})" if in_bytes else "a whole number"
        example = "max_tensor_bytes=1MiB:8MiB:1MiB" if in_bytes else "alignment=8:128:8"
        raise ConfigurationError(
            f"--grid: got {part!r} in {override!r}; valid: {size}, A:B or A:B:STEP with A at most B.\n"
            f"Try: --grid {example}"
        )
    return known if len(known) == 1 else range(known[0], known[1] + 1, *known[2:])


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\s*[0-9]+\s*", text) else None


def check_grid(
    graphs: Iterable[GraphRecord],
    config: AccelConfig,
    grid: Mapping[str, Sequence[Any]],
    base: Profile | None = None,
    tracked: Callable[[list[tuple[Any, ...]]], Iterable[tuple[Any, ...]]] = iter,
) -> "pandas.DataFrame":
    """One row for each point: the grid's fields, then findings by severity and rule, and what they cost.

    Args:
        graphs: a run's.
        config: the profile that each point edits.
        grid: fields and their values.
        base: what ``config`` itself edits: a backend's own rules.
        tracked: gives the points one by one, and may show how many are left.

    Columns: ``findings`` (errors and warnings), ``undecided``, ``waived``, and ``findings_RULE`` for each rule that any
    point has. ``nodes`` that a finding concerns, and ``cost_bytes`` of the findings together, are as in ``summary.csv``
    (empty: not known). No point stops at an error.
    """
    import pandas

    points, rows = Points(graphs), []
    for values in tracked(list(itertools.product(*grid.values()))):
        point = dict(zip(grid, values, strict=True))
        found = points.at(_profile_of(config, point, base))
        rows.append(
            point
            | {
                "findings": found.severities.get("error", 0) + found.severities.get("warning", 0),
                "undecided": found.severities.get("undecided", 0),
                "waived": found.severities.get("waived", 0),
                "nodes": found.nodes,
                "cost_bytes": found.cost,
            }
            | {f"findings_{rule}": found.rules[rule] for rule in KINDS if rule in found.rules}
        )
    table = pandas.DataFrame(rows)
    for column in ("nodes", "cost_bytes"):  # whole numbers stay so beside what is not known
        table[column] = pandas.Series([row[column] for row in rows], dtype=object)
    by_rule = [column for column in table.columns if column.startswith("findings_")]
    table[by_rule] = table[by_rule].fillna(0).astype(int)
    return table


def _profile_of(config: AccelConfig, point: Mapping[str, Any], base: Profile | None) -> Profile:
    """The profile of a point; ConfigurationError where a field does not take its value."""
    try:
        return validate_profile(replace(config, **point), {}, base=base)
    except ConfigurationError as error:
        name = error.key.removeprefix("accel.")
        raise error.with_parts(hint=f"--grid {name}={FIELDS[name]}") if name in point else error from None


def draw_grid(table: "pandas.DataFrame", grid: Mapping[str, Sequence[Any]], title: str) -> bytes:
    """Findings and their cost over the grid's first field, a curve for each value of the others, as PNG."""
    from inductor_debug.stages.drawing import drawing, shorten

    first, *others = grid
    with drawing(8, 5.5) as (figure, png):
        above, below = figure.subplots(2, 1, sharex=True)
        groups = table.groupby(others, sort=False) if others else [((), table)]
        for key, part in groups:
            label = ", ".join(f"{name}={value}" for name, value in zip(others, key, strict=True))
            positions = range(len(part)) if part[first].dtype == object else part[first]
            above.plot(positions, part["findings"], marker=".", label=label)
            below.plot(positions, part["cost_bytes"].astype(float) / 2**20, marker=".", label=label)
            if part[first].dtype == object:
                below.set_xticks(list(positions), part[first])
        above.set_ylabel("findings")
        below.set_ylabel("cost in MiB")
        below.set_xlabel(f"accel.{first}")
        for axes in (above, below):
            axes.set_ylim(bottom=0)
            axes.grid(visible=True, alpha=0.3)
        if others:
            above.legend()
        above.set_title(shorten(title, 110))
        figure.tight_layout()
        return png()
