"""Gold computes what the reference computes, or its distance from the reference is not taken for rounding."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import has_torch_function

from inductor_debug.models.case import Case
from inductor_debug.models.compat import prepare_torchvision
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.gold import double_arithmetic
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.settings import BackendConfig, Settings
from inductor_debug.stages.sides.running import run_side


class Scaled(AcceleratorAdapter):
    """Its results are too large by 30 %."""

    factor, units = 1.3, 0.0

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        def wrong(out: Any) -> Any:
            floating = isinstance(out, torch.Tensor) and out.is_floating_point()
            return out * (self.factor + self.units * torch.finfo(out.dtype).eps) if floating else out

        return lambda *args: tuple(wrong(out) for out in gm(*args))


class Zero(Scaled):
    """Its results are zeros."""

    factor, units = 0.0, 0.0


class SlightlyOff(Scaled):
    """Its results differ in the last bit, as a compiler's do."""

    factor, units = 1.0, 0.5


def compared(
    module: nn.Module,
    *inputs: Any,
    adapter: str,
    dtype: torch.dtype = torch.float32,
    mode: str = "inference",
    **kwargs: Any,
) -> StageResult:
    torch._dynamo.reset()
    case = Case("net", module.train(mode == "training"), inputs, kwargs, mode, dtype, torch.device("cpu"))
    backend = BackendConfig(adapter, adapter if adapter in ("aot_eager", "inductor") else f"{__name__}.{adapter}")
    context = StageContext(Settings(ModelConfig("net"), backend=backend, mode=mode), MemoryArtifacts(), {"case": case})
    return KernelDiffStage(KernelDiffConfig(plots=False, store_baseline=False)).run(context)


def numerics(result: StageResult) -> str:
    return result.summary["numerics"].verdict


def encoder() -> nn.TransformerEncoder:
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)


def padding() -> torch.Tensor:
    padded = torch.zeros(2, 6, dtype=torch.bool)
    padded[1, 4:] = True
    return padded


def encoder_case(dtype: torch.dtype = torch.float32) -> Case:
    x = torch.randn(2, 6, 32).to(dtype)
    kwargs = {"src_key_padding_mask": padding()}
    return Case("encoder", encoder().eval().to(dtype), (x,), kwargs, "inference", dtype, torch.device("cpu"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gold_takes_the_fast_path_that_the_reference_takes(dtype: torch.dtype) -> None:
    case = encoder_case(dtype)
    reference, gold = case.run().output, case.to_gold().run().output
    assert reference[1, 4:].eq(0).all() and gold[1, 4:].eq(0).all()
    assert (reference.double() - gold).square().mean().sqrt() <= 8 * torch.finfo(dtype).eps


def test_gold_leaves_the_fast_path_where_the_user_turned_it_off() -> None:
    case = encoder_case()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        reference, gold = case.run().output, case.to_gold().run().output
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert not reference[1, 4:].eq(0).any()
    assert (reference.double() - gold).abs().max() < 1e-5


class Overriding(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs)


def test_only_the_golds_own_mode_is_left_out_of_account() -> None:
    plain, before = torch.ones(2), torch.overrides.has_torch_function
    with double_arithmetic():
        assert not torch.overrides.has_torch_function((plain,))
        assert torch.overrides.has_torch_function((plain, plain.as_subclass(Overriding)))
        with torch.overrides.TorchFunctionMode():
            assert torch.overrides.has_torch_function((plain,))
        assert torch.ones(2).float().dtype == torch.float64
    with torch.overrides.TorchFunctionMode(), double_arithmetic():
        assert torch.overrides.has_torch_function((plain,))
    with double_arithmetic(unseen=False):
        assert torch.overrides.has_torch_function((plain,))
    assert torch.overrides.has_torch_function is before


@pytest.mark.parametrize("adapter", ["Zero", "Scaled"])
def test_a_wrong_result_of_a_padded_encoder_is_a_defect(adapter: str) -> None:
    result = compared(encoder(), torch.randn(2, 6, 32), adapter=adapter, src_key_padding_mask=padding())
    assert numerics(result) == "defect", result.message
    assert "without the fast path" not in result.message


def test_what_compiled_attention_gives_at_padded_places_is_told() -> None:
    result = compared(encoder(), torch.randn(2, 6, 32), adapter="aot_eager", src_key_padding_mask=padding())
    assert numerics(result) == "defect"
    assert "agrees with eager without the fast path of nn.TransformerEncoder" in result.message
    assert torch.backends.mha.get_fastpath_enabled()


class AsksForModes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        return hidden if has_torch_function((x,)) else hidden + 1


@pytest.mark.parametrize("adapter", ["Zero", "Scaled"])
def test_a_model_that_asks_whether_a_mode_is_on_has_no_gold(adapter: str) -> None:
    result = compared(AsksForModes(), torch.randn(4, 8), adapter=adapter)
    assert numerics(result) == "not_established"
    assert "takes another path where a torch function mode is on" in result.message


class Conditional(nn.Module):
    """Clamps in narrow dtypes, as Hugging Face's T5 does in float16."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) * 4000
        if hidden.dtype in (torch.float16, torch.bfloat16):
            hidden = hidden.clamp(-1000, 1000)
        return self.last(hidden)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("adapter", "verdict"), [("Zero", "not_established"), ("Scaled", "not_established"),
                             ("SlightlyOff", "within_tolerance"), ("aot_eager", "exact")]
)  # fmt: skip
def test_code_that_asks_for_its_dtype_makes_no_floor(adapter: str, verdict: str, dtype: torch.dtype) -> None:
    result = compared(Conditional().to(dtype), torch.randn(64, 16).to(dtype), adapter=adapter, dtype=dtype)
    assert numerics(result) == verdict, result.message
    if verdict == "not_established":
        assert "by the same with other rounding" in result.message


class Cancels(Conditional):
    """Its output is all rounding noise: a wide floor, and one of noise."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        return hidden.softmax(-1).sum(-1) - 1 + 0 * hidden[:, 0]


def test_a_wide_floor_that_is_noise_decides() -> None:
    result = compared(Cancels(), torch.randn(300, 16), adapter="Scaled")
    assert numerics(result) == "within_floor", result.message


class Block(nn.Module):
    """Causal attention without dropout and a residual with it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention, self.projection, self.dropout = nn.Linear(32, 96), nn.Linear(32, 32), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.attention(x).chunk(3, -1))
        hidden = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.dropout(self.projection(hidden.transpose(1, 2).flatten(2)))


def opt(dtype: torch.dtype) -> nn.Module:
    prepare_torchvision()
    from transformers import OPTConfig, OPTForCausalLM

    torch.manual_seed(0)
    options = OPTConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, ffn_dim=128, num_attention_heads=4,
        max_position_embeddings=32, word_embed_proj_dim=64, use_cache=False,
    )  # fmt: skip
    return OPTForCausalLM(options).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["block", pytest.param("opt", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("adapter", "verdicts"), [("aot_eager", ("exact", "within_floor")), ("Scaled", ("defect",))])
def test_attention_without_dropout_does_not_stop_gold_from_drawing_alike(
    adapter: str, verdicts: tuple[str, ...], name: str, dtype: torch.dtype
) -> None:
    if name == "block":
        result = compared(
            Block().to(dtype), torch.randn(2, 8, 32).to(dtype), adapter=adapter, dtype=dtype, mode="training"
        )
    else:
        tokens = torch.randint(0, 100, (2, 16))
        result = compared(opt(dtype), tokens, adapter=adapter, dtype=dtype, mode="training")
    assert numerics(result) in verdicts, result.message
    drawn = result.artifacts["kerneldiff/diagnosis.json"].random
    assert drawn == "all sides drew the same random numbers" or drawn.endswith("with the reference's random numbers")


class Experts(nn.Module):
    """Two experts as one grouped product, which has no float64."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 16, 24) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ends = torch.tensor([3, 8], dtype=torch.int32)
        return F.gelu(F.grouped_mm(x, self.weight, offs=ends))


@pytest.mark.parametrize(
    ("adapter", "mode", "verdict"),
    [
        ("SlightlyOff", "inference", "within_floor"),
        ("Scaled", "inference", "defect"),
        ("Scaled", "training", "defect"),
    ],
)
def test_a_floor_decides_where_an_operation_lacks_float64(adapter: str, verdict: str, mode: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(8, 16, dtype=torch.bfloat16)
    result = compared(Experts().bfloat16(), x, adapter=adapter, mode=mode, dtype=x.dtype)
    assert numerics(result) == verdict, result.message
    bounds = set(result.artifacts["kerneldiff/outputs.csv"]["bound"])
    assert bounds <= {"floor_rms", "floor_max", "bits"} and "no gold" not in result.message


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_mixtures_of_experts_of_transformers_have_gold(name: str) -> None:
    prepare_torchvision()
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "moe_intermediate_size": 16, "head_dim": 8,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 4,
        "num_local_experts": 4, "num_experts_per_tok": 2, "layer_types": ["full_attention"], "pad_token_id": 0,
    }  # fmt: skip
    known = AutoConfig.for_model(name).to_dict()
    config = AutoConfig.for_model(name, **{key: value for key, value in sizes.items() if key in known})
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(config).train()
    ids = torch.randint(1, 64, (2, 8))
    case = Case(name, module, (), {"input_ids": ids}, "training", torch.float32, torch.device("cpu"))
    reference, gold = case.run(), run_side("gold", exact := case.to_gold(), lambda: exact.module)
    assert gold.error is None, gold.error
    logits = gold.leaves["output"]["logits"]
    error = (reference.output.logits.double() - logits).square().mean().sqrt()
    assert logits.dtype == torch.float64 and 0 < error < 1e-6 * logits.square().mean().sqrt()
    assert len(gold.leaves["gradient"]) == len(reference.gradients)


@torch.library.custom_op("inductor_debug_tests::float32_alone", mutates_args=())
def float32_alone(x: torch.Tensor) -> torch.Tensor:
    if x.dtype != torch.float32:
        raise RuntimeError("this kernel is float32 alone")
    return x * 2


@float32_alone.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class WithAKernel(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return float32_alone(torch.tanh(x))


def test_the_operation_that_lacks_float64_is_named() -> None:
    result = compared(WithAKernel(), torch.randn(8, 16), adapter="SlightlyOff")
    named = "float64 raised LacksFloat64: inductor_debug_tests.float32_alone.default has no float64: this kernel is"
    assert named in result.message
