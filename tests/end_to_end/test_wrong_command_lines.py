"""A draw of the trial's wrong command lines, and those of them that a run found: exit code 2, and what to type."""

import random
import resource
import sys
from pathlib import Path

import pytest
from command_line import SMALL, TESTS, command

sys.path.append(str(TESTS / "trials"))

import command_lines
from wrong_lines import Line, wrong_lines

from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.target import resolve_target
from inductor_debug.pipeline.run.processes.memory import bytes_asked, machine_memory, within_the_machine
from inductor_debug.stages.settings import Settings


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_draw_of_wrong_command_lines_is_answered_right(seed: int, tmp_path: Path) -> None:
    lines = random.Random(seed).sample(wrong_lines(seed), 25)
    with command_lines.workplace(tmp_path):
        wrong = command_lines.judge(lines)
    assert not wrong, {command_lines.shown(line): told for line, told in wrong.items()}


def test_the_trial_itself_sees_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right lines, a file that is left, and a suggestion that does not compose."""
    from inductor_debug.pipeline.run.commands import entry

    with command_lines.workplace(tmp_path):
        assert "a run would have started" in str(command_lines.judge([Line("right", ("seed=1",))]))
        monkeypatch.setattr(entry, "main", lambda words: Path("left.txt").write_text("x") and 2)
        assert "files left: left.txt" in str(command_lines.judge([Line("leaves", ("seed=x",))]))
        monkeypatch.undo()
        found = command_lines.outcome(["seed=x"], Line("", ("seed=x",)))
        found.said = found.said.replace("Try: seed=0", "Try: sead=0")
        assert "gives 2: sead: no such key" in command_lines.suggestion_fault(found, Line("", ("seed=x",)))


def refused(*overrides: str, cwd: Path) -> str:
    """What a real run says, which must have started nothing and left nothing."""
    done = command(*SMALL, *overrides, cwd=cwd)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not list(cwd.glob("outputs/*/*")) and "Traceback" not in done.stderr and " …\n" not in done.stdout
    return done.stderr


def test_a_reference_that_there_is_not_stops_the_run_before_any_stage(tmp_path: Path) -> None:
    message = refused("reference.backend=aot_eagre", "stages=[capture]", cwd=tmp_path)
    assert message.startswith("reference.backend: got 'aot_eagre'; valid: aot_eager, ")
    assert "cudagraphs" in message and "\nTry: reference.backend=aot_eager\n" in message


def test_a_case_larger_than_the_machine_is_told_with_both_sizes(tmp_path: Path) -> None:
    for size in (10**15, 2**62):
        message = refused(f"model.batch_size={size}", "stages=[capture]", cwd=tmp_path)
        assert message.startswith(f"model.batch_size: got {size}, with which one tensor")
        assert "of memory, the machine has " in message and message.endswith("Try: model.batch_size=1\n")


def test_memory_is_limited_while_a_case_is_built_and_not_after() -> None:
    import torch

    before = resource.getrlimit(resource.RLIMIT_DATA)
    settings = Settings(ModelConfig("mine", {"_target_": "nets.build"}))
    with pytest.raises(ConfigurationError, match=r"needs .* of memory, the machine has"), within_the_machine(settings):
        assert resource.getrlimit(resource.RLIMIT_DATA)[0] <= machine_memory()
        torch.empty(machine_memory() // 4 + 1024)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    with pytest.raises(RuntimeError, match=r"^of another kind$"), within_the_machine(settings):
        raise RuntimeError("of another kind")


def test_what_torch_asked_for_is_read_of_its_message() -> None:
    import torch

    asked = []
    for size in (2**50, 2**62):
        with pytest.raises(RuntimeError) as caught:
            torch.empty(size)
        asked.append(bytes_asked(caught.value))
    assert asked == [2**52, 2**63]
    assert bytes_asked(RuntimeError("shapes differ")) is None


def test_a_users_package_called_as_one_of_ours_was_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "nets.py").write_text("def build(): ...\n")
    assert resolve_target("models.ssm.build", "model.build._target_").__module__ == "inductor_debug.models.ssm"
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != TESTS.parent]  # as in a worker
    monkeypatch.setattr(sys, "path", [*others, str(tmp_path)])
    for name in [name for name in sys.modules if name.partition(".")[0] == "models"]:
        monkeypatch.delitem(sys.modules, name)
    assert resolve_target("models.nets.build", "model.build._target_").__module__ == "models.nets"
    with pytest.raises(ConfigurationError, match="models has no 'net'; valid:"):
        resolve_target("models.net.build", "model.build._target_")
