"""Whose value a buffer's memory holds: kernels that work in place, and memory that is used again under another name."""

from collections.abc import Iterator, Sequence

import pytest
import torch
from printed_values import CODE, NAN, ONES, lowered, observed

from inductor_debug.models.case import Case
from inductor_debug.stages.artifacts.files import VALUES
from inductor_debug.stages.backends.aot_inductor import AotInductorAdapter
from inductor_debug.stages.backends.compiled import compile_case
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.lower.buffer_contents import Held, Memory
from inductor_debug.stages.lower.values import ValueObserver
from inductor_debug.stages.settings import BackendConfig
from inductor_debug.stages.torch_internals.generated_launches import reused_buffers


def test_memory_is_followed_through_every_form_of_reuse() -> None:
    assert reused_buffers(CODE, ["buf0", "buf1", "buf2", "buf3"]) == {"buf1": "buf0", "buf3": "buf2"}
    python = "  buf3 = reinterpret_tensor(buf1, (2,), (1,), 0); del buf1  # reuse\n  buf4 = buf2; del buf2  # reuse"
    assert reused_buffers(python, ["buf1", "buf2"]) == {"buf3": "buf1", "buf4": "buf2"}


def test_whose_value_it_is_before_and_after_each_launch() -> None:
    memory = Memory(lowered())
    assert [launch.key for launch in memory.launches] == ["mm_out:1", "cpp_relu:2", "mm_out:3", "cpp_relu:4"]
    assert memory.before(0, "buf0") == Held(False)  # nobody wrote it
    assert memory.before(0, "arg0_1") == Held(True, "arg0_1")
    assert memory.before(1, "buf1") == Held(True, "buf0", "mm_out:1")
    assert memory.after(1, "buf1") == Held(True, "buf1", "cpp_relu:2")
    assert memory.before(2, "buf1") == Held(True, "buf1", "cpp_relu:2")
    assert memory.before(3, "buf3") == Held(True, "buf2", "mm_out:3")


def test_launches_of_one_kernel_are_told_apart_by_their_buffers() -> None:
    memory = Memory(lowered())
    assert memory.follow("cpp_relu", ["buf3"]) == 3  # of the one before nothing was printed
    assert memory.follow("cpp_relu", ["buf1"]) is None  # they come in order
    assert Memory(lowered()).follow("mm_out", ["buf2", "buf1"]) == 2


@pytest.mark.parametrize("kernels", [[], ["cpp_relu"]])
def test_a_kernel_that_works_in_place_is_not_blamed_for_the_nan_that_it_was_given(kernels: list[str]) -> None:
    printed = [
        ("before_launch - mm_out - buf0", NAN),  # nothing wrote it yet
        ("after_launch - mm_out - buf0", ONES),
        ("before_launch - cpp_relu - buf1", ONES),
        ("after_launch - cpp_relu - buf1", ONES),
        ("before_launch - mm_out - buf2", NAN),
        ("before_launch - mm_out - buf1", ONES),
        ("after_launch - mm_out - buf2", NAN),
        ("before_launch - cpp_relu - buf3", NAN),
        ("after_launch - cpp_relu - buf3", NAN),
    ]
    observer = observed(*(item for item in printed if not kernels or "cpp_relu" in item[0]), kernels=kernels)
    given = "before cpp_relu, in buf3, whose memory holds buf2, born in mm_out:3"  # it was given what cpp_relu wrote
    expected = given if kernels else "after mm_out, in buf2"
    assert observer.describe().endswith(f"the first NaN is in g0.forward, {expected}")
    row = VALUES.frame(observer.rows).query("kernel == 'cpp_relu' and when == 'before'").iloc[-1]
    assert (row["written"], row["holds"], row["writer"], row["handle"]) == (True, "buf2", "mm_out:3", 4)


class Born(torch.nn.Module):
    """A NaN is born in the logarithm, between two products; what comes after works in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        hidden = hidden + torch.log(hidden.sum() * 0 - 1)
        return torch.relu(self.second(hidden)) + 1


@pytest.fixture
def case() -> Iterator[Case]:
    torch._dynamo.reset()
    args = (torch.randn(4, 16, generator=torch.Generator().manual_seed(0)),)
    yield Case("born", Born().requires_grad_(False), args, {}, "inference", torch.float32, torch.device("cpu"))
    torch._dynamo.reset()


def told(case: Case, kernels: Sequence[str]) -> ValueObserver:
    torch._dynamo.reset()
    options = {"print_values": 2, "kernels": list(kernels)}
    quick = {"aot_inductor": {"compile_wrapper_opt_level": "O0"}}
    adapter = build_adapter(BackendConfig("aot_inductor", "aot_inductor", options, quick))
    assert isinstance(adapter, AotInductorAdapter)
    observer = ValueObserver(2, kernels)
    compile_case(case, adapter.printing(observer))
    return observer


@pytest.mark.slow
def test_the_first_nan_is_where_it_was_born_with_a_filter_and_without(case: Case) -> None:
    whole = told(case, [])
    first = whole.first("nan")
    assert first is not None and first.when == "after" and "log" in first.kernel
    (relu,) = {name for name in VALUES.frame(whole.rows)["kernel"] if "relu" in name}
    assert not VALUES.frame(whole.rows)["written"].isna().any()
    assert first.born == f"{first.kernel}:{first.handle}"
    filtered = told(case, [relu])
    row = filtered.first("nan")
    assert row is not None and row.when == "before" and row.holds != row.buffer
    assert row.writer.startswith("aoti_torch_cpu_addmm_out:")  # it works in that one's place
    assert "where it was born is not known: in " in filtered.describe() and first.born in row.born
    option = filtered.describe().partition("; to learn it, type backend.options.kernels=[")[2].removesuffix("]")
    assert told(case, option.split(",")).describe().endswith(whole.describe().rpartition("; ")[2])
