"""Triton kernels of the one-pass comparison on a device. Launched by :mod:`stages.kerneldiff.device_pass` alone.

A program of :func:`figures_kernel` reads a contiguous range of tiles, each ``T`` lanes of ``V`` neighbouring elements.
Every figure is kept by lane in registers, in float64 (counts in int32), and leaves the program once, as a column of its
row of ``table``. :func:`finish_kernel` adds the rows up in a fixed order, so that two runs give the same bits.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

FLOAT_SUMS = ("sum_abs", "squares", "sum_rel", "left", "right", "dot", "floor", "error", "magnitude")
FLOAT_TOPS = ("top_rel", "top_left", "top_right", "top_floor", "top_error", "top_gold")
COUNTS = (
    *("mismatched", "zeros", "unequal", "beyond", "nan_left", "nan_right", "inf_left", "inf_right", "in_gold"),
    *("nan_rel", "finite"),
)
INTEGER_TOPS = ("ulp",)
COLUMNS = (*FLOAT_SUMS, *FLOAT_TOPS, *COUNTS, *INTEGER_TOPS)
"""Columns of ``table``: float64 sums, float64 maxima, int64 sums, an unsigned 64-bit maximum; 64 bits each."""

_TOPS, _COUNTS, _ULP = len(FLOAT_SUMS), len(FLOAT_SUMS) + len(FLOAT_TOPS), len(COLUMNS) - 1
FIRST_TOP, FIRST_COUNT, FIRST_INTEGER_TOP = tl.constexpr(_TOPS), tl.constexpr(_COUNTS), tl.constexpr(_ULP)
WIDTH = tl.constexpr(len(COLUMNS))
INFINITE = tl.constexpr(float("inf"))
LAST_INDEX = tl.constexpr(0x7FFFFFFFFFFFFFFF)


@triton.jit
def _put_sum(place, value):
    tl.store(place, tl.sum(value, 0).to(tl.int64, bitcast=True))


@triton.jit
def _put_top(place, value):
    tl.store(place, tl.max(value, 0).to(tl.float64).to(tl.int64, bitcast=True))


@triton.jit
def _put_count(place, value):
    tl.store(place, tl.sum(value.to(tl.int64), 0))


@triton.jit(do_not_specialize=["tiles", "tiles_per_program"])
def figures_kernel(
    reference, test, gold, atol: tl.float64, rtol: tl.float64, table, lane_error, lane_tile, program_error,
    program_index, histogram, tiles, tiles_per_program,
    EXACT: tl.constexpr, GOLD: tl.constexpr, HISTOGRAM: tl.constexpr, BITS: tl.constexpr, T: tl.constexpr,
    V: tl.constexpr, BINS: tl.constexpr, LOWEST: tl.constexpr, OCTAVES: tl.constexpr,
):  # fmt: skip
    """All figures of tiles [program · tiles_per_program, …) into row ``program`` of ``table``.

    Args:
        lane_error, lane_tile: [programs, T]: each lane's largest error (NaN as infinity), and the first tile with it.
        program_error, program_index: the largest of them, and the lowest index that a lane of that error may have.
        EXACT: False is for finite values: others make ``sum_abs`` or ``magnitude`` not finite, and the caller asks
            again with True.
        BITS: width of both dtypes; 0, with EXACT, where they differ: then there are no units in the last place.
    """
    program = tl.program_id(0)
    row = tl.arange(0, T)
    lane = row[:, None] * V + tl.arange(0, V)[None, :]
    zero = tl.zeros([T], tl.float64)
    small = tl.zeros([T], tl.float32 if BITS != 64 and not EXACT else tl.float64)
    none = tl.zeros([T], tl.int32)
    sum_abs, squares, sum_rel, left, right, dot = zero, zero, zero, zero, zero, zero
    floor, against, magnitude, top_floor, top_against, top_gold = zero, zero, zero, zero, zero, zero
    top_rel, top_left, top_right = small, small, small
    mismatched, zeros, unequal, beyond, nan_rel = none, none, none, none, none
    nan_left, nan_right, inf_left, inf_right, in_gold, finites = none, none, none, none, none, none
    ulp = tl.zeros([T], tl.uint64 if BITS == 64 else tl.uint32)
    best = tl.full([T], -1.0, tl.float64)
    where = none
    counts = tl.zeros([BINS], tl.int32)
    start = program * tiles_per_program
    stop = tl.minimum(start + tiles_per_program, tiles)
    for tile in range(start, stop):
        base = tl.cast(tile, tl.int64) * (T * V)
        r = tl.load(reference + base + lane)
        t = tl.load(test + base + lane)
        wide_r, wide_t = r.to(tl.float64), t.to(tl.float64)
        error = tl.abs(wide_t - wide_r)
        size_r = tl.abs(wide_r)
        nonzero = size_r != 0
        zeros += tl.sum((~nonzero).to(tl.int32), 1)
        if EXACT:
            size_t = tl.abs(wide_t)
            both_nan = (wide_r != wide_r) & (wide_t != wide_t)
            same = (wide_r == wide_t) | both_nan
            finite = (size_r < INFINITE) & (size_t < INFINITE)
            error = tl.where(same, 0.0, error)
            close = same | ((error <= atol + rtol * size_r) & (error < INFINITE))
            mismatched += tl.sum((~close).to(tl.int32), 1)
            nan_left += tl.sum((wide_r != wide_r).to(tl.int32), 1)
            nan_right += tl.sum((wide_t != wide_t).to(tl.int32), 1)
            inf_left += tl.sum((size_r == INFINITE).to(tl.int32), 1)
            inf_right += tl.sum((size_t == INFINITE).to(tl.int32), 1)
            beyond += tl.sum((~same & ~finite).to(tl.int32), 1)
            relative = tl.where(error == INFINITE, INFINITE, error / size_r)
            relative = tl.where(nonzero & (error != 0), relative, 0.0)
            nan_rel += tl.sum((relative != relative).to(tl.int32), 1)
            relative = tl.where(relative != relative, 0.0, relative)
            kept_r, kept_t = tl.where(finite, wide_r, 0.0), tl.where(finite, wide_t, 0.0)
            rank = tl.where(error != error, INFINITE, error)
            finites += tl.sum(finite.to(tl.int32), 1)
            counted = (error > 0) & (error < INFINITE)
            plain_r, plain_t = tl.abs(kept_r), tl.abs(kept_t)
        else:
            mismatched += tl.sum((error > atol + rtol * size_r).to(tl.int32), 1)
            if BITS == 64:
                relative = tl.where(nonzero, error / size_r, 0.0)
                plain_r, plain_t = size_r, tl.abs(wide_t)
            else:  # quotients in float32, good to 2 units in its last place, cost a tenth of float64's
                narrow_r, narrow_t = r.to(tl.float32), t.to(tl.float32)
                plain_r, plain_t = tl.abs(narrow_r), tl.abs(narrow_t)
                relative = tl.where(nonzero, libdevice.fast_dividef(tl.abs(narrow_t - narrow_r), plain_r), 0.0)
            kept_r, kept_t, rank = wide_r, wide_t, error
            counted = error > 0
        sum_abs += tl.sum(error, 1)
        squares += tl.sum(error * error, 1)
        sum_rel += tl.sum(relative, 1).to(tl.float64)
        top_rel = tl.maximum(top_rel, tl.max(relative, 1))
        left += tl.sum(kept_r * kept_r, 1)
        right += tl.sum(kept_t * kept_t, 1)
        dot += tl.sum(kept_r * kept_t, 1)
        top_left = tl.maximum(top_left, tl.max(plain_r, 1))
        top_right = tl.maximum(top_right, tl.max(plain_t, 1))
        if BITS != 0:
            if BITS == 64:
                bits_r, bits_t = r.to(tl.int64, bitcast=True), t.to(tl.int64, bitcast=True)
                number_r, number_t = bits_r & 0x7FFFFFFFFFFFFFFF, bits_t & 0x7FFFFFFFFFFFFFFF
            elif BITS == 32:
                bits_r, bits_t = r.to(tl.int32, bitcast=True), t.to(tl.int32, bitcast=True)
                number_r, number_t = bits_r & 0x7FFFFFFF, bits_t & 0x7FFFFFFF
            else:
                bits_r = r.to(tl.int16, bitcast=True).to(tl.int32)
                bits_t = t.to(tl.int16, bitcast=True).to(tl.int32)
                number_r, number_t = bits_r & 0x7FFF, bits_t & 0x7FFF
            # on two sides of zero, where both zeros meet, the way leads through zero
            gap = tl.where((bits_r ^ bits_t) < 0, number_r + number_t, tl.abs(number_r - number_t))
            differs = bits_r != bits_t
            if EXACT:
                gap = tl.where(finite, gap, 0)
                differs = differs & ~both_nan
            unequal += tl.sum(differs.to(tl.int32), 1)
            ulp = tl.maximum(ulp, tl.max(gap.to(tl.uint64 if BITS == 64 else tl.uint32, bitcast=True), 1))
        highest = tl.max(rank, 1)
        better = highest > best
        best = tl.where(better, highest, best)
        where = tl.where(better, tile, where)
        if HISTOGRAM:
            exponent = ((error.to(tl.int64, bitcast=True) >> 52) & 0x7FF).to(tl.int32) - (1023 + LOWEST)
            bin = tl.minimum(tl.maximum(exponent // OCTAVES, 0), BINS - 2)
            bin = tl.where(counted, bin, BINS - 1)
            counts += tl.histogram(tl.reshape(bin, [T * V], can_reorder=True), BINS)
        if GOLD:
            g = tl.load(gold + base + lane).to(tl.float64)
            gap_r, gap_t, size_g = tl.abs(wide_r - g), tl.abs(wide_t - g), tl.abs(g)
            if EXACT:
                usable = finite & (size_g < INFINITE)
                gap_r, gap_t = tl.where(usable, gap_r, 0.0), tl.where(usable, gap_t, 0.0)
                size_g = tl.where(usable, size_g, 0.0)
                in_gold += tl.sum(usable.to(tl.int32), 1)
            floor += tl.sum(gap_r * gap_r, 1)
            against += tl.sum(gap_t * gap_t, 1)
            magnitude += tl.sum(size_g * size_g, 1)
            top_floor = tl.maximum(top_floor, tl.max(gap_r, 1))
            top_against = tl.maximum(top_against, tl.max(gap_t, 1))
            top_gold = tl.maximum(top_gold, tl.max(size_g, 1))
    tl.store(lane_error + program * T + row, best)
    tl.store(lane_tile + program * T + row, where)
    highest = tl.max(best, 0)
    tl.store(program_error + program, highest)
    index = (where.to(tl.int64) * T + row) * V
    tl.store(program_index + program, tl.min(tl.where(best == highest, index, LAST_INDEX), 0))
    if HISTOGRAM:
        tl.atomic_add(histogram + tl.arange(0, BINS), counts.to(tl.int64))
    out = table + program * WIDTH
    _put_sum(out, sum_abs)
    _put_sum(out + 1, squares)
    _put_sum(out + 2, sum_rel)
    _put_sum(out + 3, left)
    _put_sum(out + 4, right)
    _put_sum(out + 5, dot)
    _put_sum(out + 6, floor)
    _put_sum(out + 7, against)
    _put_sum(out + 8, magnitude)
    _put_top(out + 9, top_rel)
    _put_top(out + 10, top_left)
    _put_top(out + 11, top_right)
    _put_top(out + 12, top_floor)
    _put_top(out + 13, top_against)
    _put_top(out + 14, top_gold)
    _put_count(out + 15, mismatched)
    _put_count(out + 16, zeros)
    _put_count(out + 17, unequal)
    _put_count(out + 18, beyond)
    _put_count(out + 19, nan_left)
    _put_count(out + 20, nan_right)
    _put_count(out + 21, inf_left)
    _put_count(out + 22, inf_right)
    _put_count(out + 23, in_gold)
    _put_count(out + 24, nan_rel)
    _put_count(out + 25, finites)
    tl.store(out + 26, tl.max(ulp, 0).to(tl.int64, bitcast=BITS == 64))


@triton.jit(do_not_specialize=["programs"])
def finish_kernel(table, out, program_error, program_index, chosen, programs, P: tl.constexpr, K: tl.constexpr):
    """Column ``program_id`` of ``table`` over all rows into ``out``; the last program picks the ``K`` worst rows.

    Args:
        chosen: int32 [K]: rows by falling error and rising index.
        P: a power of two, at least ``programs``.
    """
    column = tl.program_id(0)
    row = tl.arange(0, P)
    inside = row < programs
    if column == WIDTH:
        error = tl.load(program_error + row, mask=inside, other=-2.0)
        index = tl.load(program_index + row, mask=inside, other=LAST_INDEX)
        for rank in tl.static_range(K):
            highest = tl.max(error, 0)
            lowest = tl.min(tl.where(error == highest, index, LAST_INDEX), 0)
            picked = tl.min(tl.where((error == highest) & (index == lowest), row, P - 1), 0)
            tl.store(chosen + rank, tl.minimum(picked, programs - 1))  # twice the same where there are fewer rows
            error = tl.where(row == picked, -3.0, error)
    else:
        value = tl.load(table + row * WIDTH + column, mask=inside, other=0)
        if column < FIRST_TOP:
            result = tl.sum(value.to(tl.float64, bitcast=True), 0).to(tl.int64, bitcast=True)
        elif column < FIRST_COUNT:
            result = tl.max(value.to(tl.float64, bitcast=True), 0).to(tl.int64, bitcast=True)
        elif column < FIRST_INTEGER_TOP:
            result = tl.sum(value, 0)
        else:
            result = tl.max(value.to(tl.uint64, bitcast=True), 0).to(tl.int64, bitcast=True)
        tl.store(out + column, result)


@triton.jit(do_not_specialize=["tiles", "tiles_per_program", "first"])
def worst_kernel(
    reference, test, lane_error, lane_tile, chosen, out, tiles, tiles_per_program, first,
    T: tl.constexpr, V: tl.constexpr, S: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """The ``K`` worst elements of the ``j``-th worst lane of the ``i``-th chosen program, for program (i, j).

    The ``K`` worst elements of all lie in the ``K`` worst lanes of the ``K`` worst programs.

    Args:
        out: int64 [K, K, K, 4]: error and both values as float64 bits, and the index; error -1 where there is none.
        S: a power of two, at least ``tiles_per_program``.
    """
    place, turn = tl.program_id(0), tl.program_id(1)
    program = tl.load(chosen + place)
    row = tl.arange(0, T)
    error = tl.load(lane_error + program * T + row)
    index = tl.load(lane_tile + program * T + row).to(tl.int64) * T + row
    picked = 0
    for _ in range(turn + 1):
        highest = tl.max(error, 0)
        lowest = tl.min(tl.where(error == highest, index, LAST_INDEX), 0)
        picked = tl.min(tl.where((error == highest) & (index == lowest), row, T - 1), 0)
        error = tl.where(row == picked, -3.0, error)
    tile = program * tiles_per_program + tl.arange(0, S)
    inside = (tl.arange(0, S) < tiles_per_program) & (tile < tiles)
    offset = (tile.to(tl.int64) * T + picked)[:, None] * V + tl.arange(0, V)[None, :]
    mask = inside[:, None] & (tl.arange(0, V)[None, :] < V)
    r = tl.load(reference + offset, mask=mask, other=0.0).to(tl.float64)
    t = tl.load(test + offset, mask=mask, other=0.0).to(tl.float64)
    gap = tl.abs(t - r)
    gap = tl.where((r == t) | ((r != r) & (t != t)), 0.0, tl.where(gap != gap, INFINITE, gap))
    gap = tl.where(mask, gap, -1.0)
    slot = out + ((place * K + turn) * K) * 4
    for rank in tl.static_range(K):
        highest = tl.max(tl.max(gap, 1), 0)
        lowest = tl.min(tl.min(tl.where(gap == highest, offset, LAST_INDEX), 1), 0)
        here = offset == lowest
        tl.store(slot + rank * 4, highest.to(tl.int64, bitcast=True))
        tl.store(slot + rank * 4 + 1, _only(r, here))
        tl.store(slot + rank * 4 + 2, _only(t, here))
        tl.store(slot + rank * 4 + 3, first + lowest)
        gap = tl.where(here, -1.0, gap)


@triton.jit
def _only(values, here):
    """The bits of the one value of a [S, V] block where ``here`` is True."""
    bits = tl.where(here, values.to(tl.int64, bitcast=True), 0)
    return tl.sum(tl.sum(bits, 1), 0)
