"""The report's section on the smallest program."""

import json
from dataclasses import replace
from typing import Any

import pytest

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.artifacts.minimization import MinifiedRecord
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.report.config import ReportConfig
from inductor_debug.stages.report.stage import ReportStage
from inductor_debug.stages.settings import Settings

PATH, KERNEL = "repros/minified-g0.forward-relu.py", "repros/minified-g0.forward-relu.kernel.txt"
RECORD = MinifiedRecord(
    "Wrong numbers in aten.relu.default. 1 operation of 9 shows it, in a fresh process too.", "kerneldiff", "defect",
    PATH, KERNEL, "defect", "g0.forward", "relu", "aten.relu.default", "net.py:7", 1, 9, True, True, "", 5, 3.25,
)  # fmt: skip
SCRIPT = '''"""Wrong <numbers> of relu.

It does not show each time: in 25% of the runs.
"""


def off(x):
    return x


def inputs():
    return [1 < 2]


def program(x):
    return (x,)
'''
LAUNCH = {"handle": 2, "kind": "cpp", "sources": [], "reads": [], "writes": [], "bytes_read": None,
          "bytes_written": None}  # fmt: skip
LAUNCHES = [
    LAUNCH | {"name": "cpp_fused_other_0", "file": "kernels/other.cpp", "nodes": ["add"]},
    LAUNCH | {"name": "cpp_fused_relu_1", "file": "kernels/relu.cpp", "nodes": ["other"],
              "captured": [{"graph": "g0.forward", "node": "relu"}]},
]  # fmt: skip


def reported(content: dict[str, Any], status: str = "passed", **options: Any) -> tuple[str, dict[str, Any]]:
    summary = {"run": {}, "verdict": "failed", "stages": [{"name": "minify", "status": status, "message": "so"}]}
    context = StageContext(Settings(ModelConfig(name="net")), MemoryArtifacts({"summary.json": summary} | content))
    found = ReportStage(ReportConfig(**options)).run(context).artifacts
    return found["report/report.html"], json.loads(encode("x.json", found["report/report.json"]))


@pytest.fixture
def stored() -> dict[str, Any]:
    return {
        "minify/minified.json": RECORD,
        PATH: SCRIPT,
        KERNEL: "after = 1",
        "lower/g0.forward/provenance.json": {
            "kernels": LAUNCHES,
            "kernels_mapped_share": 1.0,
            "nodes_mapped_share": 1.0,
        },
        "lower/g0.forward/kernels/other.cpp": "another",
        "lower/g0.forward/kernels/relu.cpp": "first line\nsecond line",
    }


def test_it_shows_the_program_the_place_and_the_kernel_before_and_after(stored: dict[str, Any]) -> None:
    html, data = reported(stored)
    for words in (
        *("def program(x):", "[1 &lt; 2]", "in 25% of the runs", "net.py:7", "1 of 9", f"python {PATH}"),
        *("cpp_fused_relu_1:2", "second line", "after = 1", "Wrong &lt;numbers&gt;", "in a fresh process"),
    ):
        assert words in html, words
    assert "def off" not in html
    assert data["minified"]["before_it"][0]["file"] == "lower/g0.forward/kernels/relu.cpp"
    assert RECORD.message in data["findings"]


def test_a_long_kernel_is_cut_and_the_file_named(stored: dict[str, Any]) -> None:
    html, _ = reported(stored, max_rows=1)
    section = html.partition('<section id="section-minified"')[2].partition("</section>")[0]
    assert "first line" in section and "second line" not in section and "1 of 2 lines are shown" in section


def test_without_lower_and_without_a_kernel_the_program_is_shown_all_the_same(stored: dict[str, Any]) -> None:
    record = replace(RECORD, kernel="", verified=False, reason="it took too long", minimal=False, stage="")
    html, _ = reported({"minify/minified.json": record, PATH: SCRIPT})
    assert "def program(x):" in html and "before and after" not in html
    assert "no: it took too long" in html and "the fewest that were found in time" in html
    assert "minify looked for a failure itself" in html


@pytest.mark.parametrize("status", ["passed", "skipped", "failed", "crashed"])
def test_what_it_did_not_find_is_told_where_something_failed(status: str) -> None:
    html, data = reported({}, status)
    missing = [note for note in data["not_established"] if note.startswith("The smallest program")]
    assert bool(missing) is ("smallest program that shows it?" in html) is (status in ("failed", "crashed"))
