"""Runs the comparison's Triton kernels in Triton's interpreter and holds them against plain torch.

Usage: ``triton_program.py DTYPE:KIND …``; prints a line for each that came out alike.
"""

import math
import sys

import torch

from inductor_debug.stages.numerics.device import triton_kernels as kernels
from inductor_debug.stages.numerics.device.device_figures import WIDTHS, worst_of
from inductor_debug.stages.numerics.device.device_pass import LANES
from inductor_debug.stages.numerics.device.triton_finish import finish_kernel
from inductor_debug.stages.numerics.histogram import BINS, LOWEST, OCTAVES, bins_of
from inductor_debug.stages.numerics.one_pass import measure

PROGRAMS, TILES, KEEP = 3, 5, 4
ATOL, RTOL = 1e-4, 1e-3


def sides(dtype: torch.dtype, count: int, *, special: bool) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    gold = torch.randn(count, generator=generator, dtype=torch.float64)
    gold[::7] = 0
    test = gold * (1 + 1e-2 * torch.randn(count, generator=generator, dtype=torch.float64))
    if special:
        for side, start in ((gold, 3), (test, 5)):
            side[start::97] = math.nan
            side[start + 2 :: 89] = math.inf
            side[11::101] = -math.inf
    if not dtype.is_floating_point:
        scale = torch.iinfo(dtype).max / 9
        gold, test = (gold * scale).round(), (test * scale).round()
    return [gold.to(dtype), test.to(dtype), gold]


def check(dtype: torch.dtype, kind: str) -> None:
    lanes = 16 // dtype.itemsize
    count = TILES * LANES * lanes
    reference, test, gold = sides(dtype, count, special=kind == "special")
    width = len(kernels.COLUMNS)
    table = torch.empty(PROGRAMS, width, dtype=torch.int64)
    lane_error, lane_tile = torch.empty(PROGRAMS, LANES, dtype=torch.float64), torch.empty(PROGRAMS, LANES).long()
    program_error, program_index = torch.empty(PROGRAMS, dtype=torch.float64), torch.empty(PROGRAMS).long()
    counts_by_bin = torch.zeros(BINS, dtype=torch.int64)
    results = torch.empty(width + 4 * KEEP**2 + BINS, dtype=torch.int64)
    shape, left = {"T": LANES, "V": lanes}, (lane_error, lane_tile, program_error, program_index)
    kernels.figures_kernel[(PROGRAMS,)](
        reference, test, gold, ATOL, RTOL, table, *left, counts_by_bin, TILES, EXACT=kind != "finite", GOLD=True,
        HISTOGRAM=True, BITS=WIDTHS.get(dtype, 0), **shape, BINS=BINS, LOWEST=LOWEST, OCTAVES=OCTAVES,
    )  # fmt: skip
    finish_kernel[(width + KEEP + 1,)](
        reference,
        test,
        table,
        *left,
        counts_by_bin,
        results,
        PROGRAMS,
        TILES,
        0,
        **shape,
        U=1,
        S=2,
        P=16,
        K=KEEP,
        BINS=BINS,
    )
    sums, worst, bins = results.split([width, 4 * KEEP**2, BINS])
    expected = measure(reference, test, gold, rtol=RTOL, atol=ATOL, worst=KEEP)
    found = dict(zip(kernels.COLUMNS, sums.tolist(), strict=True))
    floats = dict(zip(kernels.COLUMNS, sums.view(torch.float64).tolist(), strict=True))
    errors = (test.double() - reference.double()).abs()
    equal = (test == reference) | (test.isnan() & reference.isnan())
    assert bins.tolist() == torch.bincount(bins_of(torch.where(equal, 0.0, errors)), minlength=BINS).tolist()
    counts = {
        "mismatched": expected.mismatched, "zeros": expected.zero_reference, "ulp": expected.max_ulp or 0,
        "beyond": expected.nonfinite_mismatched,
    }  # fmt: skip
    if kind != "finite":
        counts |= {
            "nan_left": expected.nan_reference,
            "inf_right": expected.inf_test,
            "in_gold": expected.gold_elements,
        }
    assert {name: found[name] for name in counts} == counts, (found, counts)
    if kind == "special":
        assert math.isnan(floats["sum_abs"]) and found["nan_rel"] > 0
    else:
        assert math.isclose(floats["sum_abs"] / count, expected.mean_abs, rel_tol=1e-12)
        assert math.isclose(math.sqrt(floats["squares"] / count), expected.rmse, rel_tol=1e-12)
        assert math.isclose(floats["top_rel"], expected.max_rel, rel_tol=1e-6)
    usable = expected.gold_elements
    for name, spread in (("floor", expected.floor), ("error", expected.error), ("magnitude", expected.magnitude)):
        assert math.isclose(math.sqrt(floats[name] / usable), spread.rms, rel_tol=1e-12), name
    found_worst = worst_of(worst.numpy())
    elements = [(place, str(-error)) for error, place, _, _ in found_worst]
    wanted = [(item.index[0], str(item.error)) for item in expected.worst]
    assert [place for place, _ in elements] == [place for place, _ in wanted], (elements, wanted)


def main() -> None:
    kernels.libdevice.fast_dividef = lambda left, right: left / right  # the interpreter does not know the intrinsic
    for argument in sys.argv[1:]:
        name, kind = argument.split(":")
        check(getattr(torch, name), kind)
        print(argument, "alike")


if __name__ == "__main__":
    main()
