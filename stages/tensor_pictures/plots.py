"""The pictures of a comparison, as PNG bytes, without a display: one over all tensors, and one each of some."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from inductor_debug.stages.artifacts.files import PLOT
from inductor_debug.stages.file_names import file_name
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.tensor_pictures.summary import draw_summary
from inductor_debug.stages.tensor_pictures.tensor import draw

Leaves = Mapping[str, Mapping[str, Any]]
"""kind → path → leaf."""


def pictures(
    rows: Iterable[TensorComparison], failed: Iterable[TensorComparison], reference: Leaves, test: Leaves
) -> dict[str, bytes]:
    """Pictures by the name of their artifact.

    Args:
        rows: all results, in dataflow order: ``summary.png`` shows them; no rows, no summary.
        failed: those that get a picture of their own, worst first. Left out are those that are not on both sides a
            tensor, of one shape.
        reference, test: the leaves that the rows name.
    """
    found = {}
    rows = list(rows)
    if rows:
        found[PLOT.at("summary.png")] = draw_summary(rows)
    for index, row in enumerate(failed):
        left, right = reference.get(row.kind, {}).get(row.place), test.get(row.kind, {}).get(row.path)
        if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor) and left.shape == right.shape:
            found[PLOT.at(file_name(f"{index:02d}-{row.kind}-{row.path}", ".png"))] = draw(left, right, row)
    return found
