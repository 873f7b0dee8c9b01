"""Modules written as source: what is made anew computes what the model's module does."""

import ast
import textwrap
from typing import Any

import minify_asked
import minify_modules as planted
import pytest
import torch
import torch._dynamo.utils

from inductor_debug.models.ssm import build
from inductor_debug.stages.minify.modules import edits, readable
from inductor_debug.stages.minify.modules.cuts import Cuts
from inductor_debug.stages.minify.modules.inline import Inliner
from inductor_debug.stages.minify.modules.program import program, statements, strange, text, tidied
from inductor_debug.stages.minify.modules.rebuild import Builder
from inductor_debug.stages.minify.modules.recorded import call_source, received
from inductor_debug.stages.minify.modules.stubs import stubs
from inductor_debug.stages.torch_internals.recompile_cause import recompile_cause


def written(module: torch.nn.Module, calls: list[Any], *, whole: bool = False) -> tuple[ast.Module, Inliner]:
    inliner = Inliner(whole=whole)
    inliner.add(type(each) for each in module.modules())
    function = Builder(inliner, stored=False).function(module)
    given = [call_source(args, kwargs, inliner.values, "call") for args, kwargs in calls]
    return program(inliner.body(), function, given), inliner


def runs(tree: ast.Module) -> bool:
    """Whether torch runs a program."""
    scope: dict[str, Any] = {"torch": torch}
    exec(text(tree), scope)
    try:
        module = scope["model"]()
    except AttributeError:  # weights of a module that is gone
        return False
    return all(module(*args, **kwargs) is not None for args, kwargs in scope["calls"]())


class Odd(torch.nn.Module):
    """A buffer, a constant of its class, tied weights, and a function as an attribute."""

    SCALE = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.act, self.unread = torch.nn.functional.relu, object()

    @property
    def halved(self) -> float:
        return self.SCALE / 2

    def forward(self, x: torch.Tensor, *, places: dict[str, slice]) -> dict[str, Any]:
        for layer in (self.first, self.second):
            x = self.act(layer(x)) * self.mask
        return {"out": x[places["rows"]] * self.halved}


class Kept:
    """A class whose method makes one that is derived of it."""

    def made(self) -> "Kept":
        return Doubled()

    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Doubled(Kept):
    def of(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


class Settings:
    """A configuration of which a module reads a property."""

    def __init__(self) -> None:
        self.name, self.unread = "tanh", object()

    @property
    def kind(self) -> str:
        return self.name


class Configured(torch.nn.Module):
    """Reads a property and a buffer that is not saved; makes objects of classes that need one another."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Settings()
        self.register_buffer("order", torch.randperm(50), persistent=False)
        self.register_buffer("places", torch.arange(3, 53), persistent=False)

    @minify_asked.counted
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = Kept().made().of(x)[:, self.order] + self.places
        return torch.tanh(x) if self.config.kind == "tanh" else x


CASES: dict[str, Any] = {
    "configured": lambda: (Configured(), (torch.randn(3, 50),), {}),
    "planted": lambda: (planted.Model(planted.Counting()), (torch.randint(32, (2, 5)),), {}),
    "ssm": lambda: (*build(1, 8, vocabulary=16, width=16, layers=2, state=4, chunk=4), {}),
    "odd": lambda: (Odd(), (torch.randn(3, 4),), {"places": {"rows": slice(0, 2)}}),
}


def test_a_module_that_draws_computes_the_same() -> None:
    module, calls = (
        torch.nn.Sequential(planted.Part(), torch.nn.Dropout(0.5)).train(),
        [((torch.randn(2, 16),), {})] * 2,
    )
    tree, inliner = written(module, calls)
    assert strange(tree, inliner.values.tensors, module, received(module, calls, "")) == ""


@pytest.mark.parametrize("name", CASES)
def test_a_module_made_anew_computes_the_same(name: str) -> None:
    module, args, kwargs = CASES[name]()
    calls = [(args, kwargs)] * 2
    tree, inliner = written(module.eval(), calls)
    assert strange(tree, inliner.values.tensors, module, received(module, calls, "")) == ""
    assert "__init__" not in text(tree) and "unread" not in text(tree) and "inductor_debug" not in text(tree)


def test_names_of_a_decorated_method_are_those_of_its_module() -> None:
    module, calls = Configured().eval(), [((torch.randn(3, 50),), {})]
    tree, inliner = written(module, calls, whole=True)
    assert strange(tree, inliner.values.tensors, module, received(module, calls, "")) == ""
    assert "@counted" in text(tree) and "torch.arange(3, 53)" in text(tree)


def test_modules_give_what_they_gave_where_that_is_all_that_is_needed() -> None:
    model = planted.Model(planted.Counting()).eval()
    calls = [((torch.randint(32, (2, 5)),), {})] * 2
    inliner = Inliner()
    inliner.add(type(each) for each in model.modules())
    builder = Builder(inliner, stored=False)
    function = builder.function(model)
    given = [call_source(args, kwargs, inliner.values, "call") for args, kwargs in calls]
    tree = program(inliner.body(), function, given)
    found = stubs(model, calls, "", builder.paths)
    inside = {stub.path: stub.inside for stub in found}
    assert inside["model.encoder"] == "model" and inside["model.encoder.layers[1].norm"] == "model.encoder.layers[1]"
    cuts = Cuts(
        tree, lambda each: "self.seen += 1" in text(each) and runs(each), lambda: False, lambda text: None, found
    )
    cuts.modules()
    left = text(cuts.tree)
    assert "self.seen += 1" in left and "Given()" in left and "LayerNorm" not in left and "Embedding" not in left


def test_a_module_that_computes_something_else_is_told() -> None:
    module = planted.Part().eval()
    calls = [((torch.randn(2, planted.WIDTH),), {})]
    tree, _ = written(module, calls)
    function = edits.forward(tree)
    assert function is not None
    function.body[0].value = ast.parse("self.norm(self.first(x))", mode="eval").body  # type: ignore[attr-defined]
    assert strange(tree, {}, module, received(module, calls, "")) == "made anew, it computes something else"


def test_what_a_model_counts_is_as_it_was() -> None:
    module = planted.Model(planted.Global()).eval()
    calls = [((torch.randint(32, (2, 5)),), {})] * 3
    tree, inliner = written(module, calls)
    before = planted.FLAG
    received(module, calls, "")
    assert before + 3 == planted.FLAG
    inliner.restore()
    assert before == planted.FLAG and f"FLAG = {before}" in text(tree)


SOURCE = """
    def shifted(x, by):
        return x + by

    class Net(torch.nn.Module):
        def forward(self, x, mask=None):
            a = shifted(x, 3)
            b = self.norm(a).relu()
            if mask is None:
                c = b.bug(7)
            d = c + b
            return d

    def model():
        torch.manual_seed(0)
        model = Net()
        model.norm = torch.nn.LayerNorm(64)
        return model.eval()

    def calls():
        torch.manual_seed(0)
        return [((torch.randn(8, 64),), {'mask': None}), ((torch.randn(8, 64),), {'mask': None})]
"""


def test_all_but_what_shows_it_is_cut() -> None:
    tree = tidied(ast.parse(textwrap.dedent(SOURCE)))
    cuts = Cuts(tree, lambda each: ".bug(7)" in text(each), lambda: False, lambda text: None)
    cuts.cut()
    assert cuts.minimal and statements(cuts.tree) == 1
    left = text(cuts.tree)
    assert "x.bug(7)" in left and not any(word in left for word in ("norm", "shifted", "mask", "64", "if "))


def test_children_of_a_container_are_numbered_anew() -> None:
    body = """
        model.layers = torch.nn.ModuleList([A(), B(), A()])
        model.layers[0].n = 1
        model.layers[2].n = 3
    """
    source = f"def model():\n    model = Net()\n{textwrap.indent(textwrap.dedent(body), '    ')}    return model\n"
    tree = ast.parse(source)
    assert [number for _, number in edits.items(tree)] == [0, 1, 2]
    left = ast.unparse(edits.with_items(tree, [1, 2]))
    assert "ModuleList([B(), A()])" in left and "model.layers[1].n = 3" in left and "n = 1" not in left


def test_attributes_go_to_the_constructor() -> None:
    tree, _ = written(planted.Counting().eval(), [((torch.randn(2, planted.WIDTH),), {})])
    left = text(readable.with_constructors(readable.with_one_class(tree)))
    assert "class Part" not in left and "self.seen = 0" in left and "return Counting().eval()" in left


class Reads(torch.nn.Module):
    """Reads an attribute and what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def forward(self, x: torch.Tensor, value: Any = 1, count: bool = False) -> torch.Tensor:
        self.seen += count
        return x * value if not isinstance(value, list) else x + len(value)


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ([(torch.ones(2), 1, True)] * 2, "attribute seen"),
        ([(torch.ones(n),) for n in (3, 4)], "size of dimension 0"),
        ([(torch.ones(2, dtype=kind),) for kind in (torch.float32, torch.int32)], "dtype"),
        ([(torch.ones(2), value) for value in (0.5, 0.25)], "a float that is given"),
        ([(torch.ones(2), [0] * count) for count in (1, 2)], "the length or the keys of a container"),
        ([(torch.ones([2] * rank),) for rank in (1, 2)], "rank"),
    ],
)
def test_the_cause_of_a_recompilation_in_torchs_own_words(given: list[Any], cause: str) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.guard_failures.clear()
    function = torch.compile(Reads(), backend="eager", dynamic=False)
    for args in given:
        function(*args)
    reasons = [reason for each in torch._dynamo.utils.guard_failures.values() for reason in each]
    torch._dynamo.reset()
    assert {recompile_cause(reason) for reason in reasons} == {cause}
