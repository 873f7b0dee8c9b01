"""The page of stored runs: all, one, and two against each other."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from inductor_debug.pipeline import query
from inductor_debug.pipeline.dashboard import show
from inductor_debug.pipeline.dashboard.choosing import comparison, filtered
from inductor_debug.pipeline.dashboard.outputs import Outputs
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.query.export import formats
from inductor_debug.pipeline.query.export.bundle import bundle, linked_to
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.stored_run import Wanted

COLUMNS = ("verdict", *(name for name in store.COLUMNS if name not in ("run", "verdict")), "test.median_ms",
           "test.compile_s", "run")  # fmt: skip
_OFFERED = (formats.Format.MARKDOWN, formats.Format.SARIF, formats.Format.JUNIT, formats.Format.JSON)


def page(outputs: Outputs) -> None:
    """The whole page."""
    st.title("Runs")
    rows = outputs.rows()
    if not rows:
        st.info(f"No run is stored below {outputs.root}. Start one on the page New run.")
        return
    found = filtered(rows)
    st.caption(f"{len(found)} of {counted(len(rows), 'run')}, the newest first")
    show.table(COLUMNS, found)
    names = [row["run"] for row in found]
    opened = st.session_state.pop("open", None if "run" in st.session_state else st.query_params.get("run"))
    if opened in names:
        st.session_state["run"] = opened
    left, right = st.columns(2)
    name = left.selectbox("Run", names, index=None, key="run", placeholder="choose a run to open")
    other = right.selectbox("Compare with", [one for one in names if one != name], index=None, key="other",
                            placeholder="choose another: is it worse than the first?")  # fmt: skip
    if name is None:
        st.query_params.clear()
        return
    st.query_params["run"] = name
    if other is not None:
        with show.errors():
            comparison(outputs, name, other)
        return
    with show.errors():
        _one(outputs.inside(name))


def _one(folder: Path) -> None:
    """A run: what came of it, its report, and what can be taken away."""
    summary, report, away = st.tabs(["Summary", "Report", "Download"])
    run = query.open_run(folder)
    with summary, show.errors():
        found = query.analyze(run, "summary", Wanted())
        for told in found.told:
            show.text(told)
        show.tables(table for table in found.tables if table.name == "stages")
        for caption, file in (("violations by rule", files.BY_RULE), ("violations", files.VIOLATIONS)):
            rows = file.read(run.artifacts)
            if rows:
                st.caption(caption)
                show.table([*file.checks()], rows)
    with report, show.errors():
        _, content = formats.made(folder, formats.Format.HTML)
        show.stored_page(linked_to(str(content), ()))
    with away:
        st.caption("An export is one file to send: report, results and reproductions, without names of this machine.")
        _offer("Export", lambda: (f"{folder.name}.zip", bundle(run)))
        for format in _OFFERED:
            _offer(format.value, partial(formats.made, folder, format))


def _offer(label: str, make: Callable[[], tuple[str, Any]]) -> None:
    """A button that gives a file, or why it can't be made."""
    with show.errors():
        name, content = make()
        st.download_button(f"Download {label}", content, file_name=name, on_click="ignore", key=f"download-{label}")
