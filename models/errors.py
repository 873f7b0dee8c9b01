"""The errors that a user can meet. They are in the lowest layer, so that every layer can raise them.

::

    UserError                  a mistake of the user's: one message, no traceback
    ├── ConfigurationError     a wrong name, key, type or value; found before anything ran (exit code 2)
    └── RunDirectoryError      a folder that should be a run and is not, or a damaged one (exit code 2)
        └── DamagedError       a stored file that can't be read as what it should be
    InternalError              a mistake of this tool's own, met while it handled a model (exit code 3)
"""

import difflib
import math
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from inductor_debug.models.torch_text import OUT_OF_MEMORY_ERROR, tells_out_of_memory

_OF_A_COMPILER = re.compile(r"^\S+:\d+: (?:fatal )?error: (?P<error>.+)$", re.MULTILINE)


class UserError(ValueError):
    """A mistake of the user's. The message says what was got, what is valid and what to type next.

    The text is made of the parts: ``KEY: GOT (in PLACE); valid: VALID.``, and on a line of its own ``Try: HINT``.

    Args:
        got: what was got; alone it is the whole message.
        key: the key, the option or the folder that it is about.
        place: the override or the file that it came from.
        valid: what is valid.
        hint: what to type next.
    """

    def __init__(self, got: str, *, key: str = "", place: str = "", valid: str = "", hint: str = "") -> None:
        super().__init__(got)
        self.got, self.key, self.place, self.valid, self.hint = got, key, place, valid, hint

    def __str__(self) -> str:
        told = f"{self.key}: {self.got}" if self.key else self.got
        told += f" (in {shortened(self.place)})" if self.place else ""
        told += f"; valid: {self.valid}" if self.valid else ""
        told += "." if self.valid or self.hint else ""
        return f"{told}\nTry: {self.hint}" if self.hint else told

    def with_parts(self, **parts: str) -> Self:
        """The same mistake with some of its parts replaced."""
        kept = {"key": self.key, "place": self.place, "valid": self.valid, "hint": self.hint}
        return type(self)(self.got, **{**kept, **parts})


class ConfigurationError(UserError):
    """A configuration or a command line that can't be run (exit code 2).

    Most are found before anything runs. One that only compiling or running can tell ends its stage.
    """


class RunDirectoryError(UserError):
    """A folder that is not a stored run, or whose files are damaged (exit code 2)."""


class DamagedError(RunDirectoryError):
    """A stored file that can't be read as what it should be: cut short, of another shape, too large, or no file."""


class InternalError(RuntimeError):
    """This tool's own code raised while it kept, put back or compared what a model holds.

    It is never told as the model's or the backend's: see :func:`own_code`.
    """


@contextmanager
def own_code(doing: str) -> Iterator[None]:
    """Turn what this tool's own code raises into an :class:`InternalError`, but for user's mistakes and out of memory.

    Args:
        doing: what the code does, for the message: "while it" and this.
    """
    try:
        yield
    except (UserError, InternalError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        message = f"inductor-debug itself failed while it {doing}: {type(error).__name__}: {error}"
        raise InternalError(message)  # noqa: B904 - not "from": the cause would be told in this error's place


def internal_in(error: BaseException) -> InternalError | None:
    """This tool's own mistake that an error is or came from; None where there is none."""
    return next((item for item in wrapped(error) if isinstance(item, InternalError)), None)


def wrapped(error: BaseException, *, contexts: bool = False) -> Iterator[BaseException]:
    """An error and what it came from, outermost first, each once.

    Dynamo keeps what a backend raised in ``inner_exception`` (of ``BackendCompilerFailed``), Python in ``__cause__``.

    Args:
        error: as it was caught.
        contexts: True follows ``__context__`` too: what was being handled when another error was raised.
    """
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        item = pending.pop(0)
        if not isinstance(item, BaseException) or id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        inner = getattr(item, "inner_exception", None) or item.__cause__
        pending += [inner, item.__cause__, item.__context__] if contexts else [inner]


def root_cause(error: BaseException) -> BaseException:
    """What was raised first, at the bottom of what torch or Python wrapped around it.

    A program's exit status is passed over where an error was raised from it, which quotes the program's output. The
    status itself has a command line alone.
    """
    *outer, cause = wrapped(error)
    told = isinstance(cause, subprocess.CalledProcessError) and outer and outer[-1].__cause__ is cause
    return outer[-1] if told else cause


def message_of(error: BaseException) -> str:
    """An error's message; the first error of a C++ compiler that it quotes is told in its first line."""
    text = str(error).strip()
    quoted = _OF_A_COMPILER.search(text)
    first, line_break, rest = text.partition("\n")
    return f"{first.removesuffix(':')}: {quoted['error']}{line_break}{rest}" if quoted and line_break else text


def mistake_in(error: BaseException) -> UserError | None:
    """The user's mistake that an error is or came from, whatever torch wrapped around it; None where there is none."""
    return next((item for item in wrapped(error) if isinstance(item, UserError)), None)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that it wraps or came from, says that memory ran out."""
    for item in wrapped(error, contexts=True):
        if isinstance(item, MemoryError) or type(item).__name__ == OUT_OF_MEMORY_ERROR:
            return True
        if isinstance(item, (RuntimeError, OSError)) and tells_out_of_memory(str(item)):
            return True
    return False


def closest_first(given: str, choices: Iterable[str]) -> list[str]:
    """All of ``choices``, those that look most like ``given`` first, the rest in their own order."""
    remaining = list(dict.fromkeys(choices))
    near = difflib.get_close_matches(given, remaining, n=len(remaining) or 1, cutoff=0.5)
    return near + [choice for choice in remaining if choice not in near]


NEAR = 0.6
"""Likeness (difflib's ratio) from which a name is taken for another one misspelt."""


def nearest(given: str, choices: Iterable[str]) -> str | None:
    """The one of ``choices`` that ``given`` was most likely meant to be; None where none is near enough to say so."""
    found = difflib.get_close_matches(given, list(choices), n=1, cutoff=NEAR)
    return found[0] if found else None


LENGTH = 200
"""Characters of what a user wrote that a message repeats."""


def shown(value: object) -> str:
    """A value in a message, as Python writes it; of one too long to be read its beginning, or how long it is."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return f"a whole number of {int(value.bit_length() * math.log10(2)) + 1} digits"
    return shortened(repr(value))


def shortened(text: str) -> str:
    """The beginning of a text too long for a message."""
    return text if len(text) <= LENGTH else f"{text[:LENGTH]}… ({len(text)} characters)"


def example_of(key: str, value: object) -> str:
    """What to type for a key: ``KEY=VALUE``, or a line of YAML for one in a list, which no command line can name."""
    if "[" in key:
        return f"{key.rpartition('.')[2]}: {value}"
    return f"{key}={quoted(str(value))}"


def quoted(text: str) -> str:
    """``text`` as a shell takes it: in quotes where it has a blank, or another character that a shell reads."""
    return shlex.quote(text) if re.search(r"""[\s$`;&|<>()!'"\\*?]|\{.*,""", text) else text


def wrong_value(key: str, value: object, valid: str, example: str, *, where: str = "") -> ConfigurationError:
    """The error for a value that does not fit.

    Args:
        key: what the user wrote it under.
        value: what was got.
        valid: what fits.
        example: one that does.
        where: what it was read from, where that is not plain.
    """
    return ConfigurationError(f"got {shown(value)}", key=key, place=where, valid=valid, hint=example_of(key, example))


def invalid_choice(
    key: str, given: object, choices: Iterable[str], *, where: str = "", example: str | None = None
) -> ConfigurationError:
    """The error for a value outside a closed set, e.g. ``dtype=float33``.

    Args:
        key: dotted name of the configuration key.
        given: what the user wrote.
        choices: every valid value; the message lists all of them, closest first.
        where: the file or the override that the value came from, if known.
        example: what to type, ``{}`` being the closest choice; by default that choice for the key.
    """
    ordered = closest_first(str(given), choices)
    example = example_of(key, "{}") if example is None else example
    return ConfigurationError(
        f"got {shown(given)}",
        key=key,
        place=where,
        valid=", ".join(ordered) or "none",
        hint=example.replace("{}", ordered[0]) if ordered else "",
    )
