"""What the cookbook's entries with runs of their own answer, on the small models that stand in for the page's."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import small_models
from command_line import SMALL, Finished
from cookbook_page import Check, Reader


def model(name: str) -> str:
    return f"model=custom model.build._target_=small_models.{name} model.name={name}"


BLOCK = {"model=bert": " ".join(SMALL), "model=resnet18": " ".join(SMALL)}
PERCEPTRON, MATCHED, DIVIDING, BRANCHING = (
    {"model=bert": model(name)} for name in ("perceptron", "matched", "dividing", "branching")
)
TINY_BERT = {"model=bert": "model=bert model.build.layers=1 model.build.width=32 model.build.heads=2 "
             "model.build.intermediate=64 model.build.vocabulary=100 model.sequence_length=8"}  # fmt: skip

OWN_CHECKS: dict[str, tuple[dict[str, str], Check]] = {}
"""Title → stand-ins, check, of entries that make runs of their own."""


def from_own(title: str, words: dict[str, str]) -> Callable[[Check], Check]:
    return lambda check: OWN_CHECKS.setdefault(title, (words, check))[1]


def line_of(text: str, built: Any = small_models.Block) -> str:
    """``FILE:LINE`` of the one line of a model that holds ``text``."""
    lines, first = inspect.getsourcelines(built)
    (number,) = [first + index for index, line in enumerate(lines) if text in line]
    return f"{small_models.__file__}:{number}"


def settings(reader: Reader, key: str) -> list[Any]:
    """The values of a setting in the runs that were compared."""
    (row,) = [row for row in reader.tables["settings"] if row["settings"] == key]
    return [value for name, value in row.items() if name != "settings"]


def sources(run: Path) -> str:
    return "".join(file.read_text() for file in sorted(run.glob("lower/*/kernels/*")))


@from_own("What breaks the chip's rules, and at which line?", BLOCK)
def _(reader: Reader) -> None:
    (rule,) = reader.tables["rules"]
    lines, violations = reader.tables["lines"], reader.tables["violations"]
    assert rule["rule"] == "alignment" and rule["findings"] == len(violations) == sum(row["findings"] for row in lines)
    assert line_of("self.projection(hidden)") in {row["source"] for row in lines}
    assert all(row["measured"] % 16 and row["limit"] == 16 for row in violations)


@from_own("Why does it compile again?", BRANCHING)
def _(reader: Reader) -> None:
    outcomes = {(row["variation"], row["step"]): row for row in reader.tables["variations"]}
    assert outcomes["batch", 1]["static"] == "recompiled" and outcomes["repeat", 1]["static"] == "reused"
    row = next(row for row in reader.tables["recompiles"] if row["variation"] == "batch")
    assert "size mismatch at index 0" in row["guard"] and row["suggestion"] and row["source"].rpartition(":")[2]


@from_own("Which operation is wrong?", BLOCK)
def _(reader: Reader) -> None:
    assert reader.code == 1
    wrong = [row for row in reader.tables["nodes"] if row["state"] == "wrong"]
    assert {row["target"] for row in wrong} == {"aten.relu.default"}
    assert line_of("torch.relu") in {row["source"] for row in wrong}


@from_own("Which pass, lowering or option breaks my numbers?", BLOCK)
def _(reader: Reader) -> None:
    assert reader.code == 1
    assert "it goes away with cpp.inject_relu_bug_TESTING_ONLY=null" in reader.told
    assert "the lowering of aten.relu.default" in reader.told and "remedy (option): " in reader.told
    assert {"present", "gone"} <= {row["fault"] for row in reader.tables["probes"]}


@from_own("Is it Dynamo, AOTAutograd or TorchInductor?", BLOCK)
def _(reader: Reader) -> None:
    found = {row["backend"]: row["numerics"] for row in reader.answers[-1]}
    assert found.keys() == {"eager", "aot_eager", "inductor"}
    assert found["inductor"] in ("exact", "within_floor") and found["eager"] in ("exact", "not_exercised")


@from_own("Is it the pattern matcher?", MATCHED)
def _(reader: Reader) -> None:
    """It is what made one call of the product and the sum."""
    assert settings(reader, "backend.inductor.pattern_matcher") == [True, False]
    changed = {row["kernels"] for row in reader.tables["kernels"]}
    assert {"g0.forward extern_kernels.addmm", "g0.forward extern_kernels.mm"} <= changed


@from_own("Does dtype or mode move it?", BLOCK)
def _(reader: Reader) -> None:
    found = {row["dtype"]: row["numerics"] for row in reader.answers[-1]}
    assert found.keys() == {"float32", "bfloat16"} and set(found.values()) <= {"exact", "within_floor"}


@from_own("Is fusion at fault?", BLOCK)
def _(reader: Reader) -> None:
    single, fused = (
        next(iter(Finished(0, "", run).json("lower/summary.json")["graphs"].values())) for run in reader.runs
    )
    assert single["nodes_post_fusion"] == single["nodes_pre_fusion"] == fused["nodes_pre_fusion"]
    assert fused["nodes_post_fusion"] < fused["nodes_pre_fusion"]
    assert settings(reader, "backend.inductor.max_fusion_size") == [1, 64]


@from_own("Which candidate was the fastest, and how close were the others?", PERCEPTRON)
def _(reader: Reader) -> None:
    rows = reader.tables["candidates"]
    fastest = [row for row in rows if row["fastest"]]
    assert "2 operations timed" in reader.told and sum(row["operations"] for row in fastest) == 2 < len(rows)
    assert all(row["times_the_best"] >= 1 for row in rows if row["milliseconds"] is not None)
    assert all(row["times_the_best"] == 1 for row in fastest)


@from_own("Does it pay?", PERCEPTRON)
def _(reader: Reader) -> None:
    results = {row["results"]: (row["1"], row["2"]) for row in reader.tables["results"]}
    assert all(seconds > 0 for seconds in results["lower.compile_s"])
    for (low, high), median in zip(results["benchmark.test.ci95_ms"], results["benchmark.test.median_ms"], strict=True):
        assert 0 < low <= median <= high


@from_own("Is vectorized C++ at fault?", BLOCK)
def _(reader: Reader) -> None:
    vectors, scalar = reader.runs
    assert "Vectorized" in sources(vectors) and "Vectorized" not in sources(scalar) != ""
    assert settings(reader, "backend.inductor.cpp.simdlen") == [None, 1]


@from_own("Is it the wrapper in Python? Where is its time?", BLOCK)
def _(reader: Reader) -> None:
    assert "inductor_entry_impl" in next(reader.newest.directory.glob("lower/*/output_code.py")).read_text()
    assert reader.tables["graphs"][0]["kernels_mapped_share"] == 1
    assert line_of("torch.relu") in {row["source"] for row in reader.tables["kernels"]}


@from_own("Are the weights folded?", PERCEPTRON)
def _(reader: Reader) -> None:
    read = [row for row in reader.tables["buffers"] if row["access"] == "reads"]
    assert {"constant"} < {row["role"] for row in read}


@from_own("Does it depend on the number of threads?", BLOCK)
def _(reader: Reader) -> None:
    assert settings(reader, "backend.inductor.cpp.threads") == [1, 2]
    assert not reader.tables["outputs"]


TRAINING = {"device=cuda backend=inductor_unique_names": "device=cuda mode=training backend=inductor_unique_names"}


@from_own("Which Triton kernel is that in the profiler? (CUDA)", BLOCK | TRAINING)
def _(reader: Reader) -> None:
    rows = reader.tables["kernels"]
    assert rows and {row["kind"] for row in rows} == {"triton"}
    names = [row["kernel"].partition(":")[0] for row in rows]
    files = {row["file"] for row in rows}
    assert {row["graph"] for row in rows} == {"g0.forward", "g0.backward"}
    assert len({Path(file).name for file in files}) == len(files) == len(set(names))  # unique across both graphs
    assert all(f"def {name}(" in sources(reader.newest.directory) for name in names)
    assert line_of("torch.relu") in {row["source"] for row in reader.tables["lines"]}


@from_own("Which Triton kernel fails? (CUDA)", BLOCK)
def _(reader: Reader) -> None:
    module = next(reader.newest.directory.glob("lower/*/output_code.py")).read_text()
    assert "synchronize()" in module
    assert all(row["called_at"] for row in reader.tables["kernels"])


OR_ERROR = {"cudagraphs=true,false": "cudagraphs=true,false backend.inductor.triton.cudagraph_or_error=true"}
"""Compiling fails where torch leaves out the CUDA graphs that were asked for."""


@from_own("Are CUDA graphs at fault? (CUDA)", BLOCK | OR_ERROR)
def _(reader: Reader) -> None:
    assert settings(reader, "backend.inductor.triton.cudagraphs") == [True, False]
    assert not reader.tables["outputs"]
    with_graphs, without = (Finished(0, "", run).json("lower/summary.json") for run in reader.runs)
    assert with_graphs["inductor_options"]["triton.cudagraphs"] is True
    assert without["inductor_options"]["triton.cudagraphs"] is False


@from_own("Where does the time go?", BLOCK)
def _(reader: Reader) -> None:
    assert line_of("torch.relu") in {row["source"] for row in reader.tables["lines"]}
    assert all(row["time_us"] > 0 for row in reader.tables["kernels"] if row["kind"] == "cpp")
    assert (reader.newest.directory / "profile/trace.json.gz").stat().st_size


@from_own("What does compiling cost?", BLOCK)
def _(reader: Reader) -> None:
    benchmark = reader.answers[-1]["benchmark"]
    assert benchmark["test"]["compile_s"] > 0 and benchmark["speedup_ci95"]


@from_own("Where does the first NaN come from?", DIVIDING)
def _(reader: Reader) -> None:
    first, *lines = reader.told.splitlines()
    assert first.startswith("the first NaN: g0.forward, after cpp_fused_div")
    assert any(line_of("hidden.sum", small_models.Dividing) in line for line in lines)


@from_own("What are a kernel's inputs and outputs?", DIVIDING | {"cpp_fused_gelu_view_3": "cpp_fused_div_relu_sum_0"})
def _(reader: Reader) -> None:
    from safetensors.torch import load_file

    rows = [row for row in reader.tables["values"] if row["file"]]
    stored = load_file(reader.newest.directory / rows[0]["file"])
    assert {f"{row['when']}.{row['buffer']}" for row in rows} == stored.keys()
    assert any(tensor.isnan().any() for name, tensor in stored.items() if name.startswith("after."))
