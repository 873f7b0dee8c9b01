"""Stored captures against a grid of profile values, and over a set of models. Free of torch.

::

    from stages.constrain.grid import check_grid, draw_grid, parse_grid
    table = check_grid(graphs, config, parse_grid(["alignment=1:128"]))
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from models.errors import ConfigurationError, invalid_choice
from stages.constrain.config import AccelConfig
from stages.constrain.engine import check
from stages.constrain.kinds import KINDS
from stages.constrain.profile import validate_profile
from stages.graphs import GraphRecord

if TYPE_CHECKING:
    import pandas

FIELDS = ("alignment", "alignment_dims", "max_rank", "max_size", "max_tensor_bytes", "max_peak_bytes", "layout",
          "dynamic_shapes")  # fmt: skip
"""Scalar fields of a profile that a grid may run over."""
MOST_POINTS = 100_000


def parse_grid(words: Sequence[str]) -> dict[str, list[Any]]:
    """``["alignment=1:128", "alignment_dims=last,all"]`` as fields and their values.

    A range ``A:B`` or ``A:B:STEP`` holds both ends; a list is written with commas.

    Raises:
        ConfigurationError: no such field, or a value that is not one of its.
    """
    if not words:
        raise ConfigurationError("--grid: got nothing; valid: FIELD=VALUES.\nTry: --grid alignment=1:128")
    numbers = {item.name for item in fields(AccelConfig) if item.type in ("int | None", int | None)}
    grid: dict[str, list[Any]] = {}
    for word in words:
        name, sign, text = word.partition("=")
        name = name.removeprefix("accel.")
        if not sign or not text:
            raise ConfigurationError(f"--grid: got {word!r}; valid: FIELD=VALUES.\nTry: --grid alignment=1:128")
        if name not in FIELDS:
            raise invalid_choice("--grid", name, FIELDS)
        values: list[Any] = []
        for part in text.split(","):
            values += _numbers(part, word) if name in numbers else [part]
        grid[name] = values
    points = math.prod(map(len, grid.values()))
    if points > MOST_POINTS:
        raise ConfigurationError(f"--grid: got {points:,} points; valid: at most {MOST_POINTS:,}.\nTry: a larger step")
    return grid


def _numbers(part: str, word: str) -> list[int]:
    try:
        ends = [int(item) for item in part.split(":")]
    except ValueError:
        ends = []
    if not 1 <= len(ends) <= 3 or (len(ends) == 3 and ends[2] <= 0) or (len(ends) > 1 and ends[1] < ends[0]):
        raise ConfigurationError(
            f"--grid: got {part!r} in {word!r}; valid: a whole number, A:B or A:B:STEP with A at most B.\n"
            "Try: --grid alignment=8:128:8"
        )
    return ends if len(ends) == 1 else list(range(ends[0], ends[1] + 1, *ends[2:]))


def check_grid(
    graphs: Iterable[GraphRecord], config: AccelConfig, grid: Mapping[str, Sequence[Any]]
) -> "pandas.DataFrame":
    """One row for each point: the grid's fields, then findings by severity, rule and effect, and what they cost.

    Columns: ``findings`` (errors and warnings), ``undecided``, ``waived``, ``cost_bytes`` of the findings together,
    ``nodes`` that have one, and ``findings_RULE`` for each rule that any point has. No point stops at an error.
    """
    import pandas

    records = list(graphs)
    rows = []
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        violations = check(records, validate_profile(replace(config, **point), {}))
        severities = Counter(row.severity for row in violations)
        counting = [row for row in violations if row.severity in ("error", "warning")]
        rules = Counter(row.rule for row in counting)
        rows.append(
            point
            | {
                "findings": len(counting),
                "undecided": severities["undecided"],
                "waived": severities["waived"],
                "nodes": len({(row.graph, row.node) for row in counting}),
                "cost_bytes": sum(row.cost_bytes or 0 for row in counting),
            }
            | {f"findings_{rule}": rules[rule] for rule in KINDS if rule in rules}
        )
    table = pandas.DataFrame(rows)
    by_rule = [column for column in table.columns if column.startswith("findings_")]
    table[by_rule] = table[by_rule].fillna(0).astype(int)
    return table


def draw_grid(table: "pandas.DataFrame", grid: Mapping[str, Sequence[Any]], title: str) -> bytes:
    """Findings and their cost over the grid's first field, a curve for each value of the others, as PNG."""
    from stages.drawing import drawing, shorten

    first, *others = grid
    with drawing(8, 5.5) as (figure, png):
        above, below = figure.subplots(2, 1, sharex=True)
        groups = table.groupby(others, sort=False) if others else [((), table)]
        for key, part in groups:
            label = ", ".join(f"{name}={value}" for name, value in zip(others, key, strict=True))
            positions = range(len(part)) if part[first].dtype == object else part[first]
            above.plot(positions, part["findings"], marker=".", label=label)
            below.plot(positions, part["cost_bytes"] / 2**20, marker=".", label=label)
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
