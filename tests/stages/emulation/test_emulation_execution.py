"""What the emulated backend does to a graph, operation by operation, and what it tells."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig, NumericsConfig, Rule
from inductor_debug.stages.accelerators.profile import load_config
from inductor_debug.stages.artifacts.lowered_tables import Finding
from inductor_debug.stages.backends.emulated import EmulatedAdapter

import scalar_oracle  # isort: skip


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def emulated(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], accel: AccelConfig | None = None, **numerics: Any
) -> tuple[Any, list[Finding]]:
    """The function's traced graph with these numerics: its outputs and what was found."""
    graph = make_fx(lambda *values: (function(*values),), tracing_mode="fake")(*inputs)
    adapter = EmulatedAdapter(accel or AccelConfig("chip", numerics=NumericsConfig(**numerics)))
    (result,) = adapter.compile(graph, inputs)(*inputs)
    return result, list(adapter.findings)


def kinds(found: list[Finding]) -> list[tuple[str, str]]:
    return [(item.target.split(".")[1], item.kind) for item in found]


def oracle(values: torch.Tensor, exponent: int, mantissa: int) -> torch.Tensor:
    rounded = [scalar_oracle.round_float(value, exponent, mantissa) for value in values.flatten().tolist()]
    return torch.tensor(rounded).reshape(values.shape)


def test_every_operation_is_rounded_once() -> None:
    x, y = torch.randn(5, 7), torch.randn(7)
    result, found = emulated(lambda a, b: torch.exp(a * b).t() + 1, [x, y], storage={"float32": "1-6-9"})
    a, b = oracle(x, 6, 9), oracle(y, 6, 9)
    assert torch.equal(result, oracle(oracle(oracle(a * b, 6, 9).exp(), 6, 9).t() + 1, 6, 9)) and not found


def test_a_half_precision_tensor_is_not_rounded_to_its_own_dtype_too() -> None:
    """300 * 300 is beyond float16 and fits 1-6-9; 2049 needs a bit that neither rounding alone would drop twice."""
    x = torch.tensor([300.0, 2.0, 1.0 + 2.0**-9], dtype=torch.float16)
    result, _ = emulated(lambda a: (a * a) / 300.0, [x], storage={"float16": "1-6-9"})
    wide = oracle(x.float(), 6, 9)
    assert result.dtype == torch.float16 and torch.equal(result, oracle(oracle(wide * wide, 6, 9) / 300, 6, 9).half())


def test_dtypes_named_in_the_graph_follow_their_storage_format() -> None:
    x = torch.randn(4, 8)

    def function(a: torch.Tensor) -> torch.Tensor:
        return torch.softmax(a.to(torch.float16), -1, dtype=torch.float32) + a.to(torch.float16).sum(-1, True)

    result, _ = emulated(function, [x], storage={"float16": "1-5-3"})
    half = oracle(x, 5, 3)
    wanted = torch.softmax(half, -1) + oracle(half.sum(-1, True), 5, 3)
    assert result.dtype == torch.float32 and torch.equal(result, wanted)


def test_a_softmax_from_half_to_float_follows_too() -> None:
    x = torch.randn(2, 8, dtype=torch.float16)
    softmax = torch.ops.aten._softmax.default
    graph = torch.fx.Graph()
    given = graph.placeholder("x")
    made = graph.call_function(softmax, (given, -1, True))
    given.meta["val"], made.meta["val"] = x, x.float()
    graph.output((made,))
    adapter = EmulatedAdapter(AccelConfig("chip", numerics=NumericsConfig(storage={"float16": "1-5-3"})))
    (result,) = adapter.compile(torch.fx.GraphModule({}, graph), [x])(x)
    assert torch.equal(result, torch.softmax(oracle(x.float(), 5, 3), -1))


def test_operands_alone_are_rounded() -> None:
    x, w, bias = torch.randn(4, 8), torch.randn(8, 4), torch.randn(4)
    formats = {"float32": "bfloat16"}
    result, _ = emulated(lambda a, b, c: torch.addmm(c, a, b) * a[:, :4], [x, w, bias], operands=formats)
    assert torch.equal(result, torch.addmm(bias, x.bfloat16().float(), w.bfloat16().float()) * x[:, :4])


@pytest.mark.parametrize("block", [1, 3, 8, None])
def test_narrow_accumulation_is_the_scalar_loop(block: int | None) -> None:
    """Terms whose block sums are exact, so that only the rounding of the running sum is compared."""
    a = torch.randint(-8, 9, (3, 10)).float() * 2.0 ** torch.randint(-3, 4, (3, 10))
    b = torch.randint(-8, 9, (10, 2)).float()
    bias = torch.randn(2)
    numerics = {"accumulate": "1-5-3"} | ({} if block is None else {"accumulate_block": block})
    result, _ = emulated(lambda x, y, c: torch.addmm(c, x, y), [a, b, bias], **numerics)
    for row in range(3):
        for column in range(2):
            total = 0.0
            for start in range(0, 10, block or 10):
                terms = range(start, min(start + (block or 10), 10))
                part = math.fsum(float(a[row, k]) * float(b[k, column]) for k in terms)
                total = scalar_oracle.round_float(total + part, 5, 3)
            wanted = scalar_oracle.round_float(float(torch.tensor(total) + bias[column]), 5, 3)
            assert float(result[row, column]) == wanted


WIDE = {"accumulate": "float32", "accumulate_block": 5}


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (torch.mm, [(4, 12), (12, 3)]),
        (torch.bmm, [(2, 4, 12), (2, 12, 3)]),
        (torch.mv, [(4, 12), (12,)]),
        (torch.dot, [(12,), (12,)]),
        (lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2.0), [(2, 4, 3), (2, 4, 12), (2, 12, 3)]),
        (lambda x, w, b: torch.conv2d(x, w, b, 2, 1, 2, 2), [(2, 4, 9, 8), (6, 2, 3, 2), (6,)]),
        (lambda x, w: torch.conv1d(x, w, None, 2, 1), [(2, 4, 9), (6, 4, 3)]),
    ],
)
def test_blocks_add_up_to_the_product(function: Callable[..., Any], shapes: list[tuple[int, ...]]) -> None:
    inputs = [torch.randn(shape) for shape in shapes]
    result, found = emulated(function, inputs, **WIDE)
    torch.testing.assert_close(result, function(*inputs))
    assert not found
    narrow, _ = emulated(function, inputs, accumulate="bfloat16", accumulate_block=2)
    assert 1e-4 < float((narrow - result).norm() / result.norm()) < 0.1


def test_a_convolutions_backward_adds_up_too() -> None:
    def function(x: torch.Tensor, w: torch.Tensor, g: torch.Tensor) -> Any:
        stay = [2, 1], [1, 0], [1, 2]
        return torch.ops.aten.convolution_backward(g, x, w, [6], *stay, False, [0, 0], 2, [True, True, True])

    x, w = torch.randn(2, 4, 9, 8), torch.randn(6, 2, 3, 2)
    inputs = [x, w, torch.randn_like(torch.conv2d(x, w, None, (2, 1), (1, 0), (1, 2), 2))]
    result, found = emulated(function, inputs, **WIDE)
    for mine, torchs in zip(result, function(*inputs), strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-4, atol=1e-4)
    assert not found


def test_what_is_not_emulated_is_told() -> None:
    inputs = [torch.randn(1, 4, 6, 6), torch.randn(4, 2, 3, 3)]
    result, found = emulated(torch.conv_transpose2d, inputs, accumulate="bfloat16")
    assert torch.equal(result, torch.conv_transpose2d(*inputs)) and kinds(found) == [("convolution", "not_emulated")]
    _, found = emulated(lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 5), [torch.randn(1, 2, 7, 7)], tile=[8, 8])
    assert kinds(found) == [("_adaptive_avg_pool2d", "not_emulated")]


def test_an_integer_that_does_not_fit_wraps_and_is_told() -> None:
    x = torch.tensor([1, 2**31 - 1, 2**31, -(2**40)])
    result, (found,) = emulated(lambda a: a, [x], casts={"int64": "int32"})
    assert (found.kind, found.count, found.elements, found.worst) == ("int_overflow", 2, 4, 2.0**40)
    assert torch.equal(result, x)  # an input that is given back is the caller's
    result, found = emulated(lambda a: a + 1, [torch.tensor([2**31 - 1, 5])], casts={"int64": "int32"})
    assert result.tolist() == [-(2**31), 6] and result.dtype == torch.int64
    assert kinds(found) == [("add", "int_overflow")]
    assert not emulated(lambda a: a + 1, [torch.arange(9)], casts={"int64": "int32"})[1]


def layers(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.layer_norm(torch.nn.functional.linear(x, weight, bias), bias.shape)
    return torch.softmax(y, -1).sum(-1)


@pytest.mark.parametrize(
    ("dtype", "width", "padded"),
    [
        (torch.float32, 32, None), (torch.float32, 40, 32), (torch.float32, 64, None), (torch.float32, 96, None),
        (torch.float16, 32, 64), (torch.float16, 40, 64), (torch.float16, 64, None), (torch.float16, 96, 64),
        (torch.bfloat16, 32, 64), (torch.float64, 16, None), (torch.float64, 20, 16),
    ],
)  # fmt: skip
def test_a_stick_of_ibm_spyre_holds_128_bytes(dtype: torch.dtype, width: int, padded: int | None) -> None:
    """Of float16 too, which is held in float32 while its storage format is emulated."""
    inputs = [torch.randn(8, width), torch.randn(width, width), torch.randn(width)]
    _, found = emulated(layers, [item.to(dtype) for item in inputs], load_config("ibm_spyre"))
    leaks = [item for item in found if item.kind == "pad_leak"]
    assert all(f"in the padding to [{padded}]" in item.message for item in leaks)
    assert bool(leaks) == (padded is not None)


def test_the_last_size_of_a_tile_may_be_in_bytes() -> None:
    for tile, rows, columns, leak in (
        ([4, "32B"], 4, 8, False), ([4, "32B"], 4, 12, True), ([4, "32B"], 6, 8, True), (["8B"], 3, 3, True),
        (["6B"], 3, 3, False), (["1KiB"], 3, 256, False),
    ):  # fmt: skip
        _, found = emulated(lambda x: x.sum(), [torch.randn(rows, columns)], tile=tile)
        assert kinds(found) == [("sum", "pad_leak")] * leak, tile


def test_operands_of_several_dtypes_are_padded_alike() -> None:
    inputs = [torch.randn(4, 32).bfloat16(), torch.randn(32), torch.randn(32)]
    _, found = emulated(lambda x, w, b: torch.nn.functional.layer_norm(x, [32], w, b), inputs, tile=["128B"])
    assert kinds(found) == [("native_layer_norm", "pad_leak")] and "padding to [64]" in found[0].message


TILES = {"tile": [4, 4]}


@pytest.mark.parametrize(
    ("function", "shapes", "leaks"),
    [
        (lambda x: x.sum(-1), [(3, 6)], 3),
        (lambda x: x.sum(-1), [(3, 8)], 0),
        (lambda x: x.sum(0), [(3, 8)], 8),
        (lambda x: x.sum(0), [(4, 6)], 0),
        (lambda x: x.sum(0), [(3, 4, 4)], 0),
        (lambda x: torch.softmax(x, -1), [(3, 6)], 18),
        (lambda x: torch.softmax(x, -1), [(3, 8)], 0),
        (lambda x: x.cumsum(-1), [(3, 6)], 0),
        (lambda x: x.amax(-1), [(8, 6)], 8),
        (lambda x: x.var(-1), [(8, 6)], 8),
        (lambda x: torch.nn.functional.layer_norm(x, (6,)), [(2, 6)], 12 + 4),
        (lambda x, w: torch.nn.functional.layer_norm(x, (8,), w), [(3, 8), (8,)], 0),
        (torch.mm, [(3, 6), (6, 5)], 15),
        (torch.mm, [(3, 8), (8, 5)], 0),
        (torch.bmm, [(2, 3, 6), (2, 6, 5)], 30),
        (lambda x, w: torch.conv2d(x, w), [(1, 2, 8, 8), (3, 2, 3, 3)], 3 * 36),
        (lambda x, w: torch.conv2d(x, w), [(1, 4, 8, 8), (3, 4, 3, 3)], 0),
        (lambda x: torch.nn.functional.max_pool2d(x, 2), [(1, 1, 6, 6)], 0),
        (lambda x: torch.nn.functional.max_pool2d(x, 3, 2, 1), [(1, 1, 5, 5)], 5),
        (lambda x: x.topk(3, -1)[0], [(3, 6)], 9 + 9),  # two of NaN a row and what they displace; the indices
        (lambda x: x.sort(-1, descending=True)[0], [(3, 6)], 18 + 18),
        (lambda x: x.sort(-1)[0], [(3, 6)], 0),  # NaN comes last
        (lambda x: (x * 2 + 1).relu().t().contiguous().view(-1)[1:], [(3, 6)], 0),
    ],
)
def test_padding_that_is_read_leaks(function: Callable[..., Any], shapes: list[tuple[int, ...]], leaks: int) -> None:
    inputs = [torch.randn(shape) for shape in shapes]
    result, found = emulated(function, inputs, **TILES)
    assert sum(item.count or 0 for item in found) == leaks and {item.kind for item in found} <= {"pad_leak"}
    assert torch.equal(result, function(*inputs))  # it goes on with what is right


def test_zeros_in_the_padding_leak_where_they_count() -> None:
    zero = {"tile": [4, 4], "poison": False}
    x = -torch.rand(4, 6) - 1
    assert not emulated(lambda a: a.sum(-1), [x], **zero)[1]
    assert not emulated(lambda a: a @ a.t(), [x], **zero)[1]
    assert kinds(emulated(lambda a: a.amax(-1), [x], **zero)[1]) == [("amax", "pad_leak")]
    assert kinds(emulated(lambda a: torch.softmax(a, -1), [x], **zero)[1]) == [("_softmax", "pad_leak")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_one_zero_among_many_terms_is_seen_and_another_order_of_them_is_none(dtype: torch.dtype, offset: float) -> None:
    """A mean of 1,023 values is off by a thousandth; a sum that cancels has no digit that the order leaves alone."""
    zero = {"tile": [32, 32], "poison": False}
    x = (torch.randn(40, 1023, dtype=torch.float64) + offset).to(dtype)
    (mean,) = emulated(lambda a: a.mean(-1), [x], **zero)[1]
    assert (mean.kind, mean.count) == ("pad_leak", 40)
    cancels = torch.cat([x, -x.flip(0).flip(1)], -1)[:, 1:-1]
    for function in (lambda a: a.sum(-1), lambda a: a.cumsum(-1), lambda a: a.norm(dim=-1)):
        assert not emulated(function, [x], **zero)[1] and not emulated(function, [cancels], **zero)[1]
    rows = cancels[:33, :992]  # padded along what is not reduced
    for function in (lambda a: a.mean(-1), lambda a: a.var(-1), lambda a: torch.softmax(a, -1),
                     lambda a: torch.nn.functional.layer_norm(a, (992,))):  # fmt: skip
        assert not emulated(function, [rows], **zero)[1]


def test_host_fallbacks_are_listed_and_not_narrowed() -> None:
    a, b = torch.randn(4, 8), torch.randn(8, 4)
    named, (found,) = emulated(torch.mm, [a, b], fallback=["aten.mm"], accumulate="1-5-2", tile=[32, 32])
    assert torch.equal(named, a @ b)
    assert (found.kind, found.bytes, found.flops) == ("fallback", 4 * (32 + 32 + 16), 2 * 4 * 8 * 4)
    rules = [Rule("operation", "fallback", value=["aten.mm"]), Rule("dtype", "fallback", value=["float32"])]
    accel = AccelConfig("chip", rules=rules, numerics=NumericsConfig(accumulate="1-5-2"))
    result, found = emulated(lambda x, y: (x @ y).double() * 2, [a, b], accel)
    assert torch.equal(result, (a @ b).double() * 2)
    assert kinds(found) == [("mm", "fallback"), ("_to_copy", "fallback"), ("mul", "fallback")]


def test_what_is_too_large_or_too_small_is_told() -> None:
    x = torch.tensor([1.0, 1e5, -1e6, 1e-9])
    result, found = emulated(lambda a: a * 1, [x], storage={"float32": "float16"})
    assert result.tolist() == [1.0, math.inf, -math.inf, 0.0]
    assert [(item.kind, item.count, item.worst) for item in found] == [("overflow", 2, 1e6), ("underflow", 1, None)]
    kept, found = emulated(lambda a: a * 1, [x], storage={"float32": "float16"}, saturate=True)
    assert kept.tolist() == [1.0, 65504.0, -65504.0, 0.0] and found[0].kind == "overflow"


def test_a_finding_names_its_line() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x, -1).sum()

    adapter = EmulatedAdapter(AccelConfig("chip", numerics=NumericsConfig(tile=[32, 32])))
    x = torch.randn(4, 8, requires_grad=True)
    torch.compile(Model(), backend=adapter.dynamo_backend())(x).backward()
    line = Model.forward.__code__.co_firstlineno + 1
    assert {item.source for item in adapter.findings} == {f"{__file__}:{line}"}
    assert {item.graph for item in adapter.findings} == {"g0.forward", "g0.backward"}


class Trained(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(8, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))


def test_weights_are_rounded_once_and_again_after_a_step() -> None:
    model, x = Trained(), torch.randn(5, 8)
    adapter = EmulatedAdapter(AccelConfig("chip", numerics=NumericsConfig(storage={"float32": "bfloat16"})))
    compiled = torch.compile(model.eval(), backend=adapter.dynamo_backend())
    with torch.no_grad():
        first = compiled(x)
        assert (adapter.weights.misses, adapter.weights.hits) == (6, 0)
        assert torch.equal(compiled(x), first) and (adapter.weights.misses, adapter.weights.hits) == (6, 6)
        model.last.weight.mul_(2)
        model.last.bias.mul_(2)
        assert torch.equal(compiled(x), 2 * first) and adapter.weights.misses == 8


def test_training_leaves_the_callers_tensors_and_follows_the_optimizer() -> None:
    model, x = Trained(), torch.randn(5, 8)
    adapter = EmulatedAdapter(AccelConfig("chip", numerics=NumericsConfig(storage={"float32": "bfloat16"})))
    compiled = torch.compile(model, backend=adapter.dynamo_backend())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(8):
        before = model.first.weight.detach().clone()
        loss = compiled(x).square().mean()
        assert torch.equal(model.first.weight, before)
        optimizer.zero_grad()
        loss.backward()
        gradient = model.first.weight.grad
        assert gradient is not None and torch.equal(gradient, gradient.bfloat16().float())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert model.norm.num_batches_tracked == 8  # written by the graph, into the model's own buffers
    mean = model.norm.running_mean
    assert mean is not None and mean.abs().max() > 0 and torch.equal(mean, mean.bfloat16().float())


def test_a_write_into_an_input_reaches_the_callers_tensor() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    model, x = Counter(), torch.tensor([1.0, 1.0 + 2.0**-9, 3.0])
    adapter = EmulatedAdapter(AccelConfig("chip", numerics=NumericsConfig(storage={"float32": "bfloat16"})))
    with torch.no_grad():
        result = torch.compile(model, backend=adapter.dynamo_backend())(x)
    assert model.total.tolist() == [1.0, 1.0, 3.0] and result.tolist() == [2.0, 2.0, 6.0]


def test_a_profile_without_numerics_is_a_configuration_error() -> None:
    with pytest.raises(
        ConfigurationError, match=r"the profile 'none' states no numerics.*\n.*storage\.float32=bfloat16"
    ):
        EmulatedAdapter(AccelConfig()).validate()


def test_the_backward_takes_what_the_forward_rounded_and_computes_it_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As capture shows the graphs; another partitioner would let the backward compute the GELU again."""
    adapter = EmulatedAdapter(AccelConfig("chip", numerics=NumericsConfig(storage={"float32": "bfloat16"})))
    graphs: list[set[str]] = []
    compile = adapter.compile

    def noted(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append({str(node.target) for node in gm.graph.nodes})
        return compile(gm, inputs)

    monkeypatch.setattr(adapter, "compile", noted)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: F.gelu(x).sin().cos().exp().sum(), backend=adapter.dynamo_backend())
    compiled(torch.randn(8, requires_grad=True)).backward()
    forward, backward = graphs
    assert "aten.gelu.default" in forward and "aten.gelu_backward.default" in backward
    assert "aten.gelu.default" not in backward
