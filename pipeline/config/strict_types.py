"""What a typed key takes beyond what omegaconf asks: of true and false, no number in their place."""

import contextlib
import re
from typing import Any
from unittest import mock

from omegaconf import BooleanNode
from omegaconf.errors import ValidationError

_NUMBER = re.compile(r"\s*[+-]?\d[\d_]*\s*", re.ASCII)


def strict_types() -> contextlib.AbstractContextManager[Any]:
    """While open, ``accel.strict=2`` is an error, in a file too; omegaconf would make it true, and 0 false.

    Relies on ``omegaconf.BooleanNode._validate_and_convert_impl``, which every value of a field of type bool passes.
    """
    convert = BooleanNode._validate_and_convert_impl

    def refusing(node: BooleanNode, value: Any) -> bool:
        number = isinstance(value, str) and _NUMBER.fullmatch(value)
        if number or (isinstance(value, int) and not isinstance(value, bool)):
            raise ValidationError("Value '$VALUE' is not a valid bool (type $VALUE_TYPE)")
        return convert(node, value)

    return mock.patch.object(BooleanNode, "_validate_and_convert_impl", refusing)
