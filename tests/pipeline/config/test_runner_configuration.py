"""A configuration that can't be run: exit code 2, the message, and no run directory."""

import json
from pathlib import Path

import pytest
from runner_support import execute, make_config

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline.config.limits import memory_limit_of
from inductor_debug.pipeline.run.plan import Plan, execution_order, settings_of
from inductor_debug.stages.accelerators.config import AccelConfig, Waiver
from inductor_debug.stages.artifacts.records import Run
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.config_json import from_primitives
from inductor_debug.stages.settings import Settings

pytestmark = pytest.mark.usefixtures("stages_on_path")


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        (("plain", "rejects", "report"), "stages.rejects.x: got 1"),
        (("needs_plain", "report"), "needs plain, which is not selected"),
        (("needs_plain", "plain"), "needs plain, which comes after it"),
        (("plain", "no_such_stage"), "no_such_stage"),
    ],
)
def test_nothing_runs_and_nothing_is_left(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], stages: tuple[str, ...], told: str
) -> None:
    outcome = execute(tmp_path / "run", *stages)
    assert outcome.code == 2
    assert told in capfd.readouterr().err
    assert not outcome.path.exists()


def test_a_sweep_keeps_the_message_and_no_summary(tmp_path: Path) -> None:
    outcome = execute(tmp_path / "run", "plain", "rejects", keep_rejected=True)
    kept = outcome.json("configuration_error.json")
    assert (kept["exit_code"], kept["overrides"]) == (2, ["seed=1"])
    assert "Try: stages.rejects.x=2" in kept["message"]
    assert not (outcome.path / "summary.json").exists() and not (outcome.path / "plain").exists()


def test_files_of_the_users_own_survive_a_rejected_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert execute(tmp_path, "rejects").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("runner", [{"timeout_s": 0}, {"memory_limit": "lots"}, {"memory_limit": "0GiB"}])
def test_runner_options_that_cannot_be_read(tmp_path: Path, runner: dict, capfd: pytest.CaptureFixture[str]) -> None:
    assert execute(tmp_path / "run", "plain", **runner).code == 2
    assert f"runner.{next(iter(runner))}" in capfd.readouterr().err


def test_sizes_are_read_with_binary_and_decimal_units() -> None:
    sizes = [memory_limit_of(text) for text in ("8GiB", "1.5 GB", "512mib", 4096, None)]
    assert sizes == [8 << 30, 1_500_000_000, 512 << 20, 4096, None]


def test_a_plan_survives_json() -> None:
    config = make_config("report", seed=3)
    config.accel = AccelConfig(name="chip", waivers=[Waiver(reason="known", expires="2030-01-01")])
    stages = {"benchmark": BenchmarkConfig(repeats=7)}
    plan = Plan("/tmp/x", settings_of(config), stages, Run("x"), ["benchmark"])
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert type(plan.settings) is Settings


def test_an_unknown_option_is_named_with_the_choices() -> None:
    with pytest.raises(ConfigurationError, match=r"stages\.benchmark.*repeets.*repeats"):
        from_primitives(BenchmarkConfig, {"repeets": 3}, key="stages.benchmark")


def test_an_option_of_another_type_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"stages\.benchmark\.repeats: got 'many'; valid: a whole number"):
        from_primitives(BenchmarkConfig, {"repeats": "many"}, key="stages.benchmark")


def test_the_report_is_moved_to_the_end() -> None:
    assert execution_order(["report", "capture", "constrain"]) == ["capture", "constrain", "report"]
