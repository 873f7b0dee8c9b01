"""Options that say what they take: dataclass fields with a range or a closed set, and the one check of them all.

::

    @dataclass
    class StageConfig:
        repeats: int = whole(10, least=1)
        budget_s: float = real(60.0)
        optimizer: str = chosen("sgd", ("sgd", "adamw"))

    check_declared(StageConfig(repeats=0), "stages.name")    # ConfigurationError, stages.name.repeats: got 0; …
"""

import dataclasses
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from inductor_debug.models.errors import invalid_choice, wrong_value

INT64 = 2**63 - 1
"""The largest size, count or seed that torch and the tables can hold."""
LARGEST = sys.float_info.max
"""The largest float."""


@dataclass(frozen=True)
class Range:
    """The numbers that an option takes.

    Attributes:
        least: the smallest; not itself one of them where ``above``.
        most: the largest.
        whole: only whole numbers. In any case only finite ones.
        example: one of them, to type.
    """

    least: float
    most: float
    whole: bool
    above: bool = False
    example: str = "1"

    def holds(self, value: object) -> bool:
        """Whether ``value`` is such a number; True and False are none."""
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            return False
        if not isinstance(value, Integral) and not math.isfinite(value):
            return False
        number: Any = value
        return bool((number > self.least if self.above else number >= self.least) and number <= self.most)

    def valid(self, value: object = None) -> str:
        """The range in words; its upper end where it is one of the option's own, or where ``value`` is beyond it."""
        start = "above 0" if self.least == int(self.whole) and (self.whole or self.above) else f"from {self.least:g}"
        beyond = isinstance(value, (int, float)) and math.inf > value > self.most
        most = _POWER if self.most == INT64 else f"{self.most:g}"
        end = f", at most {most}" if beyond or self.most not in (INT64, LARGEST) else ""
        return f"{'a whole number' if self.whole else 'a finite number'} {start}{end}"

    def check(self, value: object, key: str) -> None:
        """ConfigurationError where ``value``, under ``key``, is not one of the numbers."""
        if not self.holds(value):
            raise wrong_value(key, value, self.valid(value), self.example)


_POWER = "2**63 - 1"


def whole(default: int | None, *, least: int = 0, most: int = INT64, example: int | None = None) -> Any:
    """A field of a whole number, or of None where that is the default.

    Args:
        default: the field's default.
        least, most: the range, both ends included.
        example: what a message tells the user to type; the default or ``least`` if None.
    """
    typed = example if example is not None else max(default or 0, least)
    return field(default=default, metadata={_RANGE: Range(least, most, whole=True, example=str(typed))})


def real(
    default: float | None, *, above: float | None = None, least: float = 0.0, most: float = LARGEST, example: str = ""
) -> Any:
    """A field of a finite number, or of None where that is the default.

    Args:
        default: the field's default.
        above: lower end, itself not valid; None: ``least`` is the lower end.
        least, most: the range, both ends included.
        example: what a message tells the user to type; the default if empty.
    """
    start = least if above is None else above
    declared = Range(start, most, whole=False, above=above is not None, example=example or f"{default:g}")
    return field(default=default, metadata={_RANGE: declared})


def chosen(default: str | None, choices: Sequence[str]) -> Any:
    """A field of one of ``choices``, or of None where that is the default."""
    return field(default=default, metadata={_CHOICES: tuple(choices)})


def items(choices: Sequence[str]) -> dict[str, Any]:
    """``metadata`` of a field that is a list, each item one of ``choices``."""
    return {_ITEMS: tuple(choices)}


_RANGE, _CHOICES, _ITEMS = "range", "choices", "items"


def range_of(item: "dataclasses.Field[Any]") -> Range | None:
    """The numbers that a field declares; None where it declares none."""
    return item.metadata.get(_RANGE)


def choices_of(item: "dataclasses.Field[Any]") -> tuple[str, ...]:
    """The closed set that a field declares; empty where it declares none."""
    return item.metadata.get(_CHOICES, ())


def items_of(item: "dataclasses.Field[Any]") -> tuple[str, ...]:
    """The closed set that each item of a list is of; empty where the field declares none."""
    return item.metadata.get(_ITEMS, ())


def check_declared(options: Any, key: str = "") -> None:
    """ConfigurationError for the first value in a dataclass, or in one within it, that its field does not take.

    Args:
        options: an instance; None is a value of every field that has None as its default.
        key: dotted name of the instance, for messages.
    """
    for item in dataclasses.fields(options):
        name = f"{key}.{item.name}" if key else item.name
        value = getattr(options, item.name)
        inner = list(value.items()) if isinstance(value, Mapping) else []
        for part, option in [(name, value), *((f"{name}.{part}", option) for part, option in inner)]:
            if dataclasses.is_dataclass(option):
                check_declared(option, part)
        if value is None and item.default is None:
            continue
        declared, choices = range_of(item), choices_of(item)
        if declared is not None:
            declared.check(value, name)
        if choices and value not in choices:
            raise invalid_choice(name, value, choices)
        for one in value if items_of(item) else ():
            if one not in items_of(item):
                raise invalid_choice(name, one, items_of(item), example=f"{name}=[{{}}]")
        if isinstance(value, str) and not value.strip() and item.default != value:
            typed = "null" if item.default is None else str(item.default).replace("???", "NAME")
            raise wrong_value(name, value, "a text that is not blank", typed)
