"""Options of the minify stage."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from inductor_debug.models.options import real


def asked_of(command: Sequence[str], path: str) -> list[str]:
    """A command's words for one script: its path stands for ``{}`` in them, or is the last word."""
    words = command if any("{}" in word for word in command) else [*command, "{}"]
    return [word.replace("{}", path) for word in words]


@dataclass
class MinifyConfig:
    """For how long to look for the smallest program.

    Attributes:
        budget_s: wall seconds after which no further program is tried; the smallest one by then is told. They begin
            once the process is ready that programs are forked from.
        limit_s: seconds that one program may take to be compiled and run before it is taken to hang.
        command: words of a program that decides instead of a comparison. It is given the path of each script that is
            tried, as its last word or for ``{}``. It says by exit code 0 that the failure shows.
    """

    budget_s: float = real(120.0, above=0)
    limit_s: float = real(60.0, above=0)
    command: list[str] = field(default_factory=list)
