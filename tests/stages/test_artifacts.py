"""Every stored file is named once, what it holds is told, and its cells come back with their types."""

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inductor_debug.models.errors import DamagedError
from inductor_debug.models.stored import parse_csv, parse_json
from inductor_debug.pipeline.directory.names import own_names
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.kinds import File, Json, RecordTable, Table
from inductor_debug.stages.contract import MemoryArtifacts
from inductor_debug.stages.graphs.records import GraphRecord

ROOT = Path(__file__).parents[2]
NAMED = [file for file in [*vars(files).values(), *files.PROFILE_TABLES.values()] if isinstance(file, File)]
STORED = re.compile(rf"({'|'.join(name for name in own_names() if name.isalpha())})/\w")


@dataclass(frozen=True)
class Counted:
    count: int
    name: str = ""
    time: float | None = None
    fused: bool = False


def texts(path: Path) -> Iterator[str]:
    """String constants of a module, but for its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    yield from (node.value for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told)  # fmt: skip


def test_no_path_of_a_stored_file_is_spelt_elsewhere() -> None:
    modules = [path for top in ("models", "stages", "pipeline") for path in (ROOT / top).rglob("*.py")]
    found = [(path.relative_to(ROOT).as_posix(), text) for path in modules for text in texts(path)]
    elsewhere = [(name, text) for name, text in found if STORED.match(text) and name != "stages/artifacts/files.py"]
    assert not elsewhere and ("stages/artifacts/files.py", files.OUTPUTS.path) in found


def test_no_two_files_have_one_path() -> None:
    paths = [file.path for file in NAMED]
    assert len(paths) == len(set(paths)) > 40
    for file in NAMED:
        assert files.file_of(file.at(*("x" for _ in re.findall(r"{", file.path)))) == file


def test_a_file_for_each_graph_is_found_by_any_of_its_paths() -> None:
    assert files.PROVENANCE.at("g0.forward") == "lower/g0.forward/provenance.json"
    assert files.file_of("lower/g1.backward/provenance.json") is files.PROVENANCE
    assert files.file_of("lower/g1.backward/output_code.py") is files.OUTPUT_CODE
    assert files.file_of("acme/table.csv") is None
    graph = {"id": "g0.forward", "kind": "forward", "nodes": []}
    artifacts = MemoryArtifacts({"capture/graphs/g0.forward.json": graph, "capture/graphs/g0.forward.py": "",
                                 "capture/graphs/g1.joint.json": {}})  # fmt: skip
    assert files.GRAPH.stored(artifacts) == ["capture/graphs/g0.forward.json", "capture/graphs/g1.joint.json"]
    assert (
        files.GRAPH.read(artifacts, "g0.forward") == GraphRecord("g0.forward", "forward", [])
        and files.GRAPH.read(artifacts, "g9.forward") is None
    )


def test_cells_come_back_with_the_types_that_their_column_says() -> None:
    table = Table("x.csv", Counted)
    text = "name,count,time,fused,more\n12,3,0.5,True,7\ntrue,,nan,False,\n,-4,1e3,,inf\n"
    artifacts = MemoryArtifacts({"x.csv": text})
    assert table.read(artifacts) == [
        {"name": "12", "count": 3, "time": 0.5, "fused": True, "more": 7},
        {"name": "true", "count": None, "time": "nan", "fused": False, "more": None},
        {"name": None, "count": -4, "time": 1000.0, "fused": None, "more": "inf"},
    ]
    assert [row["count"] for row in table.cells(artifacts) or []] == ["3", "", "-4"]
    first, second, third = RecordTable("x.csv", Counted).records(artifacts) or []
    assert first == Counted(3, "12", 0.5, fused=True) and third == Counted(-4, "", 1000.0, fused=None)  # type: ignore[arg-type]
    assert second.time is not None and math.isnan(second.time) and (second.count, second.name) == (None, "true")
    assert Table("y.csv").read(artifacts) is None and Table("y.csv").cells(artifacts) is None
    assert RecordTable("y.csv", Counted).records(artifacts) is None


@pytest.mark.parametrize("cell", ["x", "1.5", "--1", " 1"])
def test_a_cell_that_is_not_of_its_column_is_damage(cell: str) -> None:
    table = Table("x.csv", Counted)
    with pytest.raises(DamagedError, match=r"row 2 has .* as count"):
        parse_csv(f"count\n{cell}\n".encode(), Path("x.csv"), table.checks())
    with pytest.raises(DamagedError, match="lacks the column count"):
        parse_csv(b"name\nx\n", Path("x.csv"), table.checks())


def test_content_of_another_shape_is_damage() -> None:
    assert parse_json(b"[]", Path("x"), files.shape_of("capture/breaks.json")) == []
    with pytest.raises(DamagedError):
        parse_json(b"{}", Path("x"), files.shape_of("capture/breaks.json"))
    with pytest.raises(DamagedError):
        parse_json(b"[]", Path("x"), files.shape_of("lower/g0.forward/provenance.json"))
    assert parse_json(b"[]", Path("x"), files.shape_of("acme/any.json")) == []
    assert isinstance(files.REPORT, Json)
