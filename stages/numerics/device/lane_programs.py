"""What one lane does with its part of two tiles, as PTX: 4 words of 32 bits a tile and side, and its running figures.

Triton's own code takes a third more instructions, and they, not the memory, would set the pace. A program is written
once, as a function of ``op``, which emits an instruction and gives its result. So a test can run it on the host, with
an ``op`` that computes.

Floats of 16 bits are added up in float32 within the lane's part of two tiles, of ``N = 16`` elements, and in float64
from there on. With ``u = 2**-24``, float32 holds a difference of two, and a product, to within ``u`` of it, unless it
overflows or vanishes (:class:`~stages.numerics.device.device_figures.DeviceFigures` looks for that). Each of ``N - 1``
additions rounds by ``u`` at most. So a sum of absolute values or of squares is within ``(N + 2) * u``, 1.1e-6, of the
true one, and an inner product within that share of the sum of its terms' magnitudes. Roundings to nearest of many tiles
mostly cancel. Whether an error is beyond the tolerance is decided in float32 too; what is so near the limit that
float32 may be wrong is a *doubt*, and the caller asks again. Errors that float32 rounds to one number rank as equal.

Everything of float32 and int32 is in float64, but for relative errors, which are in float32.
"""

import functools
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

WORDS = 4
"""Words of 32 bits that a lane reads of each side's tile."""

SUMS = ("sum_abs", "squares", "sum_rel", "left", "right", "dot", "best")
"""What the float64 registers of a lane hold; ``best``, its largest error so far, of float32 alone."""

STATE = ("ulp", "top_left", "top_right", "counts", "unlike", "top_rel", "best", "where")
"""What its registers of 32 bits hold.

``ulp``, ``top_left`` and ``top_right`` are of 16-bit floats two maxima, of elements at even and at odd places. The
upper half of ``counts`` has mismatches, the lower half zeros of the reference. The sign of ``top_rel``, a float32, is
set where there was a doubt. ``where`` is the first tile with an error of ``best``.
"""

MARGIN = 2.0**-21
"""Relative. An error and its limit, computed in float32, are off by less than 4 roundings together."""

Op = Callable[..., Any]
"""Takes an instruction and its operands, or ``when=`` a predicate (``unless=``) and then the first operand, which stays
as it is where that does not hold. Gives the result."""

Lane = tuple[list[Any], list[Any]]
"""Its float64 registers and its registers of 32 bits."""


def _relative(op: Op, error: Any, size: Any, nonzero: Any, total: Any, top: Any) -> tuple[Any, Any]:
    """Add error / size; a subnormal size gives infinity or NaN, which the caller finds in the sum."""
    quotient = op("mul.f32", error, op("rcp.approx.ftz.f32", size))
    return op("add.f32", total, quotient, when=nonzero), op("max.f32", top, quotient, when=nonzero)


def _fold(op: Op, total: Any, part: Any) -> Any:
    return op("add.f64", total, op("cvt.f64.f32", part))


Tiles = Sequence[tuple[Any, Sequence[Any], Sequence[Any]]]
"""Two tiles in their order: the number of each, and the words of the reference and of the test."""


def halves(op: Op, unpack: str, tiles: Tiles, lane: Lane, atol: Any, rtol: Any) -> Lane:
    """16-bit floats, two a word.

    Args:
        op: see :data:`Op`.
        unpack: of what type they are: bf16 or f16.
        tiles: what is to be taken in.
        lane: its registers before them.
        atol, rtol: the tolerance, in float32.
    """
    sums, (ulp, top_left, top_right, counts, unlike, top_rel, best, where) = lane
    parts = [op("mov.f32", 0.0) for _ in range(6)]
    sum_abs, squares, sum_rel, left, right, dot = parts
    doubt, top_rel = top_rel, op("abs.f32", top_rel)
    highest, zeros, mismatched = op("mov.f32", 0.0), op("mov.u32", 0), op("mov.u32", 0)
    for tile, word_r, word_t, last in _words(tiles):
        # as `_bits` of triton_kernels: where signs differ the distance is the sum of the magnitudes
        size_r, size_t = op("and.b32", word_r, 0x7FFF7FFF), op("and.b32", word_t, 0x7FFF7FFF)
        across = op("prmt.b32", op("xor.b32", word_r, word_t), 0, 0xBB99)  # the sign of either half, in all its bits
        more, less = op("max.u16x2", size_r, size_t), op("min.u16x2", size_r, size_t)
        gap = op("lop3.b32", across, op("add.u32", more, less), op("sub.u32", more, less), 0xCA)
        ulp = op("max.u16x2", ulp, gap)
        top_left, top_right = op("max.u16x2", top_left, size_r), op("max.u16x2", top_right, size_t)
        unlike = op("lop3.b32", unlike, word_r, word_t, 0xF6)
        for half in ("low", "high"):
            r, t = (op(f"unpack.{unpack}.{half}", word) for word in (word_r, word_t))
            gap = op("sub.f32", t, r)
            error, size = op("abs.f32", gap), op("abs.f32", r)
            sum_abs, squares = op("add.f32", sum_abs, error), op("fma.rn.f32", gap, gap, squares)
            left, right = op("fma.rn.f32", r, r, left), op("fma.rn.f32", t, t, right)
            dot = op("fma.rn.f32", r, t, dot)
            highest = op("max.f32", highest, error)
            nonzero = op("setp.ne.f32", r, 0.0)
            sum_rel, top_rel = _relative(op, error, size, nonzero, sum_rel, top_rel)
            zeros = op("add.u32", zeros, 1, unless=nonzero)
            limit = op("fma.rn.f32", rtol, size, atol)
            room = op("sub.f32", limit, error)  # negative beyond the tolerance
            mismatched = op("add.u32", mismatched, op("shr.u32", room, 31))
            sure = op("fma.rn.f32", limit, -MARGIN, op("abs.f32", room))  # negative in doubt
            doubt = op("or.b32", doubt, sure)
        if last:
            better = op("setp.gt.f32", highest, best)
            best, where = op("mov.b32", best, highest, when=better), op("mov.b32", where, tile, when=better)
    parts = [sum_abs, squares, sum_rel, left, right, dot]
    sums = [*(_fold(op, total, part) for total, part in zip(sums, parts, strict=False)), *sums[6:]]
    counts = op("add.u32", op("add.u32", counts, zeros), op("shl.b32", mismatched, 16))
    top_rel = op("lop3.b32", top_rel, doubt, 0x80000000, 0xF8)
    return sums, [ulp, top_left, top_right, counts, unlike, top_rel, best, where]


def _words(tiles: Tiles) -> Iterator[tuple[Any, Any, Any, bool]]:
    """Number of the tile, a word of either side, and whether it is the tile's last."""
    for tile, left, right in tiles:
        for place, (word_r, word_t) in enumerate(zip(left, right, strict=True)):
            yield tile, word_r, word_t, place == len(left) - 1


def singles(op: Op, tiles: Tiles, lane: Lane, atol: Any, rtol: Any) -> Lane:
    """float32.

    Args:
        op, tiles, lane: as for :func:`halves`.
        atol, rtol: the tolerance, in float64.
    """
    (sum_abs, squares, sum_rel, left, right, dot, best), state = lane
    ulp, top_left, top_right, counts, unlike, top_rel, unused, where = state
    highest, relative = best, op("mov.f32", 0.0)
    for tile, r, t, last in _words(tiles):
        wide_r, wide_t = op("cvt.f64.f32", r), op("cvt.f64.f32", t)
        gap = op("sub.f64", wide_t, wide_r)
        error, size = op("abs.f64", gap), op("abs.f32", r)
        sum_abs, squares = op("add.f64", sum_abs, error), op("fma.rn.f64", gap, gap, squares)
        left, right = op("fma.rn.f64", wide_r, wide_r, left), op("fma.rn.f64", wide_t, wide_t, right)
        dot = op("fma.rn.f64", wide_r, wide_t, dot)
        limit = op("fma.rn.f64", rtol, op("abs.f64", wide_r), atol)
        counts = op("add.u32", counts, 0x10000, when=op("setp.gt.f64", error, limit))
        highest = op("mov.f64", highest, error, when=op("setp.gt.f64", error, highest))
        nonzero = op("setp.ne.f32", r, 0.0)
        narrow = op("abs.f32", op("sub.f32", t, r))
        relative, top_rel = _relative(op, narrow, size, nonzero, relative, top_rel)
        counts = op("add.u32", counts, 1, unless=nonzero)
        top_left, top_right = op("max.f32", top_left, size), op("max.f32", top_right, op("abs.f32", t))
        mixed = op("xor.b32", r, t)
        unlike = op("or.b32", unlike, mixed)
        across = op("add.u32", op("add.u32", r, t), 0x80000000)
        apart = op("mov.b32", op("abs.s32", op("sub.u32", r, t)), across, when=op("setp.lt.s32", mixed, 0))
        ulp = op("max.u32", ulp, apart)
        if last:
            where, best = op("mov.b32", where, tile, when=op("setp.gt.f64", highest, best)), highest
    sums = [sum_abs, squares, _fold(op, sum_rel, relative), left, right, dot, highest]
    return sums, [ulp, top_left, top_right, counts, unlike, top_rel, unused, where]


RAISE = 0x43300000
"""Upper half of 2**52 in float64. With 32 bits as the lower half it is 2**52 plus them, which takes no conversion."""


def integers(op: Op, tiles: Tiles, lane: Lane, atol: Any, rtol: Any) -> Lane:
    """int32, whose differences and sizes are exact as unsigned.

    Args:
        op, tiles, lane, atol, rtol: as for :func:`singles`.
    """
    (sum_abs, squares, sum_rel, left, right, dot, unused), state = lane
    ulp, top_left, top_right, counts, unlike, top_rel, best, where = state
    highest, relative = best, op("mov.f32", 0.0)
    for tile, r, t, last in _words(tiles):
        apart = op("sub.u32", op("max.s32", r, t), op("min.s32", r, t))
        size = op("abs.s32", r)
        error = op("sub.f64", op("pack.b64", apart, RAISE), 2.0**52)
        wide_r, wide_t = (
            op("sub.f64", op("pack.b64", op("xor.b32", side, 0x80000000), RAISE), 2.0**52 + 2.0**31) for side in (r, t)
        )
        sum_abs, squares = op("add.f64", sum_abs, error), op("fma.rn.f64", error, error, squares)
        left, right = op("fma.rn.f64", wide_r, wide_r, left), op("fma.rn.f64", wide_t, wide_t, right)
        dot = op("fma.rn.f64", wide_r, wide_t, dot)
        limit = op("fma.rn.f64", rtol, op("abs.f64", wide_r), atol)
        counts = op("add.u32", counts, 0x10000, when=op("setp.gt.f64", error, limit))
        highest = op("max.u32", highest, apart)
        nonzero = op("setp.ne.s32", r, 0)
        divided, divisor = (op("cvt.rn.f32.u32", value) for value in (apart, size))
        relative, top_rel = _relative(op, divided, divisor, nonzero, relative, top_rel)
        counts = op("add.u32", counts, 1, unless=nonzero)
        top_left, top_right = op("max.u32", top_left, size), op("max.u32", top_right, op("abs.s32", t))
        if last:
            where, best = op("mov.b32", where, tile, when=op("setp.gt.u32", highest, best)), highest
    sums = [sum_abs, squares, _fold(op, sum_rel, relative), left, right, dot, unused]
    return sums, [ulp, top_left, top_right, counts, unlike, top_rel, highest, where]


class _Ptx:
    """Emits the instructions that an :data:`Op` stands for. Values are names of registers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.kinds: dict[str, str] = {}

    def new(self, kind: str) -> str:
        name = f"%v{len(self.kinds)}"
        self.kinds[name] = kind
        return name

    def __call__(self, name: str, *operands: Any, when: str = "", unless: str = "") -> str:
        kind = "pred" if name.startswith("setp") else "b64" if name.endswith(("f64", "b64", "f64.f32")) else "b32"
        result = self.new(kind)
        given = [self._operand(name, operand) for operand in operands]
        if when or unless:
            self.lines.append(f"mov.{kind} {result}, {given[0]};")
            rest = given[1:] if name.startswith("mov") else [result, *given[1:]]
            guard = f"@{when}" if when else f"@!{unless}"
            self.lines.append(f"{guard} {name} {result}, {', '.join(rest)};")
        elif name.startswith("unpack"):
            self._unpack(name, result, given[0])
        elif name == "pack.b64":
            self.lines.append(f"mov.b64 {result}, {{{given[0]}, {given[1]}}};")
        else:
            self.lines.append(f"{name} {result}, {', '.join(given)};")
        return result

    def _unpack(self, name: str, result: str, word: str) -> None:
        _, dtype, half = name.split(".")
        if dtype == "bf16":
            shift = f"shl.b32 {result}, {word}, 16;" if half == "low" else f"and.b32 {result}, {word}, 0xFFFF0000;"
            self.lines.append(shift)
            return
        parts = [self.new("b16") for _ in range(2)]
        self.lines.append(f"mov.b32 {{{', '.join(parts)}}}, {word};")
        self.lines.append(f"cvt.f32.f16 {result}, {parts[half == 'high']};")

    def _operand(self, name: str, operand: Any) -> str:
        if isinstance(operand, float):
            wide = name.endswith("f64")
            return ("0d" + _hex(operand, "d")) if wide else ("0f" + _hex(operand, "f"))
        return str(operand)


def _hex(value: float, code: str) -> str:
    return struct.pack(f">{code}", value).hex().upper()


def ptx(program: Callable[..., Lane]) -> str:
    """The program as the text of an inline assembly.

    Its operands: 7 float64 and 8 words of results; the words of the reference and of the test in the first tile, and in
    the second; the registers before them, as the results; the tiles' numbers; ``atol`` and ``rtol``.
    """
    op = _Ptx()
    places = iter(f"${place}" for place in itertools.count(len(SUMS) + len(STATE)))

    def take(count: int) -> list[str]:
        return list(itertools.islice(places, count))

    words = [(take(WORDS), take(WORDS)) for _ in range(2)]
    lane, numbers, (atol, rtol) = (take(len(SUMS)), take(len(STATE))), take(2), take(2)
    tiles = [(number, *sides) for number, sides in zip(numbers, words, strict=True)]
    found = program(op, tiles, lane, atol, rtol)
    values = [("b64", value) for value in found[0]] + [("b32", value) for value in found[1]]
    results = [f"mov.{kind} ${place}, {value};" for place, (kind, value) in enumerate(values)]
    declared = [f".reg .{kind} {name};" for name, kind in op.kinds.items()]
    return "{\n" + "\n".join([*declared, *op.lines, *results]) + "\n}"


def texts() -> list[str]:
    """The programs of int32, float32, bfloat16 and float16."""
    programs: list[Callable[..., Lane]] = [
        integers,
        singles,
        *(functools.partial(_unpacking, unpack=name) for name in ("bf16", "f16")),
    ]
    return [ptx(program) for program in programs]


def _unpacking(op: Op, *rest: Any, unpack: str) -> Lane:
    return halves(op, unpack, *rest)


def constraints(wide: bool) -> str:
    """Of the inline assembly's operands; ``wide``: the tolerance is in float64."""
    lane = "d" * len(SUMS) + "r" * len(STATE)
    return ",".join([*(f"={kind}" for kind in lane), *"r" * 4 * WORDS, *lane, *"rr", *("dd" if wide else "ff")])
