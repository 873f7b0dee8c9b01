"""Names of operations and dtypes that torch has, and what is said of those that it lacks."""

import pytest
import torch

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.accelerators.loading import load_profile
from inductor_debug.stages.accelerators.torch_check import check_names


def test_every_operation_of_the_mock_profile_exists():
    check_names(load_profile("mock"))


@pytest.mark.parametrize(
    ("pattern", "nearest"),
    [
        ("aten.rellu", "aten.relu"),
        ("rellu", "relu"),
        ("aten.add.Tensr", "aten.add.Tensor"),
        ("torch.nn.functional.rellu", "torch.nn.functional.relu"),
    ],
)
def test_an_operation_that_torch_lacks_is_an_error_with_the_nearest(pattern, nearest):
    with pytest.raises(ConfigurationError) as caught:
        check_names(load_profile("none", denied=[pattern]))
    assert pattern in str(caught.value) and f"{nearest}" in str(caught.value).splitlines()[-1]


@pytest.mark.parametrize(
    ("fields", "key", "hint"),
    [
        ({"denied": ["aten.rellu"]}, "accel.denied", "Try: accel.denied=[aten.relu]"),
        ({"allowed": ["aten.rellu"]}, "accel.allowed", "Try: accel.allowed=[aten.relu]"),
        ({"rules": [Rule("operation", value=["aten.rellu"])]}, "accel.rules[0].value", "Try: value: [aten.relu]"),
        ({"rules": [Rule("operation", value=["aten.add.Tensr"])]}, "accel.rules[0].value",
         "Try: value: [aten.add.Tensor]"),
        ({"denied": ["aten.rellu*"]}, "accel.denied", "Try: accel.denied=[aten.relu]"),
        ({"denied": ["aten.add.Tensr*"]}, "accel.denied", "Try: accel.denied=[aten.add.Tensor]"),
        ({"denied": ["prims"]}, "accel.denied", "Try: accel.denied='[prims.*]'"),
        ({"numerics": {"fallback": ["aten.sorrt"]}}, "accel.numerics.fallback",
         "Try: accel.numerics.fallback=[aten.sort]"),
        ({"rules": [Rule("operation", value=["torch.linalg"])]}, "accel.rules[0].value",
         "Try: value: [torch.linalg.*]"),
        ({"rules": [Rule("rank", value=4, operations=["!aten.rellu"])]}, "accel.rules[0].operations",
         "Try: operations: [aten.relu]"),
        ({"rules": [Rule("rank", value=4, operations=["aten.rellu"])], "max_rank": 3}, "accel.rules[0].operations",
         "Try: operations: [aten.relu]"),
        ({"rules": [Rule("operation", value=["aten.add"])], "denied": ["aten.rellu"]}, "accel.denied",
         "Try: accel.denied=[aten.relu]"),
    ],
)  # fmt: skip
def test_a_name_that_torch_lacks_is_told_where_it_was_written(fields, key, hint):
    with pytest.raises(ConfigurationError) as caught:
        check_names(load_profile("none", **fields))
    assert str(caught.value).startswith(f"{key}: got ") and str(caught.value).endswith(hint)


def test_patterns_that_torch_can_not_list_are_taken():
    names = ["aten.*lu*", "aten.add.*", "prims.*", "mylib.*", "torch.linalg.*", "*", "_operator.add", "relu"]
    check_names(load_profile("none", denied=names, allowed=names))


@pytest.mark.parametrize(("fields", "key"), [({"dtypes": ["float32"]}, "accel.dtypes"),
                                             ({"rules": [Rule("dtype", value={"bool": "float32"}, effect="cast")]},
                                              "accel.rules[0].value")])  # fmt: skip
def test_a_dtype_that_this_torch_lacks(monkeypatch, fields, key):
    monkeypatch.delattr(torch, "float32")
    with pytest.raises(ConfigurationError) as caught:
        check_names(load_profile("none", **fields))
    assert str(caught.value).startswith(f"{key}: got 'float32' (in torch ")
