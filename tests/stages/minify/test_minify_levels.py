"""Failures of Dynamo's graphs, of the backward in one with its forward, and of later calls; what a user asks for."""

import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minify_asked
import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.backends.given import adapter_of
from inductor_debug.stages.backends.mock import AotMockAdapter, MockAdapter
from inductor_debug.stages.backends.mock_options import MockOptions
from inductor_debug.stages.minify.api import minify
from inductor_debug.stages.minify.compilers import compiler_of
from inductor_debug.stages.minify.config import MinifyConfig
from inductor_debug.stages.minify.dynamo_graphs import dynamo_graphs
from inductor_debug.stages.minify.engine import Minified, smallest
from inductor_debug.stages.minify.judges import Command, Compiled
from inductor_debug.stages.minify.script import Compiler
from inductor_debug.stages.minify.workers import Workers
from inductor_debug.stages.repro import NotReproducible

WORKERS = Workers(packages=["minify_asked"])


class Net(torch.nn.Module):
    """Linear → GELU → linear → tanh → softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 12), torch.nn.Linear(12, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.second(torch.nn.functional.gelu(self.first(x)))).softmax(-1)


@pytest.fixture(autouse=True, scope="module")
def closed() -> Iterator[None]:
    yield
    WORKERS.close()


def found_of(failing: Any = None, **options: Any) -> Minified:
    torch.manual_seed(0)
    return minify(Net().eval(), (torch.randn(5, 8),), None, failing, workers=WORKERS, **options)


def calls(found: Minified) -> list[str]:
    """What the program calls, line by line."""
    body = found.script.partition("def program(")[2].partition("return")[0]
    return [line.partition(" = ")[2].partition("(")[0] for line in body.splitlines()[1:] if " = " in line]


def ran(text: str, folder: Path, *arguments: str) -> int:
    (folder / "repro.py").write_text(text, encoding="utf-8")
    where = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(minify_asked.__file__).parent)}
    return subprocess.run([sys.executable, str(folder / "repro.py"), *arguments], env=where, check=False).returncode


@pytest.mark.slow
def test_a_backend_that_takes_dynamos_graphs_is_shown_one_of_their_calls(tmp_path: Path) -> None:
    """Of AOTAutograd's graphs it says something else, which is not the failure of the model."""
    found = found_of(backend=minify_asked.refusing_gelu)
    assert found.failure.startswith("error NotImplementedError in") and found.failure.endswith("refusing_gelu")
    assert found.target == "torch._C._nn.gelu"
    assert calls(found) == ["torch._C._nn.gelu"] and found.verified and found.graph == "g0"
    assert ran(found.script, tmp_path) == 0


def test_a_wrong_gradient_keeps_forward_and_backward_together() -> None:
    found = found_of(backend=minify_asked.wrong_gradient, mode="training")
    assert (found.failure, found.verified, calls(found)) == ("defect", True, ["torch.tanh"]), found.message
    assert ".requires_grad_()" in found.script and "torch.autograd.grad" in found.script


@pytest.mark.slow
def test_what_goes_wrong_at_a_later_call_is_called_as_often() -> None:
    found = found_of(backend=minify_asked.wrong_from_third_call)
    assert (found.failure, found.verified) == ("defect", True), found.message
    assert found.operations == 1 and "tanh" in calls(found)[0] and "for _ in range(3)" in found.script


def test_a_predicate_decides(tmp_path: Path) -> None:
    """A column far below zero, which the bias of the second layer makes."""
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 5))
    with torch.no_grad():
        module[2].bias[2], module[2].bias[1] = -50.0, 50.0
    failing = minify_asked.has_low_column
    found = minify(module.eval(), (torch.randn(6, 4),), None, failing, workers=WORKERS)
    assert (found.failure, found.verified, found.operations) == ("asked", True, 1), found.message
    assert "from minify_asked import has_low_column" in found.script and "torch.compile" not in found.script
    found.save(tmp_path / "repro.py")
    assert ran(found.script, tmp_path) == 0
    with torch.no_grad():
        module[2].bias[2] = 50.0
    assert minify(module, (torch.randn(6, 4),), None, failing, workers=WORKERS).message.startswith("No failure")


def test_a_predicate_that_raises_says_no() -> None:
    found = found_of(minify_asked.raises)
    assert found.script == "" and "RuntimeError: no answer" in found.message


def test_a_predicate_of_the_script_that_runs_is_refused(tmp_path: Path) -> None:
    """``__main__`` is another module in each process."""
    (tmp_path / "own.py").write_text(
        "import torch\nfrom inductor_debug import minify\n\ndef failing(program, inputs):\n    return True\n\n"
        "if __name__ == '__main__':\n    minify(torch.nn.Tanh(), (torch.randn(2),), None, failing)\n"
    )
    ended = subprocess.run([sys.executable, tmp_path / "own.py"], capture_output=True, text=True)
    assert ended.returncode == 1 and "NotReproducible: no module that a script can import has" in ended.stderr, (
        ended.stderr
    )


def test_a_predicate_that_no_script_can_import_is_refused() -> None:
    with pytest.raises(NotReproducible, match="no module that a script can import"):
        found_of(lambda program, inputs: True)


def test_a_command_decides() -> None:
    """The only operation whose script mentions it while it runs: what torch itself does not run is not given to it."""
    torch.manual_seed(0)
    case = Case.of(Net().eval(), (torch.randn(5, 8),), {}, "inference")
    shell = shutil.which("sh")
    assert shell is not None
    command = Command([shell, "-c", "grep -q 'ops.aten.tanh' {}"], Compiled(Compiler("'eager'")))
    found = smallest(case, command, MinifyConfig(), workers=WORKERS)
    assert (found.failure, found.verified, calls(found)) == ("asked", True, ["torch.ops.aten.tanh.default"])


def test_behind_a_mock_backend_the_script_has_what_executes() -> None:
    tuned = MockOptions(mode="max-autotune-no-cudagraphs")
    made = [compiler_of(adapter) for adapter in (MockAdapter(), AotMockAdapter(options=tuned))]
    assert [item.backend for item in made] == ["'eager'", "'inductor'"] and not any(item.packages for item in made)
    assert made[1].options["max_autotune"] is True


def test_an_adapter_that_a_script_would_make_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script makes it without arguments: another one than was given would be judged."""
    lines = ["from inductor_debug import AcceleratorAdapter", "class Chip(AcceleratorAdapter):", "    name = 'chip'",
             "    def __init__(self, fast=False):", "        self.fast = fast", "    def compile(self, gm, given):",
             "        return gm.forward"]  # fmt: skip
    (tmp_path / "chip_of_two_kinds.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    kind = importlib.import_module("chip_of_two_kinds").Chip
    assert compiler_of(kind()).backend == compiler_of(adapter_of(kind)).backend == "Chip().dynamo_backend()"
    assert compiler_of(kind(fast=True), {"fast": True}).backend == "Chip(fast=True).dynamo_backend()"
    with pytest.raises(NotReproducible, match="made with arguments, which no script can tell"):
        compiler_of(kind(fast=True))
    with pytest.raises(ConfigurationError, match="backend: got the class dict"):
        adapter_of(dict)


def test_a_command_that_is_no_program_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no-such-program"):
        Command(["no-such-program"], Compiled(Compiler("'eager'")))


@pytest.mark.parametrize(
    ("budget_s", "message"), [(0.1, "Not established"), pytest.param(60.0, "No failure", marks=pytest.mark.slow)]
)
def test_what_is_slow_is_no_hang(budget_s: float, message: str) -> None:
    """A part of it tells how long the whole may take; where time is up before that, nothing is said of it."""
    many = torch.nn.Sequential(*(torch.nn.Tanh() for _ in range(40)))
    found = minify(many.eval(), (torch.randn(2, 4),), backend=minify_asked.slow, workers=WORKERS,
                   config=MinifyConfig(budget_s=budget_s, limit_s=3))  # fmt: skip
    assert found.failure == "" and found.message.startswith(message), found.message
    assert found.looked is (message == "No failure")


@pytest.mark.slow
def test_a_hang_is_found_among_operations_that_are_slow() -> None:
    class Sine(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)

    many = torch.nn.Sequential(*(torch.nn.Tanh() if place != 29 else Sine() for place in range(40)))
    found = minify(many.eval(), (torch.randn(2, 4),), backend=minify_asked.slow_and_hanging, workers=WORKERS,
                   config=MinifyConfig(limit_s=3))  # fmt: skip
    assert (found.failure, found.operations, found.before) == ("hang", 1, 40), found.message
    assert found.verified and found.minimal and found.tried < 30


def test_dynamos_graphs_are_recorded_before_they_are_written_into() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1)
            return x * self.calls

    torch.compiler.reset()
    case = Case.of(Counting().eval(), (torch.ones(2),), {}, "inference")
    (graph,) = dynamo_graphs(case)
    before = [value for name, value in graph.inputs.items() if "calls" in name]
    assert [value.tolist() for value in before] == [[0.0, 0.0]]
    assert any(torch.equal(value, torch.ones(2)) for value in graph.values.values())
