"""The pages, run by Streamlit's own harness over stored runs: what they show is what the commands say."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from stored_captures import stored_run
from stored_results import stored_result
from streamlit.testing.v1 import AppTest

from inductor_debug.pipeline.cache.turns import LOCKS
from inductor_debug.pipeline.config.described_keys import all_keys
from inductor_debug.pipeline.dashboard import new_run, show, trend
from inductor_debug.pipeline.dashboard.children import Children, Ticket
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.query import compare_command
from inductor_debug.pipeline.query.check_command import judge, read_breaks, read_graphs
from inductor_debug.pipeline.query.check_profile import Asked, against
from inductor_debug.pipeline.run.sweep import write_sweep_table

EVIL = "<script>alert(1)</script>![](http://example.com/x.png) [a](http://example.com)"
"""What a stranger's run may hold."""


def shown(page: str, root: Path) -> AppTest:
    """A page over a folder, after its first run."""
    script = f"""
from pathlib import Path
from inductor_debug.pipeline.dashboard import {page}
from inductor_debug.pipeline.dashboard.outputs import Outputs
{page}.page(Outputs(Path({str(root)!r})))
"""
    return run(AppTest.from_string(script, default_timeout=60))


def run(page: AppTest) -> AppTest:
    page.run()
    assert not page.exception, [error.value for error in page.exception]
    return page


def by_label(elements: Any, label: str) -> Any:
    (found,) = [element for element in elements if element.label == label]
    return found


def command(page: AppTest) -> str:
    """The command that a page stands for."""
    return str(page.code[0].value)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of two cases, a damaged one and one without a result, in the working directory's ``outputs``."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "outputs"
    at = "2026-01-0{}T00:00:00+00:00".format
    stored_result(folder / "day/a", summary={"run/started": at(1)})
    failed = {"run/started": at(2), "verdict": "failed", "benchmark/test/median_ms": 9.0}
    stored_result(folder / "day/b", summary=failed, violations=[], files={"report/report.html": f"<p>of b</p>{EVIL}"})
    stored_result(folder / "c", summary={"run/started": at(3), "run/dtype": "float16", "stages/capture/message": EVIL})
    stored_result(folder / "damaged")
    (folder / "damaged/summary.json").write_text("{")
    return folder


def test_runs_are_listed_and_filtered(root: Path) -> None:
    page = shown("runs", root)
    assert list(page.dataframe[0].value["run"]) == ["damaged", "c", "day/b", "day/a"]
    assert list(page.dataframe[0].value["verdict"]) == ["damaged", "passed", "failed", "passed"]
    by_label(page.multiselect, "verdict").set_value(["failed"])
    assert list(run(page).dataframe[0].value["run"]) == ["day/b"]
    assert page.caption[0].value == "1 of 4 runs, the newest first"


def test_the_runs_of_a_case_are_followed_over_time(root: Path) -> None:
    page = shown("trend", root)
    assert page.caption[0].value == "It has one run: nothing moves."
    by_label(page.selectbox, "Case").select_index(1)
    assert [each.value for each in run(page).caption] == ["verdict", *trend.TREND.values()]


def test_one_run_is_shown_as_it_is_stored(root: Path) -> None:
    page = shown("runs", root)
    by_label(page.selectbox, "Run").select("c")
    run(page)
    assert page.query_params["run"] == "c"
    assert page.text[0].value == "nets, None, inductor, float16, None: passed"
    stages = next(each.value for each in page.dataframe if "message" in each.value and "status" in each.value)
    assert stages["message"][0] == EVIL
    violations = next(each.value for each in page.dataframe if "node" in each.value)
    assert list(violations["source"]) == ["/home/me/nets.py:12"]
    assert not page.markdown or all("<script" not in each.value for each in page.markdown)


def test_a_report_is_in_a_frame_from_which_nothing_gets_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[str] = []
    monkeypatch.setattr(show.st, "iframe", lambda content, **_: frames.append(content))
    show.stored_page(f"<p>stored</p>{EVIL}")
    (frame,) = frames
    assert "<script" not in frame and frame.count("<iframe sandbox ") == 1 and "&lt;script&gt;" in frame
    assert "default-src &#x27;none&#x27;" in frame or "default-src 'none'" in frame


def test_what_can_be_taken_away_has_a_button(root: Path) -> None:
    page = shown("runs", root)
    by_label(page.selectbox, "Run").select("day/b")
    labels = [button.proto.label for button in run(page).get("download_button")]
    assert labels == ["Download Export", "Download sarif", "Download junit"]
    told = [each.value for each in page.code]  # of the others, why there is none: this run has no report
    assert len(told) >= 2 and all("stages=report" in each for each in told)


def test_two_runs_are_compared_as_the_command_does(root: Path) -> None:
    page = shown("runs", root)
    by_label(page.selectbox, "Run").select("day/a")
    by_label(run(page).selectbox, "Compare with").select("day/b")
    run(page)
    assert command(page) == "inductor-debug compare outputs/day/a outputs/day/b"
    found = compare_command.compared([root / "day/a", root / "day/b"], None)
    assert [each.value for each in page.error] == ["Worse"] and found.exit_code == 1
    assert [each.value for each in page.text] == [found.reason, *found.found.told]
    assert {table.name for table in found.found.tables if table.rows} <= {each.value for each in page.caption}


@pytest.mark.parametrize("name", ["../../etc", "/etc", "day", "nothing"])
def test_a_name_from_the_address_that_is_no_run_opens_nothing(name: str, root: Path) -> None:
    page = shown("runs", root)
    page.query_params["run"] = name
    run(page)
    assert by_label(page.selectbox, "Run").value is None and "run" not in page.query_params


def test_a_run_that_is_damaged_is_told(root: Path) -> None:
    page = shown("runs", root)
    by_label(page.selectbox, "Run").select("damaged")
    run(page)
    assert page.error and "damaged/summary.json" in page.code[0].value


def test_a_number_that_no_table_holds_is_shown(root: Path) -> None:
    stored_result(root / "huge", summary={"violations/total": 10**30})
    assert "1" + "0" * 30 in list(shown("runs", root).dataframe[0].value["violations"])


@pytest.fixture
def swept(root: Path) -> Path:
    """Jobs of a sweep over a key that is called as a column might be, and one of a stranger's name."""
    for value, dtype, count in ((1, "float32", 3), (2, "float32", 4), (1, "float16", 5)):
        overrides = [f"value={value}", f"![x](http://example.com)={dtype}"]
        stored_result(root / f"s/{value}{dtype}", summary={"run/overrides": overrides, "violations/total": count})
    write_sweep_table(root / "s", store.find_runs(root / "s"))
    return root


def test_a_sweep_is_a_table_over_the_axes_that_are_chosen(swept: Path) -> None:
    page = shown("sweeps", swept)
    by_label(page.selectbox, "Measure").select("Findings of the profile, waived ones included")
    assert list(page.dataframe[0].value.loc[0, ["sweep", "jobs", "verdict"]]) == ["s", 3, "passed (3)"]
    table = run(page).dataframe[1].value
    assert table.loc["1"].to_dict() == {"float16": "5", "float32": "3"}
    assert table["float32"].to_dict() == {"1": "3", "2": "4"}
    by_label(page.selectbox, "Down").select("![x](http://example.com)")
    by_label(run(page).selectbox, "Across").select("nothing")
    assert run(page).dataframe[1].value.iloc[:, 0].to_dict() == {"float16": "5", "float32": "3, 4"}
    assert all("http" not in each.value for each in (*page.caption, *page.markdown))


def test_sweeps_are_filtered_by_their_jobs_and_compared(swept: Path) -> None:
    shutil.copytree(swept / "s", swept / "t")
    worse = swept / "t/1float32/summary.json"
    worse.write_text(json.dumps(json.loads(worse.read_text()) | {"verdict": "failed"}))
    write_sweep_table(swept / "t", store.find_runs(swept / "t"))
    page = shown("sweeps", swept)
    by_label(page.selectbox, "Sweep").select("s")
    by_label(run(page).selectbox, "Compare with").select("t")
    assert command(run(page)) == "inductor-debug compare outputs/s outputs/t"
    assert [each.value for each in (*page.error, *page.success)] == ["Worse"]
    by_label(page.multiselect, "verdict").set_value(["failed"])
    assert list(run(page).dataframe[0].value["sweep"]) == ["t"] and by_label(page.selectbox, "Sweep").value == "t"


def test_a_sweep_without_jobs_and_a_huge_page_are_told(swept: Path) -> None:
    for name in store.find_runs(swept / "s"):
        shutil.rmtree(name)
    with (swept / "s/sweep.html").open("wb") as file:
        file.truncate(2**32)
    page = shown("sweeps", swept)
    assert page.text[0].value == "0 jobs over no axis" and any(
        "4,294,967,296 bytes" in each.value for each in page.code
    )


@pytest.fixture
def captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with a capture whose last dimension is 12; its own profile wants multiples of 8."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").mkdir()
    stored_run(tmp_path / "outputs/captured", 12)
    return tmp_path / "outputs"


def test_a_profile_is_edited_until_the_capture_fits(captured: Path) -> None:
    page = shown("profile", captured)
    assert by_label(page.number_input, "alignment").value == 8
    assert page.error[0].value == "It does not fit."
    assert page.text[0].value.startswith("The model does not fit the profile mine: 2 violations")
    by_label(page.number_input, "alignment").set_value(4)
    run(page)
    assert page.success[0].value == "It fits."
    assert page.text[0].value.startswith("The model fits the profile mine: no rule is broken.")
    assert command(page) == "inductor-debug check outputs/captured accel.alignment=4"
    by_label(page.text_input, "dtypes").set_value("[float16]")
    found = judge(read_graphs(captured / "captured"), read_breaks(captured / "captured"),
                  against(captured / "captured", Asked(None, ["alignment=4", "dtypes=[float16]"])))  # fmt: skip
    assert run(page).error[0].value == "It does not fit." and page.text[0].value == found.message
    assert len(page.dataframe[-1].value) == len(found.violations.rows) > 0
    by_label(page.selectbox, "Profile").select("none")
    assert run(page).warning[0].value == "Whether it fits is not established."
    assert page.text[0].value == "Nothing was checked: the profile none has no rules."


@pytest.mark.parametrize(("label", "typed"), [("dtypes", "[float"), ("tile", "x"), ("max_tensor_bytes", "many")])
def test_a_value_that_a_profile_does_not_take_is_told(label: str, typed: str, captured: Path) -> None:
    page = shown("profile", captured)
    by_label(page.text_input, label).set_value(typed)
    run(page)
    assert page.error[0].value == "It can't be shown, or done:" and label in page.code[0].value


def test_a_damaged_run_beside_it_stops_no_page(captured: Path) -> None:
    stored_run(captured / "other", 16)
    (captured / "other/manifest.json").write_text("{")
    page = shown("profile", captured)
    by_label(page.selectbox, "Run with a capture").select("other")
    assert "manifest.json" in run(page).code[0].value
    by_label(page.selectbox, "Run with a capture").select("captured")
    assert run(page).error[0].value == "It does not fit."


def test_where_no_run_can_be_started_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(LOCKS, str(tmp_path / "file"))
    page = shown("new_run", tmp_path)
    assert LOCKS in page.code[0].value and not page.button


def test_a_strangers_rule_is_not_called(captured: Path, tmp_path: Path) -> None:
    mark = tmp_path / "called"
    rule = {"rule": "custom", "value": {"_target_": "os.mkdir", "path": str(mark)}}
    config = {"accel": {"name": "theirs", "rules": [rule]}}
    (captured / "captured/.hydra/config.yaml").write_text(json.dumps(config))
    page = shown("profile", captured)
    assert not mark.exists() and any("not established" in each.value for each in page.text)


def test_without_a_capture_it_says_where_to_make_one(root: Path) -> None:
    page = shown("profile", root)
    assert "No stored run has a capture" in page.info[0].value


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], str]]:
    """What was started, instead of starting it."""
    found: list[tuple[list[str], str]] = []

    def start(self: Children, words: list[str], name: str) -> Ticket:
        found.append((words, name))
        return Ticket("1", words, "", 0)

    monkeypatch.setattr(Children, "start", start)
    return found


def test_the_command_is_what_was_chosen(tmp_path: Path, starts: list[tuple[list[str], str]]) -> None:
    page = shown("new_run", tmp_path)
    assert command(page) == "inductor-debug run"
    by_label(page.selectbox, "Model").select("bert")
    by_label(page.selectbox, "Accelerator profile").select("strict16")
    by_label(page.selectbox, "dtype").select("bfloat16")
    by_label(page.multiselect, "Stages").set_value(["capture", "constrain"])
    by_label(page.multiselect, "More options").set_value(["seed", "model.batch_size"])
    run(page)
    by_label(page.number_input, "model.batch_size").set_value(4)
    by_label(page.text_input, "Further words").set_value("accel.alignment=8 'backend.inductor.x=a b'")
    words = ["model=bert", "accel=strict16", "dtype=bfloat16", "stages=[capture,constrain]", "seed=0",
             "model.batch_size=4", "accel.alignment=8", "backend.inductor.x=a b"]  # fmt: skip
    assert command(run(page)) == (
        "inductor-debug run model=bert accel=strict16 dtype=bfloat16 'stages=[capture,constrain]' seed=0 "
        "model.batch_size=4 accel.alignment=8 'backend.inductor.x=a b'"
    )
    by_label(page.text_input, "Further words").set_value("accel.alignment=8")
    by_label(run(page).button, "Start").click()
    run(page)
    assert starts == [([*words[:-1]], "bert-strict16-inductor")]


def test_what_was_chosen_stays_when_it_becomes_a_sweep(tmp_path: Path) -> None:
    page = shown("new_run", tmp_path)
    by_label(page.selectbox, "Accelerator profile").select("strict16")
    by_label(run(page).toggle, "Sweep").set_value(True)
    assert command(run(page)) == "inductor-debug run --multirun accel=strict16"
    by_label(page.multiselect, "Model").set_value(["bert", "ssm"])
    by_label(run(page).toggle, "Sweep").set_value(False)
    assert command(run(page)) == "inductor-debug run model=bert accel=strict16"


def test_a_capture_that_comes_meanwhile_changes_nothing(captured: Path) -> None:
    stored_run(captured / "other", 16)
    page = shown("profile", captured)
    by_label(page.selectbox, "Run with a capture").select("captured")
    by_label(run(page).selectbox, "Profile").select("strict16")
    by_label(run(page).number_input, "alignment").set_value(4)
    stored_run(captured / "newest", 16)
    assert command(run(page)) == "inductor-debug check outputs/captured accel=strict16 accel.alignment=4"
    by_label(page.selectbox, "Run with a capture").select("other")
    assert command(run(page)) == "inductor-debug check outputs/other accel=strict16 accel.alignment=4"


def test_several_values_are_a_sweep(tmp_path: Path, starts: list[tuple[list[str], str]]) -> None:
    page = shown("new_run", tmp_path)
    by_label(page.toggle, "Sweep").set_value(True)
    by_label(run(page).multiselect, "Model").set_value(["bert", "resnet18"])
    by_label(page.text_input, "Further words").set_value("accel.alignment=8,16")
    assert command(run(page)) == "inductor-debug run --multirun model=bert,resnet18 accel.alignment=8,16"
    by_label(page.multiselect, "Backend").set_value([])
    by_label(run(page).button, "Start").click()
    run(page)
    assert starts == [(["--multirun", "model=bert,resnet18", "accel.alignment=8,16"], "sweep")]


def test_a_text_is_one_word_of_the_command(tmp_path: Path) -> None:
    page = shown("new_run", tmp_path)
    by_label(page.multiselect, "More options").set_value(["accel.description", "model.inputs"])
    by_label(run(page).text_input, "accel.description").set_value("it's a, b")
    words = shlex.split(command(run(page)))
    assert words[:2] == ["inductor-debug", "run"] and words[3:] == ["model.inputs=null"]
    parsed = OverridesParser.create().parse_override(words[2])
    assert (parsed.key_or_group, parsed.value()) == ("accel.description", "it's a, b")


@pytest.mark.parametrize(
    ("further", "told"),
    [
        ("dtype=float99", "float99"),
        ("modle=bert", "modle"),
        ("'open", "Further words"),
        ("stages.capture.x=1", "x"),
        ("--multirun dtype=float32,float99", "float99"),
        ("seed=-1", "seed"),
    ],
)
def test_what_the_command_line_refuses_is_not_started(
    further: str, told: str, tmp_path: Path, starts: list[tuple[list[str], str]]
) -> None:
    page = shown("new_run", tmp_path)
    by_label(page.text_input, "Further words").set_value(further)
    run(page)
    for button in page.button:
        button.click()
    run(page)
    assert any(told in each.value for each in page.code) and page.error
    assert starts == []


def test_every_option_has_a_field(tmp_path: Path) -> None:
    """Of every stage, each with what the schema says; what they give at first is the default."""
    page = shown("new_run", tmp_path)
    by_label(page.multiselect, "Stages").set_value(by_label(page.multiselect, "Stages").options)
    more = by_label(run(page).multiselect, "More options")
    keys = {key.name: key for key in all_keys()}
    apart = {"stages", *new_run.GROUPS, *new_run.OF_CASE}
    assert set(more.options) == {name for name in keys if name not in apart}
    more.set_value(more.options)
    run(page)
    fields = {each.label: each for kind in ("selectbox", "multiselect", "number_input", "text_input")
              for each in getattr(page, kind)}  # fmt: skip
    assert set(more.options) <= set(fields)
    for name in more.options:
        assert keys[name].takes in fields[name].help and keys[name].default in fields[name].help
