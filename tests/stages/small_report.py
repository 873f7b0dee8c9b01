"""What stages of a small run stored, and the report of it."""

import json
from html.parser import HTMLParser

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.report.config import ReportConfig
from inductor_debug.stages.report.stage import ReportStage
from inductor_debug.stages.settings import Settings

SOURCE = "def forward(self, x, w):\n    # a < b\n    y = x @ w\n    return y"
HOSTILE = "<script>alert('x')</script>\"&"
OUTSIDE = (
    "What runs outside the graphs (1 graph break): Dynamo left it to Python, so it is in no graph and was not checked "
    "against the profile."
)
PNG = b"\x89PNG fake"


SAID = {
    "capture": "Dynamo captured 1 graph, with 1 graph break.\n3 guards.",
    "constrain": "The model does not fit the profile warn16: 3 violations.\nRule alignment: a multiple of 16.",
    "lower": "inductor compiled 1 AOT graph to 1 generated kernel.",
    "kerneldiff": "The numbers are wrong in 1 result of 2.\ndefect: 1 exact, 1 defect\nNo operation was seen.",
    "benchmark": "The compiled model is 1.25 times as fast as the reference.\n10 samples a side.",
}
"""What each stage said: the sentence, and below it the figures."""


def summary(**more):
    stages = [{"name": name, "status": "passed", "seconds": 1.5, "cached": False, "message": message}
              for name, message in SAID.items()]  # fmt: skip
    side = {"median_ms": 2.5, "iqr_ms": 0.1, "ci95_ms": [2.4, 2.6], "samples": 10, "compile_s": 20.25,
            "peak_memory_bytes": 3 * 1024**2}  # fmt: skip
    return {
        "schema": 1,
        "run": {"id": "r1", "model": "bert", "accel": "warn16", "backend": "inductor", "dtype": "float32",
                "device": "cpu", "mode": "training", "overrides": ["model=bert", "model.name=a b"]},
        "verdict": "passed", "stages": stages,
        "graphs": {"dynamo": 1, "forward": 1, "backward": 1, "breaks": 1, "guards": 3, "nodes": 9},
        "violations": {"total": 3, "by_rule": {"alignment": 3}, "by_effect": {"pad": 3}, "strict": False},
        "numerics": {"compared": 2, "failed": 1, "verdict": "defect", "max_abs": 0.5},
        "benchmark": {"reference": side, "test": side, "speedup": 1.25, "speedup_ci95": [1.2, 1.3]}, "repros": [],
    } | more  # fmt: skip


def violations(count=3, node="mm", source="net.py:7"):
    header = ("graph,node,target,operand,module,source,rule,effect,severity,measured,limit,cost_bytes,cost_share,"
              "message,suggestion\n")  # fmt: skip
    quoted = '"' + node.replace('"', '""') + '"'
    return (
        header
        + f"g0.forward,{quoted},aten.mm.default,output,m,{source},alignment,pad,warning,100,16,96,0.12,msg,pad\n"
        * count
    )


def full(**more):
    node = {"name": "mm", "op": "call_function", "target": "aten.mm.default", "outputs": []}
    source = {"file": "net.py", "line": 7, "code": "y = x @ w"}
    graph = {"id": "g0.forward", "kind": "forward", "nodes": [node | {"source": source}]}
    return {
        "summary.json": summary(),
        "manifest.json": {"versions": {"torch": "2.13.0"}},
        "capture/graphs/g0.forward.json": graph,
        "capture/sources.json": [{"file": "net.py", "first": 5, "text": SOURCE}],
        "capture/statistics.csv": "graph,op,count\ng0.forward,aten.mm.default,4\n",
        "capture/breaks.json": [{"reason": "call to print", "frame": {"file": "net.py", "line": 12}}],
        "constrain/violations.csv": violations(),
        "lower/g0.forward/provenance.json": {
            "kernels": [{"name": "cpp_fused_mm_0", "handle": 1, "kind": "cpp", "file": "kernels/mm.cpp",
                         "nodes": ["mm"],
                         "sources": [{"file": "net.py", "line": 7, "code": "y = x @ w", "own": True}],
                         "reads": [], "writes": [], "bytes_read": None, "bytes_written": None}],
            "kernels_mapped_share": 1.0, "nodes_mapped_share": 0.5, "lines": {"net.py:7": ["cpp_fused_mm_0:1"]}},
        "lower/g0.forward/kernels/mm.cpp": "// made by the compiler\nextern void kernel(const float* x) { return; }\n",
        "kerneldiff/outputs.csv": "path,verdict,bound,max_abs\noutput,exact,,0.0\nloss,defect,floor,0.5\n",
        "kerneldiff/plots/loss.png": PNG,
    } | more  # fmt: skip


def report(content, folder=None, **options):
    settings = Settings(ModelConfig(name="tiny"))
    result = ReportStage(ReportConfig(**options)).run(StageContext(settings, MemoryArtifacts(content), folder=folder))
    assert result.status == "passed"
    data = json.loads(encode("report/report.json", result.artifacts["report/report.json"]))
    return result.artifacts["report/report.html"], data


class Text(HTMLParser):
    """Text and tags of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)
