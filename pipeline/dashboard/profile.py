"""The page on which a stored capture is held to a profile that is edited there."""

import shlex
from collections.abc import Mapping
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

import streamlit as st

from inductor_debug.pipeline.config.described_keys import Key, keys
from inductor_debug.pipeline.config.help import options
from inductor_debug.pipeline.dashboard import fields, show
from inductor_debug.pipeline.dashboard.outputs import Outputs
from inductor_debug.pipeline.query.check_command import judge, read_breaks, read_graphs
from inductor_debug.pipeline.query.check_profile import Asked, against
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.artifacts import files

OWN = "the run's own"
LIMITS = (
    "strict", "alignment", "alignment_dims", "alignment_roles", "dtypes", "layout", "max_rank", "max_size", "tile",
    "max_tensor_bytes", "max_peak_bytes", "denied", "allowed", "dynamic_shapes",
)  # fmt: skip
"""Fields of a profile that are edited here."""
_BESIDE = 3


def page(outputs: Outputs) -> None:
    """The whole page."""
    st.title("Check a profile")
    names = [row["run"] for row in outputs.rows() if (outputs.root / row["run"] / files.GRAPH.folder).is_dir()]
    left, right = st.columns(2)
    name = left.selectbox("Run with a capture", names, index=0 if names else None, key="checked",
                          placeholder="none is stored")  # fmt: skip
    accel = right.selectbox("Profile", [OWN, *options("accel")], key="profile",
                            help="Its fields stand below, to be edited.")  # fmt: skip
    if name is None:
        st.info("No stored run has a capture. Start one on the page New run.")
        return
    with show.errors():
        run = outputs.inside(name)
        asked = None if accel == OWN else accel
        base = against(run, Asked(asked)).config
        verdict = st.container()
        changes = _edited(base, f"{name if asked is None else ''} {accel} ")
        _shown(verdict, run, outputs.typed(name), asked, changes)


def _edited(base: AccelConfig, within: str) -> dict[str, str]:
    """Field → what was typed for it, of those that are not as in the profile."""
    known: Mapping[str, Key] = {key.name: key for key in keys(AccelConfig(), "accel.")}
    found = {}
    with st.expander("The profile's limits", expanded=True):
        for start in range(0, len(LIMITS), _BESIDE):  # row by row, so that a phone has them in this order
            for column, name in zip(st.columns(_BESIDE), LIMITS[start : start + _BESIDE], strict=False):
                now = fields.as_typed(getattr(base, name))
                with column:
                    typed = fields.field(known[f"accel.{name}"], now, label=name, within=within)
                if typed != now:
                    found[name] = typed
    return found


def _shown(verdict: Any, run: Path, typed: str, accel: str | None, changes: Mapping[str, str]) -> None:
    """Whether the capture fits, where it does not, and the command that says the same.

    Args:
        verdict: where the first of it is told, above the limits.
        run: its folder.
        typed: the same, as it is typed.
        accel: another profile than the run's own.
        changes: field of the profile → what was typed for it.
    """
    overrides = [f"{key}={value}" for key, value in changes.items()]
    found = judge(*_captured(run), against(run, Asked(accel, overrides)))
    counts = found.violations.by_severity
    broken = counts.get("error", 0) + counts.get("warning", 0)
    open_ = found.failed or counts.get("undecided") or not found.violations.profile.rules
    with verdict:
        if broken:
            st.error("It does not fit.")
        elif open_:
            st.warning("Whether it fits is not established.")
        else:
            st.success("It fits.")
        show.text(found.message)
    named = [f"accel={accel}"] if accel else []
    words = [f"accel.{word}" for word in overrides]
    st.code(shlex.join(["inductor-debug", "check", typed, *named, *words]), language="bash", wrap_lines=True)
    if found.lines:
        st.caption("lines that are rejected, or whose findings cost most")
        show.table([item.name for item in fields_of(found.lines[0])], map(vars, found.lines))
    if found.violations.rows:
        st.caption("by rule")
        show.table(list(found.table.columns), found.table.to_dict("records"))
        st.caption("all")
        show.table(list(found.violations.table.columns), found.violations.table.to_dict("records"))


@st.cache_resource(max_entries=8, show_spinner="Reading the capture")
def _read(run: Path, changed: tuple[Any, ...]) -> tuple[Any, Any]:
    return read_graphs(run), read_breaks(run)


def _captured(run: Path) -> tuple[Any, Any]:
    """A run's graphs and breaks, read again once its files are others."""
    found = sorted((run / files.GRAPH.folder).glob("*.json"))
    return _read(run, tuple((path.name, path.lstat().st_mtime_ns) for path in found))
