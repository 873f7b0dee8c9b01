"""What compiled a run: recorded, compared, and restored where a stored run is made again, or refused."""

import ast
import importlib.util
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline import cli
from inductor_debug.pipeline.directory import manifest
from inductor_debug.pipeline.directory.records import CudaDevice, TorchFound
from inductor_debug.pipeline.directory.summary import build_summary
from inductor_debug.pipeline.run import compiled_by
from inductor_debug.pipeline.run.commands import entry
from inductor_debug.pipeline.run.restoring import Expected, recorded, restored
from inductor_debug.stages.artifacts.compiled_by import Commit, CompiledBy, CompiledFor, ModelCode
from inductor_debug.stages.artifacts.records import Run
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.report.collect import collect
from inductor_debug.stages.settings import Settings
from inductor_debug.stages.sides.global_settings import settings_put_back

RECORD = CompiledBy(
    versions={"python": "3.11.7", "torch": "2.13.0+cpu"},
    commit={"package": Commit("abc", dirty=False), "working_directory": None},
    variables={"TORCHINDUCTOR_FREEZING": "1", "OMP_NUM_THREADS": "2"},
    model=ModelCode({"transformers": "5.0"}, {"my.nets": "0123"}),
    device=CompiledFor("cpu", 2, cpu_capability="AVX512"),
    settings={},
    options={"inductor": {"freezing": True}, "dynamo": {}},
)
NO_RECORD = "RUN has no record of what compiled it that can be read: nothing was restored, and nothing can be compared"


def changed(part: str, **values: Any) -> CompiledBy:
    """The record with values of one of its parts, a mapping or a record of its own, changed."""
    old: Any = getattr(RECORD, part)
    return replace(RECORD, **{part: old | values if isinstance(old, dict) else replace(old, **values)})


def stored_run(folder: Path, record: CompiledBy | None, started: str = "2026-01-01") -> Path:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text("{}")
    (folder / "run.log").write_text("")
    about = Run(folder.name, model="net", started=started)
    (folder / "summary.json").write_text(json.dumps(build_summary(about, [], {}, 1.0, record)))
    return folder


def test_the_users_variables_are_told_from_those_that_the_run_set() -> None:
    given = {"TORCHINDUCTOR_FREEZING": "1", "PATH": "/bin", "TRITON_CACHE_DIR": "/mine", "HF_TOKEN": "x",
             "OMP_NUM_THREADS": "2", "INDUCTOR_DEBUG_LOG_LEVEL": "DEBUG"}  # fmt: skip
    environment = given | {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TRITON_CACHE_DIR": "/run", "PYTHONHASHSEED": "0"}
    described = manifest.describe_run(Settings(ModelConfig()), environment, "")
    found = compiled_by.described(described, given, environment)
    assert found.variables == {"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_FREEZING": "1"}
    assert found.set_by_run == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    given["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    own = compiled_by.described(described, given, environment | {"CUBLAS_WORKSPACE_CONFIG": ":16:8"})
    assert own.variables["CUBLAS_WORKSPACE_CONFIG"] == ":16:8" and own.set_by_run == {}


NO_OPTION = re.compile(r"LOG_|LOGP|_LOGGING|LOG_URL|MAST_HPC|ROLE_RANK|DUMP_|COMPILE_ID|_DIR$")
"""Where torch's options are read from variables that name files, logs and jobs: none of them changes the code."""


@pytest.mark.parametrize("compiler", ["inductor", "dynamo", "functorch"])
def test_each_variable_that_an_option_of_torch_is_read_from_is_recorded(compiler: str) -> None:
    spec = importlib.util.find_spec(f"torch._{compiler}.config")
    assert spec is not None and spec.origin is not None
    calls = [node for node in ast.walk(ast.parse(Path(spec.origin).read_text())) if isinstance(node, ast.Call)]
    read = [call.args[0] for call in calls if ast.unparse(call.func).endswith(("environ.get", "getenv"))]
    read += [keyword.value for call in calls for keyword in call.keywords if (keyword.arg or "").startswith("env_name")]
    names = {node.value for value in read for node in ast.walk(value) if isinstance(node, ast.Constant)}
    assert len(names) >= 9
    assert {name for name in names if not compiled_by.matters(name) and not NO_OPTION.search(name)} == set()


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("NEURON_CC_FLAGS", True),
        ("PT_HPU_LAZY_MODE", True),
        ("HSA_OVERRIDE_GFX_VERSION", True),
        ("ASCEND_LAUNCH_BLOCKING", True),
        ("NEURON_LOGICAL_NC_CONFIG", True),
        ("TORCHINDUCTOR_SWITCH", True),
        ("TORCH_ACCESS_TOKEN", False),
        ("HABANA_VISIBLE_MODULES", False),
        ("ONEAPI_DEVICE_SELECTOR", False),
        ("NEURON_RT_LOG_LEVEL", False),
        ("NEURON_RT_VISIBLE_CORES", False),
        ("PT_RECIPE_CACHE_PATH", False),
        ("SSH_CLIENT", False),
    ],
)
def test_variables_of_other_accelerators_compilers_count(name: str, counts: bool) -> None:
    assert compiled_by.matters(name) == counts


HOSTILE = {
    "LD_PRELOAD": "evil.so", "LD_LIBRARY_PATH": "x", "PYTHONPATH": "x", "PYTHONSTARTUP": "x", "PATH": "x", "HOME": "x",
    "OMP_TOOL_LIBRARIES": "evil.so", "TRITON_PTXAS_PATH": "evil", "CXX": "evil", "CC": "evil",
    "TORCHINDUCTOR_CACHE_DIR": "x", "TRITON_PLUGIN_PATHS": "x", "TORCH_LOGS": "+evil.module", "TORCH_TRACE": "x",
    "TORCHINDUCTOR_SWITCH": "/tmp/evil", "TORCHINDUCTOR_OTHER": "evil.module", "TORCH_X": "a\nb", "MOCK_REPRO_DIR": "x",
    "TORCHINDUCTOR_LONG": "1" * 1000, "HTTP_PROXY": "x", "IFS": "x", "NEURON_CC_FLAGS": "--dump-to=x",
    "LIBTPU_INIT_ARGS": "--dump=x",
}  # fmt: skip


def test_a_setting_of_the_process_that_a_model_changes_is_recorded() -> None:
    """Its module may call ``torch.set_float32_matmul_precision`` as it is imported."""
    about = (RECORD, Settings(ModelConfig()), torch.nn.Linear(2, 2), None)
    assert compiled_by.of_process(*about).settings == {}
    with settings_put_back():
        torch.set_float32_matmul_precision("high")
        found = compiled_by.of_process(*about)
    assert found.settings == {"torch.set_float32_matmul_precision": "high"}


@pytest.mark.usefixtures("no_variables_that_matter")
def test_a_strangers_run_restores_switches_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in HOSTILE:
        if name not in ("PATH", "HOME"):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    monkeypatch.setenv("CXX", "g++")
    before = dict(os.environ)
    good = {
        "TORCHINDUCTOR_FREEZING": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "OMP_PLACES": "cores",
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True",
        "MOCK_ALIGNMENT": "8",
    }
    with restored(CompiledBy(variables=HOSTILE | good)) as told:
        inside = dict(os.environ)
    assert {name: inside.get(name) for name in HOSTILE} == {name: before.get(name) for name in HOSTILE}
    assert {name: inside[name] for name in good} == good
    assert "TORCHINDUCTOR_MAX_AUTOTUNE" not in inside  # the run did not have it
    assert inside.keys() - before.keys() == good.keys() and len(told) == len(good) + 1
    assert dict(os.environ) == before


def test_without_a_record_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    with restored(None) as told:
        assert os.environ["TORCHINDUCTOR_FREEZING"] == "1" and told == []
    assert Expected("RUN", None, refuse=True).check(RECORD) == [NO_RECORD]


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (changed("versions", torch="2.12.0"), "versions.torch: '2.13.0+cpu' then, '2.12.0' now"),
        (changed("variables", TORCHINDUCTOR_FREEZING="0"), "variables.TORCHINDUCTOR_FREEZING: '1' then, '0' now"),
        (changed("variables", TRITON_PTXAS_PATH="/x"), "variables.TRITON_PTXAS_PATH: none then, '/x' now"),
        (changed("model", files={"my.nets": "4567"}), "model.files.my.nets: '0123' then, '4567' now"),
        (changed("model", libraries={}), "model.libraries.transformers: '5.0' then, none now"),
        (changed("device", cpu_capability="AVX2"), "device.cpu_capability: 'AVX512' then, 'AVX2' now"),
        (changed("device", name="H200"), "device.name: 'cpu' then, 'H200' now"),
        (
            changed("settings", **{"torch.set_float32_matmul_precision": "high"}),
            "settings.torch.set_float32_matmul_precision: none then, 'high' now",
        ),
        (changed("options", inductor={}), "options.inductor.freezing: True then, none now"),
    ],
)
def test_what_makes_it_another_compilation_is_refused_or_told(now: CompiledBy, line: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Expected("RUN", RECORD, refuse=True).check(now)
    assert f"  {line}\n" in str(caught.value) and "Try: inductor-debug rerun RUN --anyway" in str(caught.value)
    assert Expected("RUN", RECORD, refuse=False).check(now) == [f"not as in RUN: {line}"]


class Seen:
    """What was seen where the case was compiled, in the place of ``CompilationOptions``."""

    def __init__(self, **inductor: Any) -> None:
        self.inductor = inductor

    def over(self, before: dict[str, Any]) -> dict[str, Any]:
        return before | {"inductor": self.inductor}


def compiled(record: CompiledBy, **inductor: Any) -> CompiledBy:
    return compiled_by.where_compiled(record, Seen(**inductor))  # type: ignore[arg-type]


def test_options_that_the_run_set_itself_are_told_with_what_they_were_and_are_no_reason_to_refuse() -> None:
    then = compiled(replace(RECORD, options_before={}), max_autotune=True)  # it turned freezing off
    assert then.options == {"inductor": {"max_autotune": True}, "dynamo": {}}
    assert then.options_before == {"inductor": {"freezing": True, "max_autotune": None}}
    assert compiled_by.before_compiling(then) == RECORD.options
    assert compiled(then, max_autotune=True) == then  # another process of the run compiles it again

    before = replace(RECORD, options_before={})  # a rerun, before anything is compiled
    expected = Expected("RUN", then, refuse=True)
    assert expected.check(before) == [] and expected.check_compiled(compiled(before, max_autotune=True)) == []
    assert expected.check_compiled(compiled(before, freezing=True)) == [
        "not as in RUN: options.inductor.freezing: none then, True now",
        "not as in RUN: options.inductor.max_autotune: True then, none now",
    ]
    with pytest.raises(ConfigurationError, match=r"options\.inductor\.freezing: True then, none now"):
        expected.check(replace(changed("options", inductor={}), options_before={}))
    assert Expected("RUN", RECORD, refuse=True).check_compiled(then) == []  # a run of an earlier version did not look


def test_a_commit_is_told_and_what_an_override_changes_is_not_refused() -> None:
    other = changed("commit", package={"commit": "def", "dirty": True})
    assert len(Expected("RUN", RECORD, refuse=True).check(other)) == 2
    assert Expected("RUN", RECORD, refuse=True).check(RECORD) == []
    frozen = changed("options", inductor={})
    assert len(Expected("RUN", RECORD, refuse=True, changed=True).check(frozen)) == 1
    with pytest.raises(ConfigurationError):
        Expected("RUN", RECORD, refuse=True, changed=True).check(changed("versions", torch="2.12.0"))


def test_a_part_that_is_not_known_is_not_compared() -> None:
    """No stage needed torch, then or now."""
    assert Expected("RUN", RECORD, refuse=True).check(replace(RECORD, options=None, device=None, model=None)) == []


def test_text_of_a_stored_run_is_shown_not_sent() -> None:
    hostile = changed("versions", torch="\x1b]0;evil\x07")
    (line,) = Expected("RUN", hostile, refuse=False).check(RECORD)
    assert line.isprintable()


@pytest.mark.parametrize(
    "record",
    [[], {"variables": [1]}, {"versions": "x"}, "text", {"options_before": {"inductor": 3}}, {"options": []}],
)
def test_a_damaged_record_is_told_and_hinders_no_rerun(
    record: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stored_run(tmp_path / "run", RECORD)
    assert recorded(run) == RECORD
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"compiled_by": record}))
    assert recorded(run) is None
    assert cli.main(["show", str(run)]) == cli.main(["compare", str(run), str(run)]) == 2
    assert "summary.json: compiled_by" in capsys.readouterr().err


def test_compare_shows_first_what_compiled_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = stored_run(tmp_path / "one", RECORD)
    two = stored_run(
        tmp_path / "two", replace(changed("versions", torch="2.12.0"), options={"inductor": {}, "dynamo": {}})
    )
    assert cli.main(["compare", str(one), str(two), "--format", "json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert list(tables)[:2] == ["runs", "compiled_by"]
    assert tables["compiled_by"] == [
        {"compiled_by": "versions.torch", "1": "2.13.0+cpu", "2": "2.12.0"},
        {"compiled_by": "options.inductor.freezing", "1": True, "2": None},
    ]
    assert not any("compiled_by" in row["results"] for row in tables["results"])
    assert cli.main(["compare", str(one), str(two)]) == 0
    assert "options.inductor.freezing  true" in capsys.readouterr().out


def test_compare_tells_a_variable_of_the_compilers_that_one_run_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_FREEZING", raising=False)
    assert entry.main(["stages=[report]", f"hydra.run.dir={tmp_path / 'plain'}"]) == 0
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")
    assert entry.main(["stages=[report]", f"hydra.run.dir={tmp_path / 'frozen'}"]) == 0
    capsys.readouterr()
    assert cli.main(["compare", str(tmp_path / "plain"), str(tmp_path / "frozen")]) == 0
    assert "TORCHINDUCTOR_FREEZING" in capsys.readouterr().out


def test_compare_says_of_which_run_it_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = stored_run(tmp_path / "one", RECORD), stored_run(tmp_path / "two", None)
    assert cli.main(["compare", str(one), str(two)]) == 0
    assert "compiled_by: not established of 2, which did not record it" in capsys.readouterr().out


def test_show_and_the_report_have_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from inductor_debug.pipeline.directory.rundir import RunDirectory
    from inductor_debug.stages.report.render import render

    run = stored_run(tmp_path / "one", RECORD)
    assert cli.main(["show", str(run)]) == 0
    assert "options.inductor.freezing" in capsys.readouterr().out
    stored = RunDirectory(run)
    data = collect(stored, Settings(ModelConfig()), title=None, max_rows=5)
    assert data["compiled_by"] == jsonable(RECORD)
    assert data["reproduce"][0].startswith("TORCHINDUCTOR_FREEZING=1 OMP_NUM_THREADS=2 inductor-debug run")
    page = render(data, stored)
    assert "What compiled it" in page and "2.13.0+cpu" in page and "freezing yes" in page


def test_a_models_own_files_and_its_libraries_are_told_apart() -> None:
    kind = type("Layer", (), {"__module__": __name__})
    library = type("Library", (), {"__module__": "yaml"})
    module = SimpleNamespace(modules=lambda: [kind(), library(), type("T", (), {"__module__": "torch.nn"})()])
    found = compiled_by.model_code(module, "inductor_debug.pipeline.cli.main")
    assert set(found.files) == {__name__, "inductor_debug.pipeline.cli"} and set(found.libraries) == {"yaml"}


def test_a_device_is_the_one_that_the_run_is_on() -> None:
    cuda = [CudaDevice("A", 1), CudaDevice("B", 1)]
    found = TorchFound(4, "AVX512", deterministic_algorithms=False, cuda=cuda, cuda_version="13.0")
    shown = [jsonable(compiled_by.device_of(name, found)) for name in ("cpu", "cuda")]
    assert shown == [{"name": "cpu", "threads": 4, "cpu_capability": "AVX512"},
                     {"name": "A", "threads": 4, "cuda_version": "13.0"}]  # fmt: skip
    assert compiled_by.device_of("cuda:1", found).name == "B"
    assert compiled_by.device_of("acme:0", None).name == "acme"
