"""docs/adapters.md: its sample is a backend that works, and its entry points are those of the example package."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord
from inductor_debug.stages.settings import BackendConfig

PROJECT = Path(__file__).resolve().parents[3]
GUIDE = (PROJECT / "docs" / "adapters.md").read_text()


def sample(language: str) -> str:
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return str(code)


def test_the_sample_is_a_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_chip.py").write_text(sample("python"))
    monkeypatch.syspath_prepend(str(tmp_path))
    adapter = build_adapter(BackendConfig("inductor", "inductor", {"lanes": 32}, _target_="my_chip.MyChip"))
    assert [(rule.rule, rule.value) for rule in adapter.capabilities().rules] == [("alignment", 32)]
    x = NodeRecord("x", "placeholder", "x", outputs=[TensorRecord([2, 48], "float32", [48, 1], "cpu")])
    six = [replace(x, name=f"x{index}") for index in range(6)]
    cat = NodeRecord("cat", "call_function", "aten.cat.default", inputs=[node.name for node in six])
    found = adapter.check(GraphRecord("g0.forward", "forward", [*six, cat]))
    assert [(row.node, row.rule, row.measured) for row in found] == [
        *((node.name, "alignment", "48") for node in six), ("cat", "custom", "6"),
    ]  # fmt: skip
    seen: list[str] = []
    compile_graph = adapter.compile

    def compile(gm: torch.fx.GraphModule, example_inputs: object) -> object:
        seen.extend(str(node.target) for node in gm.graph.nodes)
        return compile_graph(gm, example_inputs)  # type: ignore[arg-type]

    monkeypatch.setattr(adapter, "compile", compile)
    module, given = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.SiLU()), torch.randn(2, 4)
    torch.testing.assert_close(torch.compile(module, backend=adapter.dynamo_backend())(given), module(given))
    assert "aten.exp.default" in seen and "aten.silu.default" not in seen


def test_the_entry_points_are_those_of_the_example_package() -> None:
    package = tomllib.loads((PROJECT / "tests" / "vendor_package" / "pyproject.toml").read_text())
    assert tomllib.loads(sample("toml"))["project"]["entry-points"] == package["project"]["entry-points"]


def test_the_readme_links_the_guide() -> None:
    assert "(docs/adapters.md)" in (PROJECT / "README.md").read_text()
