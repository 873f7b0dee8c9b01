"""What a job takes over from the process that started its sweep."""

import os
from pathlib import Path

import pytest

from inductor_debug.pipeline.run.commands.origin import Origin


@pytest.mark.parametrize(
    "name",
    [
        "CUDA_VISIBLE_DEVICES",
        "HABANA_VISIBLE_MODULES",
        "ZE_AFFINITY_MASK",
        "ONEAPI_DEVICE_SELECTOR",
        "TPU_VISIBLE_CHIPS",
    ],
)
def test_the_accelerator_that_a_launcher_gave_a_job_stays_its_own(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "7")
    there = Origin(str(tmp_path), ["python"], Origin.here().variables)
    monkeypatch.setenv(name, "1")
    with there.restored():
        assert os.environ[name] == "1"
    alone = Origin(str(tmp_path), ["python"], {})
    with alone.restored():
        assert os.environ[name] == "1"


def test_what_changes_the_code_is_that_of_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1")
    there = Origin(str(tmp_path), ["python"], Origin.here().variables)
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O3")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with there.restored():
        assert os.environ["NEURON_CC_FLAGS"] == "-O1"
    with Origin(str(tmp_path), ["python"], {}).restored():
        assert "OMP_NUM_THREADS" not in os.environ and "NEURON_CC_FLAGS" not in os.environ
    assert (os.environ["OMP_NUM_THREADS"], os.environ["NEURON_CC_FLAGS"]) == ("1", "-O3")


def test_where_jobs_agree_on_times_is_the_sweeps_else_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INDUCTOR_DEBUG_LOCKS", "/shared")
    there = Origin(str(tmp_path), ["python"], Origin.here().variables)
    monkeypatch.setenv("INDUCTOR_DEBUG_LOCKS", "/of/the/node")
    with there.restored():
        assert os.environ["INDUCTOR_DEBUG_LOCKS"] == "/shared"
    with Origin(str(tmp_path), ["python"], {}).restored():
        assert os.environ["INDUCTOR_DEBUG_LOCKS"] == "/of/the/node"
