"""Rounding, bit for bit: against torch's own dtypes where it has the format, else against exact arithmetic."""

import math

import pytest
import torch

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import NumericsConfig
from inductor_debug.stages.accelerators.number_formats import FloatFormat, parse_format
from inductor_debug.stages.emulation.rounding import round_, rounded

import scalar_oracle  # isort: skip

NUMERICS = NumericsConfig()


def patterns(count: int = 200_000, seed: int = 0) -> torch.Tensor:
    """Random float32 bit patterns, and the edges: subnormals, infinities, NaN, ties and the neighbours of all these."""
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(-(2**31), 2**31, (count,), generator=generator, dtype=torch.int64).to(torch.int32)
    powers = (torch.arange(256, dtype=torch.int32) << 23).repeat_interleave(256)
    edges = powers + (torch.arange(256, dtype=torch.int32) << 15).repeat(256)  # ties of every width up to 8 bits
    near = torch.cat([edges - 1, edges, edges + 1, edges + (1 << 14), torch.arange(-3, 4, dtype=torch.int32)])
    values = torch.cat([bits, near]).view(torch.float32)
    return torch.cat([values, -values])


def same(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Equal bits; any NaN equals any NaN."""
    nan = found.isnan()
    return bool((nan == wanted.isnan()).all()) and torch.equal(
        found[~nan].view(torch.int32), wanted[~nan].view(torch.int32)
    )


@pytest.mark.parametrize("name", ["bfloat16", "float16", "1-8-7", "1-5-10", "float8_e5m2", "1-5-2", "float8_e4m3fn"])
def test_as_torch_rounds(name: str) -> None:
    own = {"1-8-7": "bfloat16", "1-5-10": "float16", "1-5-2": "float8_e5m2"}.get(name, name)
    values = patterns()
    if own == "float8_e4m3fn":  # torch releases differ in what they make of what is too large
        values = values[~(values.abs() > 464)]
    assert same(rounded(values, parse_format(name, NUMERICS)), values.to(getattr(torch, own)).to(torch.float32))


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn"])
def test_every_float16_to_eight_bits(name: str) -> None:
    values = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    if name == "float8_e4m3fn":
        values = values[~(values.abs() > 464)]
    assert same(rounded(values, parse_format(name, NUMERICS)), values.to(getattr(torch, name)).to(torch.float32))


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize(
    "name", ["1-6-9", "tf32", "1-5-9", "1-4-3", "1-2-1", "1-7-22", "1-3-21", "1-8-1", "1-8-22", "float8_e4m3fn"]
)
def test_as_exact_arithmetic_rounds(name: str, saturate: bool) -> None:
    format = parse_format(name, NUMERICS)
    assert isinstance(format, FloatFormat)
    values = patterns(1500, seed=1)
    values = values[torch.randperm(len(values), generator=torch.Generator().manual_seed(2))[:3000]]
    scaled = torch.randn(2000, generator=torch.Generator().manual_seed(3)) * 2.0**format.largest_exponent
    ties = torch.tensor([(2 * i + 1) * 2.0 ** (format.least_exponent - format.mantissa - 1) for i in range(64)])
    values = torch.cat([values, scaled, ties, -ties, torch.tensor([format.largest, -format.largest, 464.0, 480.0])])
    exact = [
        scalar_oracle.round_float(value, format.exponent, format.mantissa, finite=format.finite, saturate=saturate)
        for value in values.tolist()
    ]
    assert same(rounded(values, format, saturate=saturate), torch.tensor(exact, dtype=torch.float64).float())


def test_the_containers_own_format_changes_nothing() -> None:
    values = patterns(100)
    assert same(rounded(values, parse_format("1-8-23", NUMERICS)), values)


def test_float64_is_rounded_once() -> None:
    """A cast by way of float32 would round twice: 1 + 2^-8 + 2^-30 lies above a tie of bfloat16, and below in two."""
    value = torch.tensor([1 + 2.0**-8 + 2.0**-30, -(1 + 2.0**-11 + 2.0**-40), 3e-320, 1e300], dtype=torch.float64)
    for name in ("bfloat16", "float16", "float32", "1-6-9"):
        format = parse_format(name, NUMERICS)
        assert isinstance(format, FloatFormat)
        exact = [scalar_oracle.round_float(item, format.exponent, format.mantissa) for item in value.tolist()]
        assert rounded(value, format).tolist() == exact


def test_every_number_of_a_format_stays_itself() -> None:
    numbers = torch.tensor([float(number) for number in scalar_oracle.numbers_of(6, 5)])
    assert same(rounded(numbers, parse_format("1-6-5", NUMERICS)), numbers)


@pytest.mark.parametrize("bits", [2, 3, 4, 8, 12])
@pytest.mark.parametrize("shape", [(3, 40), (16,), (5, 1)])
def test_blocks_as_exact_arithmetic(bits: int, shape: tuple[int, ...]) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 2.0 ** torch.randint(-9, 9, shape)
    values.view(-1)[0] = 1.9999  # would round up beyond the magnitude's bits
    exact = []
    for row in values.reshape(-1, shape[-1]).tolist():
        for start in range(0, len(row), 16):
            exact += scalar_oracle.round_block(row[start : start + 16], bits)
    assert same(rounded(values, parse_format(f"bfp{bits}", NUMERICS)), torch.tensor(exact).reshape(shape))


def test_blocks_along_another_axis() -> None:
    values = torch.randn(20, 3)
    down = parse_format("bfp8", NumericsConfig(block_size=4, block_axis=0))
    across = parse_format("bfp8", NumericsConfig(block_size=4))
    assert same(rounded(values, down), rounded(values.T.contiguous(), across).T)


def test_an_infinity_takes_its_block_along() -> None:
    values = torch.tensor([1.0] * 15 + [math.inf] + [1.0] * 16)
    found = rounded(values, parse_format("bfp8", NUMERICS))
    assert found.tolist() == [0.0] * 15 + [math.inf] + [1.0] * 16


def test_strides_are_kept_and_what_was_lost_is_counted() -> None:
    values = torch.tensor([[1e6, 2e-9], [1.0, -7e4]]).t()
    loss = round_(values, parse_format("float16", NUMERICS))
    assert values.stride() == (1, 2) and values.tolist() == [[math.inf, 1.0], [0.0, -math.inf]]
    assert (loss.overflowed, loss.underflowed, loss.largest) == (2, 1, 1e6)


@pytest.mark.parametrize(("name", "tie", "count"), [("float8_e4m3fn", 464.0, 0), ("float16", 65520.0, 1)])
def test_what_is_half_way_to_too_large_is_counted_as_it_is_rounded(name: str, tie: float, count: int) -> None:
    values = torch.tensor([tie])
    assert round_(values, parse_format(name, NUMERICS)).overflowed == count == int(values.isinf())


@pytest.mark.parametrize(
    ("numerics", "message"),
    [
        (NumericsConfig(storage={"float32": "bfloat61"}), r"storage\.float32: got 'bfloat61'; valid: bfloat16"),
        (NumericsConfig(storage={"float32": "1-9-9"}), r"E from 2 to 8"),
        (NumericsConfig(storage={"float23": "bfloat16"}), r"storage: got 'float23'; valid: float32"),
        (NumericsConfig(storage={"float32": "float64"}), "which is wider"),
        (NumericsConfig(accumulate="bfp8"), r"accumulate: got 'bfp8'"),
        (NumericsConfig(accumulate_block=8), "without a format"),
        (NumericsConfig(accumulate="tf32", accumulate_block=0), r"accumulate_block: got 0; valid: a whole number"),
        (NumericsConfig(casts={"int64": "int23"}), r"casts\.int64: got 'int23'; valid: int32"),
        (NumericsConfig(casts={"int8": "int32"}), r"casts\.int8: got 'int32'; valid: none"),
        (NumericsConfig(tile=[1, 2, 3]), "last one or two"),
        (NumericsConfig(tile=[0]), r"tile: got 0; valid: a whole number above 0"),
        (NumericsConfig(tile=["128B", 32]), r"tile: got '128B'.*for the last dimension also bytes"),
        (NumericsConfig(tile=["128"]), r"tile: got '128'"),
        (NumericsConfig(tile=[32, "128 bytes"]), r"tile: got '128 bytes'"),
        (NumericsConfig(fallback=["aten sort"]), "fallback: got 'aten sort'"),
    ],
)
def test_wrong_numerics_are_a_configuration_error(numerics: NumericsConfig, message: str) -> None:
    from inductor_debug.stages.accelerators.config import AccelConfig
    from inductor_debug.stages.accelerators.profile import validate_profile

    with pytest.raises(ConfigurationError, match=message):
        validate_profile(AccelConfig(numerics=numerics))
