"""How large an error is called a defect: noise planted in one middle weight, against the verdict.

Whole units in the last place are added to a share of the elements of a model's middle weight; the model is exercised,
as in a run. The steps go from far under to far over the noise floor of an output. The test side is eager with the
changed weight, so the noise is the only fault. The effect on the output is computed without the comparison. It is the
RMS of the float64 model's output with the changed weight less that with the right one, over the RMS of eager's own
rounding error.

Usage: ``python tests/performance/detection.py [--model bert] [--dtype bfloat16] [--seeds 3] [--out DIR]``. Writes
``detection-MODEL-DTYPE.csv`` (effect, ratio and verdict a row) and prints the largest effect that passed and the
smallest that was called a defect. ``--draw DIR`` draws the stored tables as one picture.
"""

import argparse
import math
from itertools import product
from pathlib import Path

import pandas as pd
import torch
from kept_draws import kept_draws

from inductor_debug.models.build import build_case
from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.kerneldiff import other_rounding
from inductor_debug.stages.kerneldiff.reviews import decide
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.sides import running as sides

BUILDS = {
    "bert": {
        "_target_": "models.bert.build", "vocabulary": 119547, "layers": 12, "width": 768, "heads": 12,
        "intermediate": 3072,
    },
    "resnet18": {"_target_": "models.torchvision_models.build", "name": "resnet18"},
    "ssm": {
        "_target_": "models.ssm.build", "vocabulary": 16384, "width": 512, "layers": 11, "state": 16, "expand": 2,
        "convolution": 4, "chunk": 16,
    },
}  # fmt: skip
EFFECTS = (0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 16.0, 50.0, 200.0)
"""Effects aimed at, in floors; what came out is measured."""


def plant(weight: torch.Tensor, share: float, units: int, seed: int) -> torch.Tensor:
    """``weight`` with ``units`` units in the last place added to, or taken from, a random share of its elements."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(weight.shape, generator=generator) < share
    sign = torch.randint(0, 2, weight.shape, generator=generator) * 2 - 1
    _, exponent = torch.frexp(weight.double())
    unit = torch.finfo(weight.dtype).eps * torch.ldexp(torch.ones_like(exponent, dtype=torch.float64), exponent - 1)
    return (weight.double() + torch.where(chosen, sign * units * unit, 0.0)).to(weight.dtype)


def output_of(case: Case) -> tuple[str, torch.Tensor]:
    """Path and value of the first floating output of one step."""
    leaves = sides.collect(case.run())["output"].items()
    return next((path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point())


def rms(values: torch.Tensor) -> float:
    return values.double().square().mean().sqrt().item()


def middle_weight(module: torch.nn.Module) -> torch.nn.Parameter:
    """The middle one of the parameters of two and more dimensions, embeddings left out."""
    tables = {id(child.weight) for child in module.modules() if isinstance(child, torch.nn.Embedding)}
    weights = [weight for weight in module.parameters() if weight.ndim >= 2 and id(weight) not in tables]
    return weights[len(weights) // 2]


def curve(model: str, dtype: str, seeds: int, file: Path) -> pd.DataFrame:
    """Plant, judge and measure; the table is stored after every row."""
    case = build_case(ModelConfig(model, BUILDS[model]), mode="inference", dtype=dtype, device="cpu", seed=0)
    ideal = case.to_gold()
    weight = middle_weight(case.module)
    position = next(index for index, each in enumerate(case.module.parameters()) if each is weight)
    exact = list(ideal.module.parameters())[position]
    right = weight.detach().clone()
    (path, reference), (_, gold) = output_of(case), output_of(ideal)
    floor = rms(reference.double() - gold)

    def effect(changed: torch.Tensor) -> float:
        with torch.no_grad():
            exact.copy_(changed)
        moved = rms(output_of(ideal)[1] - gold)
        with torch.no_grad():
            exact.copy_(right)
        return moved / floor

    dense = effect(plant(right, 1.0, 1, 0))  # one unit in every element
    rows = []
    with kept_draws(case):
        for aimed, seed in product(EFFECTS, range(seeds)):
            units = max(1, math.ceil(aimed / dense))
            changed = plant(right, min(1.0, (aimed / dense / units) ** 2), units, seed)
            with torch.no_grad():
                weight.copy_(changed)
            _, test = output_of(case)
            with torch.no_grad():
                weight.copy_(right)
            difference = KernelDiff(roundoff=case.unit_roundoff)
            (row,) = difference.compare_leaves({path: reference}, {path: test}, {path: gold}, kind="output")
            first = row.verdict
            judgements = other_rounding.judged(
                difference.rows, case, {"output": {path: gold}}, {"output": {path: test}}, draws=12
            )
            decide("other rounding", difference.rows, judgements, [])
            rows.append(
                {
                    "model": model, "dtype": dtype, "effect": effect(changed), "seed": seed, "ratio": row.ratio,
                    "by_one_draw": first, "verdict": row.verdict, "bound": row.bound,
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(file, index=False)
    return pd.DataFrame(rows)


def draw(folder: Path) -> None:
    """``detection.png``: every planted effect, by model and dtype, coloured by verdict."""
    from matplotlib.figure import Figure

    tables = [pd.read_csv(path) for path in sorted(folder.glob("detection-*.csv"))]
    figure = Figure(figsize=(9, 0.7 * len(tables) + 1.4), layout="constrained")
    axes = figure.subplots()
    for height, table in enumerate(tables):
        for verdict, colour in (("exact", "tab:gray"), ("within_floor", "tab:green"), ("defect", "tab:red")):
            part = table[table["verdict"] == verdict]
            label = verdict if height == 0 else None
            axes.scatter(part["effect"], [height] * len(part), color=colour, label=label, marker="|", s=250)
    for limit in (1.1, 8.0):
        axes.axvline(limit, color="black", linestyle=":")
    axes.set_xscale("log")
    axes.set_xlabel("RMS effect of the planted noise on the output, in eager's own rounding errors (dotted: 1.1 and 8)")
    axes.set_yticks(range(len(tables)), [f"{table['model'][0]} {table['dtype'][0]}" for table in tables])
    axes.set_ylim(-0.7, len(tables) - 0.3)
    axes.legend(loc="lower right")
    figure.savefig(folder / "detection.png", dpi=110, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", nargs="+", choices=sorted(BUILDS), default=sorted(BUILDS))
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--draw", type=Path, help="draw the tables in this folder, measure nothing")
    options = parser.parse_args()
    if options.draw:
        draw(options.draw)
        return
    for model in options.model:
        for dtype in options.dtype:
            table = curve(model, dtype, options.seeds, options.out / f"detection-{model}-{dtype}.csv")
            passed, caught = (table[(table["verdict"] == "defect") == wrong]["effect"] for wrong in (False, True))
            print(f"{model} {dtype}: largest effect passed {passed.max():.3g}, smallest defect {caught.min():.3g}")


if __name__ == "__main__":
    main()
