"""The device's kernels on the host: Triton's interpreter runs them, and plain torch says what must come out.

The interpreter must be chosen before Triton is imported, so each test is a process of its own.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

PROGRAM = Path(__file__).with_name("triton_program.py")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("kind", ["finite", "exact", "special"])
def test_the_kernels_find_what_plain_torch_finds(dtype: str, kind: str) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), dtype, kind], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0 and ended.stdout.strip() == "alike", ended.stdout + ended.stderr
