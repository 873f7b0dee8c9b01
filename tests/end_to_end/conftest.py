"""Runs of the command line on a small model, each made once and read by many tests."""

import os
from collections.abc import Callable

import pytest

pytest.register_assert_rewrite("cookbook_page", "cookbook_checks")

from command_line import QUICK, SMALL, Finished, command  # noqa: E402


@pytest.fixture(scope="session")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Overrides for a cache that all runs share: the C++ compiler's probes and headers cost 10 s a run."""
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compilers"  # xdist's processes lie in one
    return "runner.cache=true", f"runner.cache_dir={cache}"


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, compilers: tuple[str, str]) -> Callable[..., Finished]:
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
def inference_run(run: Callable[..., Finished]) -> Finished:
    """All six stages on the small model in inference, under TorchInductor and a warning profile."""
    return run(*SMALL, *QUICK, "accel=warn16")


@pytest.fixture(scope="session")
def training_run(run: Callable[..., Finished]) -> Finished:
    """All six stages on the small model in training."""
    return run(*SMALL, *QUICK, "accel=warn16", "mode=training")
