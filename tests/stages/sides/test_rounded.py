"""References that round otherwise: what they compute, how noisy they are, and the verdicts by them."""

import copy
from collections.abc import Callable

import numpy
import pytest
import torch
from fault_models import Convolutional
from plain_sums import Decomposed
from torch import nn
from torch.nn import functional as F

from inductor_debug.models.case import Case
from inductor_debug.stages.kerneldiff import other_rounding
from inductor_debug.stages.kerneldiff.reviews import decide
from inductor_debug.stages.numerics.comparison import KernelDiff
from inductor_debug.stages.sides.mirrored import one_step
from inductor_debug.stages.sides.rounded import Rounded, rounded_reference
from inductor_debug.stages.sides.running import Leaves, collect

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def neighbours(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers of ``dtype`` below and above ``x``, in float64; both are ``x`` where it is one of them."""
    near = x.to(dtype)
    up = torch.where(near.double() < x, torch.nextafter(near, torch.tensor(torch.inf, dtype=dtype)), near)
    down = torch.where(near.double() > x, torch.nextafter(near, torch.tensor(-torch.inf, dtype=dtype)), near)
    return down.double(), up.double()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_result_is_one_of_the_two_nearest_numbers_and_right_in_the_mean(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(2, 4000).to(dtype)
    exact = x.double() / y.double()
    down, up = neighbours(exact, dtype)
    runs = []
    for seed in range(64):
        with Rounded(seed, CPU):
            found = x / y
        assert found.dtype == dtype
        runs.append(found.double())
        assert bool(((runs[-1] == down) | (runs[-1] == up)).all())
    gap = up - down
    bias = ((torch.stack(runs).mean(0) - exact) / gap)[gap > 0]
    assert abs(bias.mean().item()) < 5 / (64 * 4000) ** 0.5 / 2
    assert not torch.equal(runs[0], runs[1])


def test_what_the_dtype_holds_stays_and_what_it_does_not_hold_overflows() -> None:
    x = torch.tensor([1.5, -0.0, 0.0, torch.inf, -torch.inf, torch.nan, 65504.0], dtype=torch.float16)
    with Rounded(0, CPU):
        same, larger = x * 1, x * 2
    torch.testing.assert_close(same, x, rtol=0, atol=0, equal_nan=True)
    assert bool(torch.signbit(same[1])) and larger[-1].item() == torch.inf


def loop(terms: numpy.ndarray) -> numpy.ndarray:
    """The sum over the last dimension, one after another in float32."""
    return numpy.add.accumulate(terms.astype(numpy.float32), axis=-1)[..., -1]


def product(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return left @ right, torch.from_numpy(loop((left[:, None] * right.T[None]).numpy()))


def total(left: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return left.sum(1), torch.from_numpy(loop(left.numpy()))


def mean(left: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return left.mean(1), torch.from_numpy(loop(left.numpy())) / left.shape[1]


def convolution(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of a kernel over one position: the same sums."""
    return F.conv1d(left[:, :, None], right.T[:, :, None])[:, :, 0], product(left, right)[1]


def weight_gradient(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A convolution's, summed over the batch: the product of ``left`` and ``right`` again."""
    kernel = torch.zeros(right.shape[1], left.shape[0], 1, requires_grad=True)
    out = F.conv1d(left.T[:, :, None], kernel)
    out.backward(right[:, :, None])
    assert kernel.grad is not None
    return kernel.grad[:, :, 0].T.contiguous(), product(left, right)[1]


SUMS = [product, total, mean, convolution, weight_gradient]


@pytest.mark.parametrize("signs", ["both", "one"])
@pytest.mark.parametrize("count", [16, 256, 4096])
@pytest.mark.parametrize("made", SUMS, ids=lambda made: made.__name__)
def test_sums_have_the_noise_of_plain_loops_in_float32(
    made: Callable[..., tuple[torch.Tensor, torch.Tensor]], count: int, signs: str
) -> None:
    torch.manual_seed(0)
    left, right = torch.randn(48, count), torch.randn(count, 48)
    if signs == "one":
        left, right = left.abs(), right.abs()
    exact = made(left.double(), right.double())[0] if made is not weight_gradient else left.double() @ right.double()
    with Rounded(0, CPU):
        rounded = made(left, right)[0].detach()
    noise = (rounded.double() - exact).square().mean().sqrt()
    loops = (made(left, right)[1].double() - exact).square().mean().sqrt()
    few = made in (total, mean)  # 48 sums that loops make of one sign are a wide draw
    assert (0.5 if few else 0.7) < (noise / loops).item() < (2.0 if few else 1.4)


@pytest.mark.parametrize("made", [total, mean], ids=lambda made: made.__name__)
def test_terms_that_repeat_have_the_noise_of_plain_loops_too(
    made: Callable[..., tuple[torch.Tensor, torch.Tensor]],
) -> None:
    torch.manual_seed(0)
    left = torch.randn(256, 64).repeat_interleave(64, 1)
    exact = left.double().mean(1) if made is mean else left.double().sum(1)
    with Rounded(0, CPU):
        rounded = made(left, left)[0]
    noise = (rounded.double() - exact).square().mean().sqrt()
    loops = (made(left, left)[1].double() - exact).square().mean().sqrt()
    assert 0.7 < (noise / loops).item() < 1.4


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 3), (3,), ()])
def test_a_sum_of_few_terms_or_none_is_itself(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    with Rounded(0, CPU):
        found = x.sum(), x.sum(-1) if shape else x.sum()
    assert torch.equal(found[0], torch.tensor(float(x.numel())))
    assert found[1].shape == shape[:-1]


def training(module: nn.Module, x: torch.Tensor) -> Case:
    return Case("case", module.train(), (x,), {}, "training", torch.float32, CPU)


class Written(nn.Module):
    """Writes in place into a buffer and a view, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(8), nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(self.norm(x))
        with torch.no_grad():
            self.seen.add_(x.sum(0) / 3).mul_(0.9)
        y = x.clone()
        y[:, 2:4] += 1 / 3
        return F.dropout(y, 0.5)


def test_a_run_draws_what_the_reference_draws_and_leaves_everything_as_it_was() -> None:
    torch.manual_seed(0)
    case = training(Written(), torch.randn(16, 8))
    state, generator = copy.deepcopy(case.module.state_dict()), torch.get_rng_state()
    expected = one_step("reference", case)
    first, again, other = (rounded_reference(case, index, one_step) for index in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), generator)
    torch.testing.assert_close(case.module.state_dict(), state, rtol=0, atol=0)
    assert first.generator == expected.generator
    assert torch.equal(first.leaves["output"]["output"] == 0, expected.leaves["output"]["output"] == 0)
    for kind in ("output", "gradient", "buffer"):
        torch.testing.assert_close(first.leaves[kind], expected.leaves[kind])
        torch.testing.assert_close(first.leaves[kind], again.leaves[kind], rtol=0, atol=0)
    assert not torch.equal(first.leaves["buffer"]["seen"], other.leaves["buffer"]["seen"])


# verdicts


def plain(case: Case) -> Leaves:
    """The step by worse kernels than eager's: decomposed, each sum one term after another."""
    with Decomposed():
        return collect(case.run())


def better(case: Case) -> Leaves:
    """The step by better kernels: in float64, rounded once at the end."""
    found = collect(case.to_gold().run())
    return {
        kind: {path: leaf.float() if leaf.is_floating_point() else leaf for path, leaf in leaves.items()}
        for kind, leaves in found.items()
    }


def eager(case: Case) -> Leaves:
    return collect(case.run())


def normalized(seed: int) -> Case:
    torch.manual_seed(seed)
    return training(Convolutional(), torch.randn(4, 3, 8, 8))


def judged(case: Case, test: Leaves, reference: Callable[[Case], Leaves] = eager, draws: int = 12) -> KernelDiff:
    gold, mine = collect(case.to_gold().run()), reference(case)
    difference = KernelDiff()
    for kind in ("output", "loss", "gradient", "buffer"):
        difference.compare_leaves(*(side.get(kind, {}) for side in (mine, test, gold)), kind=kind)
    decide("other rounding", difference.rows, other_rounding.judged(difference.rows, case, gold, test, draws=draws), [])
    return difference


KERNELS = [eager, plain, better]


@pytest.mark.parametrize("reference", KERNELS, ids=lambda kernels: kernels.__name__)
@pytest.mark.parametrize("test", KERNELS, ids=lambda kernels: kernels.__name__)
def test_right_kernels_are_no_defect_whichever_is_the_reference(
    test: Callable[[Case], Leaves], reference: Callable[[Case], Leaves]
) -> None:
    for seed in range(3):
        case = normalized(seed)
        found = judged(case, test(case), reference)
        assert not found.failed, [(seed, row.path, row.message) for row in found.failed]


def test_a_better_references_own_noise_alone_would_call_worse_kernels_a_defect() -> None:
    case = normalized(0)
    assert judged(case, plain(case), better, draws=0).failed


@pytest.mark.parametrize("reference", KERNELS, ids=lambda kernels: kernels.__name__)
def test_a_gradient_that_is_wrong_by_a_thousandth_is_a_defect(reference: Callable[[Case], Leaves]) -> None:
    case = normalized(0)
    test = plain(case)
    names = {"norm.weight", "norm.bias", "first.weight", "head.weight"}
    for name in names:  # each is judged by its own figures
        test["gradient"][name] = test["gradient"][name] * 1.001
    assert {row.path for row in judged(case, test, reference).failed} == names


@pytest.mark.parametrize("reference", KERNELS, ids=lambda kernels: kernels.__name__)
def test_eight_times_the_noise_of_right_runs_in_an_output_is_a_defect(reference: Callable[[Case], Leaves]) -> None:
    case = normalized(0)
    test = eager(case)
    exact = collect(case.to_gold().run())["output"]["output"]
    runs = [rounded_reference(case, 100 + seed, one_step).leaves["output"]["output"] for seed in range(8)]
    noise = max((run.double() - exact).square().mean().sqrt() for run in runs)
    torch.manual_seed(1)
    error = torch.randn(exact.shape, dtype=torch.float64)
    test["output"]["output"] = (exact + error * 8 * noise / error.square().mean().sqrt()).float()
    assert [row.path for row in judged(case, test, reference).failed] == ["output"]


def test_a_write_that_one_side_lost_is_a_defect() -> None:
    case = normalized(0)
    test = eager(case)
    for path, before in case.module.named_buffers():
        test["buffer"][path] = before.clone()
    failed = {row.path for row in judged(case, test).failed}
    assert {"norm.running_mean", "norm.running_var"} <= failed


class WideSum(nn.Module):
    """A sum in float64 of float32 terms that nearly cancel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dtype=torch.float64).float().reshape(1)


def test_a_sum_that_the_model_makes_in_float64_stays_one() -> None:
    torch.manual_seed(0)
    half = torch.rand(100_000) + 9.5
    x = torch.cat([half, -half[torch.randperm(100_000)]])
    x[0] += 2**-8
    case = Case("sum", WideSum().eval(), (x,), {}, "inference", torch.float32, CPU)
    test = eager(case)
    test["output"]["output"] = test["output"]["output"] + 0.5
    row = judged(case, test).rows[0]
    assert row.verdict == "defect", row.message


def test_a_defect_tells_what_more_runs_grant() -> None:
    case = normalized(0)
    test = plain(case)
    test["gradient"]["norm.weight"] = test["gradient"]["norm.weight"] * 1.00001
    (row,) = (row for row in judged(case, test).failed if row.path == "norm.weight")
    assert "times the noise of 7 runs that round otherwise (limit 4)" in row.message
    assert "every element is within atol=1e-05, rtol=1.3e-06" in row.message


FACTORED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "svd": torch.linalg.svdvals, "eigh": lambda x: torch.linalg.eigvalsh(x @ x.mT), "inv": torch.linalg.inv,
    "solve": lambda x: torch.linalg.solve(x, x.new_ones(len(x), 1)), "cond": torch.linalg.cond,
}  # fmt: skip


@pytest.mark.parametrize("name", FACTORED)
def test_a_factorization_is_as_noisy_as_its_algorithm_makes_it(name: str) -> None:
    """The smallest singular value is off by the rounding of the largest, which is 1000 times as large."""
    generator = torch.Generator().manual_seed(0)
    function = FACTORED[name]
    for count in (5, 40):
        noise, eager = [], []
        for seed in range(8):
            left, right = (torch.linalg.qr(torch.randn(count, count, generator=generator))[0] for _ in range(2))
            x = left @ torch.diag(torch.logspace(0, -3, count)) @ right
            exact = function(x.double())
            with Rounded(seed, CPU):
                noise.append((function(x).double() - exact).norm() / exact.norm())
            eager.append((function(x).double() - exact).norm() / exact.norm())
        sizes = [torch.stack(errors).square().mean().sqrt() for errors in (noise, eager)]
        assert sizes[0] / 10 < sizes[1] < 4 * sizes[0]  # a verdict allows 4 floors


def test_a_nan_of_which_every_bit_is_set_stays_one() -> None:
    """As CUDA makes them: one more in the bits would be -0."""
    exact = torch.full((64,), -1, dtype=torch.int64).bitwise_and_(0x7FFFFFFFFFFFFFFF).view(torch.float64)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        rounded = Rounded(0, torch.device("cpu"))._rounded(torch.zeros(64, dtype=dtype), exact.clone(), None)
        assert bool(rounded.isnan().all())
