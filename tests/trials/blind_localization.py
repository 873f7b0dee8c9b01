"""Whether localization names the operation at fault: faults and models that were written without a look at it.

Each fault of ``blind_localization_kinds.py`` is a property of a compiler, restricted by a seed to one operation with
the sizes and strides of one of its sites, or ``--everywhere`` without that. It stands in a backend that executes
AOTAutograd's graphs. Others are patches of TorchInductor. Where it struck is recorded in a compilation of the trial's
own. Its effect is measured without this project, as the error of faulty outputs and gradients against float64 over the
error of right ones; the largest of a tensor counts. ``own`` is the largest error of a struck node's value by itself, in
units of its dtype's eps.

Verdicts: ``exact``: struck nodes alone are named, all that are off by 8 eps or more; ``some``: some of those are not
named; ``wider``: several nodes or a kernel that has a struck one; ``wrong``: a node that has no fault is named;
``nothing``; ``raised``. Runs without a fault are to name nothing.

Usage: ``python tests/trials/blind_localization.py [--only KIND …] [--model NAME …] [--dtype NAME] [--clean]
[--clean-by BACKEND] [--everywhere] [--seed 0] [--json FILE]``. Exit code 1 where a fault of 8 or more in effect is
missed, something wrong is named, or a call raises.
"""

import argparse
import contextlib
import functools
import json
import math
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from blind_localization_cases import CLASSES, Backend, Site, build
from torch import Tensor

from inductor_debug import localize
from inductor_debug.stages.localize.config import LocalizeConfig

FLOOR = 8.0
aten = torch.ops.aten

PLAN = """
softmax_exp_range swin inference float32,bfloat16 | moments_in_half unet training float32
moments_in_half mixer inference bfloat16 | rsqrt_newton llama inference float32
rsqrt_newton recurrent training float32 | eps_outside mixer training float32 | roll_sign swin training float32
rsub_swapped recurrent training float32 | gather_row recurrent inference float32,bfloat16
strided_pad_side unet training float32 | strided_pad_side mixer training bfloat16
depthwise_flipped unet inference float32 | pool_counts_pad unet training float32 | heads_swapped swin training float32
grid_limit swin inference float32 | threshold_ties unet training float32,bfloat16
offset_int16 graph training float32 | layer_norm_backward_term swin training float32
layer_norm_backward_term mixer training bfloat16 | weight_gradient_transposed mixer training float32
erf_polynomial mixer inference float32 | erf_polynomial dropped training float32,bfloat16
erf_polynomial broken training float32 | mean_padded llama inference float32 | odd_inner_twice mixer training float32
reciprocal_12_bits graph training float32 | attention_scale_padded llama training float32,bfloat16
rsqrt_through_bfloat16 llama inference float32,bfloat16 | compare_equality llama inference float32
ignored_counted llama training float32 | fft_norm spectral inference float32 | complex_product spectral training float32
bias_after_activation mixer training float32 | bias_after_activation recurrent training float32
merged_scalars recurrent inference float32 | spilled_product recurrent training float32
spilled_product llama training float32 | shared_zeros graph inference float32 | add_chain graph training float32
add_chain recurrent training float32 | overwritten_input recurrent training float32
input_strides recurrent inference float32 | input_strides mixer training float32
square_not_transposed mixer inference float32 | square_not_transposed mixer training float32
square_not_transposed llama inference float32 | select_from_end recurrent inference float32
select_from_end swin inference float32 | slice_start llama inference float32 | split_order recurrent inference float32
view_swapped llama inference float32 | view_swapped swin inference float32 | dropout_scale dropped training float32
refuses_small mixer inference float32
inductor_exp mixer inference float32 | inductor_exp graph training float32 | inductor_rsqrt mixer inference float32
inductor_rsqrt recurrent inference float32 | inductor_erf mixer inference bfloat16
inductor_erf mixer training float32 | inductor_variance mixer inference float32
inductor_pool unet inference float32 | inductor_select recurrent inference float32
inductor_vector_tanh graph inference float32 | inductor_layer_norm_backward mixer training float32
inductor_gelu mixer inference float32
"""
"""Kind, model, mode and dtypes."""


def _lowered(target: Any, wrong: Callable[..., Any], sites: list[Site]) -> Any:
    """``wrong(right lowering, arguments…)`` in the place of a lowering of TorchInductor's."""
    from torch._inductor import lowering
    from torch._inductor.virtualized import V

    right = lowering.lowerings[target]

    @functools.wraps(right)
    def lower(*args: Any, **kwargs: Any) -> Any:
        half = "backward" if V.graph.is_backward else "forward"
        sites.append(Site(f"g0.{half}", str(V.graph.current_node), str(target), own=math.inf))
        return wrong(right, *args, **kwargs)

    return mock.patch.dict(lowering.lowerings, {target: lower})


def _pointwise(formula: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A lowering of one operand by a formula of TorchInductor's operations."""

    def wrong(right: Any, x: Any) -> Any:
        from torch._inductor.lowering import make_pointwise
        from torch._inductor.virtualized import ops

        return make_pointwise(lambda a: formula(ops, a))(x)

    return wrong


def _newton(ops: Any, x: Any) -> Any:
    """One step after a seed that is off by at most 0.6 %."""
    place = x * ops.constant(3.0, torch.float32)
    y = ops.rsqrt(x) * (ops.constant(1.0, torch.float32) + ops.constant(0.006, torch.float32) * ops.sin(place))
    return y * (ops.constant(1.5, torch.float32) - ops.constant(0.5, torch.float32) * x * y * y)


def _table_exp(ops: Any, x: Any) -> Any:
    """Linear between entries of a table, sixteen to the unit."""
    place = x * ops.constant(16.0, torch.float32)
    part = place - ops.floor(place)
    error = ops.constant(0.00195, torch.float32) * part * (ops.constant(1.0, torch.float32) - part)
    return ops.exp(x) * (ops.constant(1.0, torch.float32) + error)


def _tanh_for_erf(ops: Any, x: Any) -> Any:
    cube = ops.constant(0.1009109, torch.float32) * x * x * x
    return ops.tanh(ops.constant(1.1283792, torch.float32) * x + cube)


def _layer_norm_backward(grad: Tensor, x: Tensor, sizes: Any, mean: Tensor, rstd: Tensor, *rest: Any) -> Any:
    """The right decomposition but for the mean of the gradient, which is not subtracted."""
    from torch._decomp.decompositions import native_layer_norm_backward

    right: Any = native_layer_norm_backward(grad, x, sizes, mean, rstd, *rest)
    g = grad if rest[0] is None else grad * rest[0]
    return right[0] + rstd * g.mean(list(range(x.dim() - len(sizes), x.dim())), keepdim=True), *right[1:]


@contextlib.contextmanager
def patched(kind: str, sites: list[Site]) -> Iterator[None]:
    """TorchInductor with a fault: a wrong lowering, decomposition, or generated vector code."""
    from torch._inductor import config, decomposition
    from torch._inductor.codegen.cpp import CppVecOverrides

    lowerings: dict[str, tuple[Any, Callable[..., Any]]] = {
        "inductor_exp": (aten.exp.default, _pointwise(_table_exp)),
        "inductor_rsqrt": (aten.rsqrt.default, _pointwise(_newton)),
        "inductor_erf": (aten.erf.default, _pointwise(_tanh_for_erf)),
        "inductor_variance": (
            aten.var_mean.correction,
            lambda right, *args, **kwargs: right(*args, **kwargs | {"correction": 1}),
        ),
        "inductor_pool": (
            aten.avg_pool2d.default,
            lambda right, *args: right(*args[:5], True, *args[6:]),
        ),
        "inductor_select": (
            aten.select.int,
            lambda right, x, dim, at: right(x, dim, int(x.get_size()[dim]) - 1 - at),
        ),
    }

    def gelu(x: Tensor, approximate: str = "none") -> Tensor:
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    decompositions = {
        "inductor_layer_norm_backward": {aten.native_layer_norm_backward.default: _layer_norm_backward},
        "inductor_gelu": {aten.gelu.default: gelu},
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(config.patch(force_disable_caches=True))
        if kind in lowerings:
            stack.enter_context(_lowered(*lowerings[kind], sites))
        elif kind in decompositions:
            for table in (decomposition.decompositions, decomposition.fast_random_decomps()):
                stack.enter_context(mock.patch.dict(table, decompositions[kind]))
        elif kind == "inductor_vector_tanh":
            short = staticmethod(lambda x: f"at::vec::minimum({x}.tanh(), decltype({x}.tanh())(0.75))")
            stack.enter_context(mock.patch.object(CppVecOverrides, "tanh", short))
        yield


STRUCK = {
    "inductor_layer_norm_backward": "native_layer_norm_backward",
    "inductor_gelu": "gelu",
    "inductor_vector_tanh": "tanh",
}
"""The original operation of faults that strike before or after the lowering."""

Tensors = dict[str, Tensor]


@dataclass
class Trial:
    """One call of ``localize()``, what is planted, its effect, and what was named."""

    kind: str
    model: str
    mode: str
    dtype: str
    signature: str = ""
    sites: list[Site] = field(default_factory=list)
    effect: float = 0.0
    tensor: str = ""
    named: list[dict[str, Any]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    verdict: str = ""
    message: str = ""
    seconds: float = 0.0

    @property
    def inductor(self) -> bool:
        return self.kind.startswith("inductor")

    def _case(self, dtype: torch.dtype) -> tuple[torch.nn.Module, list[Tensor]]:
        module, inputs = build(self.model)
        narrow = getattr(torch, self.dtype)
        given = [x.to(narrow).to(dtype) if x.is_floating_point() else x for x in inputs]
        return module.train(self.mode == "training").to(narrow).to(dtype), given

    def _step(self, backend: Any, dtype: torch.dtype | None = None) -> Tensors:
        """Outputs and gradients of one step; eager where no backend is given."""
        torch._dynamo.reset()
        torch.manual_seed(5)
        module, given = self._case(dtype or getattr(torch, self.dtype))
        call = torch.compile(module, backend=backend, dynamic=False) if backend else module
        with torch.set_grad_enabled(self.mode == "training"):
            found = dict(call(*given))
        if self.mode == "training":
            found["loss"].backward()
            found |= {f"grad {key}": x.grad for key, x in module.named_parameters() if x.grad is not None}
        return {key: tensor.detach().double() for key, tensor in found.items()}

    def plant(self, everywhere: bool, draw: random.Random) -> Any:
        """Choose the site, record where the fault strikes, and measure its effect. Returns the backend."""
        right: Any = Backend()
        faulty: Any = Backend("" if self.kind == "none" else self.kind)
        if self.inductor:
            with patched("", []):
                expected = self._step("inductor")
            with patched(self.kind, self.sites):
                wrong, faulty = self._step("inductor"), "inductor"
        else:
            expected, faulty.recording = self._step(right), True
            wrong = self._step(faulty)
            if faulty.seen and not everywhere and not self.kind.startswith("input"):
                faulty.signature, faulty.sites, faulty.graphs = draw.choice(list(faulty.seen)), [], 0
                wrong = self._step(faulty)
            faulty.recording, self.sites, self.signature = False, faulty.sites, faulty.signature
        exact = self._step(None, torch.float64)
        for key, gold in exact.items():
            least = torch.finfo(getattr(torch, self.dtype)).eps / 4 * float(gold.norm())
            ratio = float((wrong[key] - gold).norm()) / (max(float((expected[key] - gold).norm()), least) or 1.0)
            if not ratio <= self.effect:
                self.effect, self.tensor = ratio, key
        return faulty

    def run(self, backend: Any, budget: float) -> None:
        """Ask the tool."""
        torch._dynamo.reset()
        module, given = self._case(getattr(torch, self.dtype))
        began = time.monotonic()
        try:
            with patched(self.kind, []) if self.inductor else contextlib.nullcontext():
                found = localize(module, given, backend=backend, mode=self.mode, config=LocalizeConfig(budget_s=budget))
        except Exception:  # noqa: BLE001 - whatever it raises is a finding
            self.verdict, self.message = "raised", traceback.format_exc()
            return
        finally:
            self.seconds = time.monotonic() - began
        told = found.localization
        self.message = f"{told.kind}: {told.message}"
        for culprit in told.culprits:
            place = culprit.place
            graph = place.graph.replace("inference", "forward")
            self.named.append(
                {"graph": graph, "node": place.node, "kind": culprit.kind,
                 "target": place.target, "operations": list(place.operations), "original": place.original,
                 "others": [str(other) for other in culprit.others], "ratio": culprit.ratio}
            )  # fmt: skip
        self.verdict = self._judged()

    def _judged(self) -> str:
        if self.kind == "none":
            return "wrong" if self.named else "nothing"
        judged, hit = [], set()
        for name in self.named:
            operations = set(name["operations"]) | {name["node"]}
            if self.kind in STRUCK:
                struck = base_of(name["original"]) == STRUCK[self.kind]
                judged.append("exact" if struck else "wider" if STRUCK[self.kind] in str(operations) else "wrong")
                continue
            inside = [s for s in self.sites if s.graph == name["graph"] and s.node in operations]
            hit |= {(s.graph, s.node) for s in inside}
            allowed = {one for s in inside for one in (s.node, *s.others)}
            judged.append("wrong" if not inside else "exact" if operations <= allowed else "wider")
        self.missed = [f"{s.graph} {s.node}" for s in self.sites if s.own >= FLOOR and (s.graph, s.node) not in hit]
        worst = next((each for each in ("wrong", "wider", "exact") if each in judged), "nothing")
        return "some" if worst == "exact" and self.missed else worst

    def row(self) -> str:
        own = max((site.own for site in self.sites), default=0.0)
        where = " ".join(f"{_letter(s.graph)}:{s.node}" for s in self.sites[:4]) + (" …" if len(self.sites) > 4 else "")
        named = " ".join(f"{_letter(n['graph'])}:{n['node']}[{'+'.join(n['operations'])}]" for n in self.named)
        return (
            f"{self.kind:26} {self.model:9} {self.mode:9} {self.dtype:8} {self.effect:9.3g} ({self.tensor}) "
            f"own {own:.3g} | {len(self.sites)} at {where} | {named or '-'} | {self.verdict} {self.seconds:.0f} s"
            + (f" | not named: {', '.join(self.missed[:6])}" if self.missed else "")
        )


def _letter(graph: str) -> str:
    """``f`` of ``g0.forward``; ``f1`` of ``g1.forward``."""
    number, half = graph.removeprefix("g").split(".", 1)
    return half[0] + (number if number != "0" else "")


def base_of(target: str) -> str:
    """``gelu`` of ``aten.gelu.default``."""
    return target.removeprefix("aten.").split(".")[0]


def planned() -> list[Trial]:
    """The plan's trials, in its order."""
    words = [line.split() for line in PLAN.replace("\n", "|").split("|") if line.strip()]
    return [Trial(kind, model, mode, dtype) for kind, model, mode, dtypes in words for dtype in dtypes.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", help="kinds")
    parser.add_argument("--model", nargs="*", choices=list(CLASSES))
    parser.add_argument("--dtype", choices=["float32", "bfloat16"])
    parser.add_argument("--clean", action="store_true", help="each model in each mode and dtype without a fault")
    parser.add_argument("--clean-by", choices=["own", "reordered", "inductor"], default="own")
    parser.add_argument("--everywhere", action="store_true", help="faults are not restricted to one site's sizes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=240.0, help="seconds of one search")
    parser.add_argument("--json", type=Path, help="a file for the table, a line a trial")
    options = parser.parse_args()
    trials = planned()
    if options.clean:
        trials = [
            Trial("none", model, mode, dtype)
            for model in CLASSES
            for mode in ("inference", "training")
            for dtype in ("float32", *(["bfloat16"] if model != "spectral" else []))
        ]
    failed = 0
    for number, trial in enumerate(trials):
        if (
            (options.only and trial.kind not in options.only)
            or (options.model and trial.model not in options.model)
            or (options.dtype and trial.dtype != options.dtype)
        ):
            continue
        backend: Any = trial.plant(options.everywhere, random.Random(1000 * options.seed + number))
        if trial.kind == "none" and options.clean_by != "own":
            backend = "inductor" if options.clean_by == "inductor" else Backend("reordered")
        trial.run(backend, options.budget)
        print(trial.row(), flush=True)
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(asdict(trial)) + "\n")
        seen = trial.kind != "none" and trial.effect >= FLOOR
        failed += trial.verdict in ("wrong", "raised") or (seen and trial.verdict == "nothing")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
