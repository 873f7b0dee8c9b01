"""What the pages' filters make of commands and of folders, and what the stage says of the page."""

from dataclasses import replace

import pytest
from markupsafe import Markup
from small_report import ModelConfig, StageContext, full, report, summary

from inductor_debug.stages.contract import MemoryArtifacts
from inductor_debug.stages.report.config import ReportConfig
from inductor_debug.stages.report.contents import Entry, led_by
from inductor_debug.stages.report.html import environment_of
from inductor_debug.stages.report.stage import ReportStage
from inductor_debug.stages.settings import Settings


def test_the_stage_says_the_run_in_a_sentence_and_what_to_type_next() -> None:
    context = StageContext(Settings(ModelConfig(name="tiny")), MemoryArtifacts(full()))
    _, data = report(full())
    first, other = data["then"]
    assert ReportStage(ReportConfig()).run(context).message.splitlines() == [
        "The page is report/report.html.",
        data["sentence"],
        f"{first} (find the smallest program that shows it)",
        f"{other} (run it again, with the stages kerneldiff, bisect)",
    ]


def test_what_does_not_stop_the_run_is_proposed_where_nothing_is_wrong() -> None:
    right = summary(numerics={"compared": 2, "failed": 0, "verdict": "exact"})
    content = full(**{"summary.json": right, "kerneldiff/outputs.csv": "path,verdict,bound\noutput,exact,\n"})
    context = StageContext(Settings(ModelConfig(name="tiny")), MemoryArtifacts(content))
    asked = "inductor-debug analyze r1 --type constraints (what breaks the accelerator's rules, at which line)"
    assert asked in ReportStage(ReportConfig()).run(context).message


def test_after_a_right_run_no_stage_is_proposed_that_ran() -> None:
    right = Entry("numerics", "Is it right?", "kerneldiff", "good", "yes")
    profiled = Entry("profile", "Where does the time go?", "profile", "told", "95 % in kernels")
    compare = "inductor-debug compare r1 LATER_RUN"
    again = "inductor-debug rerun r1 'stages=[profile,report]'"
    assert led_by([right], "r1") == led_by([right, replace(profiled, empty=True)], "r1") == [again, compare]
    assert led_by([right, profiled], "r1") == [compare]


@pytest.mark.parametrize(
    "command, purpose",
    [
        ("inductor-debug minify out/r1", "Find the smallest program that shows it"),
        ("inductor-debug repro r1 a.py --run", "Run the script that shows it"),
        ("inductor-debug repro r1 minified-a.py --run", "Run the smallest script that shows it"),
        ("inductor-debug rerun r1 +stages=kerneldiff", "Run it again, with the stage kerneldiff"),
        ("inductor-debug rerun r1 'stages=[profile,report]'", "Run it again, with the stage profile"),
        ("inductor-debug rerun r1 accel.strict=false", "Run it again, with accel.strict=false"),
        ("inductor-debug rerun r1 a.b=null c=null", "Run it again, with a.b and c not set"),
        ("inductor-debug rerun r1 a.b=null c=1", "Run it again, with a.b=null and c=1"),
        ("inductor-debug rerun r1", "Run it again as it was"),
        ("inductor-debug analyze r1 --type kernels", "Which kernels came from a line, and which lines is a kernel"),
        ("acme-tool run", ""),
    ],
)
def test_a_proposed_command_says_what_it_is_for(command, purpose):
    template = environment_of().from_string("{{ line | purpose }}")
    assert template.render(line=command) == purpose


@pytest.mark.parametrize(
    "column, head",
    [("time_us", "time µs"), ("gb_s", "GB/s"), ("gflop_s", "GFLOP/s"), ("median_ms", "median ms"), ("status", "status"),
     ("cost_bytes", "cost bytes")],
)  # fmt: skip
def test_a_columns_unit_is_written_as_one(column, head):
    assert environment_of().from_string("{{ name | heading }}").render(name=column) == head


def test_folders_of_the_machine_are_not_on_the_page(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    shown = environment_of().from_string("{{ line }}")
    assert shown.render(line=f"at {tmp_path}/net.py:7, /opt/env/lib/site-packages/acme/x.py:1") == (
        "at net.py:7, acme/x.py:1"
    )
    own = f"{tmp_path}/.venv/lib/python3.11/site-packages/acme/x.py:1"
    assert shown.render(line=f"at {own} and (source={own})") == "at acme/x.py:1 and (source=acme/x.py:1)"
    assert shown.render(line=Markup(f"{tmp_path}/net.py")) == f"{tmp_path}/net.py"
