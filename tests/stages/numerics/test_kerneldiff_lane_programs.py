"""What a lane of the quick kernel does, run on the host by NumPy, against plain float64 arithmetic."""

import functools
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from inductor_debug.stages.numerics.device import lane_programs
from inductor_debug.stages.numerics.device.lane_programs import STATE, SUMS, WORDS

LANES, STEPS = 64, 6
U32, I32, F32, F64 = numpy.uint32, numpy.int32, numpy.float32, numpy.float64
KINDS = {"u32": U32, "b32": U32, "s32": I32, "f32": F32, "f64": F64}


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a function of 16-bit numbers does to both halves of words."""
    return lambda *words: function(*(word.view(numpy.uint16) for word in words)).view(U32)


def fused(a: numpy.ndarray, b: numpy.ndarray, c: numpy.ndarray) -> numpy.ndarray:
    """Rounded once, as well as a wider type can; of float64 only nearly."""
    return (a.astype(numpy.longdouble) * b + c).astype(a.dtype)


def signs(words: numpy.ndarray) -> numpy.ndarray:
    return twice(lambda halves: numpy.where(halves >> 15, 0xFFFF, 0).astype(numpy.uint16))(words)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "mov": lambda a: a.copy(), "abs": lambda a: numpy.abs(a), "add": numpy.add, "sub": numpy.subtract,
    "mul": numpy.multiply, "fma": fused, "max": numpy.fmax, "min": numpy.fmin, "and": numpy.bitwise_and,
    "or": numpy.bitwise_or, "xor": numpy.bitwise_xor, "shl": lambda a, b: a << b, "shr": lambda a, b: a >> b,
}  # fmt: skip
NAMED: dict[str, Callable[..., Any]] = {
    "max.u16x2": twice(numpy.maximum), "min.u16x2": twice(numpy.minimum), "rcp.approx.ftz.f32": lambda a: F32(1) / a,
    "setp.ne.f32": numpy.not_equal, "setp.ne.s32": numpy.not_equal, "setp.gt.f32": numpy.greater,
    "setp.gt.f64": numpy.greater, "setp.gt.u32": numpy.greater, "setp.lt.s32": numpy.less,
}  # fmt: skip


class Host:
    """An ``op`` that computes, for all lanes at once. Registers of 32 bits are uint32."""

    def __call__(self, name: str, *operands: Any, when: Any = None, unless: Any = None) -> Any:
        first = operands[0]
        found = self.run(name, *(operands[1:] if name.startswith("mov") and len(operands) > 1 else operands))
        if when is None and unless is None:
            return found
        return numpy.where(when if unless is None else ~unless, found, self.as_kind(first, found.dtype))

    def as_kind(self, value: Any, kind: Any) -> numpy.ndarray:
        if isinstance(value, (int, float)):
            return numpy.full(LANES, value, kind)
        return value if value.dtype == kind else value.view(kind)

    def run(self, name: str, *operands: Any) -> Any:
        if name.startswith("unpack"):
            _, dtype, half = name.split(".")
            bits = (operands[0] >> (16 if half == "high" else 0)).astype(numpy.uint16)
            if dtype == "f16":
                return bits.view(numpy.float16).astype(F32).view(U32)
            return bits.astype(U32) << 16
        if name == "pack.b64":
            return (operands[0].astype(numpy.uint64) | numpy.uint64(operands[1] << 32)).view(F64)
        if name == "cvt.f64.f32":
            return self.as_kind(operands[0], F32).astype(F64)
        if name == "cvt.rn.f32.u32":
            return operands[0].astype(F32).view(U32)
        if name == "prmt.b32":
            assert operands[1:] == (0, 0xBB99)
            return signs(operands[0])
        if name == "lop3.b32":
            return self.table(*(self.as_kind(value, U32) for value in operands[:3]), operands[3])
        kind = KINDS.get(name.rpartition(".")[2], U32)
        given = [self.as_kind(value, kind) for value in operands]
        found = NAMED[name](*given) if name in NAMED else OPERATIONS[name.split(".")[0]](*given)
        return found if found.dtype in (F64, bool) else found.view(U32)

    def table(self, a: numpy.ndarray, b: numpy.ndarray, c: numpy.ndarray, table: int) -> numpy.ndarray:
        """Bit by bit: bit ``4 * a + 2 * b + c`` of the table."""
        found = numpy.zeros(LANES, U32)
        for row in range(8):
            if table >> row & 1:
                sides = (side if row >> shift & 1 else ~side for side, shift in ((a, 2), (b, 1), (c, 0)))
                found |= functools.reduce(numpy.bitwise_and, sides)
        return found


def run(program: Callable[..., Any], reference: torch.Tensor, test: torch.Tensor, *tolerance: Any) -> dict[str, Any]:
    """Tensors of [STEPS, 2, LANES, elements of a lane]; the lanes' registers by name."""
    words = [side.contiguous().view(torch.int32).numpy().view(U32) for side in (reference, test)]
    lane = [numpy.zeros(LANES) for _ in SUMS], [numpy.zeros(LANES, U32) for _ in STATE]
    with numpy.errstate(all="ignore"):
        for step in range(STEPS):
            tiles = [(2 * step + turn, *(list(side[step, turn].T) for side in words)) for turn in (0, 1)]
            lane = program(Host(), tiles, lane, *tolerance)
    found: dict[str, Any] = dict(zip(STATE, lane[1], strict=True))
    return found | {name: value for name, value in zip(SUMS, lane[0], strict=True) if name != "best" or value.any()}


PROGRAMS: dict[torch.dtype, Callable[..., Any]] = {
    torch.float32: lane_programs.singles,
    torch.int32: lane_programs.integers,
    torch.bfloat16: lambda op, *rest: lane_programs.halves(op, "bf16", *rest),
    torch.float16: lambda op, *rest: lane_programs.halves(op, "f16", *rest),
}


def sides(dtype: torch.dtype, kind: str) -> list[torch.Tensor]:
    shape = STEPS, 2, LANES, WORDS * 4 // dtype.itemsize
    generator = torch.Generator().manual_seed(0)
    if kind == "bits":  # any finite number against any other, zeros of both signs among them
        bits = torch.randint(-(2**31), 2**31, (2, *shape), generator=generator)
        if dtype == torch.int32:
            return list(bits.int())
        narrow = bits.int() if dtype == torch.float32 else (bits >> 16).short()
        found = narrow.view(dtype)
        found[~found.isfinite() | (found.abs() > 1e4) | (found.abs() < 1e-4)] = 0.0
        found[:, 0, 0, ::3] = -0.0
        return list(found)
    gold = torch.randn(shape, generator=generator, dtype=torch.float64)
    gold[..., ::3] = 0
    test = gold * (1 + 1e-2 * torch.randn(shape, generator=generator, dtype=torch.float64))
    scale = 1e8 if dtype == torch.int32 else 1.0
    return [(scale * side).to(dtype) for side in (gold, gold if kind == "equal" else test)]


def halves_of(words: numpy.ndarray) -> numpy.ndarray:
    return numpy.maximum(words & 0xFFFF, words >> 16)


@pytest.mark.parametrize("tolerance", [(1e-4, 1e-3), (0.0, 0.0), (0.0, 1e-2), (2.0**-9, 0.0)], ids=str)
@pytest.mark.parametrize("kind", ["near", "equal", "bits"])
@pytest.mark.parametrize("dtype", PROGRAMS, ids=str)
def test_a_lane_finds_what_float64_finds(dtype: torch.dtype, kind: str, tolerance: tuple[float, float]) -> None:
    reference, test = sides(dtype, kind)
    atol, rtol = tolerance
    narrow = dtype.itemsize == 2
    limits = (numpy.full(LANES, value, F32 if narrow else F64) for value in tolerance)
    found = run(PROGRAMS[dtype], reference, test, *limits)
    lanes = [side.double().numpy().transpose(2, 0, 1, 3).reshape(LANES, -1) for side in (reference, test)]
    left, right = lanes
    error, size = numpy.abs(right - left), numpy.abs(left)
    relative = numpy.divide(error, size, out=numpy.zeros_like(error), where=size > 0)
    close = {"rtol": 1.2e-6 if narrow else 1e-12, "atol": 0}
    for name, terms in (("sum_abs", error), ("squares", error**2), ("left", left**2), ("right", right**2)):
        numpy.testing.assert_allclose(found[name], terms.sum(1), **close, err_msg=name)
    bound = close["rtol"] * numpy.abs(left * right).sum(1)
    assert (numpy.abs(found["dot"] - (left * right).sum(1)) <= bound).all()
    numpy.testing.assert_allclose(found["sum_rel"], relative.sum(1), rtol=2e-6)
    numpy.testing.assert_allclose(numpy.abs(found["top_rel"].view(F32)), relative.max(1), rtol=1e-6)
    counts, doubts = found["counts"], found["top_rel"] >> 31 != 0
    beyond = (error > atol + rtol * size).sum(1)
    assert (counts & 0xFFFF).tolist() == (left == 0).sum(1).tolist()
    assert not (((counts >> 16) != beyond) & ~doubts).any()
    assert narrow or not doubts.any()
    assert atol == 2.0**-9 or doubts.mean() < 0.1, "only errors that may be the limit itself are in doubt"
    if dtype == torch.int32:
        tops = [found[name].astype(F64) for name in ("best", "top_left", "top_right")]
    elif dtype == torch.float32:
        tops = [found["best"], *(found[name].view(F32).astype(F64) for name in ("top_left", "top_right"))]
        tops[0] = tops[0] if tops[0].dtype == F64 else numpy.zeros(LANES)
    else:
        sizes = (halves_of(found[name]).astype(numpy.int16) for name in ("top_left", "top_right"))
        tops = [found["best"].view(F32), *(torch.from_numpy(side).view(dtype).double().numpy() for side in sizes)]
    for top, values in zip(tops, (error, size, numpy.abs(right)), strict=True):
        numpy.testing.assert_allclose(top, values.max(1), rtol=2**-24 if narrow else 0)
    tile = error.reshape(LANES, 2 * STEPS, -1).max(2)
    rounded = tile.astype(F32) if narrow else tile
    assert found["where"].tolist() == rounded.argmax(1).tolist()
    if dtype == torch.int32:
        return
    raw = [side.view(torch.int16 if narrow else torch.int32).numpy().astype(numpy.int64) for side in (reference, test)]
    raw = [side.transpose(2, 0, 1, 3).reshape(LANES, -1) for side in raw]
    ranks = [numpy.where(side < 0, -(side + 2 ** (8 * dtype.itemsize - 1)), side) for side in raw]
    ulp = halves_of(found["ulp"]) if narrow else found["ulp"]
    assert ulp.tolist() == numpy.abs(ranks[0] - ranks[1]).max(1).tolist()
    assert (found["unlike"] != 0).tolist() == (raw[0] != raw[1]).any(1).tolist()


def test_what_is_near_the_limit_in_16_bits_is_in_doubt() -> None:
    """256 and 260 differ by 4, which is 256 / 64, the limit itself; so is 0.016 of 250, but for its last places."""
    shape = STEPS, 2, LANES, 2 * WORDS
    for value, share, doubt in ((256.0, 2.0**-6, True), (250.0, 0.016, True), (250.0, 0.0161, False)):
        reference = torch.full(shape, value, dtype=torch.bfloat16)
        tolerance = (numpy.full(LANES, limit, F32) for limit in (0.0, share))
        found = run(PROGRAMS[torch.bfloat16], reference, reference + 4, *tolerance)
        assert ((found["top_rel"] >> 31) != 0).all() == doubt
        assert (found["counts"] >> 16).max() == 0 or doubt


def test_the_text_for_the_device_names_every_operand() -> None:
    for text, wide in zip(lane_programs.texts(), (True, True, False, False), strict=True):
        operands = lane_programs.constraints(wide).split(",")
        assert f"${len(operands) - 1}" in text and f"${len(operands)}" not in text
        assert sum(kind.startswith("=") for kind in operands) == len(SUMS) + len(STATE)
        assert sum(f"mov.b64 ${place}," in text for place in range(len(SUMS))) == len(SUMS)
