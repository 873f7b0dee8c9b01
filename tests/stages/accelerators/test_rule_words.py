"""What a rule asks for, in a sentence."""

import pytest

from inductor_debug.stages.accelerators.config import AccelConfig, Rule
from inductor_debug.stages.accelerators.profile import validate_profile
from inductor_debug.stages.accelerators.rule_kinds import KINDS
from inductor_debug.stages.accelerators.rule_words import in_a_sentence

SENTENCES = [
    (Rule("alignment", value=16),
     "The last dimension of activations and parameters must be a multiple of 16 elements, or 1."),
    (Rule("alignment", value=32, unit="bytes", dims="all", roles=["activation"]),
     "Every dimension of activations must be a multiple of 32 bytes."),
    (Rule("rank", value=4), "Tensors must have at most 4 dimensions."),
    (Rule("size", value=65535), "Every dimension of tensors must be at most 65,535."),
    (Rule("size", value={"min": 2, "max": 8}, dims="last", roles=["parameter"]),
     "The last dimension of parameters must be at least 2 and at most 8."),
    (Rule("tile", value=[32, 32], dims="free", roles=["compute"]),
     "Tiles of 32x32 must cover the last dimensions of operands of matrix products and convolutions exactly, the one "
     "that a product sums over aside."),
    (Rule("dtype", value=["float16", "int8"], operations=["!aten.add"]),
     "Tensors must have one of the dtypes float16, int8. It is not asked of aten.add."),
    (Rule("dtype", value={"float64": "float32"}), "Tensors change their dtype: float64 to float32."),
    (Rule("layout", value="channels_last", operations=["aten.convolution", "aten.relu"]),
     "Tensors must be channels last in memory. It is asked of aten.convolution, aten.relu alone."),
    (Rule("layout", value={"stride": 16, "offset": 128}),
     "The stride of tensors must be a multiple of 16 elements and the offset of tensors must be a multiple of 128 "
     "elements."),
    (Rule("memory_tensor", value="8MiB"), "None of the tensors may take more than 8,388,608 bytes (8.0 MiB)."),
    (Rule("memory_peak", value="1GiB"),
     "The tensors that live at the same time must take at most 1,073,741,824 bytes (1.0 GiB)."),
    (Rule("operation", value=["aten.lu_solve"]), "These operations are not allowed: aten.lu_solve."),
    (Rule("operation", value={"allow": ["aten.add", "aten.mm"]}),
     "No other operations are allowed than aten.add, aten.mm."),
    (Rule("dynamic_shape", value="static"), "No size may be symbolic."),
    (Rule("dynamic_shape", value="bounded"), "A symbolic size must have a largest value."),
    (Rule("custom", value={"_target_": "inductor_debug.stages.rules.kernel_limits.batch", "multiple": 8}),
     "The function inductor_debug.stages.rules.kernel_limits.batch (multiple=8) must find nothing."),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "sentence"), SENTENCES, ids=[rule.rule for rule, _ in SENTENCES])
def test_a_validated_rule_is_said(rule: Rule, sentence: str) -> None:
    (found,) = validate_profile(AccelConfig(name="chip", rules=[rule]), {}).rules
    assert in_a_sentence(found) == sentence


def test_every_kind_of_rule_has_a_sentence() -> None:
    assert {rule.rule for rule, _ in SENTENCES} == set(KINDS)
