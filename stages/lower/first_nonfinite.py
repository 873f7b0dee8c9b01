"""In which launch a NaN or an infinity came up: told from what was printed of the values around.

A launch that writes one and reads none is where it was born. Nothing is known of a value that was not printed: its
launch was filtered out, or the printer passes over it. It may have been born in the launch that wrote it, or before.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from inductor_debug.stages.artifacts.lowered_tables import ValueRow
from inductor_debug.stages.lower.buffer_contents import Held, Memory, brought_by
from inductor_debug.stages.torch_internals.generated_launches import Launch, is_key, kernel_of

STATES = ("nan", "inf")
SHOWN = 8
"""Launches of which a column, a message or a suggestion names each."""

_OR = " or "
_MORE = re.compile(r"\d+ more")
_FREE_OF = {"nan": ("finite", "inf"), "inf": ("finite",)}
_WHOLE = ("bool", "int", "uint")

Value = tuple[str, str]
"""A buffer, and ``kernel:handle`` of the launch that wrote what it has; no launch of what the graph is given."""


def value_of(held: Held) -> Value | None:
    """What memory holds as a value that can be known again; None where nothing is known of it."""
    return (held.buffer, held.writer) if held.written and held.buffer else None


def births(memory: Memory, known: Mapping[Value, str], state: str) -> dict[Value, list[str]]:
    """Where each value that a launch writes was born, if ``state`` is in it.

    Args:
        known: value → ``nan``, ``inf`` or ``finite``, of those that something was printed of.
        state: ``nan`` or ``inf``.

    Returns:
        value → one ``kernel:handle``, or several, the nearest first, where it is not known in which. In place of a
        launch stands the name of what the graph was given, or of a buffer whose writer is not known.
    """
    found: dict[Value, list[str]] = {}
    for index, launch in enumerate(memory.launches):
        read = [(name, value_of(held)) for name, held in _read(memory, index, launch)]
        states = [known.get(value, "") if value else "" for _, value in read]
        if state in states:
            sources = [item for item, its in zip(read, states, strict=True) if its == state]
            origins: list[str] = []
        else:
            sources = [item for item, its in zip(read, states, strict=True) if its not in _FREE_OF[state]]
            origins = [launch.key]
        for name, value in sources:
            origins += found.get(value, [value[0]]) if value else [name]
        origins = list(dict.fromkeys(origins))
        found |= {(name, launch.key): origins for name in launch.writes}
    return found


def _read(memory: Memory, index: int, launch: Launch) -> Iterable[tuple[str, Held]]:
    """The buffers that a launch reads, or works in place of, and what they hold: those that can hold a NaN."""
    mutated = {name for node in launch.scheduled for name in node.mutates}
    names = [*launch.reads, *(name for name in launch.given if name in mutated or name not in launch.writes)]
    for name in dict.fromkeys(names):
        held = memory.before(index, name)
        if held.written is not False and not memory.dtype_of(name).startswith(_WHOLE):
            yield name, held


def in_column(origins: Sequence[str]) -> str:
    """Of :func:`births`, as ``lower/values.csv`` has it: ``mm_out:3 or cpp_relu:2``."""
    more = [f"{len(origins) - SHOWN} more"] if len(origins) > SHOWN else []
    return _OR.join([*origins[:SHOWN], *more])


def origins_in(row: ValueRow) -> list[str]:
    """:func:`in_column`, read from a row; one of the names may be ``12 more``."""
    return [name for name in row.born.split(_OR) if name]


def launches_in(row: ValueRow) -> list[str]:
    """The launches, ``kernel:handle``, in one of which a row's NaN or infinity was born, so far as they are named."""
    return [name for name in origins_in(row) if is_key(name)]


def place_of(row: ValueRow) -> str:
    """Where a NaN or an infinity is, for a message: the launch and the buffer, and where it was born."""
    if not row.kernel:
        return f"{row.graph}, among its inputs, in {row.buffer}"
    words = f"{row.graph}, {row.when} {row.kernel}, in {row.buffer}"
    holds, writer, found = row.holds, brought_by(row), origins_in(row)
    words += f", whose memory holds {holds}" if holds and holds != row.buffer and row.when == "before" else ""
    if len(found) == 1 and launches_in(row):
        return f"{words}, born in {found[0]}" if writer or found[0] != row.writer else words
    if len(found) == 1:
        return f"{words}; the graph was given it" + (f", as {found[0]}" if found[0] != row.buffer else "")
    words += f", written by {writer}" if writer else ""
    among = f": in {_OR.join(found)}" if found else ""
    return f"{words}; where it was born is not known{among}"


def to_learn(row: ValueRow, kernels: Collection[str], level: int) -> str:
    """The option with which the printer would tell where a row's NaN was born; "" where it is known, or none would.

    Args:
        kernels, level: the printer's ``kernels`` and ``print_values``.
    """
    found = origins_in(row)
    if not row.kernel or len(found) == 1:
        return ""
    if kernels:
        candidates = [kernel_of(name) for name in launches_in(row)]
        listed = bool(candidates) and not _MORE.fullmatch(found[-1])
        wanted = dict.fromkeys([*kernels, *candidates]) if listed else ()
        return f"backend.options.kernels=[{','.join(wanted)}]"
    return "backend.options.print_values=2" if level == 1 else ""


def is_unjudged(row: ValueRow) -> bool:
    """Whether a row is of a tensor with elements that NaN could not be looked for in."""
    return bool(row.buffer) and not row.state and not row.value and row.elements != 0
