"""The smallest module of what no graph shows as a program of its own: each script is run in a fresh process."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minify_backends
import minify_modules as planted
import pytest
import torch

from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.engine import Minified
from inductor_debug.stages.minify.failures import Failure
from inductor_debug.stages.minify.modules.engine import smallest_module
from inductor_debug.stages.minify.script import Compiler
from inductor_debug.stages.minify.workers import Workers

WORKERS = Workers(packages=["minify_backends"])


@pytest.fixture(autouse=True, scope="module")
def closed() -> Iterator[None]:
    yield
    WORKERS.close()


def smallest(odd: torch.nn.Module, *given: tuple[Any, ...], lengths: tuple[int, ...] = (), **options: Any) -> Minified:
    """Of a model one of whose layers is odd, called once for each tuple of what it is given beside its input."""
    torch.manual_seed(0)
    model = planted.Model(odd).eval()
    calls = [((torch.randint(32, (2, length)), *more), {})
             for length, more in zip(lengths or [5] * len(given), given, strict=True)]  # fmt: skip
    compiler = options.pop("compiler", Compiler("'eager'"))
    found = smallest_module(model, calls, compiler, options.pop("config", MinifyConfig()), workers=WORKERS, **options)
    assert found is not None
    assert found.verified, found.message
    assert len(found.script.encode()) < 20 << 10 and found.data == b""
    return found


FOUR: list[tuple[Any, ...]] = [()] * 4
EVEN = Failure("storm", "storm on attribute even")


@pytest.mark.slow
def test_a_counter_deep_in_a_model_is_told_in_two_statements(tmp_path: Path) -> None:
    found = smallest(planted.Counting(), *FOUR, compiler=Compiler("'inductor'"))
    assert (found.failure, found.node, found.target) == ("storm on attribute seen", "encoder.layers.1", "Counting")
    assert found.operations == 2 and found.minimal
    assert "self.seen += 1" in found.script and "LayerNorm" not in found.script
    found.save(tmp_path / "repro.py")
    other = found.script.replace("self.seen += 1", "pass")
    (tmp_path / "mended.py").write_text(other, encoding="utf-8")
    codes = [subprocess.run([sys.executable, str(tmp_path / name), *more], capture_output=True).returncode
             for name, *more in (["repro.py"], ["mended.py"], ["repro.py", "--unknown"])]  # fmt: skip
    assert codes == [0, 1, 2]


def test_what_goes_wrong_after_other_calls_does_not_become_what_is_wrong_at_once() -> None:
    found = smallest(planted.Third(), *FOUR, expected=Failure("defect", "defect"))
    assert found.failure == "defect after other calls" and "self.seen == " in found.script
    assert "self.seen += 1" in found.script and "for _ in range(" in found.script


@pytest.mark.slow
@pytest.mark.parametrize(
    ("odd", "given", "options", "failure"),
    [
        (planted.Global, FOUR, {}, "storm on global FLAG"),
        (planted.closed_over, FOUR, {}, "storm on an int that is given"),
        (planted.Alternating, FOUR, {"expected": EVEN}, "storm on attribute even"),
        (planted.Scaled, [(0.1,), (0.2,), (0.3,), (0.4,)], {"dynamic": False}, "storm on a float that is given"),
        (planted.Growing, [([1] * n,) for n in range(1, 5)], {}, "storm on the length or the keys of a container"),
        (planted.Part, FOUR, {"dynamic": False, "lengths": (5, 6, 7, 8)}, "storm on size of dimension 1"),
        (planted.Different, [()], {}, "defect"),
        (planted.Hanging, [()], {"config": MinifyConfig(limit_s=15)}, "hang"),
    ],
)  # fmt: skip
def test_each_failure_keeps_its_class(odd: Any, given: Any, options: dict[str, Any], failure: str) -> None:
    found = smallest(odd(), *given, **options)
    assert found.failure == failure and found.operations <= 3
    assert "LayerNorm" not in found.script and "import torch" in found.script


@pytest.mark.slow
def test_what_dynamo_does_not_support_is_dynamos() -> None:
    found = smallest(planted.Unsupported(), (), fullgraph=True, compiler=Compiler("'inductor'"))
    assert found.failure.startswith("error Unsupported in ") and found.operations <= 3
    assert "backend='eager', fullgraph=True" in found.script and "Dynamo alone shows it" in found.script


@pytest.mark.slow
def test_what_the_backend_raises_keeps_the_backend() -> None:
    given = Compiler("refusing", ("from minify_backends import refusing",), packages=("minify_backends",))
    found = smallest(planted.Part(), (), compiler=given)
    assert found.failure.endswith("minify_backends.py:compiler, minify_backends.py:refuse")
    assert "self.norm" in found.script and "self.second" not in found.script
    assert minify_backends.__name__ in found.script


def test_a_model_without_a_failure_gives_none() -> None:
    calls = [((torch.randn(2, planted.WIDTH),), {})] * 2
    assert smallest_module(planted.Part().eval(), calls, Compiler("'eager'"), MinifyConfig(), workers=WORKERS) is None
