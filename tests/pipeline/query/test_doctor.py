"""``inductor-debug doctor``: what it finds here, and what it says of machines on which something is not well."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.query.doctor import checks, trials
from inductor_debug.stages.torch_internals.versions import NEWEST

BUILD: dict[str, Any] = {"version": "2.13.0+cpu", "cuda": None, "hip": None, "devices": []}


def answering(monkeypatch: pytest.MonkeyPatch, **answers: dict[str, Any] | str) -> None:
    """Trials answer so, instead of starting a process."""
    monkeypatch.setattr(checks, "_tried", lambda trial, *arguments, cache=None: answers[trial])


def found(name: str) -> checks.Check:
    return next(check for check in checks.checks() if check.what == name)


ALL = {
    "torch_build": BUILD, "compiles_on_cpu": {"device": "cpu"}, "compiles_on_cuda": {"device": "cuda"},
    "torchvision_operators": {"version": "0.28", "operators": True}, "transformers_models": {"version": "5"},
    "adapter": {"package": "acme 1.0"},
}  # fmt: skip


@pytest.mark.parametrize(
    "name, answers, state, told, mend",
    [
        ("torch", {}, "ok", "2.13.0+cpu", ""),
        ("torch", {"torch_build": "ImportError: libc10.so"}, "bad", "ImportError: libc10.so", "pip install 'torch=="),
        ("torch", {"torch_build": BUILD | {"version": f"2.{NEWEST[1] + 1}.0"}}, "bad", "tried were 2.11 to", "pip ins"),
        ("TorchInductor on the CPU", {"compiles_on_cpu": "InvalidCxxCompiler: none"}, "bad", "none", "apt-get install"),
        ("TorchInductor on CUDA", {"torch_build": BUILD | {"devices": ["H100"], "cuda": "13"}}, "ok", "for H100", ""),
        ("TorchInductor on CUDA", {"torch_build": BUILD | {"devices": ["H100"], "cuda": "13"},
                                   "compiles_on_cuda": "no ptxas"}, "bad", "no ptxas", "pip install triton"),
        ("torchvision's operators", {"torchvision_operators": {"version": "0.28", "operators": False}}, "absent",
         "detection", "--index-url https://download.pytorch.org/whl/cpu"),
        ("torchvision", {"torchvision_operators": "ModuleNotFoundError: torchvision"}, "bad", "ModuleNotFound",
         "pip install 'torch==2.13.0' --upgrade torchvision"),
    ],
)  # fmt: skip
def test_each_thing_is_told_with_its_mend(
    monkeypatch: pytest.MonkeyPatch, name: str, answers: dict[str, Any], state: str, told: str, mend: str
) -> None:
    answering(monkeypatch, **(ALL | answers))
    check = found(name)
    assert check.state == state and told in check.found and (mend in check.mend if mend else check.mend == "")


@pytest.mark.parametrize("own, told", [("13.0", "torch sees no device"), (None, "torch is a build for the CPU")])
def test_a_driver_without_a_device_is_bad(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str | None, told: str
) -> None:
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    answering(monkeypatch, **(ALL | {"torch_build": BUILD | {"cuda": own}}))
    check = found("TorchInductor on CUDA")
    assert check.state == "bad" and told in check.found and check.mend


def test_a_folder_that_can_t_be_written_or_is_full_is_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answering(monkeypatch, **ALL)
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    check = found("folder of kept results")
    assert check.state == "bad" and "Not a directory" in check.found and check.mend == "runner.cache_dir=FOLDER"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert found("folder of kept results").state == "ok"
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: SimpleNamespace(free=checks.LEAST_FREE - 1))
    check = found("folder of kept results")
    assert check.state == "bad" and "inductor-debug clean" in check.mend


def test_packages_that_can_t_be_taken_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    point = SimpleNamespace(dist=SimpleNamespace(name="acme", version="1.0"), name="acme", value="acme:Adapter")
    monkeypatch.setattr(checks, "installed_adapters", lambda: {"acme": [point]})
    monkeypatch.setattr(checks, "installed_stages", lambda: {"gone": [point]})
    answering(monkeypatch, **(ALL | {"adapter": "ModuleNotFoundError: no acme"}))
    assert found("backend acme").state == "bad" and "no acme" in found("backend acme").found
    assert found("stage gone").state == "bad" and "pip install --upgrade acme" in found("stage gone").mend
    answering(monkeypatch, **ALL)
    assert found("backend acme").state == "ok"


def test_a_trial_that_fails_or_dies_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "KeyError: 'no_such_trial'" in checks._tried("no_such_trial")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert checks._tried("torch_build") == "ended with code 1"
    monkeypatch.setattr(checks, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(checks.subprocess, "run", _late(checks.subprocess.run))
    assert checks._tried("torch_build") == "did not end within 0.2 s"


def _late(run: Any) -> Any:
    return lambda command, **options: run(["sleep", "60"], **options)


def test_exit_code_and_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answering(monkeypatch, **ALL)
    assert cli.main(["doctor", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"what": "torch", "state": "ok", "found": "2.13.0+cpu", "mend": ""} in rows
    answering(monkeypatch, **(ALL | {"compiles_on_cpu": "InvalidCxxCompiler: none"}))
    assert cli.main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "bad     TorchInductor on the CPU: " in printed and "        try: apt-get install g++" in printed


@pytest.mark.slow
def test_here_torch_compiles_and_without_a_compiler_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks._torch(checks._tried("torch_build")).state == "ok"
    assert checks._compiler().state == "ok"
    monkeypatch.setenv("CXX", "/nowhere/c++")
    check = checks._compiler()
    assert check.state == "bad" and "InvalidCxxCompiler" in check.found and "CXX=PATH" in check.mend


def test_libraries_are_imported_as_runs_import_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/proc/nowhere")  # the folder is at fault, told by itself
    assert set(trials.TRIALS) == {"torch_build", "compiles_on_cpu", "compiles_on_cuda", "torchvision_operators",
                                  "transformers_models", "adapter"}  # fmt: skip
    build = checks._tried("torch_build")
    assert isinstance(build, dict)
    assert checks._library("torchvision", "torchvision_operators", build).state in ("ok", "absent")
    assert checks._library("transformers", "transformers_models", build).state == "ok"
