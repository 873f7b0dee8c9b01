"""Stored runs from strangers and from damaged disks: no command fails over them, runs them or believes them.

The folders are those of ``tests/trials/hostile_folders.py``, which takes a real run and a fresh interpreter for each;
here they are copies of a run written by hand, read in this process.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from inductor_debug.pipeline import cli
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, SourceLine, TensorRecord

TRIALS = Path(__file__).resolve().parents[2] / "trials"
sys.path.insert(0, str(TRIALS))

import hostile_damage as damage  # noqa: E402
import hostile_folders as trial  # noqa: E402
from stored_analysis import FILES, write  # noqa: E402

CONFIG = """\
model: {name: nets, build: {_target_: nets.build}}
accel:
  name: warn8
  strict: false
  alignment: 8
  rules: []
backend: {name: inductor, adapter: inductor}
dtype: float32
mode: inference
seed: 0
"""
VIOLATION = "g0.forward,y,aten.relu.default,output,,nets.py:5,alignment,pad,warning,12,8,64,0.3,12 is not,use 16"
COLUMNS = (
    "graph,node,target,operand,module,source,rule,effect,severity,measured,limit,cost_bytes,cost_share,message,"
    "suggestion"
)
REPRO = '''"""It is wrong."""
import torch


def compiled():
    return torch.compile(program, backend="inductor")
'''
ASKED = [
    ["list", "RUNS"], ["list", "RUNS", "--format", "json"], ["show", "RUN"], ["analyze", "RUN"],
    *(["analyze", "RUN", "--type", kind] for kind in ("constraints", "numerics", "fusion", "kernels", "guards")),
    ["check", "RUN", "--out", "OUT"], ["check", "RUN", "max_rank=1", "--out", "OUT"],
    ["check", "RUN", "--models", "--out", "OUT"], ["compare", "GOOD", "RUN"],
    ["repro", "RUN"], ["repro", "RUNS", "--format", "json"], ["repro", "RUN", "x.py", "--export", "markdown"],
]  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run, written by hand, with its manifest."""
    run = tmp_path_factory.mktemp("good") / "run"
    x = TensorRecord([4, 12], "float32", [12, 1], "cpu")
    source = SourceLine("nets.py", 5, "return x.relu()", "forward")
    nodes = [
        NodeRecord("x", "placeholder", "x", outputs=[x], role="input"),
        NodeRecord("y", "call_function", "aten.relu.default", [{"node": "x"}], inputs=["x"], outputs=[x],
                   source=source, flops=48),
        NodeRecord("output", "output", "output", inputs=["y"]),
    ]  # fmt: skip
    stages = [{"name": name, "status": "passed", "seconds": 1.0, "message": "done"}
              for name in ("capture", "constrain", "lower", "kerneldiff")]  # fmt: skip
    about = {"id": "day/run", "model": "nets", "accel": "warn8", "backend": "inductor", "dtype": "float32",
             "device": "cpu", "mode": "inference", "overrides": [], "seconds": 4.0}  # fmt: skip
    summary = {"schema": 1, "run": about, "verdict": "passed", "stages": stages, "violations": {"total": 1},
               "numerics": {"compared": 1, "failed": 0, "verdict": "exact"},
               "benchmark": {"speedup": 1.5, "speedup_ci95": [1.4, 1.6]},
               "repros": [{"path": "repros/x.py", "failure_class": "defect", "failure": "defect", "verified": True,
                           "fingerprint": "a1b2c3d4e5f6", "nodes": 1}]}  # fmt: skip
    write(run, {
        "repros/x.py": REPRO, **FILES,
        "summary.json": summary, ".hydra/config.yaml": CONFIG, "manifest.json": {"environment": {}},
        "capture/graphs/g0.forward.json": GraphRecord("g0.forward", "forward", nodes).to_json(),
        "capture/breaks.json": [], "capture/recompiles.json": [], "capture/guards.json": [],
        "constrain/violations.csv": f"{COLUMNS}\n{VIOLATION}\n",
        "constrain/summary.csv": f"{','.join(files.BY_RULE.checks())}\nalignment,pad,1,0,0,1,1.0,64,0.5,48,\n",
        "kerneldiff/outputs.csv": "kind,path,verdict,bound,ratio\noutput,y,exact,exact,0.0\n",
    })  # fmt: skip
    damage.sign(run)
    return run


def asked(folder: Path, neighbour: Path, out: Path) -> list[dict[str, Any]]:
    """The answers to :data:`ASKED`."""
    words = {"RUN": str(folder), "RUNS": str(folder.parent), "GOOD": str(neighbour), "OUT": str(out)}
    return [trial.answer([words.get(word, word) for word in command]) for command in ASKED]


@pytest.fixture(scope="module")
def healthy(good: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What is answered of the whole run."""
    scene = tmp_path_factory.mktemp("scene")
    found = asked(*trial.place("", good, scene, 0), scene / "out")
    assert [item["code"] for item in found] == [0] * len(ASKED), found
    return [without(item, scene) for item in found]


def without(found: dict[str, Any], scene: Path) -> dict[str, Any]:
    """An answer without the scene's own path."""
    return found | {key: found[key].replace(f"{scene}/", "") for key in ("out", "err")}


@pytest.mark.parametrize("kind", damage.every())
def test_a_damaged_or_hostile_folder_is_told_as_one_and_harms_nothing(
    kind: str, good: Path, healthy: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "unreadable" in kind and os.geteuid() == 0:
        pytest.skip("root reads everything: tests/trials/hostile_folders.py takes that right away first")
    folder, neighbour = trial.place(kind, good, tmp_path, seed=0)
    marker = tmp_path / "marker"
    monkeypatch.setenv(damage.SECRET, damage.SECRET_VALUE)
    monkeypatch.setenv(damage.MARKER, str(marker))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "evil", raising=False)  # an earlier payload would hide this one
    monkeypatch.chdir(folder)
    before = trial.digest(tmp_path / "runs")
    answers = [without(item, tmp_path) for item in asked(folder, neighbour, tmp_path / "out")]
    monkeypatch.chdir(tmp_path)
    assert list(trial.faults(kind, folder, neighbour, answers, healthy)) == []
    assert trial.digest(tmp_path / "runs") == before
    assert not marker.exists() and not trial.leaks(tmp_path / "out")
    folder.chmod(0o755)


def test_check_calls_a_rule_that_the_run_names_only_where_it_is_trusted(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = trial.place("rule that is a callable", good, tmp_path, seed=0)
    marker = tmp_path / "marker"
    monkeypatch.setenv(damage.MARKER, str(marker))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(folder)
    path, words = list(sys.path), ["check", str(folder), "--out", str(tmp_path / "out")]
    for more, code in ([], 0), (["strict=true", "alignment=4"], 1), (["--grid", "max_rank=4"], 0), (["--models"], 0):
        assert cli.main([*words, *more]) == code
        told = capsys.readouterr()
        assert "not established: 1 custom rule that the stored run names, not looked at: evil.pwn" in told.err
        assert "Try: --trust" in told.err and "fits" not in told.err
        assert not marker.exists() and sys.path == path and "evil" not in sys.modules
    assert cli.main([*words, "strict=true", "alignment=4", "--trust"]) == 0
    assert "The model fits the profile warn8: " in capsys.readouterr().err and marker.read_text() == "evil"
    del sys.modules["evil"]


def test_an_interpolation_of_a_stored_profile_is_refused_where_its_value_is_needed(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = trial.place("variable in the profile", good, tmp_path, seed=0)
    monkeypatch.setenv(damage.SECRET, "16")
    words = ["check", str(folder), "--out", str(tmp_path / "out")]
    assert cli.main(words) == 2
    told = capsys.readouterr().err
    assert f"accel.alignment is '${{oc.env:{damage.SECRET}}}', an interpolation, which is not resolved" in told
    assert "Try: accel.alignment=VALUE" in told
    assert cli.main([*words, "accel.alignment=4", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("words", [[], ["--yes"]])
def test_rerun_says_what_it_would_execute_and_without_an_answer_runs_nothing(
    words: list[str], good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = trial.place("rule that is a callable", good, tmp_path, seed=0)
    monkeypatch.chdir(tmp_path)
    started: list[list[str]] = []
    monkeypatch.setattr(cli.entry, "main", lambda argv, **_: started.append(list(argv)) or 0)
    assert cli.main(["rerun", str(folder), *words]) == (0 if words else 2)
    told = capsys.readouterr().err
    named = "model.build._target_=nets.build, accel.rules[0].value._target_=evil.pwn"
    assert f"executes what its configuration names: {named}" in told
    assert ("no terminal; valid: --yes" in told) == (not words) and bool(started) == bool(words)


def test_a_bomb_in_the_users_own_yaml_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/accel").mkdir(parents=True)
    bomb = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    bomb += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    (tmp_path / "conf/accel/bomb.yaml").write_text("\n".join(bomb) + "\nname: bomb\n")
    (tmp_path / "conf/accel/deep.yaml").write_text("denied: " + "[" * 5000)
    (tmp_path / "conf/accel/once.yaml").write_text("name: once\ndenied: &ops [aten.sort]\nallowed: null\n")
    run = ["run", "stages=[report]", "--config-dir", "conf"]
    for name, told in (("bomb", "more than 200,000 values"), ("deep", "nesting of more than 100 levels")):
        for command in ([*run, f"accel={name}"], ["check", ".", f"accel=conf/accel/{name}.yaml"]):
            assert cli.main(command) == 2
            message = capsys.readouterr().err
            assert told in message or "holds no capture" in message or "RUN: got" in message
        assert cli.main([*run, f"accel={name}"]) == 2 and told in capsys.readouterr().err
    assert cli.main([*run, "accel=once", "--cfg", "job"]) == 0
    assert not (tmp_path / "outputs").exists()
