"""How often clean TorchInductor is called a defect, and how often a small error is: many seeds of few-element results.

One eager run is one draw of the rounding noise, and of one element that draw may come out near zero. Two models whose
result is one element are compiled once; each seed draws new weights and inputs, and is judged by one draw of the noise
and again with all of them. Then the same with the result wrong by a thousandth.

Usage: ``python tests/performance/false_alarms.py [--seeds 100]``. Prints one line a model: seeds called a defect by one
draw, by all draws, and (by all draws) with the error.
"""

import argparse

import torch
from torch import nn

from models.case import Case
from stages.kerneldiff import KernelDiff, conditioning, sides
from stages.lower.adapters import build_adapter
from stages.lower.compiled import compile_case
from stages.lower.config import BackendConfig

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


def draw(case: Case, seed: int) -> None:
    """New weights and inputs, in place, so that nothing is compiled again."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for child in case.module.children():
            child.reset_parameters()
        case.args[0].normal_()


def judged(case: Case, leaves: list[sides.Leaves]) -> tuple[bool, bool]:
    """Whether the output is a defect by one draw of the noise, and by all."""
    difference = KernelDiff(roundoff=case.unit_roundoff)
    difference.compare_leaves(*(side["output"] for side in leaves), kind="output")
    by_one = bool(difference.failed)
    conditioning.reconsider(difference.rows, case, leaves[2], leaves[1], draws=12)
    return by_one, bool(difference.failed)


def measure(kind: type[nn.Module], rows: int, seeds: int) -> tuple[int, int, int]:
    """Seeds called a defect: by one draw, by all, and with the error."""
    module = kind().eval()
    case = Case("one", module, (torch.empty(rows, 64),), {}, "inference", torch.float32, torch.device("cpu"))
    draw(case, 0)
    compiled = compile_case(case, build_adapter(BackendConfig("inductor", "inductor")))
    counts = [0, 0, 0]
    for seed in range(seeds):
        draw(case, seed)
        golden = case.to_gold()
        leaves = [sides.collect(each) for each in (case.run(), case.run(compiled), golden.run())]
        wrong = [leaves[0], {"output": {path: leaf * ERROR for path, leaf in leaves[1]["output"].items()}}, leaves[2]]
        by_one, by_all = judged(case, leaves)
        counts = [count + found for count, found in zip(counts, (by_one, by_all, judged(case, wrong)[1]), strict=True)]
    return counts[0], counts[1], counts[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    seeds = parser.parse_args().seeds
    for name, kind, rows in (("mean of 512 outputs", Mean, 8), ("one score", Head, 1)):
        by_one, by_all, caught = measure(kind, rows, seeds)
        print(
            f"{name}: of {seeds} seeds clean Inductor is a defect by one draw for {by_one}, by all draws for {by_all}; "
            f"an error of 0.1 % is a defect for {caught}"
        )


if __name__ == "__main__":
    main()
