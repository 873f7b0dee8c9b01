"""How often clean TorchInductor is called a defect, and how often a small error is: many seeds of the hardest cases.

One eager run is one draw of the rounding noise. Of one element that draw may come out near zero, and in a training step
with batch normalization eager adds up in float64 on the CPU, where Inductor adds in float32. Two models whose result is
one element, and two such training steps in float32, are compiled once. Each seed draws new weights and inputs. It is
judged by one draw of the noise, and again with all of them. Then the same with one result wrong by a thousandth.

Usage: ``python tests/performance/false_alarms.py [--seeds 100] [--only NUMBER]``. Prints one line a model: seeds called
a defect by one draw, by all draws, and (by all draws) with the error.
"""

import argparse
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.models.exercise import exercise
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.kerneldiff import other_rounding
from inductor_debug.stages.kerneldiff.diff import projected_noise
from inductor_debug.stages.kerneldiff.reviews import decide
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.settings import BackendConfig
from inductor_debug.stages.sides import running as sides

ERROR = 1.001


class Mean(nn.Module):
    """The mean of 512 outputs of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(nn.functional.gelu(self.first(x))).mean()


class Head(nn.Module):
    """One score."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(64, 256), nn.Linear(256, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.first(x)))[0]


class Normalized(nn.Module):
    """Two convolutions, batch statistics, pooling, and a mean over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.head = nn.Conv2d(16, 16, 3, padding=1), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        return self.head(torch.relu(self.second(x)).mean((2, 3)))


class Sums(nn.Module):
    """A convolution and batch statistics: 8,192 terms in each sum, which Inductor's code adds one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        return self.head(nn.functional.adaptive_avg_pool2d(x, 4).flatten(1))


@dataclass(frozen=True)
class Subject:
    """What is compiled once and judged at many seeds; ``wrong``: kind and path of the result that is made wrong."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    mode: Literal["inference", "training"]
    wrong: tuple[str, str]


SUBJECTS = (
    Subject("mean of 512 outputs", Mean().eval(), (8, 64), "inference", ("output", "output")),
    Subject("one score", Head().eval(), (1, 64), "inference", ("output", "output")),
    Subject("training with batch norm", Normalized().train(), (4, 3, 8, 8), "training", ("gradient", "norm.weight")),
    Subject("training with long sums", Sums().train(), (8, 3, 32, 32), "training", ("gradient", "norm.weight")),
)


def draw(case: Case, seed: int) -> None:
    """New weights and inputs, in place, so that nothing is compiled again; exercised, as in a run."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for child in case.module.children():
            child.reset_parameters()
        case.args[0].normal_()
    exercise(case, seed, inputs=False)


def judged(case: Case, leaves: list[sides.Leaves]) -> tuple[bool, bool]:
    """Whether a result is a defect by one draw of the noise, and by all."""
    difference = KernelDiff(roundoff=case.unit_roundoff)
    for kind in ("output", "loss", "gradient"):
        noise = projected_noise(difference.rows) if kind == "loss" else None
        difference.compare_leaves(*(side.get(kind, {}) for side in leaves), kind=kind, noise=noise)
    by_one = bool(difference.failed)
    judgements = other_rounding.judged(difference.rows, case, leaves[2], leaves[1], draws=12)
    decide("other rounding", difference.rows, judgements, [])
    return by_one, bool(difference.failed)


def measure(subject: Subject, seeds: int) -> tuple[int, int, int]:
    """Seeds called a defect: by one draw, by all, and with the error."""
    case = Case(
        "one", subject.module, (torch.empty(subject.shape),), {}, subject.mode, torch.float32, torch.device("cpu")
    )
    draw(case, 0)
    compiled = compile_case(case, build_adapter(BackendConfig("inductor", "inductor")))
    counts = [0, 0, 0]
    kind, path = subject.wrong
    for seed in range(seeds):
        draw(case, seed)
        ideal = case.to_gold()
        leaves = [sides.collect(each) for each in (case.run(), case.run(compiled), ideal.run())]
        wrong = leaves[1] | {kind: leaves[1][kind] | {path: leaves[1][kind][path] * ERROR}}
        by_one, by_all = judged(case, leaves)
        caught = judged(case, [leaves[0], wrong, leaves[2]])[1]
        counts = [count + found for count, found in zip(counts, (by_one, by_all, caught), strict=True)]
    return counts[0], counts[1], counts[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--only", type=int, nargs="+", default=range(len(SUBJECTS)), help="numbers of models, from 0")
    options = parser.parse_args()
    seeds = options.seeds
    for subject in (SUBJECTS[number] for number in options.only):
        by_one, by_all, caught = measure(subject, seeds)
        print(
            f"{subject.name}: of {seeds} seeds clean Inductor is a defect by one draw for {by_one}, by all draws for "
            f"{by_all}; an error of 0.1 % is a defect for {caught}"
        )


if __name__ == "__main__":
    main()
