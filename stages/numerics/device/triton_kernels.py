"""Triton kernels of the one-pass comparison on a device. Launched by :mod:`stages.numerics.device.device_pass` alone.

Program ``p`` of :func:`figures_kernel` reads tiles ``p``, ``p + programs``, …, each ``T`` lanes of ``V`` neighbouring
elements. Every figure is kept by lane in registers, in float64 (counts in 16 bits). It leaves the program once, as a
column of its row of ``table``. :func:`finish_kernel` adds the rows up in a fixed order, so that two runs give the same
bits.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

FLOAT_SUMS = ("sum_abs", "squares", "sum_rel", "left", "right", "dot", "floor", "error", "magnitude")
FLOAT_TOPS = ("top_rel", "top_left", "top_right", "top_floor", "top_error", "top_gold")
COUNTS = (
    *("mismatched", "zeros", "nan_left", "nan_right", "inf_left", "inf_right", "beyond", "nan_rel", "finite"),
    *("in_gold", "unlike_lanes", "doubts"),
)
INTEGER_TOPS = ("ulp",)
COLUMNS = (*FLOAT_SUMS, *FLOAT_TOPS, *COUNTS, *INTEGER_TOPS)
"""Columns of ``table``: float64 sums, float64 maxima, int64 sums, an unsigned 64-bit maximum; 64 bits each."""

FLOATS = len(FLOAT_SUMS) + len(FLOAT_TOPS)
"""Columns that hold float64; they come first."""

FIRST_TOP, FIRST_COUNT, FIRST_INTEGER_TOP = (
    tl.constexpr(place) for place in (len(FLOAT_SUMS), FLOATS, len(COLUMNS) - 1)
)
WIDTH = tl.constexpr(len(COLUMNS))
INFINITE = tl.constexpr(float("inf"))
LAST_INDEX = tl.constexpr(0x7FFFFFFFFFFFFFFF)


@triton.jit
def worse(error, index, other_error, other_index):
    """The one of two of the larger error; of equal ones the one of the lower index.

    Args:
        error, index, other_error, other_index: of one, and of the other.
    """
    take = (other_error > error) | ((other_error == error) & (other_index < index))
    return tl.where(take, other_error, error), tl.where(take, other_index, index)


@triton.jit
def _put_sum(place, value):
    tl.store(place, tl.sum(value, 0).to(tl.int64, bitcast=True))


@triton.jit
def _put_top(place, value):
    tl.store(place, tl.max(value, 0).to(tl.float64).to(tl.int64, bitcast=True))


@triton.jit
def _put_counts(first, second, pair):
    """The two counts of a packed pair, each summed over the lanes."""
    tl.store(first, tl.sum((pair & 0xFFFF).to(tl.int64), 0))
    tl.store(second, tl.sum((pair >> 16).to(tl.int64), 0))


@triton.jit
def _pair(first, second):
    """How many of each lane's elements meet two conditions, packed: a lane sees fewer than 2**16 elements."""
    return tl.sum(tl.where(first, 1, 0) + tl.where(second, 0x10000, 0), 1)


@triton.jit
def _farther(left, right):
    """The one of two farther from 0, neither NaN: 3 instructions in float64, where ``tl.maximum`` takes 8."""
    return tl.where(tl.abs(left) > tl.abs(right), left, right)


@triton.jit
def _largest(values):
    """The largest magnitude of each lane's elements, none NaN."""
    if values.dtype == tl.float64:
        return tl.abs(tl.reduce(values, 1, _farther))
    return tl.max(tl.abs(values), 1)


@triton.jit
def _either(left, right):
    return left | right


@triton.jit
def _bits(reference, test, BITS: tl.constexpr):
    """What differs between two values bit by bit, and the distance in units in the last place, unsigned.

    On two sides of zero, where both zeros meet, the way leads through zero. A negative number's bits are those of its
    magnitude less 2**(BITS - 1). So the sum of both, plus that, is the sum of the magnitudes.
    """
    if BITS == 64:
        left, right = reference.to(tl.int64, bitcast=True), test.to(tl.int64, bitcast=True)
        across = left + right + -0x8000000000000000
    elif BITS == 32:
        left, right = reference.to(tl.int32, bitcast=True), test.to(tl.int32, bitcast=True)
        across = left + right + -0x80000000
    else:
        left = reference.to(tl.int16, bitcast=True).to(tl.int32)
        right = test.to(tl.int16, bitcast=True).to(tl.int32)
        across = left + right + 0x8000
    unlike = left ^ right
    gap = tl.where(unlike < 0, across, tl.abs(left - right))
    return unlike, gap.to(tl.uint64 if BITS == 64 else tl.uint32, bitcast=True)


@triton.jit
def _bin(error, counted, BINS: tl.constexpr, LOWEST: tl.constexpr, OCTAVES: tl.constexpr):
    """Each error's bin by its exponent; the last bin where it does not count."""
    exponent = ((error.to(tl.int64, bitcast=True) >> 52) & 0x7FF).to(tl.int32) - (1023 + LOWEST)
    return tl.where(counted, tl.minimum(tl.maximum(exponent // OCTAVES, 0), BINS - 2), BINS - 1)


@triton.jit(do_not_specialize=["tiles"])
def figures_kernel(
    reference, test, gold, atol: tl.float64, rtol: tl.float64, table, lane_error, lane_tile, program_error,
    program_index, histogram, tiles,
    EXACT: tl.constexpr, GOLD: tl.constexpr, HISTOGRAM: tl.constexpr, BITS: tl.constexpr, T: tl.constexpr,
    V: tl.constexpr, BINS: tl.constexpr, LOWEST: tl.constexpr, OCTAVES: tl.constexpr,
):  # fmt: skip
    """All figures of a program's tiles into its row of ``table``.

    Args:
        table: [programs, WIDTH], 64 bits each.
        tiles: how many there are.
        reference, test, gold: 1-D and contiguous, of 16 to 64 bits a float.
        atol, rtol: the tolerance.
        histogram: int64 counts by size of error, [BINS]; not touched without HISTOGRAM.
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
    small = tl.zeros([T], tl.float32 if BITS != 64 and BITS != 0 and not EXACT else tl.float64)
    none = tl.zeros([T], tl.int32)
    sum_abs, squares, sum_rel, left, right, dot = zero, zero, zero, zero, zero, zero
    floor, against, magnitude, top_floor, top_against, top_gold = zero, zero, zero, zero, zero, zero
    top_rel, top_left, top_right = small, small, small
    mismatched_zeros, nans, infinities, beyond_nan_rel, finite_in_gold = none, none, none, none, none
    unlike = tl.zeros([T], tl.int64 if BITS == 64 else tl.int32)
    ulp = tl.zeros([T], tl.uint64 if BITS == 64 else tl.uint32)
    best = tl.full([T], -1.0, tl.float64)
    where = none
    counts = tl.zeros([BINS], tl.int32)
    for tile in range(program, tiles, tl.num_programs(0)):
        base = tl.cast(tile, tl.int64) * (T * V)
        r = tl.load(reference + base + lane)
        t = tl.load(test + base + lane)
        wide_r, wide_t = r.to(tl.float64), t.to(tl.float64)
        gap = wide_t - wide_r
        error, size_r = tl.abs(gap), tl.abs(wide_r)
        if EXACT:
            size_t = tl.abs(wide_t)
            nan_r, nan_t = wide_r != wide_r, wide_t != wide_t
            same = (wide_r == wide_t) | (nan_r & nan_t)
            finite = (size_r < INFINITE) & (size_t < INFINITE)
            error = tl.where(same, 0.0, error)
            nonzero = size_r != 0
            differ = ~(same | ((error <= atol + rtol * size_r) & (error < INFINITE)))
            relative = tl.where(error == INFINITE, INFINITE, error / size_r)
            relative = tl.where(nonzero & (error != 0), relative, 0.0)
            nans += _pair(nan_r, nan_t)
            infinities += _pair(size_r == INFINITE, size_t == INFINITE)
            beyond_nan_rel += _pair(~same & ~finite, relative != relative)
            relative = tl.where(relative != relative, 0.0, relative)
            kept_r, kept_t = tl.where(finite, wide_r, 0.0), tl.where(finite, wide_t, 0.0)
            magnitude_r, magnitude_t = tl.abs(kept_r), tl.abs(kept_t)
            rank = tl.where(error != error, INFINITE, error)
            counted = (error > 0) & (error < INFINITE)
            usable = finite
        else:
            if BITS == 64 or BITS == 0:
                magnitude_r, magnitude_t = size_r, tl.abs(wide_t)
                nonzero = magnitude_r != 0
                relative = tl.where(nonzero, error / magnitude_r, 0.0)
            else:  # quotients in float32, good to 2 units in its last place, cost a tenth of float64's
                narrow_r, narrow_t = r.to(tl.float32), t.to(tl.float32)
                magnitude_r, magnitude_t = tl.abs(narrow_r), tl.abs(narrow_t)
                nonzero = magnitude_r != 0
                relative = tl.where(nonzero, libdevice.fast_dividef(tl.abs(narrow_t - narrow_r), magnitude_r), 0.0)
            differ = error > atol + rtol * size_r
            kept_r, kept_t, rank = wide_r, wide_t, gap
            counted = error > 0
        mismatched_zeros += _pair(differ, ~nonzero)
        sum_abs += tl.sum(error, 1)
        squares += tl.sum(error * error, 1)
        sum_rel += tl.sum(relative, 1).to(tl.float64)
        left += tl.sum(kept_r * kept_r, 1)
        right += tl.sum(kept_t * kept_t, 1)
        dot += tl.sum(kept_r * kept_t, 1)
        top_rel = tl.maximum(top_rel, _largest(relative))
        top_left = tl.maximum(top_left, _largest(magnitude_r))
        top_right = tl.maximum(top_right, _largest(magnitude_t))
        if BITS != 0:
            bits, units = _bits(r, t, BITS)
            if EXACT:
                bits = tl.where(nan_r & nan_t, 0, bits)
                units = tl.where(finite, units, 0)
            unlike |= tl.reduce(bits, 1, _either)
            ulp = tl.maximum(ulp, tl.max(units, 1))
        highest = _largest(rank)
        better = highest > best
        best = tl.where(better, highest, best)
        where = tl.where(better, tile, where)
        if HISTOGRAM:
            bin = _bin(error, counted, BINS, LOWEST, OCTAVES)
            counts += tl.histogram(tl.reshape(bin, [T * V], can_reorder=True), BINS)
        if GOLD:
            g = tl.load(gold + base + lane).to(tl.float64)
            gap_r, gap_t = wide_r - g, wide_t - g
            if EXACT:
                usable = finite & (tl.abs(g) < INFINITE)
                gap_r, gap_t = tl.where(usable, gap_r, 0.0), tl.where(usable, gap_t, 0.0)
                g = tl.where(usable, g, 0.0)
            floor += tl.sum(gap_r * gap_r, 1)
            against += tl.sum(gap_t * gap_t, 1)
            magnitude += tl.sum(g * g, 1)
            top_floor = tl.maximum(top_floor, _largest(gap_r))
            top_against = tl.maximum(top_against, _largest(gap_t))
            top_gold = tl.maximum(top_gold, _largest(g))
        if EXACT:
            finite_in_gold += _pair(finite, usable)
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
    _put_counts(out + 15, out + 16, mismatched_zeros)
    _put_counts(out + 17, out + 18, nans)
    _put_counts(out + 19, out + 20, infinities)
    _put_counts(out + 21, out + 22, beyond_nan_rel)
    _put_counts(out + 23, out + 24, finite_in_gold)
    tl.store(out + 25, tl.sum((unlike != 0).to(tl.int64), 0))
    tl.store(out + 26, tl.full([], 0, tl.int64))  # doubts, which only the quick kernel has
    tl.store(out + 27, tl.max(ulp, 0).to(tl.int64, bitcast=BITS == 64))
