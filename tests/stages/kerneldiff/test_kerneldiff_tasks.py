"""Task-level measures against SciPy-free NumPy sums, and which outputs they are for."""

import math

import numpy
import pytest
import torch

from inductor_debug.stages.kerneldiff import tasks


def divergence(left: numpy.ndarray, right: numpy.ndarray) -> numpy.ndarray:
    p, q = (numpy.exp(side - side.max(-1, keepdims=True)) for side in (left, right))
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    return (p * numpy.log(p / q)).sum(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_measures_match_an_oracle(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "ROWS_ELEMENTS", 50)
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(3, 17, 11, generator=generator).to(dtype)
    right = (left.float() + 0.3 * torch.randn(left.shape, generator=generator)).to(dtype)
    found = tasks.compare_scores(left, right)
    sides = [side.double().numpy().reshape(-1, 11) for side in (left, right)]
    assert (found.rows, found.classes) == (51, 11)
    assert found.top1_agreement == (sides[0].argmax(-1) == sides[1].argmax(-1)).mean() < 1
    expected = divergence(*sides)
    assert found.kl_mean == pytest.approx(expected.mean()) and found.kl_max == pytest.approx(expected.max())


def test_equal_scores_agree_and_nan_shows() -> None:
    scores = torch.randn(4, 5)
    same = tasks.compare_scores(scores, scores)
    assert (same.top1_agreement, same.kl_mean, same.kl_max) == (1.0, 0.0, 0.0)
    masked = scores.index_fill(1, torch.tensor([2]), -math.inf)
    assert tasks.compare_scores(masked, masked).kl_max == 0.0
    broken = scores.clone()
    broken[0, 0] = math.nan
    found = tasks.compare_scores(scores, broken)
    assert math.isnan(found.kl_mean) and math.isnan(found.kl_max)


def test_only_class_scores_are_measured() -> None:
    table, ids = torch.randn(2, 10), torch.zeros(2, 10, dtype=torch.int64)
    outputs = {"logits": table, "hidden_states[0]": table, "labels": ids, "heads['start_logits']": table, "loss": 1.0}
    paths = [found.path for found in tasks.measure_tasks("bert", outputs, outputs)]
    assert paths == ["logits", "heads['start_logits']"]
    assert [found.path for found in tasks.measure_tasks("resnet18", {"output": table}, {"output": table})] == ["output"]
    assert tasks.measure_tasks("custom", {"output": table}, {"output": table}) == []
    assert tasks.measure_tasks("bert", {"logits": table}, {"logits": table[:1]}) == []
