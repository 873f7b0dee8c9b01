"""Profiles: the shipped ones, overrides, the environment, and values that are refused."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig, Rule, Waiver
from inductor_debug.stages.accelerators.loading import load_profile
from inductor_debug.stages.accelerators.profile import load_config, validate_profile
from inductor_debug.stages.accelerators.yaml_profiles import exact_config
from inductor_debug.stages.rules.engine import check

NAMES = ["none", "mock", "strict8", "strict16", "strict32", "warn8", "warn16", "warn32"]


@pytest.mark.parametrize("name", NAMES)
def test_shipped_profiles_load_under_their_own_name(name):
    assert load_profile(name).name == name


@pytest.mark.parametrize("size", [8, 16, 32])
def test_strict_and_warn_differ_in_strict_alone(size):
    strict, warn = load_config(f"strict{size}"), load_config(f"warn{size}")
    assert strict.strict and not warn.strict and strict.alignment == size
    assert dataclasses.replace(strict, name=warn.name, strict=False) == warn


def test_none_has_no_rules():
    assert load_profile("none").rules == ()


def test_mock_has_the_simulators_defaults():
    mock = load_profile("mock")
    assert {rule.rule: rule.value for rule in mock.rules if rule.rule != "operation"} == {
        "alignment": 1,
        "dtype": ["float32", "float16", "int64", "int32", "bool"],
        "memory_tensor": 16 * 1024**3,
    }
    assert len(mock.of("operation")[0].value) == 26 + 15 and mock.strict


def test_a_size_in_a_file_has_a_unit(tmp_path):
    path = tmp_path / "chip.yaml"
    path.write_text("max_tensor_bytes: 2MiB\nmax_peak_bytes: 4096\nrules:\n  - {rule: memory_tensor, value: 1GiB}\n")
    assert [rule.value for rule in load_profile(path).rules] == [2 << 20, 4096]
    assert exact_config(path, {}) == load_config(path, max_tensor_bytes="2MiB")


def test_overrides_replace_fields():
    assert load_profile("strict16", alignment=24, strict=False).rules[0].value == 24


def test_a_profile_from_a_file(tmp_path):
    path = tmp_path / "chip.yaml"
    path.write_text("name: chip\nrules:\n  - {rule: alignment, value: 64, dims: contraction, source: manual}\n")
    assert [(rule.value, rule.dims, rule.effect) for rule in load_profile(path).rules] == [(64, "contraction", "pad")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alignmnt: 8\n", ["alignmnt", "alignment", "chip.yaml"]),
        ("alignment: sixteen\n", ["sixteen", "chip.yaml"]),
        ("alignment: [8\n", ["chip.yaml"]),
        ("max_tensor_bytes: 1.5\n", ["chip.yaml", "1.5"]),
        ("rules: [{rule: rank, strict: true}]\n", ["strict: no such key of a rule", "valid: source, rule, effect"]),
        ("waivers: [{effect: pad}]\n", ["effect: no such key of a waiver", "chip.yaml"]),
        ("numerics: {storge: {}}\n", ["storge: no such key of numerics", "Try: storage: VALUE"]),
    ],
)
def test_a_bad_file_is_an_error_that_names_it(tmp_path, text, words):
    path = tmp_path / "chip.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_profile(path)
    assert all(word in str(caught.value) for word in words)


def test_a_profile_is_built_on_others_as_hydra_builds_it(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "name: base\nmax_rank: 5\nalignment: 8\nnumerics: {storage: {float32: bfloat16}}\n"
    )
    (tmp_path / "chip.yaml").write_text("defaults: [base, _self_]\nalignment: 64\nnumerics: {poison: false}\n")
    (tmp_path / "below.yaml").write_text("defaults: [_self_, strict16]\nalignment: 64\n")
    chip = load_profile(tmp_path / "chip.yaml")
    assert {rule.rule: rule.value for rule in chip.rules} == {"rank": 5, "alignment": 64}
    assert chip.numerics.storage == {"float32": "bfloat16"} and not chip.numerics.poison
    assert [rule.value for rule in load_profile(tmp_path / "below.yaml").rules] == [16]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("[chip]", "defaults: this profile is built on itself"),
        ("[other]", "built on itself"),
        ("strict16", "defaults: got 'strict16'"),
        ("", "defaults: got 'None'"),
        ("[null]", "a list of profiles' names"),
        ("[{a: b}]", "a list of profiles' names"),
        ("[../../secret]", "Try: defaults: \\[strict16\\]"),
        ("[strict17]", "valid: strict16"),
    ],
)
def test_a_profile_that_is_built_on_none_is_told(written, words, tmp_path):
    (tmp_path / "chip.yaml").write_text(f"defaults: {written}\n")
    (tmp_path / "other.yaml").write_text("defaults: [chip]\n")
    with pytest.raises(ConfigurationError, match=words) as caught:
        load_profile(tmp_path / "chip.yaml")
    assert str(tmp_path) in str(caught.value)


def test_an_unknown_profile_lists_the_closest_first():
    with pytest.raises(ConfigurationError, match=r"valid: strict16"):
        load_profile("strict17")
    with pytest.raises(ConfigurationError, match="no such file"):
        load_profile("nowhere/chip.yaml")
    with pytest.raises(
        ConfigurationError, match=r"accel override: got 'alignmnt'; valid: alignment.*\nTry: alignment$"
    ):
        load_profile("none", alignmnt=3)


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("MOCK_STRICT", "true", ("strict", True)),
        ("MOCK_STRICT", "1", ("strict", True)),
        ("MOCK_STRICT", "Yes", ("strict", True)),
        ("MOCK_STRICT", "false", ("strict", False)),
        ("MOCK_STRICT", "0", ("strict", False)),
        ("MOCK_STRICT", "no", ("strict", False)),
        ("MOCK_ALIGNMENT", "32", ("alignment", 32)),
        ("MOCK_MAX_MEMORY", "1024", ("memory_tensor", 1024)),
        ("MOCK_MAX_MEMORY", "2GiB", ("memory_tensor", 2 * 1024**3)),
    ],
)
def test_the_environment_overrides_mock_alone(monkeypatch, variable, text, expected):
    monkeypatch.setenv(variable, text)
    key, value = expected
    profile = load_profile("mock")
    assert (profile.strict if key == "strict" else profile.of(key)[0].value) == value
    assert load_profile("strict16") == validate_profile(load_config("strict16"), {})


@pytest.mark.parametrize(
    ("variable", "text"),
    [("MOCK_STRICT", "maybe"), ("MOCK_STRICT", ""), ("MOCK_ALIGNMENT", "0"), ("MOCK_ALIGNMENT", "-8"),
     ("MOCK_ALIGNMENT", "wide"), ("MOCK_ALIGNMENT", "1.5"), ("MOCK_MAX_MEMORY", "lots"), ("MOCK_MAX_MEMORY", "0")],
)  # fmt: skip
def test_an_unreadable_environment_is_an_error_not_a_default(monkeypatch, variable, text):
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigurationError, match=variable):
        load_profile("mock")
    assert load_profile("none").name == "none"


WAIVER = {"rule": "dtype", "reason": "known"}
BAD = [
    ({"alignment": 0}, "accel.alignment", "above 0"),
    ({"alignment": -8}, "accel.alignment", "above 0"),
    ({"alignment": True}, "accel.alignment", "above 0"),
    ({"alignment": 8, "alignment_dims": "lats"}, "accel.alignment_dims", "last"),
    ({"alignment": 8, "alignment_roles": ["weight"]}, "accel.alignment_roles", "parameter"),
    ({"dtypes": ["float33"]}, "accel.dtypes", "float32"),
    ({"dtypes": []}, "accel.dtypes", "null"),
    ({"dtypes": "float32"}, "accel.dtypes", "a list"),
    ({"layout": "channel_last"}, "accel.layout", "channels_last"),
    ({"max_tensor_bytes": 0}, "accel.max_tensor_bytes", "a positive number of bytes"),
    ({"denied": ["a b"]}, "accel.denied", "pattern"),
    ({"strict": "yes"}, "accel.strict", "true or false"),
    ({"rules": [Rule(rule="alignmnt", value=8)]}, "accel.rules[0].rule", "alignment"),
    ({"rules": [Rule(rule="alignment")]}, "accel.rules[0].value", "Try: value: 16"),
    ({"rules": [Rule(rule="alignment", value=8, effect="padd")]}, "accel.rules[0].effect", "pad"),
    ({"rules": [Rule(rule="alignment", value=8, dims="least")]}, "accel.rules[0].dims", "last2"),
    ({"rules": [Rule(rule="alignment", value=8, unit="bits")]}, "accel.rules[0].unit", "bytes"),
    ({"rules": [Rule(rule="alignment", value=8, roles=["x"])]}, "accel.rules[0].roles", "index"),
    ({"waivers": [Waiver(**WAIVER, expires="soon")]}, "accel.waivers[0].expires", "YYYY-MM-DD"),
    ({"waivers": [Waiver(rule="dtype")]}, "accel.waivers[0].reason", "Try"),
    ({"waivers": [Waiver(reason="known")]}, "accel.waivers[0]", "waives everything"),
    ({"waivers": [Waiver(rule="dtypes", reason="known")]}, "accel.waivers[0].rule", "dtype"),
]


@pytest.mark.parametrize(("fields", "key", "hint"), BAD, ids=[f"{key}-{i}" for i, (_, key, _) in enumerate(BAD)])
def test_bad_values_name_the_key_and_what_is_valid(fields, key, hint):
    with pytest.raises(ConfigurationError) as caught:
        validate_profile(AccelConfig(**fields))
    assert key in str(caught.value) and hint in str(caught.value)


def test_checking_imports_no_torch():
    code = """
import sys
from inductor_debug import check, load_profile
from inductor_debug.stages.constrain.stage import ConstrainStage
from inductor_debug.stages.report.stage import ReportStage
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord
check(GraphRecord("g0.dynamo", "dynamo", [NodeRecord("n", "call_function", "torch.relu")]), load_profile("mock")).table
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


EDITS = [
    ("ibm_spyre", {"alignment": 16}, "alignment", [(16, "elements", None), (128, "bytes", "contraction")]),
    ("nvidia_tensor_core", {"alignment": 16}, "alignment", [(16, "elements", None)]),
    ("arm_ethos_u55", {"max_size": 999}, "size", [({"min": 1, "max": 999}, None, None), (1, None, None)]),
    ("ibm_spyre", {"layout": "contiguous"}, "layout", [({"offset": 128}, "bytes", None),
                                                       ("contiguous", "elements", None)]),
    ("google_tpu", {"dtypes": ["float16"]}, "dtype", [(["float16"], None, None),
                                                       ({"float32": "bfloat16"}, None, None)]),
    ("arm_ethos_u55", {"dtypes": ["int8"]}, "dtype", [(["int8"], None, None), (["int8"], None, None)]),
    ("qualcomm_htp", {"max_tensor_bytes": "4MiB"}, "memory_tensor", [(4 << 20, "bytes", None)]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "rule", "expected"), EDITS)
def test_a_scalar_edits_the_rule_that_it_names_and_no_other(name, fields, rule, expected):
    rules = load_profile(name, **fields).of(rule)
    found = [(item.value, item.unit, item.dims if item.dims == "contraction" else None) for item in rules]
    assert found == expected


def test_a_largest_size_below_the_rules_smallest_is_an_error():
    rules = [Rule(rule="size", value={"min": 8, "max": 64})]
    with pytest.raises(ConfigurationError, match=r"accel.max_size: got {'min': 8, 'max': 4}; valid: min at most max"):
        validate_profile(AccelConfig(rules=rules, max_size=4))


@pytest.mark.parametrize("name", ["aten.adddmm", "aten.relu.defalt", "torch.nn.functional.relx"])
def test_a_name_that_torch_lacks_is_told_in_library_use(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"got '{name}'"):
        load_profile("none", denied=[name])
    (tmp_path / "mine.yaml").write_text(f"name: mine\ndenied: [{name}]\n")
    with pytest.raises(ConfigurationError, match=f"got '{name}'"):
        load_profile(tmp_path / "mine.yaml")
    with pytest.raises(ConfigurationError, match=f"got '{name}'"):
        check([], AccelConfig(denied=[name]))


def test_an_operator_of_a_library_that_is_not_imported_is_let_through(caplog: pytest.LogCaptureFixture) -> None:
    assert load_profile("none", denied=["somelibrary.op"]).rules
    assert "somelibrary.op is of a library that is not imported here" in caplog.text


def test_a_number_that_was_edited_is_no_longer_its_sources() -> None:
    stated = load_profile("ibm_spyre").of("alignment")
    assert all(rule.source and rule.version for rule in stated)
    for changes in ({"alignment": 48}, {"alignment_dims": "all"}):
        for rule, before in zip(load_profile("ibm_spyre", **changes).of("alignment"), stated, strict=True):
            assert rule == before if rule.source else (rule.source, rule.version) == (None, None)
        assert any(rule.source is None for rule in load_profile("ibm_spyre", **changes).of("alignment"))
    (rule,) = load_profile("none", rules=[Rule("alignment", value=16, source="a manual")], alignment=16).of("alignment")
    assert rule.source == "a manual"
