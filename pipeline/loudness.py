"""How much a command says beside its answer: ``--quiet`` and ``--verbose``."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from enum import Enum

from inductor_debug.models.errors import UserError

QUIET_FLAGS = ("--quiet", "-q")
VERBOSE_FLAGS = ("--verbose", "-v")
QUIET_HELP = "print no advice, and of a run its last three lines and errors alone"
VERBOSE_HELP = "print the debug messages of this package too"


class Loudness(Enum):
    """How much is said."""

    QUIET = "quiet"
    NORMAL = "normal"
    VERBOSE = "verbose"


_current: ContextVar[Loudness] = ContextVar("loudness", default=Loudness.NORMAL)


def loudness() -> Loudness:
    """That of the command that runs."""
    return _current.get()


def is_quiet() -> bool:
    """Whether no advice is given."""
    return _current.get() is Loudness.QUIET


def ask_for(quiet: bool, verbose: bool) -> None:
    """Set it by a command line's flags; without any it stays as it is.

    Raises:
        UserError: both were given.
    """
    if quiet and verbose:
        raise UserError("got --quiet and --verbose", key="command line", valid="one of them",
                        hint="inductor-debug --quiet list")  # fmt: skip
    if quiet or verbose:
        _current.set(Loudness.QUIET if quiet else Loudness.VERBOSE)


@contextlib.contextmanager
def of_one_command() -> Iterator[None]:
    """What a command asks for holds until this is left."""
    token = _current.set(_current.get())
    try:
        yield
    finally:
        _current.reset(token)
