"""Numbers in words, the same in every stage's message and in the report."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from inductor_debug.models.errors import message_of

MOST_OF_AN_ERROR = 300
"""Characters of an error's message."""


def headline(message: str) -> str:
    """The first line of a stage's message: what was found, in a sentence. The figures behind it stand below."""
    return message.partition("\n")[0]


def in_lines(*parts: str) -> str:
    """A line each, what is empty left out."""
    return "\n".join(part for part in parts if part)


def in_words(*sentences: str) -> str:
    """Sentences on one line, what is empty left out."""
    return " ".join(sentence for sentence in sentences if sentence)


def as_sentence(text: str) -> str:
    """A capital letter at its beginning, where that is no name with a dot or an underscore, and a full stop."""
    first = text.partition(" ")[0].rstrip(",:;")
    capital = text[:1].upper() if first.isalpha() else text[:1]
    return closed(f"{capital}{text[1:]}")


def closed(text: str) -> str:
    """With a full stop; empty where it is."""
    return text if not text or text.endswith((".", "?", "!")) else f"{text}."


def because(text: str, reason: str) -> str:
    """``text: reason.``, or without a reason ``text.``"""
    return closed(f"{text}: {reason}" if reason else text)


def noted(message: str, note: str) -> str:
    """A stage's message with a note behind its first line; as it is without one."""
    told, *figures = message.split("\n")
    return "\n".join([f"{told} ({note})".lstrip(), *figures]) if note else message


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 graph``, ``2 graphs``; the plural is given where it is not made with an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def percent(value: Any) -> str:
    """A share of 0.0253 as ``2.53 %``; a dash where unknown."""
    try:
        share = 100 * float(value)
    except (TypeError, ValueError):
        return "–"
    if 0 < share < 0.001:
        return "< 0.001 %"
    return f"{share:.0f} %" if abs(share) >= 1000 else f"{share:.3g} %"


def describe_breaks(kinds: Sequence[str]) -> str:
    """``3 graph breaks, 1 of them a skipped frame``; empty where Dynamo broke nothing.

    Args:
        kinds: of each break, as in ``capture/breaks.json``.
    """
    if not kinds:
        return ""
    skipped = kinds.count("skipped_frame")
    if skipped == len(kinds):
        return counted(skipped, "skipped frame")
    of_them = f", {skipped} of them {'a skipped frame' if skipped == 1 else 'skipped frames'}" if skipped else ""
    return counted(len(kinds), "graph break") + of_them


def describe_calls(generated: int, calls: int, library: int) -> str:
    """``16 generated kernels; 42 kernel calls, 26 of them to library kernels``."""
    kernels, total = counted(generated, "generated kernel"), counted(calls, "kernel call")
    return f"{kernels}; {total}, {library} of them to library kernels"


def place(value: Any) -> str:
    """A source line without the folders that hold installed packages; the whole path is in the files.

    One of torch's own is told as such: the model has none there.
    """
    short = re.sub(r".*/(?:site|dist)-packages/", "", str(value)) if value else "–"
    return f"{short} (torch's own)" if short.startswith("torch/") else short


def places(lines: Iterable[Any]) -> list[str]:
    """Source lines as :func:`place` has them, one after another of a file by their numbers: ``net.py:7``, ``8``."""
    found, last = [], None
    for line in lines:
        file, _, number = place(line).rpartition(":")
        found.append(number if file and file == last else place(line))
        last = file
    return found


def human_bytes(value: Any) -> str:
    """Bytes with a binary unit; a dash where unknown."""
    try:
        size = float(value)
    except (TypeError, ValueError):
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def in_one_line(error: BaseException, lines: int = 1) -> str:
    """``Type: first line of the message``, of several lines with the next where the first one only announces it."""
    told = [line.strip() for line in message_of(error).splitlines() if line.strip()][:lines]
    text = " ".join(told) if told and told[0].endswith(":") else next(iter(told), "")
    text = text if len(text) <= MOST_OF_AN_ERROR else f"{text[:MOST_OF_AN_ERROR]}…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def stage_note(stages: Iterable[Mapping[str, Any]], name: str) -> str:
    """What became of a stage, of ``stages`` of summary.json, which has all that were selected: why there is nothing."""
    known = list(stages)
    for stage in known:
        if stage.get("name") == name:
            told = headline(str(stage.get("message") or "")).removesuffix(".")
            reason = f": {told}" if told else ""
            return f"the stage {name} {_was(str(stage.get('status')))}{reason}"
    return f"the stage {name} {'was not selected' if known else 'left no record'}"


def _was(status: str) -> str:
    return {"timed_out": "timed out", "crashed": "crashed", "passed": "passed", "failed": "failed"}.get(
        status, f"was {status}"
    )


def times(value: Any) -> str:
    """A ratio to three digits, never as a power of ten: ``25,700``, ``1.25``; a dash where unknown."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "–"
    if not math.isfinite(number):
        return str(number)
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def short(value: Any) -> str:
    """A number to three digits, four-digit whole numbers in full; ``unknown`` where there is none."""
    if value is None:
        return "unknown"
    if isinstance(value, complex):
        return f"{value:.3g}"
    number = float(value)
    return f"{number:.0f}" if 1000 <= abs(number) < 1e6 else f"{number:.3g}"
