"""The options that differ from the compilers' defaults: of the environment, of patches, of the model's own code."""

import json
import os
import subprocess
import sys

import pytest
import torch._dynamo.config as dynamo_config
import torch._inductor.config as inductor_config

from stages.torch_internals.compiler_options import differing, plain

CODE = "import json; from stages.torch_internals.compiler_options import differing; print(json.dumps(differing()))"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {"inductor": {}, "dynamo": {}}),
        (
            {"TORCHINDUCTOR_FREEZING": "1", "TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS": "1"},
            {"inductor": {"freezing": True}, "dynamo": {"capture_scalar_outputs": True}},
        ),
    ],
)
def test_a_variable_shows_as_the_option_that_it_sets(variables: dict[str, str], expected: dict[str, object]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH", "TRITON"))}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=clean | variables, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == expected


def test_a_patch_shows_while_it_is_in_force_and_the_environment_is_left() -> None:
    variables = dict(os.environ)
    before = differing()
    with inductor_config.patch({"max_autotune": True, "cpp.threads": 2}), dynamo_config.patch(allow_rnn=True):
        inside = differing()
    assert inside["inductor"] == before["inductor"] | {"max_autotune": True, "cpp.threads": 2}
    assert inside["dynamo"] == before["dynamo"] | {"allow_rnn": True}
    assert differing() == before and dict(os.environ) == variables
    assert not [name for name in sys.modules if name.startswith("_defaults_of_")]


def test_values_are_plain() -> None:
    assert plain({1: (2, [print], {"b", "a"})}) == {"1": [2, ["<builtins.print>"], ["a", "b"]]}
