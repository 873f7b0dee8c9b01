"""Formats one number at a time, in exact rational arithmetic: slow, and independent of stages/emulation."""

import math
from collections.abc import Iterator
from fractions import Fraction


def nearest_even(value: Fraction) -> int:
    """The nearest integer; of two equally near ones the even one."""
    below = value.numerator // value.denominator
    rest = value - below
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and below % 2):
        return below + 1
    return below


def exponent_of(value: Fraction) -> int:
    """floor(log2(value)) of a positive number."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    while Fraction(2) ** guess > value:
        guess -= 1
    while Fraction(2) ** (guess + 1) <= value:
        guess += 1
    return guess


def round_float(
    value: float, exponent_bits: int, mantissa_bits: int, *, finite: bool = False, saturate: bool = False
) -> float:
    """``value`` in 1-E-M with subnormals; ``finite``: without infinities and with one NaN code (1-4-3: e4m3fn)."""
    if math.isnan(value):
        return value
    bias = 2 ** (exponent_bits - 1) - 1
    codes = 2**exponent_bits - 1  # the exponent code that IEEE keeps for infinity and NaN
    top = codes - bias if finite else codes - 1 - bias
    mantissas = 2**mantissa_bits - (2 if finite else 1)
    largest = (1 + Fraction(mantissas, 2**mantissa_bits)) * Fraction(2) ** top
    if math.isinf(value):
        return math.copysign(float(largest) if saturate else (math.nan if finite else math.inf), value)
    magnitude = abs(Fraction(value))
    if magnitude == 0:
        return value
    exponent = max(exponent_of(magnitude), 1 - bias)
    unit = Fraction(2) ** (exponent - mantissa_bits)
    result = nearest_even(magnitude / unit) * unit
    if result > largest:
        return math.copysign(float(largest) if saturate else (math.nan if finite else math.inf), value)
    return math.copysign(float(result), value)


def round_block(values: list[float], bits: int) -> list[float]:
    """One block of finite numbers that share an exponent; a sign and ``bits - 1`` bits of magnitude each."""
    largest = max((abs(Fraction(value)) for value in values), default=Fraction(0))
    if largest < Fraction(2) ** -126:
        return [0.0] * len(values)
    unit = Fraction(2) ** (exponent_of(largest) - (bits - 2))
    most = 2 ** (bits - 1) - 1
    found = []
    for value in values:
        whole = min(nearest_even(abs(Fraction(value)) / unit), most) * unit
        found.append(float(-whole if value < 0 else whole))
    return found


def numbers_of(exponent_bits: int, mantissa_bits: int) -> Iterator[Fraction]:
    """Every finite number of 1-E-M that is not negative, in order."""
    bias = 2 ** (exponent_bits - 1) - 1
    for code in range(2**exponent_bits - 1):
        for mantissa in range(2**mantissa_bits):
            hidden = 1 if code else 0
            yield (hidden + Fraction(mantissa, 2**mantissa_bits)) * Fraction(2) ** (max(code, 1) - bias)
