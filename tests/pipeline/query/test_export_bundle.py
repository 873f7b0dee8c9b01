"""``inductor-debug export``: one file to send, which tells nothing of the machine."""

import hashlib
import html
import json
import posixpath
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from stored_analysis import write
from stored_results import MACHINE, stored_result, violation

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.query.export import bundle

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
    script += f"# <code>{folder}</code> `{folder}` {folder}. -I{folder}/x /mnt/home/me/work /home/you/x\n"
    files = {"manifest.json": MANIFEST, "repros/a.py": script, "run.log": "at /home/me/work on secret-host",
             "repros/a.kernel.txt": "/home/me/x, /home/mellow",
             "report/report.html": "<p>page</p>", "kerneldiff/baseline/gold.safetensors": "weights"}  # fmt: skip
    return stored_result(folder, violations=rows, files=files)


def packed(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_a_page_that_was_sent_links_to_what_was_sent_with_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from small_report import full, report

    html, data = report(full())
    (run / "report/report.html").write_text(html)
    (run / "report/report.json").write_text(json.dumps(data))
    assert cli.main(["export"]) == 0
    found = packed(Path("time-nets.zip"))
    page = found["time-nets/report/report.html"]
    links = re.findall(r'<a href="(?![#h])([^"]+)"', page)
    assert links and len(links) < len(re.findall(r'<a href="(?![#h])([^"]+)"', html))
    assert all(posixpath.normpath(f"time-nets/report/{link}") in found for link in links)
    for was, now in bundle._ON_PAGE.items():
        assert was in html and page.count(was) == page.count(now) * now.count(was), "a sentence that the page has"
    sent = json.loads(found["time-nets/report/report.json"])
    assert sent["then"] == [f"where the run was made: {command}" for command in data["then"]] != []


def test_the_archive_has_report_results_and_reproductions_without_the_machine(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export"]) == 0
    assert capsys.readouterr().out == "time-nets.zip\n"
    assert cli.main(["export", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": str(run.relative_to(Path.cwd())), "archive": "time-nets.zip"}
    found = packed(Path("time-nets.zip"))
    assert {name.removeprefix("time-nets/") for name in found} == {
        "summary.json", "manifest.json", "constrain/violations.csv", "constrain/summary.csv",
        "kerneldiff/outputs.csv", "report/report.html",
        "repros/a.py", "repros/a.kernel.txt", "run.log",
    }  # fmt: skip
    everything = "\n".join(found.values())
    everything = everything.replace("/mnt/home/me/work", "")
    for told in ("secret-host", "/home/me/work", "/opt/py", "/srv/tool", f"{run}/", "CUDA_CACHE_PATH"):
        assert told not in everything, told
    script = found["time-nets/repros/a.py"]
    assert "WORK/nets.py:12" in script and " acme/net.py:3" in script and "RUN/repros" in script
    assert script.splitlines()[2] == "# <code>RUN</code> `RUN` RUN. -IRUN/x /mnt/home/me/work ~/x"
    assert found["time-nets/run.log"] == "at WORK on HOST"
    assert f"{run}x" in script  # another folder, whose name only begins so
    assert found["time-nets/repros/a.kernel.txt"] == "~/x, ~"  # another user's
    manifest: dict[str, Any] = json.loads(found["time-nets/manifest.json"])
    assert manifest["machine"]["cpu"] == "a cpu" and manifest["git"]["package"]["commit"] == "abc"


def test_it_is_fast_with_a_large_picture_and_can_be_read_where_it_is_unpacked(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = "iVBORw0KGgo/AAA+" * 100_000  # what is quadratic in it never ends
    write(run, {"report/report.html": f'<img src="data:image/png;base64,{picture}">'})
    stored = ("summary.json", "report/report.html", "constrain/violations.csv", "lower/summary.json")
    listed = {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in stored}
    write(run, {"manifest.json": MANIFEST | {"files": listed}})
    assert cli.main(["export", str(run), "--out", "a.zip"]) == 0
    with zipfile.ZipFile("a.zip") as archive:
        archive.extractall(tmp_path / "there")
    unpacked = tmp_path / "there" / "time-nets"
    for words in (
        ["show", unpacked],
        ["report", unpacked],
        ["report", unpacked, "--format", "sarif"],
        ["list", unpacked],
        *(["analyze", unpacked, "--type", name] for name in ("summary", "constraints", "numerics")),
    ):
        assert cli.main([*map(str, words)]) == 0, capsys.readouterr().err
    (unpacked / "constrain" / "violations.csv").write_text("graph\n")
    assert cli.main(["report", str(unpacked), "--format", "sarif"]) == 2  # held to the digests of what was sent


def test_a_folder_beyond_ascii_is_found_as_json_and_html_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "höm & é"
    monkeypatch.setenv("HOME", str(home))
    run = stored_result(tmp_path / "run", files={"report/report.html": f"<p>{html.escape(str(home))}/x</p>"},
                        summary={"run/model": f"{home}/net"})  # fmt: skip
    assert cli.main(["export", str(run), "--out", str(tmp_path / "a.zip")]) == 0
    found = packed(tmp_path / "a.zip")
    assert (
        found["run/report/report.html"] == "<p>~/x</p>"
        and json.loads(found["run/summary.json"])["run"]["model"] == "~/net"
    )


def test_the_same_run_gives_the_same_bytes(run: Path) -> None:
    assert cli.main(["export", str(run), "--out", "a.zip"]) == cli.main(["export", str(run), "--out", "b.zip"]) == 0
    assert Path("a.zip").read_bytes() == Path("b.zip").read_bytes()


def test_a_run_without_a_result_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", str(tmp_path)]) == 2
    assert "Try: " in capsys.readouterr().err
