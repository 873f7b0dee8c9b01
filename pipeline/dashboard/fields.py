"""Fields of a form, as the schema describes them: label, help, what may be chosen, the default."""

import re
from typing import Any

import streamlit as st
import yaml

from inductor_debug.models.options import items_of, range_of
from inductor_debug.pipeline.config.arguments import quoted
from inductor_debug.pipeline.config.described_keys import Key
from inductor_debug.pipeline.config.docstrings import markdown, sentence
from inductor_debug.pipeline.config.schema_fields import example_for

_SAFE = 2**53 - 1
"""The largest whole number that a browser keeps."""
NULL = "null"


def field(key: Key, given: str, *, label: str = "", within: str = "") -> str:
    """One key's field.

    Args:
        key: of the configuration.
        given: its value before anybody chooses, as it is typed.
        label: of the field; the key's name if empty.
        within: what tells it from a field of the same key elsewhere.

    Returns:
        what was chosen, as it is typed after ``KEY=``.
    """
    about: dict[str, Any] = {"label": label or key.name, "help": help_of(key), "key": f"{within}{key.name}"}
    listed = [*key.choices, *([NULL] if key.nullable and key.choices else [])]
    if listed:
        return str(st.selectbox(options=listed, index=listed.index(given) if given in listed else 0, **about))
    each = items_of(key.field)
    if each:
        found = st.multiselect(
            options=each, default=[one for one in yaml.safe_load(given) or [] if one in each], **about
        )
        return f"[{','.join(found)}]"
    limits = range_of(key.field)
    if limits is not None and limits.whole and limits.least >= -_SAFE:
        number = st.number_input(min_value=int(limits.least), max_value=int(min(limits.most, _SAFE)), step=1,
                                 value=None if given == NULL else int(given), placeholder=NULL, **about)  # fmt: skip
        return NULL if number is None else str(number)
    typed = st.text_input(value="" if given == NULL else given, placeholder=example_for(key.name), **about)
    return typed.strip() or (NULL if key.nullable else given)


def on_command_line(key: Key) -> str:
    """One key's field, from its default on: what was chosen, as a word of a command has it behind ``KEY=``."""
    typed = field(key, as_typed(key.value))
    text = key.annotation in (str, str | None) and typed != NULL
    return quoted(typed) if text and not re.fullmatch(r"[\w./:%-]*", typed) else typed


def help_of(key: Key) -> str:
    """What a key means, what it takes, and its default, as Markdown."""
    said = sentence(markdown(key.text)) if key.text else ""
    return f"{said} It takes {key.takes}; by default {key.default}.".strip()


def as_typed(value: Any) -> str:
    """A value of the configuration as it is typed after ``KEY=``: YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
