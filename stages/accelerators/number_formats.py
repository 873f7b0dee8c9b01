"""Number formats by name, and whether a profile's numerics can be meant.

=====================  =====================================================================================
``1-E-M``              sign, E exponent bits with the bias 2^(E-1) - 1, M mantissa bits; subnormals; the largest
                       exponent is kept for infinities and NaN (IEEE 754, section 3.4, for other widths)
``float16``            1-5-10
``bfloat16``           1-8-7
``tf32``               1-8-10 (NVIDIA's A100 whitepaper)
``float32``            1-8-23; ``float64`` is 1-11-52
``float8_e5m2``        1-5-2
``float8_e4m3fn``      1-4-3, but without infinities: of the largest exponent's codes only the last one is NaN, so
                       that the largest number is 448 (OCP 8-bit floating point specification, table 1)
``bfpN``               a block's elements share an 8-bit exponent, that of the largest of them; an element has a sign
                       and a magnitude of N - 1 bits without a hidden one (tt-metal, ``blockfloat_common.cpp``, which
                       shares an exponent among 16 elements of a row)
=====================  =====================================================================================

Every rounding is to nearest, ties to even, and only once. A number is too large where it would round to one beyond the
format's largest. It becomes infinity, or NaN in a format without infinity. With ``saturate`` it becomes the largest
number, and so does an infinity. NaN stays NaN.
"""

import re
from dataclasses import dataclass

from inductor_debug.models.errors import ConfigurationError, closest_first, invalid_choice, wrong_value
from inductor_debug.models.options import check_declared
from inductor_debug.models.units import parse_bytes
from inductor_debug.stages.accelerators.config import NumericsConfig
from inductor_debug.stages.accelerators.rule_kinds import COUNT

FLOATS = ("float64", "float32", "float16", "bfloat16")
"""dtypes that can be given another storage format."""

INTEGERS = {"int64": 63, "int32": 31, "int16": 15, "int8": 7, "uint8": 8}
"""dtypes of silent casts → bits of their magnitude."""


@dataclass(frozen=True)
class FloatFormat:
    """A sign, ``exponent`` bits, ``mantissa`` bits.

    Attributes:
        finite: True for a format without infinities, whose one NaN has all bits set.
    """

    name: str
    exponent: int
    mantissa: int
    finite: bool = False

    @property
    def least_exponent(self) -> int:
        """That of the smallest normal number; the subnormals share it."""
        return 2 - 2 ** (self.exponent - 1)

    @property
    def largest_exponent(self) -> int:
        return 2 ** (self.exponent - 1) - (0 if self.finite else 1)

    @property
    def largest(self) -> float:
        """The largest number."""
        codes = 2 if self.finite else 1
        return (2.0 - codes * 2.0**-self.mantissa) * 2.0**self.largest_exponent

    @property
    def roundoff(self) -> float:
        """Half the distance from 1 to the next number."""
        return 2.0 ** -(self.mantissa + 1)


@dataclass(frozen=True)
class BlockFormat:
    """``bits`` an element, its sign among them, and an exponent for ``size`` elements along dimension ``axis``."""

    name: str
    bits: int
    size: int
    axis: int

    @property
    def roundoff(self) -> float:
        """That of a block's largest element."""
        return 2.0 ** -(self.bits - 1)


Format = FloatFormat | BlockFormat

NAMED = {
    item.name: item
    for item in (
        FloatFormat("float64", 11, 52),
        FloatFormat("float32", 8, 23),
        FloatFormat("tf32", 8, 10),
        FloatFormat("bfloat16", 8, 7),
        FloatFormat("float16", 5, 10),
        FloatFormat("float8_e5m2", 5, 2),
        FloatFormat("float8_e4m3fn", 4, 3, finite=True),
    )
}

LEAST_BITS, MOST_BITS = (2, 1), (8, 23)
"""Exponent and mantissa bits of a split: what float32, in which it is held, can hold."""


def parse_format(name: str, numerics: NumericsConfig, key: str = "accel.numerics") -> Format:
    """The format called ``name``; ConfigurationError where there is none."""
    if name in NAMED:
        return NAMED[name]
    split = re.fullmatch(r"1-(\d+)-(\d+)", str(name))
    if split:
        exponent, mantissa = int(split[1]), int(split[2])
        if LEAST_BITS[0] <= exponent <= MOST_BITS[0] and LEAST_BITS[1] <= mantissa <= MOST_BITS[1]:
            return FloatFormat(name, exponent, mantissa)
        fits = f"1-E-M with E from {LEAST_BITS[0]} to {MOST_BITS[0]} and M from {LEAST_BITS[1]} to {MOST_BITS[1]}"
        raise wrong_value(key, name, fits, "1-6-9")
    block = re.fullmatch(r"bfp(\d+)", str(name))
    if block and 2 <= int(block[1]) <= 16:
        return BlockFormat(name, int(block[1]), numerics.block_size, numerics.block_axis)
    valid = [*closest_first(str(name), NAMED), "1-E-M, as 1-6-9", "bfp2 … bfp16"]
    raise ConfigurationError(f"got {name!r}", key=key, valid=", ".join(valid), hint=f"{key}={valid[0]}")


def validate_numerics(config: NumericsConfig) -> None:
    """Raise ConfigurationError for the first value that can't be meant, its key named as on the command line."""
    for part in ("storage", "operands"):
        for dtype, name in getattr(config, part).items():
            _validate_storage(dtype, name, config, f"accel.numerics.{part}")
    if config.accumulate is not None:
        found = parse_format(config.accumulate, config, "accel.numerics.accumulate")
        if isinstance(found, BlockFormat) or found.name == "float64":
            valid = "a format with an exponent of its own, of at most 32 bits"
            raise wrong_value("accel.numerics.accumulate", config.accumulate, valid, "bfloat16")
    elif config.accumulate_block is not None:
        raise ConfigurationError(
            f"got {config.accumulate_block} without a format to round to",
            key="accel.numerics.accumulate_block",
            valid="both",
            hint=f"accel.numerics.accumulate=bfloat16 accel.numerics.accumulate_block={config.accumulate_block}",
        )
    check_declared(config, "accel.numerics")
    _validate_tile(config)
    for wide, narrow in config.casts.items():
        _validate_cast(wide, narrow)
    for pattern in config.fallback:
        if not isinstance(pattern, str) or not re.fullmatch(r"[\w.:*?\[\]!-]+", pattern):
            raise wrong_value("accel.numerics.fallback", pattern, "an operation's name or pattern", "[aten.sort]")


def _validate_storage(dtype: str, name: str, config: NumericsConfig, key: str) -> None:
    if dtype not in FLOATS:
        raise invalid_choice(key, dtype, FLOATS, example=f"{key}.{{}}={name}")
    found = parse_format(name, config, f"{key}.{dtype}")
    if found.name == "float64" and dtype != "float64":
        raise ConfigurationError(
            "got 'float64', which is wider",
            key=f"{key}.{dtype}",
            valid="a format of at most 32 bits",
            hint=f"{key}.{dtype}=bfloat16",
        )
    if isinstance(found, BlockFormat) and dtype == "float64":
        raise wrong_value(f"{key}.float64", name, "a format with an exponent of its own", "float32")


def tile_bytes(size: object) -> int | None:
    """Bytes of a tile's size that is written in bytes (``128B``); None for one in elements, or for no size."""
    return parse_bytes(size) if isinstance(size, str) and not size.strip().isdecimal() else None


def _validate_tile(config: NumericsConfig) -> None:
    for at, size in enumerate(config.tile):
        if COUNT.holds(size):
            continue
        if at < len(config.tile) - 1 or tile_bytes(size) is None:
            valid = "a whole number above 0 of elements, and for the last dimension also bytes (128B)"
            raise wrong_value("accel.numerics.tile", size, valid, "[32,32]")
    if len(config.tile) > 2:
        valid = "the sizes of the last one or two dimensions"
        raise wrong_value("accel.numerics.tile", list(config.tile), valid, "[32,32]")


def _validate_cast(wide: str, narrow: str) -> None:
    if wide not in INTEGERS:
        raise invalid_choice("accel.numerics.casts", wide, INTEGERS, example=f"accel.numerics.casts.{{}}={narrow}")
    smaller = [name for name, bits in INTEGERS.items() if bits < INTEGERS[wide]]
    if narrow not in smaller:
        raise invalid_choice(f"accel.numerics.casts.{wide}", narrow, smaller)
