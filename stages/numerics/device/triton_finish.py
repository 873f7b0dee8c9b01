"""The kernel that puts together what the programs of a pass on a device left, in a fixed order."""

import triton
import triton.language as tl

from inductor_debug.stages.numerics.device import triton_kernels
from inductor_debug.stages.numerics.device.triton_kernels import INFINITE, LAST_INDEX, WIDTH, worse

FIRST_TOP, FIRST_COUNT, FIRST_INTEGER_TOP = (
    tl.constexpr(place)
    for place in (len(triton_kernels.FLOAT_SUMS), triton_kernels.FLOATS, len(triton_kernels.COLUMNS) - 1)
)


@triton.jit(do_not_specialize=["programs", "tiles", "first"])
def finish_kernel(
    reference, test, table, lane_error, lane_tile, program_error, program_index, histogram, results, programs, tiles,
    first, T: tl.constexpr, V: tl.constexpr, U: tl.constexpr, S: tl.constexpr, P: tl.constexpr, K: tl.constexpr,
    BINS: tl.constexpr,
):  # fmt: skip
    """What a pass found, from what its programs left: program ``c`` adds up column ``c`` of ``table``.

    The ``K`` programs after those find the ``K`` worst elements, which lie in the ``K`` worst lanes, and these in the
    ``K`` worst programs: each looks through one lane. The last one copies the histogram.

    Args:
        reference, test, table, lane_error, lane_tile, program_error, program_index, histogram, tiles: as for
            :func:`stages.numerics.device.triton_kernels.figures_kernel`, which filled them; the sides of their dtypes.
        results: int64, on the device or in the host's pinned memory: the columns, the ``K`` worst of each lane, the
            histogram. The worst are [K, K, 4]: error and both values as float64 bits, and the index. Error is -1 where
            there is none.
        first: flat index of the first element.
        U: tiles, one behind the other, that a program takes in at a time.
        S: a power of two, at least the tiles of a program.
        P: a power of two, at least ``programs``.
    """
    job = tl.program_id(0)
    row = tl.arange(0, P)
    inside = row < programs
    if job < WIDTH:
        _add_up(tl.load(table + row * WIDTH + job, mask=inside, other=0), job, results)
    elif job == WIDTH + K:
        bin = tl.arange(0, BINS)
        tl.store(results + WIDTH + 4 * K * K + bin, tl.load(histogram + bin))
    else:
        slot = job - WIDTH
        error = tl.load(program_error + row, mask=inside, other=-2.0)
        index = tl.load(program_index + row, mask=inside, other=LAST_INDEX)
        place = tl.arange(0, K)
        chosen = tl.zeros([K], tl.int32)
        for turn in range(K):
            highest, lowest = tl.reduce((error, index), 0, worse)
            program = tl.where(highest > 0, (lowest // (T * V * U) % programs).to(tl.int32), -1)
            chosen = tl.where(place == turn, program, chosen)
            error = tl.where(index == lowest, -3.0, error)
        lanes = chosen[:, None] * T + tl.arange(0, T)[None, :]
        known = (chosen >= 0)[:, None]
        error = tl.reshape(tl.load(lane_error + lanes, mask=known, other=-2.0), [K * T])
        index = tl.load(lane_tile + lanes, mask=known, other=0).to(tl.int64) * T + tl.arange(0, T)[None, :]
        index = tl.reshape(tl.where(known, index, LAST_INDEX), [K * T])
        highest, lowest = tl.reduce((error, index), 0, worse)
        for _ in range(slot):
            error = tl.where(index == lowest, -3.0, error)
            highest, lowest = tl.reduce((error, index), 0, worse)
        step = tl.arange(0, S).to(tl.int64)
        tile = (lowest // (T * U) % programs + step // U * programs) * U + step % U
        offset = (tile * T + lowest % T)[:, None] * V + tl.arange(0, V)[None, :]
        mask = (tile < tl.where(highest > 0, tiles, 0))[:, None] & (offset >= 0)
        _worst_elements(reference, test, offset, mask, first, results + WIDTH + slot * K * 4, S * V, K)


@triton.jit
def _add_up(values, column, sums):
    """A column of ``table``, as what it is, into its place."""
    if column < FIRST_TOP:
        result = tl.sum(values.to(tl.float64, bitcast=True), 0).to(tl.int64, bitcast=True)
    elif column < FIRST_COUNT:
        result = tl.max(values.to(tl.float64, bitcast=True), 0).to(tl.int64, bitcast=True)
    elif column < FIRST_INTEGER_TOP:
        result = tl.sum(values, 0)
    else:
        result = tl.max(values.to(tl.uint64, bitcast=True), 0).to(tl.int64, bitcast=True)
    tl.store(sums + column, result)


@triton.jit
def _worst_elements(reference, test, offset, mask, first, out, COUNT: tl.constexpr, K: tl.constexpr):
    """The ``K`` worst of the ``COUNT`` elements at ``offset`` [S, V], as ``K`` rows of ``out``."""
    r = tl.load(reference + offset, mask=mask, other=0).to(tl.float64)
    t = tl.load(test + offset, mask=mask, other=0).to(tl.float64)
    gap = tl.abs(t - r)
    gap = tl.where((r == t) | ((r != r) & (t != t)), 0.0, tl.where(gap != gap, INFINITE, gap))
    error = tl.reshape(tl.where(mask, gap, -1.0), [COUNT])
    index = tl.reshape(tl.where(mask, offset, LAST_INDEX), [COUNT])
    for rank in range(K):
        highest, lowest = tl.reduce((error, index), 0, worse)
        here = lowest < LAST_INDEX
        tl.store(out + rank * 4, highest.to(tl.int64, bitcast=True))
        left = tl.load(reference + lowest, mask=here, other=0).to(tl.float64)
        right = tl.load(test + lowest, mask=here, other=0).to(tl.float64)
        tl.store(out + rank * 4 + 1, left.to(tl.int64, bitcast=True))
        tl.store(out + rank * 4 + 2, right.to(tl.int64, bitcast=True))
        tl.store(out + rank * 4 + 3, first + lowest)
        error = tl.where(index == lowest, -1.0, error)
