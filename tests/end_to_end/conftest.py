"""Runs of the command line on a small model, each made once and read by many tests."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

pytest.register_assert_rewrite("cookbook_page", "cookbook_checks")

from command_line import QUICK, SMALL, Finished, command  # noqa: E402


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all processes that run these tests."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # xdist's lie in one


@pytest.fixture(scope="session")
def compilers(shared: Path) -> tuple[str, ...]:
    """Overrides for a cache that all runs share: the C++ compiler's probes and headers cost 10 s a run."""
    return "runner.cache=false", "runner.compiler_cache=true", f"runner.cache_dir={shared / 'compilers'}"


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, compilers: tuple[str, ...]) -> Callable[..., Finished]:
    """Runs the pipeline in a fresh working directory and returns what it left."""

    def run(*arguments: str) -> Finished:
        cwd = tmp_path_factory.mktemp("work")
        finished = command(*arguments, *compilers, cwd=cwd)
        output = finished.stdout + finished.stderr
        directories = [path.parent for path in cwd.glob("outputs/*/*/summary.json")]
        assert len(directories) == 1, output
        return Finished(finished.returncode, output, directories[0])

    return run


@pytest.fixture(scope="session")
def made_once(run: Callable[..., Finished], shared: Path) -> Callable[..., Finished]:
    """As ``run``, but only one of the processes of these tests makes the run of a name; the others read it."""

    def made_once(name: str, *arguments: str) -> Finished:
        record = shared / f"{name}.json"
        with FileLock(shared / f"{name}.lock"):
            if not record.exists():
                finished = run(*arguments)
                record.write_text(json.dumps([finished.code, finished.output, str(finished.directory)]))
        code, output, directory = json.loads(record.read_text())
        return Finished(code, output, Path(directory))

    return made_once


@pytest.fixture(scope="session")
def inference_run(made_once: Callable[..., Finished]) -> Finished:
    """All six stages on the small model in inference, under TorchInductor and a warning profile."""
    return made_once("inference", *SMALL, *QUICK, "accel=warn16")


@pytest.fixture(scope="session")
def broken_run(made_once: Callable[..., Finished]) -> Finished:
    """All that commands ask of a stored run: a fault that is planted, its script, violations, times and a profile."""
    planted = "backend.inductor.cpp.inject_relu_bug_TESTING_ONLY=accuracy"
    return made_once("broken", *SMALL, *QUICK, "accel=warn16", planted, "+stages=profile")


@pytest.fixture(scope="session")
def training_run(made_once: Callable[..., Finished]) -> Finished:
    """All six stages on the small model in training."""
    return made_once("training", *SMALL, *QUICK, "accel=warn16", "mode=training")
