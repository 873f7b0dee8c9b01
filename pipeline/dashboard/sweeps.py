"""The page of stored sweeps: a measure over the axes that are chosen."""

import itertools
from collections import Counter
from pathlib import Path

import pandas
import streamlit as st

from inductor_debug.models.stored import read_text
from inductor_debug.pipeline.dashboard import show
from inductor_debug.pipeline.dashboard.choosing import comparison, filtered
from inductor_debug.pipeline.dashboard.outputs import Outputs
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.run.sweep.changes import axes_of
from inductor_debug.pipeline.run.sweep.pivots import MEASURES, short_name, text_of
from inductor_debug.pipeline.run.sweep.rows import Row, row_of
from inductor_debug.pipeline.run.sweep.table import PAGE
from inductor_debug.stages.formatting import counted

NOTHING = "nothing"
OF_JOBS = ("verdict", "model", "accel", "backend")


def page(outputs: Outputs) -> None:
    """The whole page."""
    st.title("Sweeps")
    rows = outputs.rows()
    jobs = {name: [row for row in rows if row["run"].startswith(f"{name}/")] for name in outputs.sweeps()}
    left = {row["run"] for row in filtered(list(itertools.chain.from_iterable(jobs.values())))}
    found = {name: of for name, of in jobs.items() if not of or any(row["run"] in left for row in of)}
    show.table(("sweep", "jobs", *OF_JOBS), [_line(name, of) for name, of in found.items()])
    names = list(found)
    opened = st.session_state.pop("open", None)
    if opened in names:
        st.session_state["of sweep"] = opened
    first, second = st.columns(2)
    name = first.selectbox("Sweep", names, index=0 if names else None, key="of sweep", placeholder="none is stored")
    other = second.selectbox("Compare with", [one for one in names if one != name], index=None, key="other sweep",
                             placeholder="choose another: is it worse than the first?")  # fmt: skip
    if name is None:
        return
    if other is not None:
        with show.errors():
            comparison(outputs, name, other)
        return
    with show.errors():
        folder = outputs.inside(name)
        rows = [row_of(folder, run) for run in store.find_runs(folder)]
        table, stored = st.tabs(["Pivot", "Its page"])
        with table:
            _pivot(rows)
        with stored, show.errors():
            _page(folder / PAGE)


def _line(name: str, jobs: list[Row]) -> Row:
    """A sweep's line: its jobs' values of each of :data:`OF_JOBS`, and how many have them."""
    counts = {key: Counter(str(job[key]) for job in jobs) for key in OF_JOBS}
    told = {key: ", ".join(f"{value} ({count})" for value, count in found.items()) for key, found in counts.items()}
    return {"sweep": name, "jobs": len(jobs), **told}


def _pivot(rows: list[Row]) -> None:
    """A measure, one axis down and one across; a cell has the values of all jobs that are alike in both."""
    axes = {short_name(axis): axis for axis in axes_of(rows)}
    measures = {title: name for name, title in MEASURES.items() if any(row.get(name) is not None for row in rows)}
    show.text(f"{counted(len(rows), 'job')} over {', '.join(axes) or 'no axis'}")
    if not axes or not measures:
        show.table(("dir", "verdict", "error"), rows)
        return
    left, middle, right = st.columns(3)
    measure = left.selectbox("Measure", list(measures))
    down = middle.selectbox("Down", list(axes))
    others = [axis for axis in axes if axis != down]
    across = right.selectbox("Across", [*others, NOTHING], index=0)
    by = [down] if across == NOTHING else [down, across]
    keys = [pandas.Series([text_of(row.get(axes[axis])) for row in rows], name=axis) for axis in by]
    values = pandas.Series([_shown(row.get(measures[measure])) for row in rows], name=measure)
    table = values.groupby(keys, sort=False).agg(", ".join)
    st.dataframe(table.unstack(sort=False) if len(by) > 1 else table.to_frame())


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else text_of(value)


def _page(path: Path) -> None:
    try:
        show.stored_page(read_text(path, root=path.parent))
    except FileNotFoundError:
        st.caption("It has none.")
