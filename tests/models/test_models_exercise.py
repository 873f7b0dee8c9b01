"""Constant weights and masks are drawn anew, and nothing else is."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from inductor_debug.models import exercise as exercising
from inductor_debug.models.build import build_case
from inductor_debug.models.case import Case, Exercised
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.exercise import constant_weights, is_constant

OURS = "inductor_debug.models"
SMALL_BERT = {"_target_": f"{OURS}.bert.build", "vocabulary": 50, "layers": 2, "width": 16, "heads": 2,
              "intermediate": 32, "positions": 12}  # fmt: skip
TINY_GPT2 = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 30}


def case_of(build: dict[str, Any], *, seed: int = 0, mode: str = "inference", **options: Any) -> Case:
    return build_case(ModelConfig("model", build, sequence_length=8, **options), seed=seed, mode=mode)


class Parts(nn.Module):
    """What is drawn anew, and what is not."""

    def __init__(self) -> None:
        super().__init__()
        self.zeros, self.twos = nn.Parameter(torch.zeros(4000)), nn.Parameter(torch.full((4000,), 2.0))
        self.scale = nn.Parameter(torch.full((4000,), -1e-6))
        self.tied = self.zeros
        self.nearly = nn.Parameter(torch.randn(4000) * 1e-6)
        self.drawn = nn.Parameter(torch.randn(6))
        self.one, self.infinite = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.full((6,), torch.inf))
        self.frozen = nn.Parameter(torch.zeros(6), requires_grad=False)
        self.register_buffer("mask", torch.ones(6))
        self.register_buffer("quantization_scale", torch.ones(6))
        self.register_buffer("counts", torch.zeros(6, dtype=torch.int64))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.zeros.sum() + self.twos.sum()


def parts() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Parts(), (torch.ones(3),)


def test_constant_trainable_weights_alone_are_drawn() -> None:
    made = case_of({"_target_": f"{__name__}.parts"}, exercise=False).module
    case = case_of({"_target_": f"{__name__}.parts"})
    module = case.module
    changed = {name for name, tensor in module.state_dict().items() if not torch.equal(tensor, made.state_dict()[name])}
    assert changed == {"zeros", "tied", "twos", "scale", "nearly"} and module.tied is module.zeros
    assert module.zeros.std().item() == pytest.approx(0.02, rel=0.1) and abs(module.zeros.mean()) < 2e-3
    assert module.nearly.std().item() == pytest.approx(0.02, rel=0.1)
    assert module.twos.std().item() == pytest.approx(0.2, rel=0.1) and abs(module.twos.mean() - 2) < 2e-2
    assert module.scale.max() <= -0.1 and module.scale.min() >= -1
    assert case.exercised.parameters == 4 and module.calls == 0
    assert torch.equal(case.args[0], torch.ones(3))  # a user's own inputs stay
    assert constant_weights(module) == (["infinite", "frozen", "mask", "quantization_scale"], 9)


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.zeros(3, 3), True),
        (torch.zeros(3, 3).index_put((torch.tensor(2), torch.tensor(2)), torch.tensor(1.0)), False),
        (torch.zeros(1), False),
        (torch.zeros(0), False),
        (torch.full((2,), torch.nan), False),
    ],
)
def test_is_constant(tensor: torch.Tensor, expected: bool) -> None:
    assert is_constant(tensor) is expected


def test_equal_seeds_draw_equal_weights_and_another_seed_draws_others() -> None:
    first, second, other = (case_of(SMALL_BERT, seed=seed) for seed in (3, 3, 4))
    name = "encoder.layer.0.attention.output.LayerNorm.bias"
    weights = [case.module.get_parameter(name) for case in (first, second, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert torch.equal(first.kwargs["attention_mask"], second.kwargs["attention_mask"])


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_bert_has_no_constant_weight_and_a_ragged_mask(mode: str) -> None:
    case = case_of(SMALL_BERT, mode=mode, batch_size=3)
    assert constant_weights(case.module)[0] == []
    mask, types = case.kwargs["attention_mask"], case.kwargs["token_type_ids"]
    assert mask.dtype == torch.int64 and set(types.unique().tolist()) == {0, 1}
    lengths = mask.sum(1)
    assert bool(((lengths >= 4) & (lengths < 8)).all()) and torch.equal(mask, mask.sort(1, descending=True).values)
    assert case.module.training == (mode == "training")
    assert bool(torch.isfinite(case.run().output.last_hidden_state).all())
    plain = case_of(SMALL_BERT, exercise=False)
    assert bool((plain.kwargs["attention_mask"] == 1).all()) and "token_type_ids" not in plain.kwargs
    assert len(constant_weights(plain.module)[0]) > 20


def test_a_checkpoint_stays_as_it_is(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2Model

    GPT2Model(GPT2Config(**TINY_GPT2)).save_pretrained(tmp_path)
    build = {"_target_": f"{OURS}.huggingface.build"}
    case = case_of(build | {"checkpoint": str(tmp_path)})
    assert bool((case.module.ln_f.weight == 1).all()) and bool((case.kwargs["attention_mask"] == 1).all())
    drawn = case_of(build | {"config": "GPT2Config", "overrides": TINY_GPT2})
    assert not constant_weights(drawn.module)[0] and not bool((drawn.kwargs["attention_mask"] == 1).all())


def loading() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """What a user's builder does with a checkpoint of his own."""
    module = Parts()
    module.load_state_dict(Parts().state_dict())
    return module, (torch.ones(3),)


def pretrained(folder: str) -> tuple[nn.Module, tuple[torch.Tensor]]:
    from transformers import GPT2Model

    return GPT2Model.from_pretrained(folder), (torch.arange(8)[None],)


def test_what_a_users_builder_loads_stays_as_it_is(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2Model

    original = nn.Module.load_state_dict
    case = case_of({"_target_": f"{__name__}.loading"})
    assert case.exercised == Exercised() and bool((case.module.zeros == 0).all())
    assert nn.Module.load_state_dict is original
    GPT2Model(GPT2Config(**TINY_GPT2)).save_pretrained(tmp_path)
    case = case_of({"_target_": f"{__name__}.pretrained", "folder": str(tmp_path)})
    assert case.exercised == Exercised() and bool((case.module.ln_f.weight == 1).all())


class Convolutions(nn.Module):
    """Norms with running statistics; the last has one value a channel and call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.last = nn.BatchNorm1d(4)
        self.unused = nn.BatchNorm1d(4)
        self.frozen = nn.BatchNorm1d(4)
        self.frozen.running_mean.fill_(0.5)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.last(torch.relu(self.norm(self.first(x))).mean((2, 3)))


def convolutions() -> tuple[nn.Module, tuple[torch.Tensor]]:
    return Convolutions(), (torch.randn(1, 2, 9, 9) * 3 + 1,)


def test_running_statistics_are_those_of_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exercising, "PASSES", 1)
    case = case_of({"_target_": f"{__name__}.convolutions"})
    norm = copy.deepcopy(case.module.norm).train()
    norm.momentum = 1.0  # torch's own: the statistics of this call alone
    norm(case.module.first(case.args[0]))
    torch.testing.assert_close(case.module.norm.running_mean, norm.running_mean)
    torch.testing.assert_close(case.module.norm.running_var, norm.running_var)
    assert bool((case.module.last.running_var == 1).all())  # one value has no variance


def test_as_many_passes_as_there_are_values_wanted() -> None:
    case = case_of({"_target_": f"{__name__}.convolutions"})
    module = case.module
    assert not bool((module.last.running_var == 1).any()) and bool((module.last.running_var > 0).all())
    assert not bool((module.last.running_mean == 0).any())
    assert bool((module.unused.running_var == 1).all()) and bool((module.frozen.running_mean == 0.5).all())
    assert case.exercised.norms == 2 and module.calls == 0 and int(module.norm.num_batches_tracked) == 0
    assert case.run().output.abs().max() < 10


class Picky(nn.Module):
    """Refuses a ragged mask."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        if not bool(attention_mask.all()):
            raise ValueError("a ragged mask")
        return self.norm(x)


class Refusing(nn.Module):
    """Refuses every input, behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError(str(self.norm(x).shape))


def test_a_module_that_refuses_a_ragged_mask_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exercising, "PASSES", 1)
    mask = torch.ones(4, 6, dtype=torch.bool)
    case = Case.of(Picky().eval(), (), {"x": torch.randn(4, 3), "attention_mask": mask})
    kwargs, exercised = exercising.exercise(case, 0, inputs=True)
    assert kwargs["attention_mask"] is mask and exercised.inputs == () and exercised.norms == 1
    expected = case.kwargs["x"].mean(0)
    torch.testing.assert_close(case.module.norm.running_mean, expected)


def test_a_module_that_raises_keeps_its_running_statistics() -> None:
    case = Case.of(Refusing().eval(), (torch.randn(4, 3),))
    assert exercising.exercise(case, 0, inputs=True)[1].norms == 0
    assert bool((case.module.norm.running_mean == 0).all()) and bool((case.module.norm.running_var == 1).all())
