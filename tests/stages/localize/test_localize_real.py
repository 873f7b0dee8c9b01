"""What a released torch miscompiles on the CPU, with nothing planted: the operations at fault are named.

Each test first compiles by torch alone, and is skipped where that is right.
"""

import inspect

import inductor_faults
import pytest
import torch
from inductor_faults import REAL, RepeatInterleave
from torch import Tensor, nn

from inductor_debug import localize
from inductor_debug.models.case import Case
from inductor_debug.stages.artifacts.localization import Culprit, Localization
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.backends.inductor import InductorAdapter
from inductor_debug.stages.localize.mended import Mended
from inductor_debug.stages.localize.searching.pieces import ALONE


class Deep(nn.Module):
    """``argmin`` of a transposed tensor at the end of one kernel of many operations, which has another result too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.relu(self.norm(self.linear(x)))
        scores = torch.sigmoid(hidden.t() * 2) - torch.linspace(0, 1, 8)
        return hidden.sum(), scores.abs().argmin()


def miscompiled(module: nn.Module, x: Tensor) -> bool:
    """Whether torch alone compiles it wrong: other bits than eager's in what is given last."""
    torch._dynamo.reset()
    results = [function(x) for function in (torch.compile(module, backend="inductor"), module)]
    compiled, eager = (item[-1] if isinstance(item, tuple) else item for item in results)
    return not torch.equal(compiled, eager)


def real(name: str) -> tuple[nn.Module, Tensor]:
    module, x = (make() for make in REAL[name])
    if not miscompiled(module, x):
        pytest.skip(f"torch {torch.__version__} compiles {name} right")
    return module, x


def only_one(found: Localization) -> Culprit:
    (culprit,) = found.culprits
    assert found.checked == found.operations and culprit.place.kernel.startswith("cpp_fused"), found.message
    return culprit


def line_of(module: type[nn.Module], text: str) -> str:
    lines, first = inspect.getsourcelines(module)
    (number,) = [first + number for number, line in enumerate(lines) if text in line]
    return f"{inspect.getsourcefile(module)}:{number}"


def test_argmin_of_a_transposed_tensor_is_named_and_not_what_it_is_fused_with() -> None:
    module, x = real("argmin")
    right, found = int(module(x)), localize(module, (x,)).localization
    culprit = only_one(found)
    place = culprit.place
    assert (found.kind, culprit.kind, place.target) == ("operation", "operation", "aten.argmin.default")
    assert place.operations == ["argmin"] and place.source == line_of(inductor_faults.Argmin, "argmin()")
    assert culprit.expected == right != culprit.got
    assert {ALONE, "only when it is fused with what makes what it takes"} & set(culprit.shows)


def test_argmin_is_named_out_of_a_kernel_of_many_operations() -> None:
    torch.manual_seed(0)
    module = Deep().eval()
    draws = (torch.randn(8, 8) for _ in range(20))
    with torch.no_grad():
        x = next((x for x in draws if miscompiled(module, x)), None)
    if x is None:
        pytest.skip(f"torch {torch.__version__} compiles argmin right")
    found = localize(module, (x,)).localization
    assert only_one(found).place.operations == ["argmin"] and found.largest > 12


def test_of_equal_values_any_index_is_right() -> None:
    """What :func:`real` compiles wrong is right where all that is chosen from is equal."""
    module, x = real("argmin")
    assert localize(module, (torch.ones_like(x),)).localization.culprits == []


def test_a_flipped_repeat_of_dynamic_sizes_is_named_by_both_of_its_operations_and_lines() -> None:
    """No lowering is wrong but the index of both together: the fix keeps a term of it."""
    module, x = real("repeat_interleave")
    found = localize(module, (x,)).localization
    culprit = only_one(found)
    place = culprit.place
    assert (found.kind, place.operations, place.original) == ("region", ["clone", "rev"], "aten.flip.default")
    lines = [line_of(RepeatInterleave, text) for text in ("torch.repeat_interleave(", ".flip(0)")]
    assert place.sources == lines and place.source == lines[1]
    assert all(line in found.message for line in lines) and "only when these operations are fused" in culprit.shows


def test_a_flipped_repeat_of_dynamic_sizes_is_right_with_what_is_named_mended() -> None:
    module, x = real("repeat_interleave")
    (culprit,) = localize(module, (x,)).localization.culprits
    mended = Mended(InductorAdapter(), [(culprit.place.graph, name) for name in culprit.place.operations])
    torch._dynamo.reset()
    case = Case.of(module, (x,), {}, "inference")
    torch.testing.assert_close(case.run(compile_case(case, mended)).output, module(x))
    assert len(mended.done) == 2
