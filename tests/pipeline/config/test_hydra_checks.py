"""What is refused of Hydra's own keys and flags, and values that omegaconf would turn into others."""

from pathlib import Path

import pytest

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.run.commands import entry


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one message of a command line that is wrong."""
    assert entry.main(list(words)) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("value", ["2", "0", "1", "'3'", "-1"])
def test_a_number_is_neither_true_nor_false(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = said(capsys, "accel=strict16", f"accel.strict={value}")
    assert message.startswith(f"accel.strict: got {value!r}")
    assert "; valid: true or false" in message and message.endswith("\nTry: accel.strict=true\n")


def test_a_number_in_ones_own_profile_is_refused_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "accel").mkdir()
    (tmp_path / "accel" / "mine.yaml").write_text("name: mine\nstrict: 2\n")
    message = said(capsys, "accel=mine", "--config-dir", str(tmp_path))
    assert message.startswith("accel.strict: got '2' (in accel/mine.yaml); valid: true or false")


def test_words_for_true_and_false_stay(capsys: pytest.CaptureFixture[str]) -> None:
    for word, read in (("yes", "true"), ("off", "false"), ("True", "true")):
        assert entry.main(["accel=strict16", f"accel.strict={word}", "--cfg", "job", "--package", "accel"]) == 0
        assert f"strict: {read}\n" in capsys.readouterr().out


def test_omegaconf_is_left_as_it_was() -> None:
    from omegaconf import BooleanNode

    assert entry.main(["--cfg", "job"]) == 0
    assert BooleanNode(2)._value() is True


@pytest.mark.parametrize(
    ("words", "told", "hint"),
    [
        (("backend._target_=",), "backend._target_: got '' (in backend._target_=)", "backend._target_=null"),
        (("model.name=",), "model.name: got '' (in model.name=); valid: a text that is not blank", "model.name=NAME"),
        (("runner.cache_dir=' '",), "runner.cache_dir: got ' '", "runner.cache_dir=null"),
        (("hydra.run.dir=",), "hydra.run.dir: got ''; valid: a folder", "hydra.run.dir=FOLDER"),
        (("hydra.verbose=3",), "hydra.verbose: got 3; valid: true, false", "hydra.verbose=true"),
        (("--cfg", "job", "--package", "nosuch"), "--package: got 'nosuch'", "--cfg job --package model"),
        (("--multirun", "seed=range(0,1e12)"), "which makes 1,000,000,000,000 runs", "seed=VALUE,VALUE"),
        (("-m", "seed=range(0,200)", "accel.alignment=range(1,200)"), "which makes 39,800 runs", "seed=VALUE"),
        (("~model",), "model: got none (in ~model); valid: one of ", "model=bert"),
        (("+dtype=float64",), "dtype: got a plus before a key that there is already", "dtype=float64"),
        (("accel.rules=[{rule: rank, value: 4, roles: index}]",), "roles of a rule: ", "roles: [VALUE]"),
        (("accel.rules=[3]",), "accel.rules[0]: got ", "accel.rules='[{rule: alignment, value: 16}]'"),
        (("-m", "accel.alignment=8,16,8"), "accel.alignment: got '8' 2 times (in ", "accel.alignment=8,16"),
        (("-m", "seed=1,,2"), "got 'seed=1,,2', which can't be read", "seed=1,2"),
        (("-m", "accel.alignment=8,16", "--cfg", "hydra", "-p", "hydra.launcher"),
         "accel.alignment: got several values (in accel.alignment=8,16); valid: one value, for --cfg hydra shows",
         "accel.alignment=8 --cfg hydra"),
        (("accel=strict8,strict16", "--cfg", "job"), "accel: got several values", "accel=strict8 --cfg job"),
        (("accel=glob(strict*)", "--cfg", "job"), "accel: got several values", "accel=arm_ethos_u55 --cfg job"),
        (("stages=capture,lower", "--cfg", "job"), "stages: got several values", "'stages=[capture,lower]' --cfg job"),
        (("accel.alignment=interval(1,8)", "--cfg", "job"), "accel.alignment: got ", "accel.alignment=16 --cfg job"),
        (("device=cuda:99999999999999999999",), "device: got 'cuda:99999999999999999999'", "device=cpu"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_its_own_key(
    words: tuple[str, ...], told: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = said(capsys, *words)
    assert told in message and f"\nTry: {hint}" in message.replace("Try: --multirun seed", "Try: seed")


def test_an_empty_word_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("list", ""), ("check", str(tmp_path), "--out", " ")):
        assert cli.main(list(words)) == 2
        assert f"command line: got {words[-1]!r} after {words[-2]}; valid: " in capsys.readouterr().err
