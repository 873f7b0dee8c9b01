"""The smallest script of what goes wrong, from a module to a fresh process that runs it."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minify_backends
import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.artifacts.records import ReproRecord, StageRecord
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.minify.api import minify
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.engine import Minified
from inductor_debug.stages.minify.stage import MinifyStage
from inductor_debug.stages.minify.workers import Workers
from inductor_debug.stages.repro.fingerprint import fingerprint
from inductor_debug.stages.settings import BackendConfig, Settings

COLUMNS = 36


class Net(torch.nn.Module):
    """Linear → layer norm → ReLU → linear, and what the first one gives."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(16, COLUMNS), torch.nn.LayerNorm(COLUMNS)
        self.second = torch.nn.Linear(COLUMNS, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.second(torch.relu(self.norm(self.first(x)))).softmax(-1), self.first(x)


COUNTED = Path(tempfile.mkdtemp(prefix="minify-counter-")) / "calls"
WORKERS = Workers(packages=["minify_backends"], environment={minify_backends.COUNTER: str(COUNTED)})


@pytest.fixture(autouse=True, scope="module")
def closed() -> Iterator[None]:
    yield
    WORKERS.close()
    shutil.rmtree(COUNTED.parent)


def smallest(backend: Any, **options: Any) -> Minified:
    torch.manual_seed(0)
    return minify(Net().eval(), (torch.randn(6, 16),), backend=backend, workers=WORKERS, **options)


def operations(found: Minified) -> list[str]:
    calls = (line.strip() for line in found.script.splitlines() if " = torch.ops." in line)
    return [line.partition("torch.ops.aten.")[2].partition(".")[0] for line in calls]


def ran(found: Minified, folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    found.save(folder / "repro.py")
    where = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(minify_backends.__file__).parent), **environment}
    command = [sys.executable, str(folder / "repro.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=where)


@pytest.mark.parametrize(
    ("backend", "failure"),
    [
        (
            minify_backends.refusing,
            "error NotImplementedError in minify_backends.py:compiler, minify_backends.py:refuse",
        ),
        (minify_backends.aborting, "signal 6"),
        pytest.param(minify_backends.hanging, "hang", marks=pytest.mark.slow),
    ],
)
def test_each_failure_gives_one_operation_that_fails_alike(backend: Any, failure: str, tmp_path: Path) -> None:
    found = smallest(backend, config=MinifyConfig(limit_s=4 if failure == "hang" else 60))
    assert (found.failure, found.verified, found.minimal) == (failure, True, True), found.message
    assert operations(found) == ["native_layer_norm"] and (found.operations, found.before) == (1, 9)
    assert found.target == "aten.native_layer_norm.default" and found.data == b""
    done = ran(found, tmp_path)
    assert done.returncode == 0 and f"FOUND {failure}" in done.stdout.splitlines(), done.stdout + done.stderr
    assert len(found.script.encode()) < 20 << 10


def test_the_exit_codes_of_a_script(tmp_path: Path) -> None:
    found = smallest(minify_backends.refusing)
    assert ran(found, tmp_path, "--unknown").returncode == 2
    assert ran(found, tmp_path, PYTHONPATH="").returncode == 3  # the backend is not there
    (tmp_path / "other").mkdir()
    mended = "from torch._dynamo.backends.debugging import aot_eager as refusing"
    (tmp_path / "other" / "minify_backends.py").write_text(mended, encoding="utf-8")
    done = ran(found, tmp_path, PYTHONPATH=str(tmp_path / "other"))
    assert done.returncode == 1 and "FOUND nothing" in done.stdout


@pytest.mark.slow
def test_a_wrong_number_does_not_become_a_crash(tmp_path: Path) -> None:
    """Without the product before it the backend aborts: the two of them are the smallest program that is wrong."""
    found = smallest(minify_backends.blurred)
    assert (found.failure, found.verified) == ("defect", True) and found.minimal
    assert operations(found) == ["addmm", "native_layer_norm"]
    assert ran(found, tmp_path).returncode == 0


@pytest.mark.slow
def test_a_flaky_failure_is_told_with_its_rate() -> None:
    found = smallest(minify_backends.busy)
    assert operations(found) == ["native_layer_norm"] and found.failure.startswith("error OSError")
    assert "It does not show each time: in 50% of the runs." in found.script
    assert not found.verified and "KeyError" in found.reason  # a fresh process has no such file


def test_what_takes_two_operations_keeps_both() -> None:
    found = smallest(minify_backends.fused)
    assert operations(found) == ["native_layer_norm", "relu"] and found.verified and found.minimal


@pytest.mark.slow
def test_what_takes_known_sizes_beside_symbolic_ones_is_found() -> None:
    with torch._dynamo.config.patch(assume_static_by_default=False):
        found = smallest(minify_backends.specialized)
    assert operations(found) == ["relu"] and found.verified and "dynamic=True" not in found.script


@pytest.mark.slow
def test_torchs_own_bug_is_one_operation_with_the_option_that_makes_it() -> None:
    found = smallest("inductor", inductor={"cpp": {"inject_relu_bug_TESTING_ONLY": "accuracy"}},
                     at=("g0.forward", ["relu"]))  # fmt: skip
    assert operations(found) == ["relu"] and found.verified and found.failure == "defect"
    assert "options={'cpp.inject_relu_bug_TESTING_ONLY': 'accuracy'}" in found.script
    assert found.tried <= 8
    assert "cpp_fused_relu" in found.kernel and "out_ptr0" in found.kernel


def test_nothing_wrong_gives_no_script() -> None:
    found = smallest("aot_eager")
    assert (found.script, found.verified) == ("", False) and found.message.startswith("No failure: of 1 graph")


def test_a_backward_graph_is_looked_at_in_training() -> None:
    found = smallest(minify_backends.failing_backward, mode="training")
    assert found.graph == "g0.backward" and found.verified
    assert operations(found) == ["threshold_backward"]


@pytest.mark.slow
def test_a_search_goes_on_from_what_is_known(tmp_path: Path) -> None:
    first = smallest(minify_backends.refusing, folder=tmp_path)
    again = smallest(minify_backends.refusing, folder=tmp_path)
    assert (again.script, again.verified) == (first.script, True)
    assert first.tried > again.tried == 2  # whether it shows each time is asked anew


def test_when_time_is_up_the_best_so_far_is_told() -> None:
    found = smallest(minify_backends.refusing, config=MinifyConfig(budget_s=1e-3))
    assert not found.minimal and found.operations == 9 and found.verified
    assert "the fewest that were found in time" in found.message


@pytest.mark.parametrize(
    ("options", "message"),
    [({"mode": "sideways"}, "mode"), ({"backend": "no_such"}, "no_such"),
     ({"config": MinifyConfig(budget_s=0)}, "stages.minify.budget_s")],
)  # fmt: skip
def test_what_can_not_be_meant_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        minify(Net().eval(), (torch.randn(6, 16),), **options)


def test_the_stage_leaves_a_verified_script_and_nothing_unfinished(tmp_path: Path) -> None:
    case = Case.of(Net().eval(), (torch.randn(6, 16),), {}, "inference")
    backend = BackendConfig("inductor", inductor={"cpp": {"inject_relu_bug_TESTING_ONLY": "compile_error"}})
    met = {"lower": StageRecord("lower", "crashed", 1.0, "", cause="error CppCompileError CalledProcessError")}
    settings = Settings(ModelConfig("net"), backend=backend)
    context = StageContext(settings, MemoryArtifacts(), {"case": case}, earlier=met, unfinished=tmp_path / "unfinished")
    result = MinifyStage(MinifyConfig()).run(context)
    (record,) = result.summary["repros"]
    assert result.status == "passed" and isinstance(record, ReproRecord) and record.verified, result.message
    assert record.path == "repros/minified-g0.forward-relu.py" and record.nodes == 1
    assert record.failure_class == "error" and record.target == "aten.relu.default"
    assert "inject_relu_bug" in result.artifacts[record.path]
    assert "compile error!" in result.artifacts["repros/minified-g0.forward-relu.kernel.txt"]
    assert record.failure.startswith("error ") and record.failure in result.artifacts[record.path]
    assert record.fingerprint == fingerprint(record.failure, "inductor", "torch.ops.aten.relu.default")
    stored = result.artifacts["minify/minified.json"]
    assert (stored.stage, stored.expected, stored.verified) == ("lower", "error CalledProcessError", True)
    assert not (tmp_path / "unfinished").exists()
