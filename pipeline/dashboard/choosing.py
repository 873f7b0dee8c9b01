"""What runs and sweeps have in common on their pages: filters, and one held to another."""

import shlex
from collections.abc import Sequence

import streamlit as st

from inductor_debug.pipeline.dashboard import show
from inductor_debug.pipeline.dashboard.outputs import Outputs, Row
from inductor_debug.pipeline.query.compare_command import compared
from inductor_debug.pipeline.query.list_command import FILTERS


def filtered(rows: Sequence[Row]) -> list[Row]:
    """Those that the filters leave, by the values that there are."""
    with st.expander("Filter"):
        chosen = {}
        for column, key in zip(st.columns(len(FILTERS)), FILTERS, strict=True):
            values = sorted({str(row[key]) for row in rows if row[key] is not None})
            chosen[key] = column.multiselect(key, values, key=f"filter-{key}")
    return [row for row in rows if all(not values or str(row[key]) in values for key, values in chosen.items())]


def comparison(outputs: Outputs, first: str, second: str) -> None:
    """What differs between two runs or sweeps, and whether the second is worse than the first."""
    words = ["inductor-debug", "compare", outputs.typed(first), outputs.typed(second)]
    st.code(shlex.join(words), language="bash", wrap_lines=True)
    found = compared([outputs.inside(first), outputs.inside(second)], None)
    if found.reason:
        (st.error if found.exit_code else st.success)("Worse" if found.exit_code else "Not worse")
        show.text(found.reason)
    for told in found.found.told:
        show.text(told)
    show.tables(found.found.tables)
