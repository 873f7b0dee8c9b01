"""Options of the minify stage."""

from dataclasses import dataclass

from inductor_debug.models.options import real


@dataclass
class MinifyConfig:
    """For how long to look for the smallest program.

    Attributes:
        budget_s: wall seconds after which no further program is tried; the smallest one by then is told.
        limit_s: seconds that one program may take to be compiled and run before it is taken to hang.
    """

    budget_s: float = real(120.0, above=0)
    limit_s: float = real(60.0, above=0)
