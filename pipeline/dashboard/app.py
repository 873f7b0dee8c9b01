"""The program that Streamlit runs for each reader: ``streamlit run app.py -- FOLDER``."""

import sys
from functools import partial
from pathlib import Path

import streamlit as st

from inductor_debug.pipeline.dashboard import new_run, profile, runs, sweeps, trend
from inductor_debug.pipeline.dashboard.outputs import opened

PAGES = {
    "runs": (runs.page, "Runs"),
    "run": (new_run.page, "New run"),
    "sweeps": (sweeps.page, "Sweeps"),
    "trend": (trend.page, "Over time"),
    "check": (profile.page, "Check a profile"),
}
"""Path of each page → what shows it, and its title."""


def main(root: str) -> None:
    """All pages over the runs below one folder."""
    st.set_page_config(page_title="inductor-debug", layout="wide")
    stored = opened(Path(root))
    pages = {path: st.Page(partial(page, stored), title=title, url_path=path, default=path == "runs")
             for path, (page, title) in PAGES.items()}  # fmt: skip
    st.session_state["pages"] = pages
    st.navigation(list(pages.values()), position="top").run()


if __name__ == "__main__":
    main(*sys.argv[1:])
