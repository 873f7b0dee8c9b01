"""The quick kernel of the one-pass comparison, for finite values of the commonest types.

Reads tiles as :mod:`stages.numerics.device.triton_kernels` does, two at a time, and leaves what that leaves. What a
lane does with its part of them is one of :mod:`stages.numerics.device.lane_programs`.
"""

import triton
import triton.language as tl

from inductor_debug.stages.numerics.device import lane_programs
from inductor_debug.stages.numerics.device.triton_kernels import WIDTH, worse

INTEGERS, SINGLES, BFLOAT16, FLOAT16 = (tl.constexpr(kind) for kind in range(4))
"""What the words hold: an int32, a float32, or two 16-bit floats."""

_INTEGERS, _SINGLES, _BFLOAT16, _FLOAT16 = (tl.constexpr(text) for text in lane_programs.texts())
_WIDE, _NARROW = (tl.constexpr(lane_programs.constraints(wide)) for wide in (True, False))

WORDS = tl.constexpr(lane_programs.WORDS)
PAIR = tl.constexpr(2)
"""Tiles that a program takes in at a time, one behind the other."""

_KINDS = tl.constexpr((tl.float64,) * len(lane_programs.SUMS) + (tl.int32,) * len(lane_programs.STATE))


@triton.jit
def _split(words):
    """The 4 columns."""
    even, odd = tl.split(tl.reshape(words, [words.shape[0], 2, 2]))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _float(bits):
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _either_half(words):
    """The larger of the two halves."""
    return tl.maximum(words & 0xFFFF, (words >> 16) & 0xFFFF)


@triton.jit
def _size(bits, KIND: tl.constexpr):
    """A largest magnitude, as a float."""
    if KIND == INTEGERS:
        size = bits.to(tl.uint32, bitcast=True).to(tl.float64)
    elif KIND == SINGLES:
        size = _float(bits)
    elif KIND == BFLOAT16:
        size = _float(_either_half(bits) << 16)
    else:
        size = _either_half(bits).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return size


@triton.jit(do_not_specialize=["tiles"])
def lanes_kernel(
    reference, test, atol: tl.float64, rtol: tl.float64, table, lane_error, lane_tile, program_error, program_index,
    tiles, KIND: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """All figures of a program's tiles into its row of ``table``.

    Args:
        reference, test: 1-D, contiguous, of int32 words.
        atol, rtol, table, lane_error, lane_tile, program_error, program_index, tiles: as for
            :func:`stages.numerics.device.triton_kernels.figures_kernel`.
        KIND: what the words hold.
    """
    program = tl.program_id(0)
    row = tl.arange(0, T)
    word = row[:, None] * WORDS + tl.arange(0, WORDS)[None, :]
    zero, none = tl.zeros([T], tl.float64), tl.zeros([T], tl.int32)
    sum_abs, squares, sum_rel, left, right, dot, wide_best = zero, zero, zero, zero, zero, zero, zero
    ulp, top_left, top_right, counts, unlike, top_rel, best, where = none, none, none, none, none, none, none, none
    near, share = atol.to(tl.float32), rtol.to(tl.float32)
    WIDE: tl.constexpr = not (KIND == BFLOAT16 or KIND == FLOAT16)  # noqa: SIM109
    HALF: tl.constexpr = _BFLOAT16 if KIND == BFLOAT16 else _FLOAT16
    PROGRAM: tl.constexpr = _INTEGERS if KIND == INTEGERS else _SINGLES if KIND == SINGLES else HALF
    for pair in range(program, tiles // PAIR, tl.num_programs(0)):
        tile = pair * PAIR
        base = tl.cast(tile, tl.int64) * (T * WORDS)
        r, t = tl.load(reference + base + word), tl.load(test + base + word)
        after = base + T * WORDS
        next_r, next_t = tl.load(reference + after + word), tl.load(test + after + word)
        r0, r1, r2, r3 = _split(r)
        t0, t1, t2, t3 = _split(t)
        r4, r5, r6, r7 = _split(next_r)
        t4, t5, t6, t7 = _split(next_t)
        (
            sum_abs, squares, sum_rel, left, right, dot, wide_best,
            ulp, top_left, top_right, counts, unlike, top_rel, best, where,
        ) = tl.inline_asm_elementwise(
            PROGRAM, _WIDE if WIDE else _NARROW,
            [
                r0, r1, r2, r3, t0, t1, t2, t3, r4, r5, r6, r7, t4, t5, t6, t7,
                sum_abs, squares, sum_rel, left, right, dot, wide_best,
                ulp, top_left, top_right, counts, unlike, top_rel, best, where,
                tile, tile + 1, atol if WIDE else near, rtol if WIDE else share,
            ],
            _KINDS, True, 1,
        )  # fmt: skip
    V: tl.constexpr = WORDS if WIDE else 2 * WORDS
    if KIND == INTEGERS:
        highest = best.to(tl.uint32, bitcast=True).to(tl.float64)
    elif KIND == SINGLES:
        highest = wide_best
    else:
        highest = _float(best).to(tl.float64)
    tl.store(lane_error + program * T + row, highest)
    tl.store(lane_tile + program * T + row, where)
    index = (where.to(tl.int64) * T + row) * V
    if not WIDE:
        ulp = _either_half(ulp)
    mismatched, zeros = (counts >> 16) & 0xFFFF, counts & 0xFFFF
    unlike, doubts = (unlike != 0).to(tl.int32), (top_rel < 0).to(tl.int32)
    top_rel, top_left, top_right = tl.abs(_float(top_rel)), _size(top_left, KIND), _size(top_right, KIND)
    (
        sum_abs, squares, sum_rel, left, right, dot, top_rel, top_left, top_right, mismatched, zeros, unlike, doubts,
        ulp, top, first,
    ) = tl.reduce(
        (
            sum_abs, squares, sum_rel, left, right, dot, top_rel, top_left, top_right, mismatched, zeros, unlike,
            doubts, ulp.to(tl.uint32, bitcast=True), highest, index,
        ), 0, _together,
    )  # fmt: skip
    tl.store(program_error + program, top)
    tl.store(program_index + program, first)
    out = table + program * WIDTH
    _put(out, sum_abs)
    _put(out + 1, squares)
    _put(out + 2, sum_rel)
    _put(out + 3, left)
    _put(out + 4, right)
    _put(out + 5, dot)
    _put(out + 9, top_rel.to(tl.float64))
    _put(out + 10, top_left.to(tl.float64))
    _put(out + 11, top_right.to(tl.float64))
    tl.store(out + 15, mismatched.to(tl.int64))
    tl.store(out + 16, zeros.to(tl.int64))
    tl.store(out + 25, unlike.to(tl.int64))
    tl.store(out + 26, doubts.to(tl.int64))
    tl.store(out + 27, ulp.to(tl.int64))
    column = tl.arange(0, 32)  # the others are 0
    others = ((column > 5) & (column < 9)) | ((column > 11) & (column < 15)) | ((column > 16) & (column < 25))
    tl.store(out + column, tl.zeros([32], tl.int64), mask=others)


@triton.jit
def _put(place, value):
    tl.store(place, value.to(tl.int64, bitcast=True))


@triton.jit
def _together(
    sum_abs, squares, sum_rel, left, right, dot, top_rel, top_left, top_right, mismatched, zeros, unlike, doubts, ulp,
    error, index, sum_abs_2, squares_2, sum_rel_2, left_2, right_2, dot_2, top_rel_2, top_left_2, top_right_2,
    mismatched_2, zeros_2, unlike_2, doubts_2, ulp_2, error_2, index_2,
):  # fmt: skip
    """The figures of two lanes, or groups of them, as those of one: all at once, since each reduction waits anew."""
    error, index = worse(error, index, error_2, index_2)
    return (
        sum_abs + sum_abs_2, squares + squares_2, sum_rel + sum_rel_2, left + left_2, right + right_2, dot + dot_2,
        tl.maximum(top_rel, top_rel_2), tl.maximum(top_left, top_left_2), tl.maximum(top_right, top_right_2),
        mismatched + mismatched_2, zeros + zeros_2, unlike + unlike_2, doubts + doubts_2, tl.maximum(ulp, ulp_2),
        error, index,
    )  # fmt: skip
