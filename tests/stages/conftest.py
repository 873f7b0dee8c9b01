"""Shared by the tests of the stages."""

import pytest

from inductor_debug.stages.kerneldiff import input_draws


@pytest.fixture(autouse=True)
def few_draws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models have as few draws of the inputs as large ones: that takes a minute off the suite."""
    if request.path.stem != "test_kerneldiff_input_draws":
        monkeypatch.setattr(input_draws, "MOST", input_draws.LEAST)
