"""Adapters: which one stands behind a configuration, and what the mock refuses."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.backends.strict_error import ProfileViolated
from inductor_debug.stages.mock_backends import aot_mock_backend, mock_backend
from inductor_debug.stages.settings import BackendConfig

from lower_model import Small, line_of  # isort: skip

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(TESTS))
    monkeypatch.setenv("MOCK_REPRO_DIR", str(tmp_path))
    monkeypatch.setattr(
        "inductor_debug.stages.rules.repros.verify", lambda scripts: []
    )  # test_repro_verify.py runs some
    for name in ("MOCK_STRICT", "MOCK_ALIGNMENT", "MOCK_MAX_MEMORY"):
        monkeypatch.delenv(name, raising=False)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Odd(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow = self.linear(x)
        return torch.relu(narrow).sum(-1)


def violated(compiled: Any, x: torch.Tensor) -> ProfileViolated:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        compiled(x)
    error = caught.value.inner_exception
    assert isinstance(error, ProfileViolated)
    return error


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend, "mock", "aot_mock"])
def test_strict_mode_lists_every_violation_with_its_line(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_STRICT", "1")
    monkeypatch.setenv("MOCK_ALIGNMENT", "16")
    if isinstance(backend, str) and backend not in torch._dynamo.list_backends(None):
        pytest.skip("the project's entry points are not installed")
    error = violated(torch.compile(Odd(), backend=backend), torch.randn(4, 8))
    rows = [row for row in error.violations if row.rule == "alignment"]
    lines = {row.source.rpartition(":")[2] for row in rows if row.source}
    first = Odd.forward.__code__.co_firstlineno
    assert {str(first + 1), str(first + 2)} <= lines
    for row in error.violations:
        assert row.message in str(error)
        assert row.source in str(error)


def test_the_aot_mock_checks_forward_and_backward_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_STRICT", "true")
    monkeypatch.setenv("MOCK_ALIGNMENT", "16")
    error = violated(torch.compile(Odd(), backend=aot_mock_backend), torch.randn(4, 8, requires_grad=True))
    kinds = {row.graph.rpartition(".")[2] for row in error.violations}
    assert kinds == {"forward", "backward"}


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
def test_warning_mode_runs_as_eager_does(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_STRICT", "0")
    monkeypatch.setenv("MOCK_ALIGNMENT", "16")
    module, x = Odd(), torch.randn(4, 8)
    assert torch.equal(torch.compile(module, backend=backend)(x), module(x))


@pytest.mark.parametrize(
    ("variable", "value"), [("MOCK_ALIGNMENT", "0"), ("MOCK_STRICT", "maybe"), ("MOCK_MAX_MEMORY", "much")]
)
def test_an_unreadable_variable_is_an_error(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=variable):
        build_adapter(BackendConfig("mock", "mock")).validate()


def test_an_unknown_dynamo_backend_lists_the_registered_ones() -> None:
    adapter = build_adapter(BackendConfig("aot_eagre", "dynamo"))
    with pytest.raises(ConfigurationError, match=r"backend\.name: got 'aot_eagre'; valid: aot_eager.*inductor"):
        adapter.validate()


def test_a_registered_backend_runs() -> None:
    module, x = Small().eval(), torch.randn(4, 8)
    adapter = build_adapter(BackendConfig("aot_eager", "dynamo"))
    assert torch.equal(torch.compile(module, backend=adapter.dynamo_backend())(x), module(x))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (BackendConfig("x", "inductr"), r"backend\.adapter: got 'inductr'; valid: inductor"),
        (BackendConfig("x", "no_such_module.Thing"), r"backend\.adapter.*no module 'no_such_module'"),
        (BackendConfig("x", "faulty_adapters.ScaledOuput"), r"valid: faulty_adapters\.ScaledOutput"),
        (BackendConfig("x", "faulty_adapters.ScaledOutput", {"facto": 2}), r"backend\.options.*factor"),
        (
            BackendConfig("x", "faulty_adapters.ScaledOutput", {"factor": 0}),
            r"options.*ValueError: factor is 0",
        ),
        (BackendConfig("eager", "eager", {"a": 1}), r"backend\.options: got a; valid: none"),
        (BackendConfig("eager", "eager", {}, {"pattern_matcher": False}), r"backend\.inductor: got pattern_matcher"),
        (BackendConfig("x", "torch.nn.Identity"), r"gave Identity; valid: an instance of"),
        (BackendConfig("???", "dynamo"), r"backend\.name.*inductor"),
    ],
)
def test_a_wrong_backend_is_a_configuration_error(config: BackendConfig, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build_adapter(config)


BAD_MODULES = {
    "raises": ("x = 1\nraise RuntimeError('no driver')\n", r"importing bad_raises raised RuntimeError: no driver at .*"
               r"bad_raises\.py:2"),
    "needs": ("import no_such_driver\n", r"ModuleNotFoundError: No module named 'no_such_driver' at .*bad_needs\.py:1"),
    "syntax": ("def (\n", r"SyntaxError: .* at .*bad_syntax\.py:1"),
    "leaves": ("raise SystemExit(0)\n", r"SystemExit: 0 at .*bad_leaves\.py:1"),
    "abstract": ("from inductor_debug import AcceleratorAdapter\nclass Chip(AcceleratorAdapter):\n    pass\n",
                 r"bad_abstract\.Chip \(.*bad_abstract\.py:2\) has no method compile; .*\nTry: def compile\(self, gm"),
    "none": ("from inductor_debug import AcceleratorAdapter\nclass Chip(AcceleratorAdapter):\n    compile = None\n",
             r"bad_none\.Chip \(.*bad_none\.py:2\) has no method compile"),
    "made": ("from inductor_debug import AcceleratorAdapter\nclass Base(AcceleratorAdapter):\n    pass\n"
             "def Chip():\n    return Base()\n", r"bad_made\.Chip \(.*bad_made\.py:4\) raised TypeError: .*compile"),
    "profile": ("from inductor_debug import AcceleratorAdapter\nclass Chip(AcceleratorAdapter):\n    capabilities = 3\n"
                "    def compile(self, gm, inputs):\n        return gm\n", r"has no method capabilities"),
    "other": ("class Chip:\n    pass\n", r"bad_other\.py:1\) gave Chip; valid: an instance of"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_MODULES)
def test_an_adapter_that_is_none_is_a_configuration_error_that_names_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, message = BAD_MODULES[name]
    (tmp_path / f"bad_{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigurationError, match=message) as caught:
        build_adapter(BackendConfig("x", f"bad_{name}.Chip"))
    assert str(caught.value).startswith(("backend.adapter: ", "backend.options: "))
    assert len(str(caught.value).splitlines()) <= 2


def test_an_adapter_needs_compile_alone() -> None:
    class Plain(AcceleratorAdapter):
        def compile(self, gm: Any, example_inputs: Any) -> Any:
            return gm.forward

    class Named(Plain):
        name = "chip"

    assert (Plain().name, Plain().capabilities().name, Named().name) == ("Plain", "Plain", "chip")
    module, x = Small().eval(), torch.randn(4, 8)
    assert torch.equal(torch.compile(module, backend=Plain().dynamo_backend())(x), module(x))


def test_a_users_adapter_gets_aot_graphs() -> None:
    assert importlib.util.find_spec("faulty_adapters") is not None
    adapter = build_adapter(BackendConfig("scaled", "faulty_adapters.ScaledOutput", {"factor": 2.0}))
    module, x = Small().eval(), torch.randn(4, 8)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(module, backend=adapter.dynamo_backend())(x), 2 * module(x))
    assert line_of("torch.softmax") > 0


@pytest.mark.parametrize("name", ["eager", "aot_eager", "inductor"])
def test_compile_runs_an_aot_graph(name: str) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.randn(4, 8)
    graph = make_fx(lambda value: (torch.relu(value) + 1,), tracing_mode="fake")(x)
    (result,) = build_adapter(BackendConfig(name, name)).compile(graph, [x])(x)
    torch.testing.assert_close(result, torch.relu(x) + 1)
