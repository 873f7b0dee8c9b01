"""The mock accelerator through the command line: what a strict violation reports, skips and leaves."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import SMALL, Finished

pytestmark = pytest.mark.slow

RESNET18 = {
    # module: (weight [out, in, height, width], output [channels, height, width]), from the architecture:
    # a 7x7 stem of stride 2 (224 -> 112), a pool of stride 2 (-> 56), then four layers of two blocks of two 3x3
    # convolutions; layers 2 to 4 halve the image and double the channels in their first block, whose shortcut is a
    # 1x1 convolution: 1 + 4 + 3 * 5 = 20
    "conv1": ([64, 3, 7, 7], [64, 112, 112]),
    "layer1.0.conv1": ([64, 64, 3, 3], [64, 56, 56]),
    "layer1.0.conv2": ([64, 64, 3, 3], [64, 56, 56]),
    "layer1.1.conv1": ([64, 64, 3, 3], [64, 56, 56]),
    "layer1.1.conv2": ([64, 64, 3, 3], [64, 56, 56]),
    "layer2.0.conv1": ([128, 64, 3, 3], [128, 28, 28]),
    "layer2.0.conv2": ([128, 128, 3, 3], [128, 28, 28]),
    "layer2.0.downsample.0": ([128, 64, 1, 1], [128, 28, 28]),
    "layer2.1.conv1": ([128, 128, 3, 3], [128, 28, 28]),
    "layer2.1.conv2": ([128, 128, 3, 3], [128, 28, 28]),
    "layer3.0.conv1": ([256, 128, 3, 3], [256, 14, 14]),
    "layer3.0.conv2": ([256, 256, 3, 3], [256, 14, 14]),
    "layer3.0.downsample.0": ([256, 128, 1, 1], [256, 14, 14]),
    "layer3.1.conv1": ([256, 256, 3, 3], [256, 14, 14]),
    "layer3.1.conv2": ([256, 256, 3, 3], [256, 14, 14]),
    "layer4.0.conv1": ([512, 256, 3, 3], [512, 7, 7]),
    "layer4.0.conv2": ([512, 512, 3, 3], [512, 7, 7]),
    "layer4.0.downsample.0": ([512, 256, 1, 1], [512, 7, 7]),
    "layer4.1.conv1": ([512, 512, 3, 3], [512, 7, 7]),
    "layer4.1.conv2": ([512, 512, 3, 3], [512, 7, 7]),
}
KINDS = 11
"""Different ones among them: the stem; one kind in layer 1; in layers 2 to 4 the first, the rest and the shortcut."""
INPLACE_ACTIVATIONS = 17
"""ResNet-18's ReLUs, which work in place: one after the stem, two a block. AOTAutograd makes them functional."""


def convolutions(finished: Finished, graph: str) -> list[tuple[str, str]]:
    """(module, target) of the convolutions that one graph's violations name."""
    table = finished.table("constrain/violations.csv")
    rows = table[(table["graph"] == graph) & table["target"].str.contains("conv") & (table["rule"] == "operation")]
    return list(zip(rows["module"], rows["target"], strict=True))


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_resnet18_reports_each_convolution_once_a_graph(mode: str, run: Callable[..., Finished]) -> None:
    assert len(RESNET18) == 20
    finished = run(
        "model=resnet18", "accel=mock", f"mode={mode}", "stages=[capture,constrain,lower,report]",
        "stages.constrain.verified_repros=2", "stages.constrain.repros=100",
    )  # fmt: skip
    assert finished.code == 1
    assert finished.statuses() | {"report": "passed"} == {
        "capture": "passed", "constrain": "failed", "lower": "skipped", "report": "passed"
    }  # fmt: skip
    expected = {"g0.dynamo": "torch.nn.functional.conv2d", "g0.forward": "aten.convolution.default"}
    if mode == "training":
        expected["g0.backward"] = "aten.convolution_backward.default"
    for graph, target in expected.items():
        assert sorted(convolutions(finished, graph)) == sorted((module, target) for module in RESNET18), graph
    table = finished.table("constrain/violations.csv")
    assert set(table["rule"]) == {"operation"}
    assert len(table) == 20 * len(expected) + INPLACE_ACTIVATIONS
    assert set(table[~table["target"].str.contains("conv")]["limit"]) == {"aten.relu_"}
    _shapes(finished)
    assert table["finding"].nunique() == finished.summary["violations"]["total"] == 20 + INPLACE_ACTIVATIONS
    calls = table[table["target"].str.contains("conv")].groupby("finding")
    assert calls["graph"].apply(set).tolist() == [set(expected)] * 20 and set(calls["module"].nunique()) == {1}
    repros = finished.summary["repros"]
    kinds = [row for row in repros if row["target"] == "torch.nn.functional.conv2d"]
    assert len(kinds) == KINDS and sum(row["violations"] for row in kinds) == 20
    assert sum(row["violations"] for row in repros) == 20 + INPLACE_ACTIVATIONS
    assert [row["verified"] for row in repros] == [True] * 2 + [False] * (len(repros) - 2)


def _shapes(finished: Finished) -> None:
    """The convolutions of the aten graph have the shapes of the architecture."""
    nodes = finished.json("capture/graphs/g0.forward.json")["nodes"]
    by_name = {node["name"]: node for node in nodes}
    found = {
        node["module"]: (by_name[node["args"][1]["node"]]["shape"], node["shape"][1:])
        for node in nodes
        if node["target"] == "aten.convolution.default"
    }
    assert found == RESNET18


def test_a_strict_violation_leaves_repros_that_run_anywhere(
    run: Callable[..., Finished], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    finished = run(*SMALL, "accel=mock", "accel.denied=[aten.convolution]", "stages.constrain.verified_repros=1")
    assert finished.code == 1
    skipped = [name for name, status in finished.statuses().items() if status == "skipped"]
    assert skipped == ["lower", "kerneldiff", "benchmark", "minify"]
    repros = finished.summary["repros"]
    assert [(row["target"], row["verified"]) for row in repros] == [("torch.nn.functional.conv1d", True)]
    for row in repros:
        file = finished.directory / row["path"]
        assert row["failure_class"] == "violation:operation" and row["nodes"] == 1
        assert "small_models.py" in row["source"] and row["source"] in file.read_text()
    done = subprocess.run(
        [sys.executable, "-P", file], cwd=tmp_path, env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "VIOLATION operation measured=torch.nn.functional.conv1d limit=aten.convolution\n"
    page = (finished.directory / "report/report.html").read_text()
    assert all(row["path"] in page for row in repros) and "violation:operation" in page
    files = finished.json("manifest.json")["files"]
    listed = {entry["path"] for entry in files} if isinstance(files, list) else set(files)
    assert {row["path"] for row in repros} <= listed
    assert not [path for path in temporary.iterdir() if "repro" in path.name]


@pytest.mark.parametrize("backend", ["mock", "aot_mock"])
def test_what_the_backend_itself_refuses_leaves_repros_too(backend: str, run: Callable[..., Finished]) -> None:
    """Where constrain is not run, the backend itself holds the model to the profile mock."""
    finished = run(*SMALL, f"backend={backend}", "stages=[kerneldiff,report]", "mode=training")
    assert finished.code == 1
    assert finished.summary["numerics"]["verdict"] == "not_established"
    repros = finished.summary["repros"]
    assert {row["graph"] for row in repros} == {"g0.dynamo"} and any(row["verified"] for row in repros)
    for row in repros:
        assert (finished.directory / row["path"]).is_file()
    assert "of the profile 'mock':" in (finished.directory / "run.log").read_text()
    assert (finished.directory / "repros" / "violations.csv").is_file()


def test_a_mock_run_that_fits_passes_with_inductor_behind_the_checks(run: Callable[..., Finished]) -> None:
    finished = run(
        *SMALL, "backend=aot_mock", "backend.options.execute=inductor", "accel=warn16",
        "stages=[capture,constrain,kerneldiff,report]", "mode=training",
    )  # fmt: skip
    assert finished.code == 0, finished.output
    assert finished.summary["numerics"]["verdict"] in ("within_floor", "exact") and not finished.summary["repros"]
