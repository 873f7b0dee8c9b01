"""``compare --limits FILE``: what the file takes, and the one message for what it does not."""

import dataclasses
import re
from pathlib import Path

import pytest
from stored_results import compare_as_json, stored_result

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline import cli
from inductor_debug.pipeline.query.gate.limits import Limits, read_limits

ROOT = Path(__file__).resolve().parents[3]


def read(text: str, folder: Path) -> Limits:
    (folder / "limits.yaml").write_text(text)
    return read_limits(folder / "limits.yaml")


def test_a_key_that_the_file_lacks_is_at_its_default(tmp_path: Path) -> None:
    assert read("", tmp_path) == read("# latency: 2\n", tmp_path) == Limits()
    found = read("latency: 1.2\nguards: null\nverdict: exact\nkernels: 3\n", tmp_path)
    assert found == dataclasses.replace(Limits(), latency=1.2, guards=None, verdict="exact", kernels=3)
    assert found.left_out == ["guards"]


def test_each_default_is_a_value_that_the_file_takes(tmp_path: Path) -> None:
    assert read("\n".join(f"{key}: {value}" for key, value in vars(Limits()).items()), tmp_path) == Limits()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("latncy: 1.1", ["latncy: no such limit", "valid: latency, ", "Try: latency: 1.05"]),
        ("kernel: 1", ["valid: kernels, ", "Try: kernels: 0"]),
        ("latency: 0.9", ["latency: got 0.9", "a finite number from 1, or null", "Try: latency: 1.05"]),
        ("latency: fast", ["latency: got 'fast'", "Try: latency: 1.05"]),
        ("latency: .inf", ["latency: got inf", "a finite number"]),
        ("latency: .nan", ["latency: got nan"]),
        ("latency: [1.1]", ["latency: got [1.1]"]),
        ("latency: {a: 1}", ["latency: got {'a': 1}"]),
        ("kernels: 1.5", ["kernels: got 1.5", "a whole number from 0, or null", "Try: kernels: 0"]),
        ("kernels: true", ["kernels: got True"]),
        ("guards: -1", ["guards: got -1"]),
        ("mapped: 2", ["mapped: got 2", "at most 1"]),
        ("verdict: within_flor", ["verdict: got 'within_flor'", "valid: within_floor, ", "null",
                                  "Try: verdict: within_floor"]),
        ("verdict: [exact]", ["verdict: got ['exact']"]),
        ("7: 1", ["7: no such limit"]),
        ("- latency", ["--limits: got ", "which is no mapping", "latency, ", "Try: "]),
        ("latency", ["which is no mapping"]),
        ("false", ["got False in "]),
        ("latency: 1\nlatency: 2", ["is not YAML", "'latency' is there twice"]),
        ("latency: [", ["is not YAML"]),
        ("latency: !!python/object/apply:os.system [exit]", ["is not YAML"]),
        ("latency: \x1b[2J", ["is not YAML"]),
        ("[" * 200, ["nesting of more than 100 levels"]),
    ],
)  # fmt: skip
def test_what_it_does_not_take_is_one_message_and_exit_code_2(
    text: str, told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "limits.yaml").write_text(text)
    run = stored_result(tmp_path / "a")
    assert cli.main(["compare", str(run), str(run), "--limits", str(tmp_path / "limits.yaml")]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "Traceback" not in printed.err
    assert all(part in printed.err for part in told), printed.err
    assert "limits.yaml" in printed.err and re.search(r"[\x00-\x09\x0b-\x1f]", printed.err) is None


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"--limits: got no file '.*none.yaml'; valid: a YAML file with limits"
    ):
        read_limits(tmp_path / "none.yaml")


def test_limits_that_nothing_is_held_to_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option without an effect would be taken for a gate."""
    (tmp_path / "limits.yaml").write_text("latency: 1.1")
    runs = [str(stored_result(tmp_path / "runs" / name)) for name in "abc"]
    limits = ["--limits", str(tmp_path / "limits.yaml")]
    for folders in (runs, [str(tmp_path / "runs")], [runs[0], str(tmp_path / "runs")]):
        assert cli.main(["compare", *folders, *limits]) == 2
        assert "valid: two runs or two sweeps, the accepted one first" in capsys.readouterr().err


def test_json_has_the_limits_that_were_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "limits.yaml").write_text("latency: 1.1")
    a, b = (stored_result(tmp_path / name) for name in "ab")
    found = compare_as_json(a, b, "--limits", tmp_path / "limits.yaml", capsys=capsys)
    assert found["limits"] == vars(Limits()) | {"latency": 1.1}


def test_the_document_tells_each_limit_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\S+)` \|", (ROOT / "docs/reference/compare.md").read_text(), re.MULTILINE)
    assert dict(rows) == {key: str(value) for key, value in vars(Limits()).items()}
