"""The errors a user can meet, in one place, at the lowest layer so that every layer can raise them.

::

    UserError                  a mistake of the user's: one message, no traceback
    ├── ConfigurationError     a wrong name, key, type or value; found before anything ran (exit code 2)
    └── RunDirectoryError      a folder that should be a run and is not, or a damaged one (exit code 2)
"""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A mistake of the user's. The message says what was got, what is valid and what to type next."""


class ConfigurationError(UserError):
    """A configuration or a command line that can't be run. Nothing ran (exit code 2)."""


class RunDirectoryError(UserError):
    """A folder that is not a stored run, or whose files are damaged (exit code 2)."""


def closest_first(given: str, choices: Iterable[str]) -> list[str]:
    """All of ``choices``, those that look most like ``given`` first, the rest in their own order."""
    remaining = list(dict.fromkeys(choices))
    near = difflib.get_close_matches(given, remaining, n=len(remaining) or 1, cutoff=0.5)
    return near + [choice for choice in remaining if choice not in near]


def example_of(key: str, value: object) -> str:
    """What to type for a key: ``KEY=VALUE``, or a line of YAML for one in a list, which no command line can name."""
    return f"{key.rpartition('.')[2]}: {value}" if "[" in key else f"{key}={value}"


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
    location = f" (in {where})" if where else ""
    example = example_of(key, "{}") if example is None else example
    hint = f"\nTry: {example.replace('{}', ordered[0])}" if ordered else ""
    return ConfigurationError(f"{key}: got {given!r}{location}; valid: {', '.join(ordered) or 'none'}.{hint}")
