"""What a run says at its end: its verdict, where it lies, what to type next."""

from pathlib import Path

import pytest

from inductor_debug.pipeline.run.last_lines import last_lines
from inductor_debug.stages.artifacts.records import StageRecord


def record(name: str, status: str, message: str) -> StageRecord:
    return StageRecord(name, status, 1.0, message)


WRONG = record("kerneldiff", "failed", "The numbers are wrong.\nBy much.")
SAID = (
    "The page is report/report.html.",
    "nets is wrong.",
    "inductor-debug minify r (find it)",
    "inductor-debug show r",
)
REPORT = record("report", "passed", "\n".join(SAID))


def lines(*records: StageRecord, folder: Path, verdict: str = "failed") -> list[str]:
    return last_lines({"verdict": verdict}, {each.name: each for each in records}, folder, 12.34)


def test_with_a_report_they_are_its_sentence_its_page_and_its_first_command(tmp_path: Path) -> None:
    assert lines(record("lower", "passed", "Fine."), WRONG, REPORT, folder=tmp_path) == [
        "failed in 12.3 s: nets is wrong.",
        f"where: {tmp_path}/report/report.html",
        "next: inductor-debug minify r (find it)",
    ]


@pytest.mark.parametrize(
    "records, told",
    [
        ((record("lower", "passed", "Fine."), WRONG, record("minify", "skipped", "no failure")),
         "kerneldiff failed: The numbers are wrong."),
        ((WRONG, record("bisect", "timed_out", "after 5 s\nmore")), "bisect timed out: after 5 s"),
        ((record("lower", "passed", "Fine."), record("guards", "passed", "All hold.")), "guards passed: All hold."),
        ((WRONG, record("report", "crashed", "KeyError: x")), "report crashed: KeyError: x"),
    ],
)  # fmt: skip
def test_without_a_report_they_are_the_worst_stages(
    records: tuple[StageRecord, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "outputs" / "a b"
    assert lines(*records, folder=run) == [
        f"failed in 12.3 s: {told}", f"where: {run}", "next: inductor-debug show 'outputs/a b'"
    ]  # fmt: skip


def test_of_a_run_without_a_stage_there_is_a_verdict(tmp_path: Path) -> None:
    assert lines(folder=tmp_path, verdict="passed")[0] == "passed in 12.3 s"
