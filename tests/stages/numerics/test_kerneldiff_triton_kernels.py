"""The device's kernels on the host: Triton's interpreter runs them, and plain torch says what must come out.

The interpreter must be chosen before Triton is imported, so the test is a process of its own.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

PROGRAM = Path(__file__).parents[1].joinpath("triton_program.py")


CASES = ["float32:finite", "float32:special", "bfloat16:special", "float64:exact", "int32:finite"]


@pytest.mark.slow
def test_the_kernels_find_what_plain_torch_finds() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), *CASES], env=environment, capture_output=True, text=True, timeout=500
    )
    if "only 0-dimensional arrays can be converted" in ended.stderr:
        pytest.skip("this Triton has an interpreter that does not work with this NumPy")
    assert ended.stdout.splitlines() == [f"{case} alike" for case in CASES], ended.stdout + ended.stderr
    assert ended.returncode == 0
