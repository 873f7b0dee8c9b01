"""Two runs at once, with one cache: what each stores is its own."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from command_line import SMALL, Finished, command

WIDTHS = (212, 236)
"""Of the small model's last layer, over which a kernel takes a mean; neither is a number of anything else."""


def run(width: int, cwd: Path, cache: Path) -> Finished:
    """Capture and lowering of the small model, in a working directory of its own."""
    cwd.mkdir()
    options = (f"model.build.width={width}", "stages=[capture,lower]", f"runner.cache_dir={cache}")
    finished = command(*SMALL, *options, cwd=cwd)
    (directory,) = [path.parent for path in cwd.glob("outputs/*/*/summary.json")]
    return Finished(finished.returncode, finished.stdout + finished.stderr, directory)


@pytest.mark.slow
def test_two_runs_with_one_cache_keep_their_kernels_apart(tmp_path: Path) -> None:
    with ThreadPoolExecutor(len(WIDTHS)) as pool:
        runs = list(pool.map(lambda width: run(width, tmp_path / f"work{width}", tmp_path / "cache"), WIDTHS))
    for finished, width, other in zip(runs, WIDTHS, reversed(WIDTHS), strict=True):
        assert finished.code == 0, finished.output
        assert finished.statuses() == {"capture": "passed", "lower": "passed"}
        assert not any(stage["cached"] for stage in finished.summary["stages"])
        lower = finished.directory / "lower/g0.forward"
        kernels = {path.name: path.read_text() for path in (lower / "kernels").iterdir()}
        generated = (lower / "output_code.py").read_text()
        assert kernels and all(text.strip() in generated for text in kernels.values())
        texts = [generated, *((lower / name).read_text() for name in ("post_grad.py", "ir_post_fusion.txt"))]
        for text in ["\n".join(kernels.values()), *texts]:
            assert re.search(rf"\b{width}L*\b", text) and not re.search(rf"\b{other}L*\b", text)

        provenance = finished.json("lower/g0.forward/provenance.json")
        nodes = {node["node"] for node in finished.json("lower/g0.forward/nodes.json")["nodes"]}
        assert {kernel["file"] for kernel in provenance["kernels"]} - {None} == {f"kernels/{name}" for name in kernels}
        assert all(kernel["nodes"] and set(kernel["nodes"]) <= nodes for kernel in provenance["kernels"])
        shapes = [buffer["shape"] for kernel in provenance["kernels"] for buffer in kernel["reads"] + kernel["writes"]]
        assert any(width in shape for shape in shapes)
        assert not any(other in shape for shape in shapes)
