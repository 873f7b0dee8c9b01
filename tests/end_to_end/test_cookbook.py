"""Every command of docs/how-to/cookbook.md is typed, and what the page points at holds the answer.

The page's models are full-size: each entry says, here or in :mod:`cookbook_checks`, which small one stands in for it,
with the symptom planted, and which words of that model stand for the page's.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import small_models
import torch
from command_line import QUICK, Finished
from cookbook_checks import BRANCHING, OWN_CHECKS, TINY_BERT, line_of
from cookbook_page import CUDA, PIPELINE, Check, Reader, read_page, substituted

from inductor_debug.pipeline.run.commands import entry as command_line

BASE, ENTRIES = read_page()
TITLES = {entry.title: entry for entry in ENTRIES}
GROUPS = {"Generated code", "Isolating an optimization", "Fusion", "Autotuning", "Triton and C++", "Accelerators",
          "Profiling", "Intermediate values"}  # fmt: skip
"""Those that are to be there."""

COMPILED_WORDS = {"self.intermediate_act_fn": "torch.relu", "self.dense(hidden_states)": "self.projection(hidden)",
                  "cpp_fused_gelu_view_3": "relu", "--kernel gelu": "--kernel relu"}  # fmt: skip
"""Words of the page → those of ``small_models.Block``, which stands in for the base run's model."""

BASE_CHECKS: dict[str, Check] = {}
"""Title → check, of what the base run answers."""
APART = {"Where does the graph break?", "Can I have one graph as a script?", "What changed between two runs?"}
"""Entries with a test of their own."""


def from_base(title: str) -> Callable[[Check], Check]:
    return lambda check: BASE_CHECKS.setdefault(title, check)


def marks(title: str) -> list[pytest.MarkDecorator]:
    """What an entry needs that is not everywhere."""
    cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
    return [cuda] * title.endswith(CUDA)


# The page as such


def test_the_page_has_its_groups_and_every_entry_is_checked() -> None:
    assert {entry.group for entry in ENTRIES} == GROUPS
    assert BASE_CHECKS.keys() | OWN_CHECKS.keys() | APART == TITLES.keys()
    assert len(TITLES) == len(ENTRIES) and all(entry.commands for entry in ENTRIES)
    assert "@" not in re.sub(r"`[^`]*`", "", "".join(entry.text for entry in ENTRIES))


RUNS = sorted({text for entry in ENTRIES for text in entry.commands if text.startswith(PIPELINE)} | {BASE})


@pytest.mark.parametrize("text", RUNS)
def test_every_run_of_the_page_composes(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands on the page, full-size models and CUDA included; of a sweep each of its values."""
    monkeypatch.chdir(tmp_path)
    words = [word for word in shlex.split(text)[3:] if word != "--multirun"]
    sweeps = [word for word in words if "," in word.partition("=")[2] and "[" not in word]
    assert bool(sweeps) == ("--multirun" in text)
    plain = [word for word in words if word not in sweeps]
    choices = [f"{word.partition('=')[0]}={value}" for word in sweeps for value in word.partition("=")[2].split(",")]
    for choice in choices or [""]:
        assert command_line.main(["--cfg", "job", *plain, *filter(None, [choice])]) == 0, capsys.readouterr().err


def test_what_the_page_stands_in_for_is_torch_s() -> None:
    from torch._inductor import config
    from torch._logging._internal import log_registry

    options = config.get_config_copy()
    folder = Path(torch.__file__).parent
    files = ["_inductor/config.py", "_dynamo/config.py", "_inductor/compiler_bisector.py", "_logging/_internal.py"]
    sources = "".join((folder / name).read_text() for name in files)
    named = [name for entry in ENTRIES for place in re.findall(r"In place of:(.*?)(?:\n\n|\Z)", entry.text, re.DOTALL)
             for name in re.findall(r"`([^`]+)`", place)]  # fmt: skip
    assert len(named) > 30
    for name in named:
        variable, _, value = name.partition("=")
        if variable == "TORCH_LOGS":
            known = log_registry.artifact_names | log_registry.log_alias_to_log_qnames.keys()
            assert set(value.split(",")) <= known, name
        elif name.startswith("torch._inductor.config."):
            assert variable.strip().removeprefix("torch._inductor.config.") in options, name
        elif re.fullmatch(r"[A-Z_]{6,}", variable) and variable != "OMP_NUM_THREADS":
            assert variable in sources, name


# What the base run answers


@from_base("What code was generated for my line?")
def _(reader: Reader) -> None:
    kernels = reader.tables["kernels"]
    assert {row["source"] for row in kernels} == {line_of("torch.relu")}
    generated = [row for row in kernels if row["kind"] == "cpp"]
    assert generated
    for row in generated:
        name = row["kernel"].partition(":")[0]
        file, _, number = row["called_at"].rpartition(":")
        module = (reader.newest.directory / file).read_text()
        assert (reader.newest.directory / row["file"]).read_text().strip() in module
        around = module.splitlines()[int(number) - 1 : int(number) + 5]
        assert any(line.strip().startswith(f"{name}(") for line in around)


@from_base("Which line of my model is this kernel?")
def _(reader: Reader) -> None:
    assert line_of("torch.relu") in {row["source"] for row in reader.tables["lines"]}
    assert {"reads", "writes"} == {row["access"] for row in reader.tables["buffers"]}


@from_base("What did each step of the compiler make of it?")
def _(reader: Reader) -> None:
    assert reader.tables["graphs"][0]["kernels_mapped_share"] == 1
    for row in reader.tables["graphs"]:
        folder = reader.newest.directory / "lower" / row["graph"]
        names = ["pre_grad.py", "joint.py", "post_grad.py", "ir_pre_fusion.txt", "ir_post_fusion.txt", "output_code.py"]
        assert all((folder / name).stat().st_size for name in names)
        assert len(list((folder / "kernels").iterdir())) == row["kernels"]


@from_base("Which tensors are wrong, and by how much?")
def _(reader: Reader) -> None:
    rows = reader.tables["outputs"]
    assert {"logits", "states[0]"} <= {row["path"] for row in rows}
    assert all(row["verdict"] in ("exact", "within_floor") and not row["nan_test"] for row in rows)


@from_base("Why were these two not fused?")
def _(reader: Reader) -> None:
    """Between the ReLU and the projection stands a library's call."""
    assert "library calls, which nothing is fused into:" in reader.told and "addmm" in reader.told
    assert "library calls from one to the other, over which nothing is fused: extern_kernels." in reader.told


@from_base("What is in this fused kernel?")
def _(reader: Reader) -> None:
    assert any("relu" in row["nodes"] and row["bytes_read"] and row["bytes_written"]
               for row in reader.tables["kernels"])  # fmt: skip


@from_base("Does alignment move it?")
def _(reader: Reader) -> None:
    rows = reader.answers[-1]
    assert len(rows) == 128 and rows[0]["alignment"] == 1
    found = {row["alignment"]: row["findings"] for row in rows}
    assert found[1] == 0 < found[4] <= found[64]


@pytest.mark.parametrize("title", BASE_CHECKS)
def test_the_base_run_answers(
    title: str, training_run: Finished, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the run of ``small_models.Block`` in training that other tests read too."""
    reader = Reader(training_run.directory.parents[2])
    for text in TITLES[title].commands:
        reader.type(substituted(text, COMPILED_WORDS), monkeypatch, capsys)
    BASE_CHECKS[title](reader)


def test_two_lines_that_were_not_fused_have_the_schedulers_reason(
    training_run: Finished, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The entry's question of two lines that no library's call parts: the backward of a mean, and of its argument."""
    reader = Reader(training_run.directory.parents[2])
    (text,) = TITLES["Why were these two not fused?"].commands
    words = {"self.intermediate_act_fn": "logits.mean", "self.dense(hidden_states)": "self.projection(hidden)"}
    reader.type(substituted(text, words), monkeypatch, capsys)
    refused = [row for row in reader.tables["decisions"] if not row["fused"]]
    assert refused and all(row["reason"].strip() and row["times"] >= 1 for row in refused)
    for row in refused:
        for line in ("logits.mean", "self.projection(hidden)"):
            assert line_of(line) in f"{row['first_source']} {row['second_source']}"
    times = {row["reason"]: row["times"] for row in reader.tables["reasons"]}
    assert sum(times.values()) == sum(row["times"] for row in refused)
    assert times.keys() == {row["reason"] for row in refused}


@pytest.mark.slow
def test_the_words_of_the_page_are_those_of_bert(
    tmp_path: Path, compilers: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The base run and its questions verbatim, on one layer of the page's own model."""
    reader = Reader(tmp_path, compilers)
    reader.type(substituted(BASE, TINY_BERT), monkeypatch, capsys)
    assert reader.code == 0, reader.output
    for title in BASE_CHECKS:
        for text in TITLES[title].commands:
            reader.type(text, monkeypatch, capsys)
    answers = dict(zip(BASE_CHECKS, reader.answers, strict=True))
    for title in ("What code was generated for my line?", "Which line of my model is this kernel?"):
        (row,) = answers[title]["tables"]["kernels"]
        assert row["kernel"].startswith("cpp_fused_gelu_view_3:") and "intermediate_act_fn" in row["code"]


def test_a_break_is_shown_with_its_line(
    tmp_path: Path, compilers: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = Reader(tmp_path, compilers)
    capturing = BRANCHING | {"stages=[capture,lower,kerneldiff,report]": "stages=[capture]"}
    reader.type(substituted(BASE, capturing), monkeypatch, capsys)
    for text in TITLES["Where does the graph break?"].commands:
        reader.type(text, monkeypatch, capsys)
    (row,) = reader.tables["breaks"]
    assert f"{row['file']}:{row['line']}" == line_of("if hidden.sum()", small_models.Branching)
    assert row["reason"] and row["suggestion"]


@pytest.mark.slow
def test_the_script_of_one_graph_runs(training_run: Finished) -> None:
    (text,) = TITLES["Can I have one graph as a script?"].commands
    script = text.replace("RUN", str(training_run.directory)).removeprefix("python ")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=training_run.directory.parent)
    assert done.returncode == 0, done.stderr


def test_two_runs_are_compared(
    inference_run: Finished,
    training_run: Finished,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for number, finished in enumerate((inference_run, training_run)):
        link = tmp_path / "outputs" / f"{number}"
        link.mkdir(parents=True)
        (link / finished.directory.name).symlink_to(finished.directory)
    (text,) = TITLES["What changed between two runs?"].commands
    runs = [str(next(path.iterdir())) for path in sorted((tmp_path / "outputs").iterdir())]
    reader = Reader(tmp_path)
    reader.type(text.replace("RUN RUN", " ".join(map(shlex.quote, runs))), monkeypatch, capsys)
    assert [row for row in reader.tables["settings"] if row["settings"] == "mode"] == [
        {"settings": "mode", "1": "inference", "2": "training"}]  # fmt: skip
    assert any(row["outputs"] == "loss loss" and row["1"] is None for row in reader.tables["outputs"])
    assert any("g0.backward" in row["kernels"] for row in reader.tables["kernels"])


@pytest.mark.slow
@pytest.mark.parametrize("title", [pytest.param(title, marks=marks(title)) for title in OWN_CHECKS])
def test_an_entry_answers(
    title: str,
    tmp_path: Path,
    compilers: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, check = OWN_CHECKS[title]
    reader = Reader(tmp_path, compilers)
    for text in TITLES[title].commands:
        quick = " ".join(["", *QUICK]) if text.startswith(PIPELINE) and "benchmark" in text else ""
        reader.type(substituted(text, words) + quick, monkeypatch, capsys)
    check(reader)
