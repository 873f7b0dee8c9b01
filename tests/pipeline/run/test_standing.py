"""Whether the result that a directory holds stands, where the run gives variables to the process of a stage."""

import logging
import os
from pathlib import Path

import pytest
from composing import compose

from inductor_debug.pipeline.run import runner, standing

MODEL = """
import torch


def build():
    return torch.nn.Linear(8, 8), (torch.randn(2, 8),)
"""
WORDS = ("model=custom", "model.build._target_=mine.build", "model.name=mine", "backend=aot_eager")
SET = "CUBLAS_WORKSPACE_CONFIG"


def test_a_result_stands_that_was_made_with_the_variable_that_equal_bits_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On CUDA each run gives it to what is not timed. Here a run on the CPU does."""
    (tmp_path / "mine.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv(SET, raising=False)
    for module in (runner, standing):
        monkeypatch.setattr(module, "for_reproduction", lambda *_: {SET: ":4096:8"})
    config, _ = compose(*WORDS, "stages=[capture,report]")
    with caplog.at_level(logging.INFO):
        assert runner.run(config, tmp_path / "run") == 0
        assert "it stands" not in caplog.text
        assert runner.run(config, tmp_path / "run") == 0
    assert "it stands" in caplog.text
    assert SET not in os.environ
