"""Which caches the measured bandwidth must be well beyond: those of the processors that this process may use."""

import os
from pathlib import Path

import pytest
import torch
from profile_models import lopsided_case

from inductor_debug.models.case import Case
from inductor_debug.stages.profile import ceiling
from inductor_debug.stages.profile.ceiling import MIB, last_level_cache, measured_ceiling
from inductor_debug.stages.profile.stage import measure

CPU = torch.device("cpu")


def write(root: Path, cpu: int, index: int, level: int, size: str, shared: str, kind: str = "Unified") -> None:
    folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in (("level", str(level)), ("size", size), ("shared_cpu_list", shared), ("type", kind)):
        (folder / name).write_text(text + "\n")


@pytest.fixture
def four_chiplets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight processors, two on each of four caches of 32 MiB."""
    for cpu in range(8):
        write(tmp_path, cpu, 0, 1, "48K", f"{cpu}", "Data")
        write(tmp_path, cpu, 1, 1, "64M", f"{cpu}", "Instruction")  # of no concern, whatever its size
        write(tmp_path, cpu, 2, 2, "1024K", f"{cpu}")
        write(tmp_path, cpu, 3, 3, "32M", f"{cpu - cpu % 2}-{cpu - cpu % 2 + 1}")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    return tmp_path


def test_every_last_level_cache_counts_once(four_chiplets: Path) -> None:
    assert last_level_cache(CPU, four_chiplets) == 4 * 32 * MIB


def test_caches_of_processors_that_are_not_to_be_used_do_not_count(
    four_chiplets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {2, 3, 6})
    assert last_level_cache(CPU, four_chiplets) == 2 * 32 * MIB


def test_a_processor_without_a_third_level_has_its_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 0, 2, 2, "2048K", "0")
    write(tmp_path, 0, 3, 3, "16M", "0")
    write(tmp_path, 1, 2, 2, "4096K", "1-2")
    write(tmp_path, 1, 3, 3, "16M", "1")
    (tmp_path / "cpu1" / "cache" / "index3" / "size").unlink()
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    assert last_level_cache(CPU, tmp_path) == 20 * MIB
    assert last_level_cache(CPU, tmp_path / "none") is None


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(ceiling, "_timed", lambda case, call: (1.0, 1))
    monkeypatch.setattr(ceiling, "SMALLEST", {"cpu": MIB})
    return lopsided_case("inference")


@pytest.mark.parametrize(("available", "arrays", "beyond"), [(10**9, 24, True), (64 * MIB, 8, False)])
def test_arrays_are_sized_by_all_caches_as_far_as_memory_goes(
    case: Case, monkeypatch: pytest.MonkeyPatch, available: int, arrays: int, beyond: bool
) -> None:
    monkeypatch.setattr(ceiling, "last_level_cache", lambda device: 12 * MIB)
    monkeypatch.setattr(ceiling, "_available", lambda device: available)
    found = measured_ceiling(case, [])
    assert found.facts["copy"] == {"array_bytes": arrays * MIB, "runs": 1, "well_beyond_cache": beyond}
    assert found.bandwidth == 2 * arrays * MIB
    _, notes = measure(case, [])
    assert (notes == []) is beyond
    assert beyond or notes == [
        "the bandwidth of cpu's memory: 16.0 MiB of arrays were copied, not well beyond the caches' 12.0 MiB"
    ]
