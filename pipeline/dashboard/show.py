"""What the pages show alike: stored text as it is, tables, a stored page, errors.

Nothing that is stored becomes markup, and no script of it runs: a run may be a stranger's.
"""

import contextlib
import html
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas
import streamlit as st

from inductor_debug.models.errors import UserError
from inductor_debug.models.visible import visible, visible_lines
from inductor_debug.pipeline.terminal import cell
from inductor_debug.stages.formatting import place
from inductor_debug.stages.stored_run import Table

HEIGHT = 900
"""Of a stored page, in pixels."""
_FORBIDDEN = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
"""Content security policy of a stored page: no script, and nothing from elsewhere."""


def text(words: str) -> None:
    """Stored text, line by line."""
    st.text(visible_lines(words))


def table(columns: Sequence[str], rows: Iterable[Any], *, key: str | None = None) -> None:
    """A table of mappings; nothing where there are no rows. A source line is without the folders of packages."""
    found = [{name: _plain(place(row.get(name)) if name == "source" else row.get(name)) for name in columns}
             for row in rows]  # fmt: skip
    if not found:
        return
    frame = pandas.DataFrame(found, columns=list(columns))
    for name in columns:
        if len({isinstance(value, str) for value in frame[name].dropna()}) > 1:  # a column has one type
            frame[name] = [cell(row[name]) for row in found]
    st.dataframe(frame, hide_index=True, key=key, height=min(HEIGHT // 3, 38 * (len(found) + 1)))


def tables(found: Iterable[Table]) -> None:
    """Tables of an answer, each below its name."""
    for each in found:
        if each.rows:
            st.caption(each.name)
            table(each.columns, each.rows)


def stored_page(page: str) -> None:
    """A stored page of HTML, in a frame of its own from which nothing gets out."""
    policy = f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{_FORBIDDEN}">'
    inner = html.escape(policy + page, quote=True)
    frame = (
        f'<iframe sandbox title="report" style="width:100%;height:{HEIGHT - 20}px;border:0" srcdoc="{inner}"></iframe>'
    )
    st.iframe(f"<!doctype html><body style='margin:0'>{frame}</body>", height=HEIGHT)


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """A mistake of the user's, or damage of a file, is told where it happens; the rest of the page stays."""
    try:
        yield
    except UserError as error:
        st.error("It can't be shown, or done:")
        st.code(visible_lines(str(error)), language=None, wrap_lines=True)


def _plain(value: Any) -> Any:
    """A value that a table takes: numbers stay numbers."""
    if value is None or isinstance(value, float) or (type(value) is int and abs(value) < 2**53):
        return value
    return visible(cell(value))
