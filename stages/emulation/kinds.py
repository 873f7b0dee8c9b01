"""What an emulated graph may do that a user wants to know of."""

KINDS = {
    "int_overflow": "integers do not fit the type that they are silently cast to; they wrap around",
    "pad_leak": "what lies in the padding reaches the result",
    "overflow": "finite numbers are too large for the format",
    "underflow": "numbers other than zero became zero in the format",
    "fallback": "runs on the host",
    "not_emulated": "this part of the numerics is not emulated here",
}

DEFECTS = ("int_overflow", "pad_leak")
"""Kinds that are wrong whatever the format is: they fail a run, unless its profile only warns."""
