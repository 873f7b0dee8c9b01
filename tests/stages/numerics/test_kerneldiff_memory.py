"""Beyond its inputs a comparison of sparse or quantized tensors takes little memory at any size."""

import os
import subprocess
import sys

import pytest

MEMORY = """
import ctypes
from pathlib import Path
import torch
from inductor_debug import compare_tensors
from inductor_debug.stages.numerics.comparable import comparable
from inductor_debug.stages.numerics.one_pass import chunks
from inductor_debug.stages.tensor_pictures.plots import draw

ROWS, COLUMNS, STORED = 6400, 6250, 400_000
torch.manual_seed(0)

def coo(dtype=torch.float32):
    index = torch.stack([torch.randint(0, size, (STORED,)) for size in (ROWS, COLUMNS)])
    return torch.sparse_coo_tensor(index, torch.randn(STORED, dtype=dtype), (ROWS, COLUMNS))

def rows(stored, rows, columns):
    return torch.sparse_coo_tensor(torch.randint(0, rows, (1, stored)), torch.randn(stored, columns), (rows, columns))

def blocks(layout):
    index = torch.randint(0, 625, (2, STORED // 100)) * torch.tensor([[10], [10]])
    made = torch.sparse_coo_tensor(index // 10, torch.ones(STORED // 100), (640, 625)).coalesce()
    made = made.to_sparse_csr() if layout == "bsr" else made.to_sparse_csc()
    index = (made.crow_indices(), made.col_indices()) if layout == "bsr" else (made.ccol_indices(), made.row_indices())
    values = torch.randn(len(index[1]), 10, 10)
    return getattr(torch, f"sparse_{layout}_tensor")(*index, values, (ROWS, COLUMNS))

def by_channel():
    scales = [torch.rand(ROWS, dtype=torch.float64), torch.zeros(ROWS, dtype=torch.int64)]
    made = torch._empty_per_channel_affine_quantized(
        (ROWS, COLUMNS), scales=scales[0], zero_points=scales[1], axis=0, dtype=torch.qint8
    )
    torch.empty(0, dtype=torch.int8).set_(made.untyped_storage(), 0, made.size(), made.stride()).random_(-99, 99)
    return made

def by_tensor():
    made = torch._empty_affine_quantized((ROWS, COLUMNS), scale=0.1, zero_point=3, dtype=torch.quint8)
    torch.empty(0, dtype=torch.uint8).set_(made.untyped_storage(), 0, made.size(), made.stride()).random_(0, 200)
    return made.t()

MAKE = {
    "coo": lambda: coo().coalesce(), "duplicates": coo, "csr": lambda: coo().coalesce().to_sparse_csr(),
    "csc": lambda: coo().coalesce().to_sparse_csc(), "bsr": lambda: blocks("bsr"), "bsc": lambda: blocks("bsc"),
    "complex": lambda: coo(torch.complex128), "by channel": by_channel, "by tensor": by_tensor,
    "hybrid": lambda: rows(64, ROWS, COLUMNS), "one entry": lambda: rows(1, 1, ROWS * COLUMNS),
}

def field(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024

def walk(sides, row):
    for _ in chunks([comparable(side) for side in sides]):
        pass

def compared(sides, row):
    compare_tensors(sides[0], sides[1], gold=sides[2])

def drawn(sides, row):
    draw(sides[0], sides[1], row)

small = [torch.randn(50, 60, dtype=torch.complex128).to_sparse() for _ in range(3)]
for name in NAMES:
    sides = [MAKE[name]() for _ in range(3)]
    assert sides[0].numel() == 40_000_000
    for use in USES:
        row = compare_tensors(*small[:2])
        globals()[use](small, row)
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        held = field("VmRSS")
        globals()[use](sides, row)
        print(f"{name}|{use}|{field('VmHWM') - held:.0f}")
"""


def extra_memory(names, uses):
    """MiB that a process of its own held beyond three tensors of 40 million elements, by tensor and use."""
    script = MEMORY.replace("NAMES", repr(names)).replace("USES", repr(uses))
    made = subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, capture_output=True, text=True)
    found = {tuple(line.split("|")[:2]): int(line.split("|")[2]) for line in made.stdout.splitlines()}
    assert set(found) == {(name, use) for name in names for use in uses}
    return found


needs_peak = pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no record of peak memory")


@pytest.mark.slow
@needs_peak
def test_reading_three_large_tensors_takes_little_memory():
    found = extra_memory(["csr", "duplicates", "by channel", "complex"], ["walk"])
    assert max(found.values()) < 64, found


@needs_peak
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["coo", "duplicates", "csr", "csc", "bsr", "bsc", "complex", "by channel", "by tensor", "hybrid", "one entry"],
)
def test_comparing_and_drawing_large_tensors_takes_little_memory(name):
    found = extra_memory([name], ["compared", "drawn"])
    assert max(found.values()) < 64, found
