"""``inductor-debug compare --page``: two results side by side, for a browser."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from in_browser import PHONE, WIDE, accessibility_violations
from stored_results import TIMES, output, stored_result

from inductor_debug.pipeline import cli

WORSE = {"summary": {"graphs/guards": 21, "compiled_by/versions/torch": "2.14.0"}}
HOSTILE = "<img src=x onerror=alert(1)>"


def page_of(tmp_path: Path, *folders: Path, code: int) -> str:
    path = tmp_path / "pages" / "compare.html"
    assert cli.main(["compare", *map(str, folders), "--page", str(path)]) == code
    return path.read_text(encoding="utf-8")


def told(page: str) -> str:
    """The page's verdict and sentence."""
    found = re.search(r'<p class="verdict \w+"><strong>(.*?)</strong>(.*?)</p>', page)
    assert found is not None
    return found[1] + found[2]


def commands(page: str) -> list[str]:
    return re.findall(r'<pre class="command" tabindex="0">(.*?)</pre>', page)


def two(tmp_path: Path, **changes: Any) -> tuple[Path, Path]:
    return stored_result(tmp_path / "a"), stored_result(tmp_path / "b", **changes)


def test_the_first_sentence_says_what_got_worse(tmp_path: Path) -> None:
    page = page_of(tmp_path, *two(tmp_path, **WORSE), code=1)
    assert told(page) == "Worse. B is worse than A in guards."
    assert '<td class="c-what">guards</td>' in page
    assert '<td class="c-compiled_by">versions.torch</td>' in page
    heads = re.findall(r'<th scope="col">(.*?)</th>', page.partition('id="section-compiled_by"')[2])
    assert heads[:3] == ["compiled by", "A", "B"]


def test_the_verdict_of_all_tensors_together_is_counted_as_none_of_them(tmp_path: Path) -> None:
    a, b = two(tmp_path, outputs=[output(verdict="defect")], summary={"numerics/verdict": "defect"})
    page = page_of(tmp_path, a, b, code=1)
    assert told(page) == "Worse. B is worse than A in 1 tensor&#39;s verdict."
    assert re.findall(r'<td class="c-what">(.*?)</td>', page) == ["output logits"]


def test_what_is_no_worse_is_said_so(tmp_path: Path) -> None:
    page = page_of(tmp_path, *two(tmp_path), code=0)
    assert told(page) == "No worse. B is no worse than A in anything that was compared."
    assert commands(page) == []


def test_two_clocks_of_one_run_are_one_latency(tmp_path: Path) -> None:
    slower = {side: tuple(1.5 * value if side == "test" else value for value in TIMES[side]) for side in TIMES}
    device = {"reference": 0.9, "test": 0.9}
    a = stored_result(tmp_path / "a", device=device)
    b = stored_result(tmp_path / "b", device=device, times=slower)
    assert told(page_of(tmp_path, a, b, code=1)) == "Worse. B is worse than A in latency."


def test_another_case_comes_first(tmp_path: Path) -> None:
    page = page_of(tmp_path, *two(tmp_path, settings={"dtype": "bfloat16", "seed": 1}), code=1)
    assert told(page).startswith("Worse. A and B are not the same case: dtype, seed differ.")


@pytest.mark.parametrize(
    "missing, added", [(["benchmark"], "benchmark"), (["lower", "benchmark"], "[lower,benchmark]")]
)
def test_commands_lead_to_what_is_worse_and_to_what_b_did_not_run(
    tmp_path: Path, missing: list[str], added: str
) -> None:
    """Several stages are a list: without brackets they would be a sweep's."""
    a, b = two(tmp_path, summary={"numerics/verdict": "defect"})
    stored = json.loads((b / "summary.json").read_text())
    stored["stages"] = [stage for stage in stored["stages"] if stage["name"] not in missing]
    (b / "summary.json").write_text(json.dumps(stored))
    page = page_of(tmp_path, a, b, code=1)
    assert commands(page) == [f"inductor-debug minify {b}", f"inductor-debug rerun {b} +stages={added}"]


def test_a_bisected_remedy_is_the_first_command(tmp_path: Path) -> None:
    a, b = two(tmp_path, summary={"numerics/verdict": "defect"})
    (b / "bisect").mkdir()
    remedy = {"kind": "option", "text": "backend.inductor.pattern_matcher=false"}
    facts = {"verdict": "found", "answer": "a pass", "applications": [], "pattern": None, "remedy": remedy}
    (b / "bisect" / "bisect.json").write_text(json.dumps(facts))
    page = page_of(tmp_path, a, b, code=1)
    assert commands(page)[0] == f"inductor-debug rerun {b} backend.inductor.pattern_matcher=false"


def test_reports_are_linked_from_where_the_page_lies(tmp_path: Path) -> None:
    a, b = two(tmp_path)
    (b / "report").mkdir(exist_ok=True)
    (b / "report" / "report.html").write_text("<title>b</title>")
    (a / "report" / "report.html").unlink(missing_ok=True)
    page = page_of(tmp_path, a, b, code=0)
    assert '<a href="../b/report/report.html">' in page and "../a/report" not in page


def test_three_runs_are_held_to_nothing_and_have_a_page(tmp_path: Path) -> None:
    folders = [stored_result(tmp_path / name, summary={"graphs/guards": guards})
               for name, guards in (("a", 20), ("b", 21), ("c", 22))]  # fmt: skip
    page = page_of(tmp_path, *folders, code=0)
    assert told(page).startswith("Nothing held to anything. ")
    assert ">20<" in page and ">21<" in page and ">22<" in page


def test_jobs_of_two_sweeps_are_named(tmp_path: Path) -> None:
    for name, change in (("a", {}), ("b", WORSE)):
        for number, dtype in enumerate(("float32", "bfloat16")):
            stored_result(tmp_path / name / f"{number}-job", settings={"dtype": dtype}, **change)
    page = page_of(tmp_path, tmp_path / "a", tmp_path / "b", code=1)
    assert told(page) == "Worse. B is worse than A in guards of 2 jobs."
    assert "dtype=bfloat16" in page
    assert told(page_of(tmp_path, tmp_path / "b", tmp_path / "a", code=0)).startswith("No worse. ")
    assert commands(page) == [f"inductor-debug list {tmp_path / 'b'}"]


def test_a_page_that_can_not_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    folders = map(str, two(tmp_path))
    assert cli.main(["compare", *folders, "--page", str(tmp_path / "file" / "page.html")]) == 2
    assert "--page: got" in capsys.readouterr().err


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["desktop", "phone"])
def test_the_page_is_for_everyone_and_runs_nothing(opened: Any, tmp_path: Path, size: Any, scheme: str) -> None:
    a, b = two(tmp_path, summary={"graphs/guards": 21, "compiled_by/versions/torch": HOSTILE})
    page_of(tmp_path, a, b, code=1)
    page = opened((tmp_path / "pages" / "compare.html").as_uri(), size=size, color_scheme=scheme)
    assert accessibility_violations(page) == ""
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert HOSTILE in page.locator("#section-compiled_by").inner_text()


def test_a_smallest_program_that_is_there_is_run_and_not_looked_for_again(tmp_path: Path) -> None:
    rule = {"path": "repros/alignment-x.py", "verified": True, "violations": 3}
    smallest = {"path": "repros/minified-x.py", "verified": True, "violations": 0}
    for repros, typed in (([rule], "minify {}"), ([rule, smallest], "repro {} minified-x.py --run")):
        folder = tmp_path / str(len(repros))
        changes = {"numerics/verdict": "defect", "repros": repros}
        a, b = two(folder, outputs=[output(verdict="defect")], summary=changes)
        assert commands(page_of(folder, a, b, code=1))[0] == f"inductor-debug {typed.format(b)}"
