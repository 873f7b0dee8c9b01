"""The page on which the runs of a case are followed over time."""

import pandas
import streamlit as st

from inductor_debug.pipeline.dashboard.outputs import Outputs, cases

TREND = {
    "violations": "Findings of the profile, waived ones included",
    "test.median_ms": "Latency of the test side, ms",
    "test.compile_s": "Compilation, s",
}
"""Column → what its plot is called."""


def page(outputs: Outputs) -> None:
    """Verdict, violations, latency and compile time over the runs of a case."""
    st.title("Over time")
    known = cases(outputs.rows())
    case = st.selectbox("Case", list(known), index=0 if known else None, key="case",
                        help="Runs of one model, profile, backend, dtype, device and mode.")  # fmt: skip
    if case is None:
        return
    if len(known[case]) == 1:
        st.caption("It has one run: nothing moves.")
        return
    frame = pandas.DataFrame(known[case])
    frame["started"] = pandas.to_datetime(frame["started"], unit="s", utc=True)
    st.caption("verdict")
    st.scatter_chart(frame, x="started", y="verdict")
    for column, title in TREND.items():
        measured = frame.dropna(subset=[column])
        if len(measured) > 1:
            st.caption(title)
            st.line_chart(measured.astype({column: float}), x="started", y=column)
