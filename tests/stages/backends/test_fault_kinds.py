"""Each kind of fault: at its node and nowhere else, behind any adapter, in a variant only where it should be."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from inductor_debug import AcceleratorAdapter, ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.backends.eager import AotEagerAdapter
from inductor_debug.stages.backends.faults.conditions import ONLY
from inductor_debug.stages.backends.faults.kinds import FAULTS
from inductor_debug.stages.backends.planted import PlantedFault

aten = torch.ops.aten
DRAW = torch.Generator().manual_seed(0)


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=DRAW)


X, ROW, SQUARE = drawn(6, 10), drawn(10), drawn(8, 8)
IMAGE, FILTER = drawn(2, 3, 8, 8), drawn(4, 3, 3, 3)
HEADS = tuple(drawn(1, 2, 8, 16) for _ in range(3))
CONVOLUTION = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
MASK = torch.zeros(1, 1, 8, 8).masked_fill(torch.rand(8, 8, generator=DRAW) < 0.4, -torch.inf)
INDEX = torch.tensor([[0, 3, 5], [2, 2, 1]])


def graph_of(target: Any, *args: Any, output: int | None = None, **kwargs: Any) -> tuple[fx.GraphModule, list[Tensor]]:
    """``x.sin()``, the operation called ``node``, and ``node.cos()``; the inputs' sines go into the operation."""
    graph, inputs = fx.Graph(), []

    def given(item: Any) -> Any:
        if isinstance(item, list):
            return [given(each) for each in item]
        if not isinstance(item, Tensor):
            return item
        inputs.append(item)
        node = graph.placeholder(f"x_{len(inputs)}")
        node.meta["val"] = item
        return node

    args, kwargs = tuple(given(item) for item in args), {key: given(item) for key, item in kwargs.items()}
    node = value = graph.create_node("call_function", target, args, kwargs, name="node")
    if output is not None:
        value = graph.create_node("call_function", operator.getitem, (node, output))
    after = graph.create_node("call_function", aten.cos.default, (value,), name="after")
    graph.output((value, after))
    for item in graph.nodes:
        item.meta.clear()
    return fx.GraphModule({}, graph), inputs


def planted(case: tuple[fx.GraphModule, list[Tensor]], fault: str, **options: Any) -> list[tuple[Tensor, Tensor]]:
    """Value of the node and of what follows: right, and with the fault; twice."""
    gm, inputs = case
    adapter = PlantedFault(options.pop("inner", "aot_eager"), "node", fault, **options)
    compiled = adapter.compile(gm, inputs)
    found = []
    for _ in range(2):
        right, wrong = gm(*inputs), compiled(*inputs)
        torch.testing.assert_close(wrong[1].double(), wrong[0].cos().double(), rtol=1e-2, atol=1e-2, equal_nan=True)
        found.append((right[0], wrong[0]))
    return found


CASES: list[tuple[str, Callable[[], Any], Callable[[Tensor], Tensor] | None]] = [
    ("none", lambda: graph_of(aten.relu.default, X), lambda y: y),
    ("scale", lambda: graph_of(aten.relu.default, X), lambda y: y * 1.05),
    ("dropped_tail", lambda: graph_of(aten.sin.default, X), lambda y: torch.cat([y[:, :-1], y[:, -1:] * 0], 1)),
    ("nan_at_edge", lambda: graph_of(aten.sin.default, ROW), lambda y: torch.cat([y[:-1], y[-1:] * torch.nan])),
    ("uninitialized_buffer", lambda: graph_of(aten.sin.default, X), None),
    ("transposed_stride", lambda: graph_of(aten.mm.default, X, X.t()), lambda y: y.t()),
    ("rounded_to_zero", lambda: graph_of(aten.mm.default, X, X.t()), None),
    ("gradient_sign", lambda: graph_of(aten.relu.default, X), lambda y: -y),
    ("wrong_axis", lambda: graph_of(aten.sum.dim_IntList, SQUARE, [1]), lambda y: SQUARE.sum(0)),
    ("narrow_accumulation", lambda: graph_of(aten.mm.default, X, X.t()), None),
    ("wrong_extent", lambda: graph_of(aten.mm.default, X, X.t()), lambda y: X[:, :-1] @ X.t()[:-1]),
    ("wrong_extent", lambda: graph_of(aten.sum.dim_IntList, X, [1]), lambda y: X[:, :-1].sum(1)),
    ("wrong_extent", lambda: graph_of(aten._softmax.default, X, 1, False),
     lambda y: X.exp() / X[:, :-1].exp().sum(1, keepdim=True)),
    ("wrong_extent", lambda: graph_of(aten.native_layer_norm.default, X, [10], ROW, None, 1e-5, output=0), None),
    ("wrong_extent", lambda: graph_of(aten._scaled_dot_product_flash_attention_for_cpu.default, *HEADS, output=0),
     lambda y: torch.nn.functional.scaled_dot_product_attention(HEADS[0], *(x[:, :, :-1] for x in HEADS[1:]))),
    ("padding_as_data", lambda: graph_of(aten.mean.dim, X, [1]), lambda y: (X.sum(1) + X[:, 0]) / 11),
    ("padding_as_data", lambda: graph_of(aten.mm.default, X, X.t()), lambda y: y + X[:, :1] @ X.t()[:1]),
    ("padding_as_data", lambda: graph_of(aten.convolution.default, IMAGE, FILTER, None, *CONVOLUTION),
     lambda y: torch.nn.functional.conv2d(torch.nn.functional.pad(IMAGE, [1] * 4, "circular"), FILTER)),
    ("swapped_reduction", lambda: graph_of(aten.sum.dim_IntList, X, [1]), lambda y: X.amax(1)),
    ("swapped_reduction", lambda: graph_of(aten.amax.default, X, [1]), lambda y: X.sum(1)),
    ("swapped_reduction", lambda: graph_of(aten.max_pool2d_with_indices.default, IMAGE, [2, 2], [2, 2], output=0),
     lambda y: torch.nn.functional.avg_pool2d(IMAGE, 2) * 4),
    ("mask_ignored", lambda: graph_of(aten.where.self, X > 0, X, torch.tensor(-1.0)), lambda y: X),
    ("mask_ignored", lambda: graph_of(aten.threshold_backward.default, X, X.roll(1, 0), 0), lambda y: X),
    ("mask_ignored", lambda: graph_of(aten._scaled_dot_product_flash_attention_for_cpu.default, *HEADS, 0.0, False,
                                      attn_mask=MASK, output=0),
     lambda y: torch.nn.functional.scaled_dot_product_attention(*HEADS)),
    ("wrong_broadcast", lambda: graph_of(aten.mul.Tensor, X, ROW),
     lambda y: X * ROW.expand(6, 10).t().reshape(6, 10)),
    ("wrong_broadcast", lambda: graph_of(aten.addmm.default, ROW[:6], X, X.t()), None),
    ("index_off_by_one", lambda: graph_of(aten.embedding.default, X, INDEX), lambda y: X[(INDEX + 1) % 6]),
    ("index_off_by_one", lambda: graph_of(aten.index.Tensor, X, [INDEX]), lambda y: X[(INDEX + 1) % 6]),
    ("index_off_by_one", lambda: graph_of(aten.sin.default, X), lambda y: y.roll(1, -1)),
    ("missing_accumulation", lambda: graph_of(aten.add.Tensor, X, X.roll(1, 0)), lambda y: X),
    ("stale_buffer", lambda: graph_of(aten.sin.default, X), lambda y: y),
    ("nondeterministic", lambda: graph_of(aten.sin.default, X), None),
    ("from_nth_call", lambda: graph_of(aten.sin.default, X), lambda y: y),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "case", "expected"), CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)])
def test_the_node_is_wrong_as_its_kind_says(fault: str, case: Callable[[], Any], expected: Any) -> None:
    right, wrong = planted(case(), fault)[0]
    if expected is not None:
        torch.testing.assert_close(wrong, expected(right), equal_nan=True)
    else:
        assert not torch.equal(wrong, right) and wrong.isfinite().all()


def test_every_kind_is_tried_and_says_what_it_does() -> None:
    assert {fault for fault, _, _ in CASES} == set(FAULTS) and all(fault.meaning for fault in FAULTS.values())


def test_a_later_call_is_wrong_and_no_two_calls_are_alike() -> None:
    (_, first), (right, second) = planted(graph_of(aten.sin.default, X), "from_nth_call")
    torch.testing.assert_close(first * 1.05, second)
    (_, first), (right, second) = planted(graph_of(aten.sin.default, X), "nondeterministic")
    assert not torch.equal(first, second)
    torch.testing.assert_close(first, right, rtol=0.011, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_to_zero_is_below_the_exact_value_and_next_to_it(dtype: torch.dtype) -> None:
    a, b = drawn(32, 32).to(dtype), drawn(32, 32).to(dtype)
    _, wrong = planted(graph_of(aten.mm.default, a, b), "rounded_to_zero")[0]
    exact = a.double() @ b.double()
    assert (wrong.double().abs() <= exact.abs() + 1e-5).all()
    assert ((exact - wrong.double()).abs() <= exact.abs() * torch.finfo(dtype).eps + 1e-5).all()


@pytest.mark.parametrize(
    ("fault", "case", "message"),
    [
        ("mask_ignored", lambda: graph_of(aten.sin.default, X), "has no mask; valid: aten.where"),
        ("mask_ignored", lambda: graph_of(aten._scaled_dot_product_flash_attention_for_cpu.default, *HEADS, output=0),
         "was given no mask"),
        ("wrong_broadcast", lambda: graph_of(aten.mul.Tensor, X, X), "broadcasts nothing"),
        ("missing_accumulation", lambda: graph_of(aten.add.Tensor, X, ROW), "adds no two tensors of one shape"),
        ("transposed_stride", lambda: graph_of(aten.sin.default, ROW), r"its shape is \[10\]"),
        ("wrong_extent", lambda: graph_of(aten.sin.default, ROW), "runs over no dimension"),
        ("swapped_reduction", lambda: graph_of(aten.sin.default, ROW), "takes no sum"),
        ("rounded_to_zero", lambda: graph_of(aten.argmax.default, X, 1), "torch.int64; valid: torch.float32"),
    ],
)  # fmt: skip
def test_a_kind_that_a_node_can_not_have_is_refused_with_what_to_type(fault: str, case: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"got '{fault}' at .*{message}(.|\n)*\nTry: backend\.options\.node"):
        planted(case(), fault)


class Vendor(AcceleratorAdapter):
    """Takes AOT graphs, and keeps what it is given."""

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        self.given = gm
        return gm.forward


def of_torch_compile(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
    return gm.forward


@pytest.mark.parametrize("inner", ["eager", "aot_eager", Vendor(), AotEagerAdapter(), of_torch_compile])
@pytest.mark.parametrize("fault", ["wrong_extent", "stale_buffer", "rounded_to_zero"])
def test_any_adapter_takes_a_fault(inner: Any, fault: str) -> None:
    right, wrong = planted(graph_of(aten.mm.default, X, X.t()), fault, inner=inner)[1]
    assert torch.equal(right, wrong) == (fault == "stale_buffer")


@pytest.mark.parametrize("fault", ["wrong_extent", "padding_as_data", "rounded_to_zero", "from_nth_call"])
def test_inductor_commits_the_fault_as_torch_does(fault: str) -> None:
    case = graph_of(aten.mm.default, X, X.t())
    for (_, ours), (_, its) in zip(planted(case, fault), planted(case, fault, inner="inductor"), strict=True):
        torch.testing.assert_close(ours, its)


def test_an_adapter_gets_each_other_node_as_it_was_and_the_graph_is_left_alone() -> None:
    gm, inputs = graph_of(aten.mm.default, X, X.t())
    before, inner = str(gm.graph), Vendor()
    PlantedFault(PlantedFault(inner, "after", "gradient_sign"), "node", "scale").compile(gm, inputs)
    assert str(gm.graph) == before
    names = [node.name for node in inner.given.graph.nodes]
    assert [name for name in names if name in [node.name for node in gm.graph.nodes]] == [
        node.name for node in gm.graph.nodes
    ]
    torch.testing.assert_close(inner.given(*inputs)[1], -(1.05 * gm(*inputs)[0]).cos())


@pytest.mark.parametrize(
    ("options", "shows"),
    [
        ({"only": "fused"}, True),
        ({"only": "above", "above": 59}, True),
        ({"only": "above", "above": 60}, False),
        ({"only": "unaligned", "alignment": 4}, True),
        ({"only": "unaligned", "alignment": 5}, False),
        ({"only": "unaligned", "accel": AccelConfig("chip", alignment=16)}, True),
    ],
)
def test_a_variant_shows_only_where_it_should(options: dict[str, Any], shows: bool) -> None:
    for fault in ("scale", "uninitialized_buffer"):
        right, wrong = planted(graph_of(aten.sin.default, X), fault, **options)[0]
        assert torch.equal(right, wrong) != shows


def test_what_shows_only_fused_does_not_without_its_neighbour() -> None:
    gm, inputs = graph_of(aten.sin.default, X)
    (node,) = (item for item in gm.graph.nodes if item.name == "after")
    (output,) = (item for item in gm.graph.nodes if item.op == "output")
    output.args = ((output.args[0][0],),)
    gm.graph.erase_node(node)
    gm.recompile()
    compiled = PlantedFault("aot_eager", "node", "scale", only="fused").compile(gm, inputs)
    assert torch.equal(compiled(*inputs)[0], gm(*inputs)[0])


def test_neighbours_are_seen_through_a_view_on_either_side() -> None:
    def model(x: Tensor) -> Tensor:
        return (x @ x).t().relu() @ x

    shown = []
    for node in ("mm", "mm_1"):
        torch._dynamo.reset()
        adapter = PlantedFault("aot_eager", node, "scale", only="fused")
        compiled = torch.compile(model, backend=adapter.dynamo_backend())
        shown.append((adapter, not torch.allclose(compiled(SQUARE), model(SQUARE))))
        adapter.validate_compiled()
    assert [(adapter.planted, wrong) for adapter, wrong in shown] == [(True, True), (True, True)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": "fusd"}, rf"backend\.options\.only: got 'fusd'; valid: fused, (.|\n)*{'|'.join(ONLY)}"),
        ({"only": "above", "above": 0}, r"backend\.options\.above: got 0; valid: a whole number(.|\n)*above=1024"),
        ({"only": "unaligned"}, r"backend\.options\.alignment: got None; valid: (.|\n)*accel=warn16"),
    ],
)
def test_a_variant_that_is_not_known_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PlantedFault("aot_eager", "node", "scale", **options)


def test_a_node_of_that_name_in_the_other_graph_is_right() -> None:
    """Forward and backward both have an ``mm``, and a part of either keeps which it is from."""
    torch._dynamo.reset()
    weight, x = SQUARE.clone().requires_grad_(), SQUARE.roll(1, 0)
    (weight.relu() @ x).sum().backward()
    right, weight.grad = weight.grad, None
    graphs: list[fx.GraphModule] = []

    class Kept(Vendor):
        def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
            graphs.append(gm)
            return gm.forward

    compiled = torch.compile(lambda w: w.relu() @ x, backend=Kept().dynamo_backend())
    compiled(weight).sum().backward()
    assert torch.equal(weight.grad, right)
    fault = PlantedFault(Vendor(), "mm", "scale", graph="g0.forward")
    changed = []
    for gm in graphs:
        part = fx.Graph()
        part.output(part.graph_copy(gm.graph, {}))
        fault.compile(fx.GraphModule(gm, part), [])
        changed.append(len(fault.inner.given.graph.nodes) > len(part.nodes))
        assert any(node.name.startswith("mm") for node in gm.graph.nodes)
    assert changed == [True, False]


def test_nothing_is_put_in_that_nothing_reads() -> None:
    gm, inputs = graph_of(aten.native_layer_norm.default, SQUARE, [8], None, None, 1e-5, output=0)
    inner = Vendor()
    PlantedFault(inner, "node", "wrong_axis").compile(gm, inputs)
    assert all(node.users for node in inner.given.graph.nodes if node.op == "call_function")
