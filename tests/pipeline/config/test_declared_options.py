"""Every numeric option of every configuration says what it takes, and takes nothing else."""

import json
import math
import typing
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.options import INT64, check_declared, range_of, real, whole
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.pipeline.config.schema_fields import example_for, field_of, leaves
from inductor_debug.pipeline.config.validate import validate
from inductor_debug.pipeline.run.plan import Plan, settings_of
from inductor_debug.stages.accelerators.config import Rule
from inductor_debug.stages.artifacts.records import Run
from inductor_debug.stages.registry import declared

STRANGE = [math.inf, -math.inf, math.nan, -1, 0, 1e15, 10**15, INT64, INT64 + 1, 10**43, 10**400, -(10**43), True]


def numeric_leaves() -> Iterator[str]:
    """Dotted keys of numbers, alone or beside None or a text."""
    for key, annotation in leaves().items():
        kinds = {annotation, *typing.get_args(annotation)}
        if kinds & {int, float} and typing.get_origin(annotation) is not dict:
            yield key


BESIDE = {"accel.numerics.accumulate_block": ("accel.numerics.accumulate", "bfloat16")}
"""Option → another one without which it means nothing."""


def config_with(key: str, value: Any) -> Config:
    """A whole configuration with every stage, in which one value is another."""
    model = ModelConfig("mine", {"_target_": "my_package.build"})
    config = Config(model=model, stages={name: stage.options() for name, stage in declared().items()})
    for path, content in ((key, value), BESIDE.get(key, ("seed", config.seed)) if key != "seed" else (key, value)):
        *above, name = path.split(".")
        node: Any = config
        for part in above:
            node = node[part] if isinstance(node, dict) else getattr(node, part)
        setattr(node, name, content)
    return config


def test_every_number_declares_its_range() -> None:
    undeclared = [key for key in numeric_leaves() if (found := field_of(key)) and range_of(found[0]) is None]
    assert undeclared == ["accel.max_tensor_bytes", "accel.max_peak_bytes"]  # bytes with a unit: models.units


@pytest.mark.parametrize("key", list(numeric_leaves()))
def test_a_number_is_taken_or_refused_with_one_message(key: str) -> None:
    field, _ = typing.cast(Any, field_of(key))
    declared = range_of(field)
    for value in STRANGE:
        try:
            validate(config_with(key, value))
        except ConfigurationError as error:
            message = str(error)
            assert message.startswith(f"{key}: got ") and "; valid: " in message and len(message) < 300
            assert f"\nTry: {key}={example_for(key)}" in message
            assert declared is None or not declared.holds(value)
        else:
            assert declared is None or declared.holds(value), value
            assert not isinstance(value, bool) and math.isfinite(value)


@pytest.mark.parametrize("key", list(numeric_leaves()))
def test_the_example_of_a_number_is_taken(key: str) -> None:
    text = example_for(key)
    value = text if text.endswith("B") else float(text) if any(letter in text for letter in ".e") else int(text)
    validate(config_with(key, value))


@pytest.mark.parametrize("value", [math.inf, math.nan, -1, 0, 10**43, 10**400])
@pytest.mark.parametrize("name", ["alignment", "rank", "size", "memory_tensor", "memory_peak"])
def test_a_rule_takes_the_same_numbers(name: str, value: float) -> None:
    config = config_with("accel.rules", [Rule(rule=name, value=value)])
    with pytest.raises(ConfigurationError, match=r"accel\.rules\[0\]\.value: got "):
        validate(config)


@pytest.mark.parametrize("value", [math.inf, math.nan, -1.0, 0.0])
def test_rates_tiles_and_ranges_in_mappings_take_the_same_numbers(value: float) -> None:
    config = config_with("seed", 0)
    wrong = [
        replace(config.accel, peaks=replace(config.accel.peaks, flops={"float32": value})),
        replace(config.accel, tile=[value]),
        replace(config.accel, numerics=replace(config.accel.numerics, tile=[value])),
        replace(config.accel, rules=[Rule(rule="layout", value={"stride": value})]),
    ]
    for accel in wrong:
        with pytest.raises(ConfigurationError, match="; valid: "):
            validate(replace(config, accel=accel))


def test_the_walk_reaches_every_dataclass() -> None:
    """Those within others, and the stages' in their mapping."""
    reached = {key.rpartition(".")[0] for key in numeric_leaves()}
    assert {
        "model",
        "runner",
        "accel",
        "accel.numerics",
        "accel.peaks",
        "stages.bisect",
        "stages.report",
        "",
    } <= reached


@dataclass
class Options:
    count: int = whole(3, least=1)
    share: float = real(0.5, above=0, most=2)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Options(0), "x.count: got 0; valid: a whole number above 0.\nTry: x.count=3"),
        (Options(2**63), f"x.count: got {2**63}; valid: a whole number above 0, at most 2**63 - 1.\nTry: x.count=3"),
        (Options(1, 0.0), "x.share: got 0.0; valid: a finite number above 0, at most 2.\nTry: x.share=0.5"),
        (Options(1, 3.0), "x.share: got 3.0; valid: a finite number above 0, at most 2.\nTry: x.share=0.5"),
    ],
)
def test_a_range_says_what_it_holds(options: Options, told: str) -> None:
    check_declared(Options(), "x")
    with pytest.raises(ConfigurationError) as caught:
        check_declared(options, "x")
    assert str(caught.value) == told


def test_a_plan_gives_the_worker_the_numbers_that_it_was_given() -> None:
    """Beyond the schema's options: arguments of builders and adapters may be infinite."""
    config = config_with("seed", 3)
    config.model.build |= {"limit": math.inf, "least": -math.inf, "sizes": (1, 2.5)}
    plan = Plan("/tmp/x", settings_of(config), config.stages, Run("x"), list(config.stages))
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again.settings.model.build == config.model.build | {"sizes": [1, 2.5]}
    assert again.stages == config.stages
