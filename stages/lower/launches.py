"""Which buffers each launch of a generated module is given. Free of torch."""

import re
from collections.abc import Collection

_HANDLES = re.compile(r"\[Provenance debug handles\]\s*(?P<launches>.+?)\s*$")
_NAME = re.compile(r"[A-Za-z_]\w*")
_COMMENTS = ("#", "//")


def launch_buffers(source_code: str, buffers: Collection[str]) -> dict[str, list[str]]:
    """``kernel:handle`` → the names among ``buffers`` in the statement that launches it, in order.

    The module may be Python, or C++ with TorchInductor's C++ wrapper: in both a comment with the handle stands before
    the statement.
    """
    known = set(buffers)
    lines = source_code.splitlines()
    found: dict[str, list[str]] = {}
    for index, line in enumerate(lines):
        match = _HANDLES.search(line)
        if match is None:
            continue
        names = dict.fromkeys(name for name in _NAME.findall(_statement(lines, index + 1)) if name in known)
        for launch in match["launches"].split(", "):
            found[launch] = list(names)
    return found


def _statement(lines: list[str], start: int) -> str:
    """The text of the first statement from line ``start`` on: to where its parentheses are closed."""
    text, depth = "", 0
    for line in lines[start:]:
        if line.lstrip().startswith(_COMMENTS):
            continue
        text += line + "\n"
        depth += line.count("(") - line.count(")")
        if depth <= 0 and text.strip():
            break
    return text
