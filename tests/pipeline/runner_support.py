"""Runs stages of ``runner_stages`` for the tests and reads back what the run left."""

import json
from pathlib import Path
from typing import Any

from runner_stages import CLASSES

from inductor_debug.models.config import ModelConfig
from inductor_debug.pipeline.config.schema import Config, RunnerConfig
from inductor_debug.pipeline.run.runner import run

HERE = Path(__file__).parent


class Outcome:
    """One finished run: its exit code, and what is in its directory."""

    def __init__(self, code: int, path: Path) -> None:
        self.code, self.path = code, path

    def json(self, name: str) -> Any:
        """A stored JSON file, read strictly: a NaN literal fails the test."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{name} holds {constant}")

        return json.loads((self.path / name).read_text(), parse_constant=refuse)

    @property
    def summary(self) -> Any:
        return self.json("summary.json")

    @property
    def statuses(self) -> dict[str, str]:
        return {stage["name"]: stage["status"] for stage in self.summary["stages"]}

    def message(self, stage: str) -> str:
        return next(entry["message"] for entry in self.summary["stages"] if entry["name"] == stage)

    @property
    def log(self) -> str:
        return (self.path / "run.log").read_text()


def make_config(
    *stages: str, seed: int = 0, device: str = "cpu", options: dict[str, Any] | None = None, **runner: Any
) -> Config:
    """A configuration that runs the named test stages."""
    chosen = {name: (options or {}).get(name, {}) for name in stages}
    settings = {"model": ModelConfig(name="toy"), "seed": seed, "device": device}
    return Config(**settings, stages=chosen, runner=RunnerConfig(**runner))


def execute(path: Path, *stages: str, keep_rejected: bool = False, **config: Any) -> Outcome:
    """Run the named test stages in ``path``."""
    code = run(make_config(*stages, **config), path, ["seed=1"], keep_rejected=keep_rejected, stage_classes=CLASSES)
    return Outcome(code, path)
