"""``inductor-debug export``: one file to send, which tells nothing of the machine."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from stored_results import MACHINE, stored_result, violation

from inductor_debug.pipeline import cli

MINE = "/home/me/work/nets.py:12"
PACKAGE = "/opt/py/lib/python3.12/site-packages/acme/net.py:3"
MANIFEST = {
    "machine": MACHINE | {"hostname": "secret-host"}, "working_directory": "/home/me/work",
    "environment": {"CUDA_CACHE_PATH": "/home/me/cache"},
    "git": {"working_directory": {"root": "/home/me/work"}, "package": {"root": "/srv/tool", "commit": "abc"}},
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "outputs" / "day" / "time-nets"
    rows = [violation(source=MINE), violation(source=PACKAGE)]
    script = f'"""Seen at {MINE} and {PACKAGE}; run in {folder}/repros, beside {folder}x."""\nprint(1)\n'
    files = {"manifest.json": MANIFEST, "repros/a.py": script, "repros/a.kernel.txt": "/home/me/x, /home/mellow",
             "report/report.html": "<p>page</p>", "kerneldiff/baseline/gold.safetensors": "weights"}  # fmt: skip
    return stored_result(folder, violations=rows, files=files)


def packed(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_archive_has_report_results_and_reproductions_without_the_machine(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export"]) == 0
    assert capsys.readouterr().out == "time-nets.zip\n"
    found = packed(Path("time-nets.zip"))
    assert {name.removeprefix("time-nets/") for name in found} == {
        "summary.json", "manifest.json", "constrain/violations.csv", "kerneldiff/outputs.csv", "report/report.html",
        "repros/a.py", "repros/a.kernel.txt",
    }  # fmt: skip
    everything = "\n".join(found.values())
    for told in ("secret-host", "/home/me/work", "/opt/py", "/srv/tool", f"{run}/", "CUDA_CACHE_PATH"):
        assert told not in everything, told
    script = found["time-nets/repros/a.py"]
    assert "WORK/nets.py:12" in script and " acme/net.py:3" in script and "RUN/repros" in script
    assert f"{run}x" in script  # another folder, whose name only begins so
    assert found["time-nets/repros/a.kernel.txt"] == "~/x, /home/mellow"
    manifest: dict[str, Any] = json.loads(found["time-nets/manifest.json"])
    assert manifest["machine"]["cpu"] == "a cpu" and manifest["git"]["package"]["commit"] == "abc"


def test_the_same_run_gives_the_same_bytes(run: Path) -> None:
    assert cli.main(["export", str(run), "--out", "a.zip"]) == cli.main(["export", str(run), "--out", "b.zip"]) == 0
    assert Path("a.zip").read_bytes() == Path("b.zip").read_bytes()


def test_a_run_without_a_result_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(tmp_path)]) == 2
    assert "Try: " in capsys.readouterr().err
