"""Stored runs with what each question is answered from."""

import json
from pathlib import Path
from typing import Any

from inductor_debug.stages.artifacts import files

FILE = "/home/me/my_package/nets.py"


SCALE = {"file": FILE, "line": 12, "code": "x = self.scale(x)", "own": True}


SOFTMAX = {"file": FILE, "line": 14, "code": "return x.softmax(-1)", "own": True}


CODE = """\
def call(args):
    # [Provenance debug handles] cpp_fused_mul_0:1
    cpp_fused_mul_0(arg0_1, buf0)
    # [Provenance debug handles] extern_kernels.mm:2, cpp_fused_softmax_1:3
    extern_kernels.mm(buf0, arg1_1, out=buf1)
    cpp_fused_softmax_1(buf1, buf2)
    # [Provenance debug handles] cpp_fused_softmax_1:30
    cpp_fused_softmax_1(buf2, buf3)
"""


BUFFER = {"name": "buf0", "role": "buffer", "shape": [4, "s0"], "dtype": "float32", "bytes": None}


def launch(name: str, handle: int, nodes: str, *sources: dict[str, Any]) -> dict[str, Any]:
    generated = name.startswith("cpp")
    return {
        "name": name, "handle": handle, "kind": "cpp" if generated else "extern", "nodes": nodes.split(),
        "file": f"kernels/{name}.cpp" if generated else None, "sources": list(sources), "reads": [BUFFER],
        "writes": [], "bytes_read": 64, "bytes_written": 32, "modules": ["head"],
    }  # fmt: skip


def table(columns: list[str], *rows: list[Any]) -> str:
    return "\n".join(",".join(map(str, row)) for row in [columns, *rows]) + "\n"


FILES: dict[str, Any] = {
    "run.log": "",
    "lower/summary.json": {
        "inductor_options": {"fallback_random": True},
        "graphs": {"g0.forward": {"kernels": 2, "launches": 4, "extern_launches": 1, "kernels_mapped_share": 1.0,
                                  "seconds": 2.5, "nodes_pre_fusion": 5, "nodes_post_fusion": 3}},
    },
    "lower/g0.forward/output_code.py": CODE,
    "lower/g0.forward/provenance.json": {"kernels": [
        launch("cpp_fused_mul_0", 1, "mul", SCALE), launch("extern_kernels.mm", 2, "mm", SCALE),
        launch("cpp_fused_softmax_1", 3, "exp sum_1 mul_1", SOFTMAX, SCALE),
        launch("cpp_fused_softmax_1", 30, "exp_2", SOFTMAX),
    ]},
    "lower/g0.forward/nodes.json": {"nodes": [
        {"node": "mul", "source": f"{FILE}:12"}, {"node": "mul_1", "source": f"{FILE}:12"},
        {"node": "exp", "source": f"{FILE}:14"}, {"node": "sum_1", "source": f"{FILE}:14"},
    ]},
    "lower/g0.forward/fusions.csv": table(
        [*files.FUSIONS.checks()], ["op2", "op3", True, "", 1, "exp", "sum_1"],
        ["op0", "op2", False, "no shared data", 2, "mul", "exp"],
        ["op2", "op4", False, "numel/rnumel mismatch", 1, "exp", "sum_1"],
    ),
}  # fmt: skip


def write(folder: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
