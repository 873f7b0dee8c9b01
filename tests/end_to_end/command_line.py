"""Runs the command line as a user would and reads what it left."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas

TESTS = Path(__file__).parents[1]


@dataclass
class Finished:
    """A finished command: exit code, what it printed and the directories it left."""

    code: int
    output: str
    directory: Path

    @property
    def summary(self) -> dict[str, Any]:
        return self.json("summary.json")

    def json(self, name: str) -> Any:
        return json.loads((self.directory / name).read_text(), parse_constant=_no_constant)

    def table(self, name: str) -> pandas.DataFrame:
        return pandas.read_csv(self.directory / name)

    def statuses(self) -> dict[str, str]:
        return {stage["name"]: stage["status"] for stage in self.summary["stages"]}


def _no_constant(text: str) -> None:
    raise AssertionError(f"JSON holds the literal {text}")


def command(*arguments: str, cwd: Path, module: str = "inductor_debug.pipeline") -> subprocess.CompletedProcess[str]:
    """Run ``python -m pipeline ARGUMENTS`` as a user would, in ``cwd``."""
    paths = [str(TESTS), str(TESTS / "end_to_end"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    return subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )


SMALL = ("model=custom", "model.build._target_=small_models.block", "model.name=block")
QUICK = (
    "stages.benchmark.processes=2",
    "stages.benchmark.repeats=3",
    "stages.benchmark.max_repeats=3",
    "stages.benchmark.warmup=1",
)
