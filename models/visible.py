"""Text that somebody else wrote, as it is shown: what would steer a terminal is seen, not sent, and no secret."""

import re

_HIDDEN = re.compile(r"[^\x20-\x7e]")
_SECRET = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "_KEY")


def visible(text: str) -> str:
    """``text`` as one printable line: what is not printed as itself stands as its escape, ``\\u001b`` or ``\\n``.

    They are control characters (newline and tab too), what turns or hides text (bidirectional marks, zero widths),
    separators other than a blank, and halves of a surrogate pair. Letters of any script stay.
    """
    return _HIDDEN.sub(_shown, text)


def visible_lines(text: str) -> str:
    """As :func:`visible`, but its newlines stay: for a message of our own that holds text of others."""
    return "\n".join(map(visible, text.split("\n")))


def _shown(match: re.Match[str]) -> str:
    letter = match[0]
    if letter.isprintable():
        return letter
    if letter in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[letter]
    return f"\\u{ord(letter):04x}" if ord(letter) <= 0xFFFF else f"\\U{ord(letter):08x}"


def is_secret(name: str) -> bool:
    """Whether a variable's name, or a text with one in it, says that its value is to be told nowhere."""
    return any(word in name.upper() for word in _SECRET)
