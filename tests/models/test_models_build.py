"""From configuration to case: the builders, what they refuse and what they say then."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from inductor_debug.models.build import available_devices, build_case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError

BERT = {"_target_": "models.bert.build", "layers": 1, "width": 32, "heads": 2, "intermediate": 32, "vocabulary": 90}
LAYERS = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
SEQ2SEQ = {
    "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "vocab_size": 99,
}  # fmt: skip


def config(build: dict[str, Any], **fields: Any) -> ModelConfig:
    return ModelConfig(**({"name": "test", "build": build, "sequence_length": 16, "image_size": 64} | fields))


def huggingface(kind: str, overrides: dict[str, Any], **build: Any) -> dict[str, Any]:
    return {"_target_": "models.huggingface.build", "config": kind, "overrides": overrides, **build}


def linear(batch_size: int, width: int = 4, *, dropout: float = 0.0) -> Any:
    """A build callable as a user would write it."""
    model = nn.Sequential(nn.Linear(width, width), nn.Dropout(dropout), nn.BatchNorm1d(width))
    return model, (torch.randn(batch_size, width),), {}


def marked(base: bool = False) -> Any:
    """Inputs with sizes that Dynamo is to keep symbolic; with ``base`` views of one storage."""
    x = torch.randn(12, 4)
    x, y = (x[:6], x[6:]) if base else (x, x.clone())
    torch._dynamo.mark_dynamic(x, 0, min=4, max=64)
    torch._dynamo.maybe_mark_dynamic(y, 0)
    return Pair(), (x, y)


class Pair(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.relu(), y[:1].relu()


@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("options", [{}, {"dtype": "bfloat16"}, {"mode": "training"}])
def test_marks_of_dynamic_sizes_are_kept(options: dict[str, str], base: bool) -> None:
    case = build_case(config({"_target_": f"{__name__}.marked", "base": base}), **options)
    for built in (case, case.to_gold()):
        x, y = built.args
        assert x._dynamo_dynamic_indices == {0} and y._dynamo_weak_dynamic_indices == {0}
        ((dimension, least, most),) = [(item.dim, item.min, item.max) for item in x._dynamo_dynamic_range]
        assert (dimension, least, most) == (0, 4, 64)
    assert case.args[0]._dynamo_dynamic_indices is not case.to_gold().args[0]._dynamo_dynamic_indices


def narrow() -> Any:
    """A model that is bfloat16 by its own choice, but for one layer."""
    return nn.Sequential(nn.Linear(4, 4, dtype=torch.bfloat16), nn.Linear(4, 4)), (torch.randn(2, 4),)


def test_weights_that_were_made_in_another_dtype_are_told_when_they_are_cast() -> None:
    build = {"_target_": f"{__name__}.narrow"}
    told = "dtype=float32 cast the model's bfloat16 weights (0.weight, …); dtype=bfloat16 keeps them"
    assert build_case(config(build)).cast == told
    assert build_case(config(build)).to_gold().cast == told
    assert build_case(config(build), dtype="bfloat16").cast == ""
    assert build_case(config({"_target_": f"{__name__}.linear"}), dtype="bfloat16").cast == ""


def returns_a_module() -> Any:
    return nn.Linear(2, 2)


def returns_a_tensor_for_args() -> Any:
    return nn.Linear(2, 2), torch.ones(2, 2)


def returns_a_lazy_module() -> Any:
    return nn.LazyLinear(2), (torch.ones(1, 2),)


def returns_inputs_that_do_not_fit() -> Any:
    return nn.Linear(2, 2), (torch.ones(2, 2),), {"mask": torch.ones(2)}


def raises_inside() -> Any:
    raise TypeError("planted inside the builder")


LINEAR = {"_target_": f"{__name__}.linear"}

ARCHITECTURES = [
    ("GPT2Config", {"n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 99}, {"input_ids": (2, 16)}),
    ("T5Config", {"d_model": 32, "d_ff": 32, "num_layers": 1, "num_heads": 2, "d_kv": 16, "vocab_size": 99},
     {"input_ids": (2, 16), "decoder_input_ids": (2, 16)}),
    ("ViTConfig", LAYERS, {"pixel_values": (2, 3, 64, 64)}),
    ("Wav2Vec2Config", LAYERS | {"num_conv_pos_embedding_groups": 2, "num_conv_pos_embeddings": 8},
     {"input_values": (2, 5200)}),
    ("CLIPTextConfig", LAYERS | {"vocab_size": 99, "max_position_embeddings": 12}, {"input_ids": (2, 12)}),
    ("CLIPConfig", {"text_config": LAYERS | {"vocab_size": 99}, "vision_config": LAYERS | {"patch_size": 16}},
     {"input_ids": (2, 16), "pixel_values": (2, 3, 64, 64)}),
    ("WhisperConfig", SEQ2SEQ | {"max_source_positions": 40, "pad_token_id": 0},
     {"input_features": (2, 80, 80), "decoder_input_ids": (2, 16)}),
    ("RobertaConfig", LAYERS | {"vocab_size": 99, "max_position_embeddings": 12}, {"input_ids": (2, 10)}),
    ("LlamaConfig", LAYERS | {"vocab_size": 99}, {"input_ids": (2, 16)}),
    ("BrosConfig", LAYERS | {"vocab_size": 99, "hidden_size": 128},
     {"input_ids": (2, 16), "bbox": (2, 16, 4)}),
    ("DecisionTransformerConfig", {"n_layer": 1, "n_head": 1, "hidden_size": 32},
     {"states": (2, 16, 17), "actions": (2, 16, 4), "returns_to_go": (2, 16, 1), "timesteps": (2, 16)}),
    ("Blip2QFormerConfig", LAYERS | {"encoder_hidden_size": 24, "vocab_size": 99},
     {"query_embeds": (2, 32, 32), "encoder_hidden_states": (2, 16, 24)}),
    ("PatchTSTConfig", {"d_model": 32, "num_hidden_layers": 1, "context_length": 24}, {"past_values": (2, 24, 1)}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "overrides", "shapes"), ARCHITECTURES, ids=[row[0] for row in ARCHITECTURES])
def test_huggingface_inputs_fit_the_forward(kind: str, overrides: Any, shapes: dict[str, tuple[int, ...]]) -> None:
    case = build_case(config(huggingface(kind, overrides), batch_size=2))
    named = case.named_inputs()
    assert {name: tuple(tensor.shape) for name, tensor in named.items() if name in shapes} == shapes
    assert set(named) - set(shapes) <= {"attention_mask", "token_type_ids"}
    output, gold = case.run().output, case.to_gold().run().output
    assert type(output) is type(gold)
    torch.testing.assert_close(output[0].double(), gold[0], rtol=1e-3, atol=1e-4)
    assert getattr(output, "past_key_values", None) is None


def test_a_shape_that_is_given_leaves_the_other_inputs_to_be_made() -> None:
    build = huggingface("BrosConfig", LAYERS | {"vocab_size": 99, "hidden_size": 128})
    case = build_case(config(build | {"input_shapes": {"token_type_ids": [2, 16]}}, batch_size=2))
    assert {"input_ids", "token_type_ids", "bbox"} <= set(case.kwargs)


def test_huggingface_head_class_and_training() -> None:
    overrides = SEQ2SEQ | {"num_labels": 3}
    build = huggingface("BartConfig", overrides, model_class="BartForSequenceClassification")
    result = build_case(config(build, batch_size=2), mode="training").run()
    assert result.output.logits.shape == (2, 3)
    assert result.loss is not None and result.loss.isfinite()


@pytest.mark.parametrize(("dropout", "alike"), [(0.0, True), (0.1, False)])
def test_bert_without_dropout_draws_nothing_in_training(dropout: float, alike: bool) -> None:
    cases = [build_case(config(BERT | {"dropout": dropout}), mode=mode) for mode in ("training", "inference")]
    trained, inferred = (case.run().output.last_hidden_state for case in cases)
    assert torch.equal(trained, inferred) == alike


def test_fields_of_an_inner_configuration_leave_its_others_as_its_owner_has_them() -> None:
    """LLaVA's CLIP has 1024 wide layers; the class's own default is 768, and without a type LLaVA's is unknown."""
    inner = {"num_hidden_layers": 1, "intermediate_size": 8}
    text = inner | {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 64}
    build = huggingface("LlavaConfig", {"vision_config": inner, "text_config": text, "image_token_index": 63})
    made = build_case(config(build)).module.config
    assert (made.vision_config.num_hidden_layers, made.vision_config.hidden_size) == (1, 1024)
    assert made.vision_config.patch_size == 14 and made.text_config.hidden_size == 32


def test_huggingface_labels_make_the_models_own_loss() -> None:
    build = huggingface(
        "BertConfig", LAYERS | {"vocab_size": 99}, model_class="AutoModelForMaskedLM", input_shapes={"labels": [1, 16]}
    )
    result = build_case(config(build), mode="training").run()
    assert torch.equal(result.loss, result.output.loss)


def test_huggingface_checkpoint_folder(tmp_path: Path) -> None:
    source = build_case(config(huggingface("GPT2Config", ARCHITECTURES[0][1])))
    source.module.save_pretrained(tmp_path)
    build = {"_target_": "models.huggingface.build", "checkpoint": str(tmp_path)}
    loaded = build_case(config(build), seed=9)
    for name, parameter in source.module.state_dict().items():
        assert torch.equal(loaded.module.state_dict()[name], parameter), name


def test_sequence_is_cut_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    build_case(config(huggingface(*ARCHITECTURES[4][:2]), sequence_length=30))
    assert "model.sequence_length=30 is more than this model reads; using 12" in caplog.text


@pytest.mark.parametrize(("build", "message"), [
    ({}, r"_target_: got nothing; valid: the dotted name of a callable"),
    ({"_target_": "???"}, r"_target_: got nothing"),
    ({"_target_": "models.bert.biuld"}, r"has no 'biuld'; valid: build[\s\S]*=inductor_debug.models.bert.b"),
    ({"_target_": "modles.bert.build"}, r"no module 'modles'"),
    ({"_target_": "models.bert.__doc__"}, r"is a str; valid: a callable"),
    ({"_target_": f"{__name__}.returns_a_module"}, r"returned Linear; valid: \(module, args\)"),
    ({"_target_": f"{__name__}.returns_a_tensor_for_args"}, r"returned \(Linear, Tensor\); valid"),
    ({"_target_": f"{__name__}.returns_inputs_that_do_not_fit"}, r"\['input', 'mask'\][\s\S]*does not take"),
    ({"_target_": f"{__name__}.returns_a_lazy_module"}, r"lazy weights .* \(weight, …\)[\s\S]*before returning"),
    (LINEAR | {"widht": 3}, r"build.widht: .*no such argument; valid: width, dropout\.[\s\S]*model.build.width=3"),
    ({"_target_": "models.torchvision_models.build"}, r"model.build.name: .* needs it"),
    ({"_target_": "models.torchvision_models.build", "name": "resnet19"}, r"'resnet19'; valid: resnet18, .*vgg19"),
    ({"_target_": "models.torchvision_models.build", "name": "resnet18", "depth": 1}, r"does not take {'depth': 1}"),
    (huggingface("GPT2Confg", {}), r"model.build.config: got 'GPT2Confg'; valid: GPT2Config,"),
    (huggingface("AutoformerConfig", {}), r"needs to be specified[\s\S]*Try: '\+model.build.overrides.prediction_l"),
    (huggingface("NemotronConfig", {"num_key_value_heads": None, **LAYERS}), r"num_key_value_heads is None\n"),
    (huggingface("AutoModel", {}), r"model.build.config: got 'AutoModel'"),
    (huggingface("GPT2Config", {"n_layers": 1}), r"overrides: got 'n_layers' \(in GPT2Config\); valid: n_layer,"),
    (huggingface("LlavaConfig", {"text_config": {"n_layer": 1}}), r"'n_layer' \(in LlavaConfig.text_config\)"),
    (huggingface("GPT2Config", {"n_layer": "x"}), r"overrides: GPT2Config refuses"),
    (huggingface("GPT2Config", {}, model_class="GPT2Modle"), r"model_class: got 'GPT2Modle'; valid: GPT2Model,"),
    (huggingface("BertConfig", LAYERS, model_class="GPT2Model"), r"config: got 'BertConfig'; valid: GPT2Config"),
    ({"_target_": "models.huggingface.build", "checkpoint": "/no/such"}, r"checkpoint: got '/no/such'.*config.json"),
    (BERT | {"vocabulary": "???"}, r"model.build.vocabulary: missing"),
])  # fmt: skip
def test_wrong_build_is_refused_with_the_choices(build: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_case(config(build))


@pytest.mark.parametrize(("options", "message"), [
    ({"dtype": "float33"}, "dtype: got 'float33'; valid: float32,"),
    ({"mode": "train"}, "mode: got 'train'; valid: training"),
    ({"precision": "auto"}, "precision: got 'auto'; valid: autocast"),
    ({"precision": "autocast", "dtype": "float32"}, "dtype: got 'float32'; valid: .*bfloat16"),
    ({"device": "toaster"}, "device: got 'toaster'; valid: .*cpu"),
    ({"device": "cuda:99"}, "device: got 'cuda:99'; valid: .*cpu"),
    ({"device": "meta"}, "device: got 'meta'; valid: .*cpu"),
])  # fmt: skip
def test_wrong_setting_is_refused_with_the_choices(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_case(config(LINEAR), **options)


def test_what_the_callable_raises_is_passed_on() -> None:
    with pytest.raises(TypeError, match="planted inside the builder"):
        build_case(config({"_target_": f"{__name__}.raises_inside"}))


def test_missing_dependency_of_the_users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=r"importing needs_more failed: .*no_such_dependency"):
        build_case(config({"_target_": "needs_more.build"}))


def test_seed_decides_weights_and_inputs_and_the_process_keeps_its_generators() -> None:
    state = torch.get_rng_state()
    first, second, other = (build_case(config(BERT), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    weights = [case.module.embeddings.word_embeddings.weight for case in (first, second, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    tokens = [case.kwargs["input_ids"] for case in (first, second, other)]
    assert torch.equal(tokens[0], tokens[1]) and not torch.equal(tokens[0], tokens[2])


def test_inputs_do_not_depend_on_the_models_depth() -> None:
    shallow, deep = (build_case(config(BERT | {"layers": layers})) for layers in (1, 2))
    assert torch.equal(shallow.kwargs["input_ids"], deep.kwargs["input_ids"])


def test_every_bert_weight_is_drawn_once_as_transformers_draws_it() -> None:
    module = build_case(config(BERT | {"width": 64}, exercise=False)).module
    assert nn.Linear(3, 3).weight.abs().max() > 0  # torch's own initialization is back in place
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif "LayerNorm" in name:
            assert (parameter == 1).all(), name
        else:
            assert 0.018 < parameter.std() < 0.022, name


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_cast_covers_module_and_inputs(dtype: str) -> None:
    case = build_case(config(LINEAR, batch_size=3), dtype=dtype)
    floating = [*case.module.parameters(), case.args[0], case.module[2].running_mean]
    assert {tensor.dtype for tensor in floating} == {getattr(torch, dtype)}
    assert case.args[0].shape == (3, 4)
    assert not case.module.training


def test_autocast_keeps_float32_storage() -> None:
    case = build_case(config(LINEAR, batch_size=3), dtype="bfloat16", precision="autocast", mode="training")
    assert case.module[0].weight.dtype == case.args[0].dtype == torch.float32
    assert case.dtype == torch.bfloat16 and case.module.training
    seen: list[torch.dtype] = []
    case.module[0].register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    case.run()
    assert seen == [torch.bfloat16]


def test_devices_start_with_the_cpu() -> None:
    assert available_devices()[0] == "cpu"


def test_inputs_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "real.safetensors"
    save_file({"input_ids": torch.full((1, 16), 7)}, file)
    case = build_case(config(BERT, inputs=str(file)))
    assert (case.kwargs["input_ids"] == 7).all()
    assert (case.kwargs["attention_mask"] == 1).all()


@pytest.mark.parametrize(("tensors", "message"), [
    ({"inputs_ids": torch.ones(1, 16)}, "model.inputs: got 'inputs_ids'.*valid: input_ids, .*attention_mask"),
    ({"input_ids": torch.ones(1, 8, dtype=torch.int64)}, r"has shape \[1, 8\]; valid: \[1, 16\]"),
    ({"input_ids": torch.ones(1, 16)}, "has dtype float32; valid: int64"),
    ({}, "holds no tensors"),
])  # fmt: skip
def test_inputs_file_that_does_not_fit(tmp_path: Path, tensors: dict[str, torch.Tensor], message: str) -> None:
    file = tmp_path / "real.safetensors"
    save_file(tensors, file)
    with pytest.raises(ConfigurationError, match=message):
        build_case(config(BERT, inputs=str(file)))


def test_inputs_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        build_case(config(BERT, inputs=str(tmp_path / "absent.safetensors")))
    (tmp_path / "text.safetensors").write_text("not a tensor in sight")
    with pytest.raises(ConfigurationError, match="not a readable safetensors file"):
        build_case(config(BERT, inputs=str(tmp_path / "text.safetensors")))


@pytest.mark.parametrize("code", [
    "from inductor_debug.models.build import build_case; from inductor_debug.models.config import ModelConfig as M;"
    "build_case(M('r', {'_target_': 'models.torchvision_models.build', 'name': 'resnet18'}, image_size=32)).run();"
    f"build_case(M('b', {BERT!r}, sequence_length=8)).run()",
    "from inductor_debug.models.compat import prepare_torchvision; prepare_torchvision(); import torchvision;"
    "assert not prepare_torchvision(); import transformers; transformers.BertModel",
    "import sys; import inductor_debug.models.config, inductor_debug.models.errors; assert 'torch' not in sys.modules",
    "import sys; import inductor_debug.models.build, inductor_debug.models.bert, inductor_debug.models.ssm;"
    "assert 'torchvision' not in sys.modules;"
    "assert 'transformers' not in sys.modules and 'hydra' not in sys.modules",
], ids=["both models", "twice", "config is free of torch", "builders import lazily"])  # fmt: skip
def test_in_a_fresh_process(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "low", "high"), [
    ("bert", 177_853_440, 177_853_440),
    ("resnet18", 11_689_512, 11_689_512),
    ("ssm", 26_500_000, 27_500_000),
])  # fmt: skip
def test_full_size_parameter_counts(name: str, low: int, high: int) -> None:
    from omegaconf import OmegaConf

    file = Path(__file__).parents[2] / "conf" / "model" / f"{name}.yaml"
    fields = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(ModelConfig), OmegaConf.load(file)))
    case = build_case(fields)
    assert low <= sum(parameter.numel() for parameter in case.module.parameters()) <= high
    output, _ = case.step()
    assert output is not None


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[2] / "conf" / "model").glob("*.yaml")), ids=str)
def test_yaml_fits_the_schema_and_names_a_callable_with_those_arguments(file: Path) -> None:
    import inspect

    from omegaconf import OmegaConf

    from inductor_debug.models.target import resolve_target

    fields = OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(ModelConfig), OmegaConf.load(file)))
    assert fields["name"] == file.stem
    target = fields["build"].pop("_target_")
    if file.stem == "custom":
        assert target == "???"
    else:
        parameters = inspect.signature(resolve_target(target, "model.build._target_")).parameters
        assert set(fields["build"]) <= set(parameters)


class Rotary(torch.nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)
        self.register_buffer("phases", torch.polar(torch.ones(4), torch.arange(4.0)))


def build_rotary() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    return Rotary(), (torch.ones(2, 4),)


@pytest.mark.parametrize(
    ("dtype", "found"), [("float32", "complex64"), ("bfloat16", "complex64"), ("float64", "complex128")]
)
def test_complex_buffers_stay_complex(dtype: str, found: str) -> None:
    case = build_case(config({"_target_": f"{__name__}.build_rotary"}), dtype=dtype)
    assert case.module.phases.dtype == getattr(torch, found)
    assert torch.equal(case.module.phases.to(torch.complex64), Rotary().phases)
    assert str(case.module.weight.dtype) == f"torch.{dtype}"
