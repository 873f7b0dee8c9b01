"""Options of localization."""

from dataclasses import dataclass

from inductor_debug.models.options import chosen, real, whole

AFTER_DEFECT, ALWAYS, NEVER = "after_defect", "always", "never"

TRUSTED = 0.1
"""How far from 1 the sum of the shares of the final error may be."""


@dataclass
class LocalizeConfig:
    """When to look for the first wrong operation, and for how long.

    Attributes:
        when: after_defect; always: after a pass too, for faults that the format's noise hides in the outputs; never.
        budget_s: wall seconds after which nothing more is begun; what was found by then is told.
        most: wrong values that are narrowed down to an operation. Each costs up to three small compilations. Of a
            kernel that is wrong only when it is fused, each operation costs one more.
        call: the call that ``localize()`` looks at where nothing is wrong in the first; those before are of other draws
            of the inputs. A comparison that failed names its own.
        steps: in training, optimizer steps (sgd, 0.01) whose state ``localize()`` looks at where nothing is wrong
            before them. A comparison after steps names its own.
        shares: tell what each value's error makes of the final error, at the cost of some steps in float64.
    """

    when: str = chosen(AFTER_DEFECT, (AFTER_DEFECT, ALWAYS, NEVER))
    budget_s: float = real(600.0, above=0)
    most: int = whole(8, least=1)
    call: int = whole(1, least=1, example=3)
    steps: int = whole(0, example=3)
    shares: bool = True
