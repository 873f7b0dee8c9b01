"""What a released torch miscompiles on the CPU, with nothing planted: the smallest script shows it.

Each test first compiles by torch alone, and is skipped where that is right.
"""

from typing import Any

import pytest
import torch
from inductor_faults import REAL

from inductor_debug.stages.backends.mock import AotMockAdapter
from inductor_debug.stages.backends.mock_options import MockOptions
from inductor_debug.stages.minify.api import minify
from inductor_debug.stages.minify.engine import Minified

pytestmark = pytest.mark.slow


def smallest(name: str, **options: Any) -> Minified:
    module, x = (make() for make in REAL[name])
    torch.compiler.reset()
    if torch.equal(torch.compile(module, backend="inductor")(x), module(x)):
        pytest.skip(f"torch {torch.__version__} compiles {name} right")
    return minify(module, (x,), **options)


def test_argmin_of_a_transposed_tensor() -> None:
    found = smallest("argmin")
    assert found.verified and found.failure == "defect" and found.operations <= 3, found.message
    assert "torch.ops.aten.argmin.default(" in found.script


def test_behind_the_mock_backend_it_is_what_executes() -> None:
    found = smallest("argmin", backend=AotMockAdapter(options=MockOptions(execute="inductor")))
    assert found.verified and found.failure == "defect" and found.operations <= 3, found.message
    assert "torch.compile(program, backend='inductor'" in found.script and "inductor_debug" not in found.script


def test_a_flipped_repeat_of_dynamic_sizes() -> None:
    found = smallest("repeat_interleave")
    assert found.verified and found.failure == "defect", found.message
    assert "torch.ops.aten.flip.default(" in found.script and "dynamic=True" in found.script
