"""Faults written without a look at the comparison, planted in small models: which are seen, which are missed.

Each of the kinds of ``blind_kinds.py`` is planted in the models of ``blind_models.py`` where it fits, at a node drawn
by the seed; half of them as they are, half in a small dose. Its effect is measured here, in float64, on every output,
gradient and buffer: the share of the tensor by which the faulty graph differs from the right one, over the noise
floor. That is the share by which eager in the dtype differs from float64, and at least the unit roundoff. From 8 floors
on a fault is testable, and a run that passes has missed it. A model without a fault has to pass.

Behind the largest effect a line has, in brackets, that of the first call, the error that the faulty graph has in the
dtype, and how many tensors are testable. Other calls are on inputs of their own, which the run may not have had.

The runs look for no wrong operation. That compiles parts of the graph, in which the fault is at another node.

Usage: ``python tests/trials/blind_faults.py [--count 72] [--seed 0] [--only 3,7] [--list] [--spread 8]
[--parallel 2] [--json FILE]``. Prints a line for each run. Exit code 0 where nothing testable is missed, no clean run
fails, and every fault was at its node alone.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from blind_backend import Faulty, Plant, half, sites
from blind_calls import KINDS
from blind_models import CLASSES, build
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import Tensor, fx, nn
from torch._dynamo.backends.common import aot_autograd

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TESTABLE = 8.0
DRAWS = (0, 1, 2, 0)
"""The draws of the inputs that are measured, one call after the other."""
Tensors = dict[str, Tensor]


@dataclass
class Effect:
    """A fault's largest effect in floors, the tensor that has it, and the same in the first call and in the dtype.

    ``testable`` are the tensors where it is large enough in some call.
    """

    floors: float = 0.0
    tensor: str = ""
    first: float = 0.0
    shown: float = 0.0
    testable: list[str] = field(default_factory=list)


class Case:
    """A model in a mode and a dtype, with its graphs in that dtype and in float64."""

    def __init__(self, name: str, mode: str, dtype: str) -> None:
        self.name, self.mode, self.dtype = name, mode, getattr(torch, dtype)
        self.draws = {draw: build(name, draw)[2] for draw in set(DRAWS)}
        self.right: dict[int, Tensors] = {}
        self.floors: dict[str, float] = {}
        eager = {kind: self._module(kind) for kind in (torch.float64, self.dtype)}
        for draw, inputs in self.draws.items():
            self.right[draw] = self._step(eager[torch.float64], torch.float64, inputs)
            for key, error in _shares(self._step(eager[self.dtype], self.dtype, inputs), self.right[draw]).items():
                self.floors[key] = max(self.floors.get(key, torch.finfo(self.dtype).eps / 2), error)
        self.graphs: list[fx.GraphModule] = []
        self.programs: dict[str, Faulty] = {}
        self.compiled = {kind: self._compiled(kind) for kind in (torch.float64, self.dtype)}

    def _module(self, dtype: torch.dtype) -> nn.Module:
        module = build(self.name)[0].train(self.mode == "training")
        return module.to(self.dtype).to(dtype)

    def _compiled(self, dtype: torch.dtype) -> tuple[Callable[..., Any], nn.Module, list[fx.GraphModule]]:
        torch._dynamo.reset()
        graphs: list[fx.GraphModule] = []

        def compiler(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
            graphs.append(gm)
            name = half(gm.graph)

            def call(*inputs: Tensor) -> Any:
                return self.programs[name].run(*inputs)

            return make_boxed_func(call)

        module = self._module(dtype)
        backend = aot_autograd(fw_compiler=compiler, partition_fn=min_cut_rematerialization_partition)
        compiled = torch.compile(module, backend=backend, fullgraph=True, dynamic=False)
        self.programs = {name: _Own(graphs, name) for name in ("forward", "backward")}  # type: ignore[misc]
        self._step(compiled, dtype, self.draws[0], module)
        return compiled, module, graphs

    def _step(
        self, call: Callable[..., Any], dtype: torch.dtype, inputs: Tensors, module: nn.Module | None = None
    ) -> Tensors:
        """One step from the same state and the same seed: outputs, gradients and what it wrote into buffers."""
        owner = module if module is not None else call
        assert isinstance(owner, nn.Module)
        state = {key: tensor.clone() for key, tensor in owner.state_dict().items()}
        given = {key: x.to(self.dtype).to(dtype) if x.is_floating_point() else x for key, x in inputs.items()}
        torch.manual_seed(7)
        owner.zero_grad()
        with torch.set_grad_enabled(self.mode == "training"):
            found = dict(call(**given))
        if self.mode == "training":
            found["loss"].backward()
            found |= {f"grad {key}": x.grad for key, x in owner.named_parameters() if x.grad is not None}
            found |= {f"buffer {key}": x for key, x in owner.named_buffers() if x.is_floating_point()}
        found = {key: tensor.detach().double().clone() for key, tensor in found.items()}
        owner.load_state_dict(state)
        return found

    def choices(self, kind: str) -> list[tuple[str, int, str]]:
        """Where a kind fits: the graph, the number, and the node's name."""
        graphs = {half(gm.graph): gm.graph for gm in self.compiled[self.dtype][2]}
        return [(name, i, str(node)) for name, graph in graphs.items() for i, node in enumerate(sites(graph, kind))]

    def same(self, plant: Plant) -> bool:
        """Whether the fault is at the same node in the dtype's graph and in float64's."""
        found = {str(plant.node(gm.graph)) for _, _, graphs in self.compiled.values() for gm in graphs}
        return len(found - {"None"}) == 1

    def measure(self, plant: Plant) -> Effect:
        """The effect of a fault over several calls."""
        effect = Effect()
        steps = {dtype: self._steps(plant, dtype) for dtype in self.compiled}
        for number, draw in enumerate(DRAWS):
            shares = _shares(steps[torch.float64][number], self.right[draw])
            shown = _shares(steps[self.dtype][number], self.right[draw])
            for key, share in shares.items():
                floors = share / self.floors[key] if share == share else float("inf")
                effect.first = max(effect.first, floors if number == 0 else 0.0)
                if floors >= TESTABLE and key not in effect.testable:
                    effect.testable.append(key)
                if floors > effect.floors:
                    effect.floors, effect.tensor, effect.shown = floors, key, shown[key] / self.floors[key]
        return effect

    def _steps(self, plant: Plant, dtype: torch.dtype) -> list[Tensors]:
        compiled, module, graphs = self.compiled[dtype]
        self.programs = {half(gm.graph): Faulty(gm, plant) for gm in graphs}
        return [self._step(compiled, dtype, self.draws[draw], module) for draw in DRAWS]

    def in_dose(self, plant: Plant, target: float) -> tuple[Plant, Effect]:
        """The fault in the dose that has about the effect of ``target`` floors."""
        effect = self.measure(plant)
        power = 2.0 if plant.form == "elements" else 1.0
        for _ in range(5):
            if not 0 < effect.floors < float("inf") or 0.8 < effect.floors / target < 1.25:
                break
            dose = min(1.0, plant.dose * (target / effect.floors) ** power)
            if dose == plant.dose:
                break
            plant = replace(plant, dose=dose)
            effect = self.measure(plant)
        return plant, effect


class _Own:
    """Executes what was compiled last of a half, without a fault: for the call that compiles."""

    def __init__(self, graphs: list[fx.GraphModule], name: str) -> None:
        self.graphs, self.name = graphs, name

    def run(self, *inputs: Tensor) -> Any:
        (gm,) = [gm for gm in self.graphs if half(gm.graph) == self.name]
        return gm(*inputs)


def _shares(found: Tensors, right: Tensors) -> dict[str, float]:
    """By how much of the right tensor each found one differs; a right one of zeros counts as 1."""
    return {
        key: float((found[key] - tensor).norm()) / (float(tensor.norm()) or 1.0)
        for key, tensor in right.items()
        if key in found
    }


@dataclass
class Trial:
    """One run: what is planted where, its effect, and what the tool said."""

    model: str
    mode: str
    dtype: str
    plant: Plant
    node: str = ""
    effect: Effect = field(default_factory=Effect)
    code: int = -1
    seconds: float = 0.0
    message: str = ""
    folder: str = ""
    planted: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        if not self.folder:
            return "not run"
        if self.plant.kind == "none":
            return {0: "clean: passed", 1: "clean: FALSE ALARM"}.get(self.code, "clean: CRASHED")
        if self.planted != [self.node]:
            return f"ELSEWHERE: at {self.planted}"
        if self.effect.floors >= TESTABLE:
            return {0: "MISSED", 1: "seen"}.get(self.code, "CRASHED")
        return {0: "untestable, passed", 1: "untestable, failed"}.get(self.code, "CRASHED")

    def words(self, folder: Path) -> list[str]:
        options = asdict(self.plant) | {"log": str(folder) + ".planted"}
        return [
            "model=custom", "model.build._target_=blind_models.build", f"+model.build.name={self.model}",
            "backend._target_=blind_backend.Planted", "stages=[kerneldiff]", f"mode={self.mode}",
            f"dtype={self.dtype}", "stages.kerneldiff.localize.when=never", f"hydra.run.dir={folder}",
            *(f"+backend.options.{key}={value}" for key, value in options.items()),
        ]  # fmt: skip

    def run(self, folder: Path) -> None:
        """The tool on the faulty backend."""
        self.folder, began = str(folder), time.monotonic()
        path = os.pathsep.join((str(ROOT), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])))
        finished = subprocess.run(
            [sys.executable, "-P", "-m", "inductor_debug.pipeline", *self.words(folder), "runner.cache=false"],
            env=os.environ | {"PYTHONPATH": path}, cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        self.code, self.seconds = finished.returncode, time.monotonic() - began
        self.message = (finished.stderr or finished.stdout)[-300:]
        if (folder / "summary.json").is_file():
            stages = json.loads((folder / "summary.json").read_bytes())["stages"]
            self.message = next((s["message"] for s in stages if s["name"] == "kerneldiff"), self.message)
        lines = Path(f"{folder}.planted")
        told = [json.loads(line) for line in lines.read_text().splitlines()] if lines.is_file() else []
        self.planted = sorted({line["site"] for line in told if line["site"] != "None"})

    def row(self) -> str:
        plant, effect = self.plant, self.effect
        dose = "" if plant.form == "all" else f" {plant.form} {plant.dose:.2g}"
        what = f"{self.model:9} {self.mode:9} {self.dtype:8} {plant.kind:20} {plant.half[:3]}:{self.node}{dose}"
        return (
            f"{what:92} {effect.floors:9.3g} ({effect.first:.3g}, {effect.shown:.3g}) in {len(effect.testable):2} "
            f"{effect.tensor:26} "
            f"{self.code:2} {self.outcome:19} {self.seconds:3.0f} s  {self.message[:90]!r}"
        )


def drawn(count: int, seed: int) -> list[tuple[str, str, str, str, str, int]]:
    """Kind after kind: model, mode, dtype, form and a seed; bfloat16 about every fourth time."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        kind = list(KINDS)[number % len(KINDS)]
        needs = KINDS[kind].needs
        mode = "training" if needs & {"backward", "training"} else draw.choice(["inference", "training"])
        dtype = "bfloat16" if draw.random() < 0.3 and "float32" not in needs else "float32"
        form = draw.choice(["all", "all", *(("blend", "single") if dtype == "float32" else ("elements", "elements"))])
        found.append((kind, draw.choice(list(CLASSES)), mode, dtype, form, draw.randrange(1 << 30)))
    return found


def planned(count: int, seed: int, spread: float) -> list[Trial]:
    """The clean runs and the planted ones, with their effects."""
    cases: dict[tuple[str, str, str], Case] = {}

    def case(model: str, mode: str, dtype: str) -> Case:
        key = (model, mode, dtype)
        if key not in cases:
            cases[key] = Case(*key)
        return cases[key]

    found = []
    for kind, first, mode, dtype, form, own in drawn(count, seed):
        draw = random.Random(own)
        others = [name for name in CLASSES if name != first]
        draw.shuffle(others)
        best: Trial | None = None
        for model in (first, first, *others):  # another place where a fault makes no difference
            measured = case(model, mode, dtype)
            choices = measured.choices(kind)
            if mode == "training" and any(place[0] == "backward" for place in choices) and draw.random() < 0.6:
                choices = [place for place in choices if place[0] == "backward"]
            if not choices:
                continue
            name, site, node = draw.choice(choices)
            plant = Plant(kind, name, site, form, 1.0, draw.randrange(1000), draw.choice([2, 3]))
            target = TESTABLE * 1.3 * spread ** draw.random()
            if not measured.same(plant):
                continue
            try:
                plant, effect = (plant, measured.measure(plant)) if form == "all" else measured.in_dose(plant, target)
            except IndexError:  # the faulty node was an index: a crash, and no wrong number
                continue
            best = max(filter(None, (best, Trial(model, mode, dtype, plant, node, effect))), key=_effect)
            if best.effect.floors >= 1:
                break
        found += [best] if best else []
    clean = [Trial(*key, Plant()) for key in sorted({(trial.model, trial.mode, trial.dtype) for trial in found})]
    return clean + found


def _effect(trial: Trial) -> float:
    return trial.effect.floors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=72)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spread", type=float, default=8.0, help="small doses are of 10 to 10 * SPREAD floors")
    parser.add_argument("--only", help="numbers of the runs")
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time")
    parser.add_argument("--list", action="store_true", help="measure the effects and run nothing")
    parser.add_argument("--folder", type=Path, help="where the runs' directories stay")
    parser.add_argument("--json", type=Path, help="a file for the table")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="blind-faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    trials = list(enumerate(planned(options.count, options.seed, options.spread)))
    if options.only:
        trials = [trials[int(number)] for number in options.only.split(",")]

    def done(numbered: tuple[int, Trial]) -> tuple[int, Trial]:
        number, trial = numbered
        if not options.list:
            trial.run(folder.resolve() / f"{options.seed}-{number}")
        return numbered

    for number, trial in ThreadPoolExecutor(options.parallel).map(done, trials):
        sys.stdout.write(f"{number:3} {trial.row()}\n")
        sys.stdout.flush()
        if options.json:
            rows = [asdict(each) | {"number": i, "outcome": each.outcome} for i, each in trials if each.code >= 0]
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
    outcomes = [trial.outcome for _, trial in trials]
    told = "; ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted(set(outcomes)))
    sys.stdout.write(f"{len(trials)} runs of seed {options.seed}, in {folder}: {told}\n")
    return int(any(re.search("MISSED|ALARM|CRASH|ELSEWHERE", outcome) for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
