"""A sweep's page: verdicts over the axes, what changed, failures, and the way to each job's report."""

import itertools
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from in_browser import PHONE, accessibility_violations, unfold
from test_sweep_table import job

from inductor_debug.pipeline.run.sweep import write_sweep_table
from inductor_debug.pipeline.run.sweep.changes import Change, what_changed

FAILURE = {"path": "repros/a.py", "failure_class": "defect", "failure": "defect", "fingerprint": "abc123",
           "target": "aten.mm.default", "source": "net.py:7"}  # fmt: skip


def sweep(folder: Path, alignments=(8, 16, 32), dtypes=("float32", "float16")) -> Path:
    """A sweep over two axes: with an alignment of 16 the job at float16 fails."""
    jobs = []
    for alignment, dtype in itertools.product(alignments, dtypes):
        bad = alignment == 16 and dtype == "float16"
        jobs.append(job(folder / f"{alignment}-{dtype}", overrides=[f"accel.alignment={alignment}", f"dtype={dtype}"],
                        total=alignment, verdict="failed" if bad else "passed", numerics="defect" if bad else "exact",
                        repros=[FAILURE] if bad else []))  # fmt: skip
        (jobs[-1] / "report").mkdir()
        (jobs[-1] / "report" / "report.html").write_text("<title>a job</title>")
    write_sweep_table(folder, jobs)
    return folder / "sweep.html"


class Table(HTMLParser):
    """Rows of texts of the tables in a part of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def rows_of(page: str, section: str) -> list[list[str]]:
    part = page.partition(f'<section id="{section}"')[2].partition("</section>")[0]
    return [[" ".join(cell.split()) for cell in row] for row in Table(part).rows]


def test_verdicts_and_measures_stand_over_the_axes(tmp_path: Path) -> None:
    page = sweep(tmp_path / "sweep").read_text()
    assert rows_of(page, "pivot-1") == [
        ["dtype", "8", "16", "32"],
        ["float32", "✓ good: passed →", "✓ good: passed →", "✓ good: passed →"],
        ["float16", "✓ good: passed →", "✗ bad: failed →", "✓ good: passed →"],
    ]
    assert rows_of(page, "pivot-2")[1:] == [["float32", "8 →", "16 →", "32 →"], ["float16", "8 →", "16 →", "32 →"]]
    assert "5 passed" in page and "1 failed" in page and "1 failure was met." in page
    assert (
        "None of 6 jobs that were checked fits the profile: 8 to 32 violations in each." in page
        and "from the cache" not in page
    )


def test_lines_that_coincide_are_one_and_far_values_have_a_logarithmic_axis(tmp_path: Path) -> None:
    page = sweep(tmp_path / "near").read_text()
    assert page.count("<polyline") == 1 and "float32 = float16" in page and "(logarithmic)" not in page
    [title] = re.findall(r"<figcaption>(.*?)</figcaption>", sweep(tmp_path / "far", (1, 8, 200)).read_text())
    assert title == "Findings of the profile, waived ones included (logarithmic)"


def test_a_change_of_many_digits_is_told_with_three() -> None:
    digits = {"before": "0.008037320581615407", "after": "4408.154001392812"}
    change = Change("dtype", "float32", "float16", "", "0-float32", column="max_rel", **digits)
    assert what_changed([change]) == "max_rel 0.00804 → 4408"
    assert what_changed([replace(change, before="inf", after="2.13.0+cpu")]) == "max_rel inf → 2.13.0+cpu"


def test_what_changed_and_which_failures_are_told(tmp_path: Path) -> None:
    page = sweep(tmp_path / "sweep").read_text()
    changes = rows_of(page, "changes")
    assert ["16", "dtype", "float32 → float16", "accel.alignment=16",
            "1", "verdict passed → failed, numerics exact → defect, 1 new failure (abc123)"] in changes  # fmt: skip
    assert rows_of(page, "failures")[1] == ["abc123", "defect", "aten.mm.default", "net.py:7", "1", "16"]
    assert ["model", "bert"] in rows_of(page, "same")
    alike = [row for row in changes if row[1] == "accel.alignment" and row[2] == "8 → 16"]
    assert ["8 → 16", "dtype=float32", "1"] in [row[2:5] for row in alike] and len(alike) == 2
    calm = rows_of(sweep(tmp_path / "calm", dtypes=("float32", "bfloat16")).read_text(), "changes")
    assert [row[2:5] for row in calm[1:]] == [
        ["8 → 16", "dtype=float32", "2"],
        ["16 → 32", "dtype=float32", "2"],
    ]


def test_a_verdict_on_numbers_is_said_in_words(tmp_path: Path) -> None:
    page = sweep(tmp_path / "sweep").read_text()
    assert "<code>exact</code>: all results are equal to the reference's bit for bit" in unescape(page)
    assert "<code>defect</code>: an error is larger than that" in page and "within_floor" not in page


def test_one_axis_has_all_measures_in_one_table(tmp_path: Path) -> None:
    page = sweep(tmp_path / "sweep", dtypes=("float32",)).read_text()
    head, *rows = rows_of(page, "pivot-1")
    assert head[:3] == ["accel.alignment", "Verdict", "Findings of the profile, waived ones included"]
    assert [row[2] for row in rows] == ["8", "16", "32"] and 'id="pivot-2"' not in page
    (points,) = re.findall(r'polyline points="([^"]*)"', page)
    heights = [float(point.split(",")[1]) for point in points.split()]
    assert len(heights) == 3 and heights == sorted(heights, reverse=True)  # more findings stand higher


def test_values_with_colons_leave_what_changed_whole(tmp_path: Path) -> None:
    jobs = [job(tmp_path / "sweep" / str(at), overrides=["options=1" if at else "options={a: 1, b: 2}"], total=at)
            for at in range(2)]  # fmt: skip
    write_sweep_table(tmp_path / "sweep", jobs)
    (change,) = rows_of((tmp_path / "sweep" / "sweep.html").read_text(), "changes")[1:]
    assert change[2:] == ["{a: 1, b: 2} → 1", "–", "1", "violations.alignment 0 → 1"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"total": None, "by_severity": {}}, ""),  # a profile without rules
        ({"total": 0, "by_severity": {}}, "2 of 2 jobs that were checked fit the profile."),
        ({"total": 3, "by_severity": {"waived": 3}}, "2 of 2 jobs that were checked fit the profile."),
        ({"total": 3, "by_severity": {"undecided": 3}}, "Of 2 jobs it is not established whether the model fits."),
        ({"total": 0, "by_severity": {}, "constrain": "failed"}, "Of 2 jobs it is not established"),  # a graph break
        ({"total": 4, "by_severity": {"undecided": 3, "error": 1}}, "None of 2 jobs that were checked fits"),
    ],
)
def test_a_job_fits_where_that_is_established(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    jobs = [job(tmp_path / name, overrides=[f"dtype={name}"], **changed) for name in ("float32", "float16")]
    write_sweep_table(tmp_path, jobs)
    page = " ".join((tmp_path / "sweep.html").read_text().split())
    assert told in page
    assert ("the model fits" in page) == ("not established" in told)
    assert ("that were checked" in page) == ("that were checked" in told)


def test_a_speed_up_that_is_not_established_is_no_figure(tmp_path: Path) -> None:
    jobs = [job(tmp_path / str(value), overrides=[f"accel.alignment={value}"], total=0,
                benchmark={"speedup": speedup, "established": value == 8, "test": {"median_ms": speedup * 3}})
            for value, speedup in ((8, 1.5), (16, 3.25))]  # fmt: skip
    write_sweep_table(tmp_path, jobs)
    page = (tmp_path / "sweep.html").read_text()
    assert "4.5" in page and "3.25" not in page and "9.75" not in page and "not established" in page
    assert "3.25" in (tmp_path / "sweep.csv").read_text()


def test_numbers_that_were_not_established_are_not_called_compared(tmp_path: Path) -> None:
    verdicts = ("exact", "not_established", "not_exercised", "defect")
    jobs = [job(tmp_path / "sweep" / name, overrides=[f"dtype={name}"], total=0, numerics=name) for name in verdicts]
    write_sweep_table(tmp_path / "sweep", jobs)
    assert "The numbers are right in 1, wrong in 1, not known in 2." in (tmp_path / "sweep" / "sweep.html").read_text()


def test_a_sweep_without_axes_or_results_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "sweep" / "0").mkdir(parents=True)
    write_sweep_table(tmp_path / "sweep", [tmp_path / "sweep" / "0"])
    page = (tmp_path / "sweep" / "sweep.html").read_text()
    assert "Crashed." in page and "1 crashed" in page and "left no valid summary.json" in page


def test_hostile_values_are_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    page = sweep(tmp_path / "sweep", dtypes=(hostile.replace("/", "-"), "b")).read_text()
    assert page.count("<script") == 1 and "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("options", [{}, {"size": PHONE, "color_scheme": "dark"}], ids=["desktop", "dark phone"])
def test_it_leads_to_a_job_and_is_accessible(opened, tmp_path: Path, options) -> None:
    page = opened(sweep(tmp_path / "sweep").as_uri(), **options)
    unfold(page)
    assert accessibility_violations(page) == ""
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    page.locator("#pivot-1").get_by_role("link", name="Report of accel.alignment=16, dtype=float16").click()
    assert page.title() == "a job" and "16-float16/report/report.html" in page.url


def test_versions_that_differ_between_jobs_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    jobs = [job(folder / f"{number}-job", overrides=[f"seed={number}"], total=0) for number in range(3)]
    option = {"inductor": {"freezing": True}}
    for path, version, options in zip(jobs, ("2.13.0", "2.13.0", "2.14.0"), (None, option, option), strict=True):
        stored = json.loads((path / "summary.json").read_text())
        compiled = {"versions": {"torch": version, "numpy": "2.4"}, "options": options}
        (path / "summary.json").write_text(json.dumps(stored | {"compiled_by": compiled}))
    write_sweep_table(folder, jobs)
    page = (folder / "sweep.html").read_text()
    assert rows_of(page, "compiled") == [
        ["what", "value", "jobs", "first in"],
        ["versions.torch", "2.13.0", "2", "0"], ["versions.torch", "2.14.0", "1", "2"]]  # fmt: skip
    assert ["versions.numpy", "2.4"] in rows_of(page, "same")
    assert ["options.inductor.freezing", "yes"] in rows_of(page, "same")  # of those that know their options
    assert "compiled_by" not in (folder / "sweep.csv").read_text()
