"""Source text as HTML with a few classes for its colours."""

from collections.abc import Iterator

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, String, _TokenType

_CLASSES = (
    (Comment, "comment"),
    (Keyword, "keyword"),
    (String, "string"),
    (Number, "number"),
    (Name.Builtin, "builtin"),
    (Name.Function, "function"),
    (Name.Decorator, "builtin"),
)
LANGUAGES = {"py": "python", "cpp": "cpp", "cu": "cuda", "h": "cpp", "txt": "python"}
"""Ending of a file → name of its lexer; the compiler's IR reads as Python."""


def highlighted(text: str, language: str) -> list[Markup]:
    """Lines of a source as HTML, escaped.

    Args:
        text: the source.
        language: a lexer's name of Pygments, such as ``python`` or ``cpp``.
    """
    lines = [Markup()]
    for kind, value in _tokens(get_lexer_by_name(language, stripnl=False, ensurenl=False), text):
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append(Markup())
            if part:
                lines[-1] += Markup('<span class="{}">{}</span>').format(kind, part) if kind else escape(part)
    return lines


def _tokens(lexer: Lexer, text: str) -> Iterator[tuple[str, str]]:
    """Class and text of each part; neighbours of one class together."""
    before, held = "", ""
    for token, value in lexer.get_tokens(text):
        kind = _class_of(token)
        if kind != before and held and not value.isspace():
            yield before, held
            before, held = kind, ""
        elif not held:
            before = kind
        held += value
    if held:
        yield before, held


def _class_of(token: _TokenType) -> str:
    return next((name for parent, name in _CLASSES if token in parent), "")
