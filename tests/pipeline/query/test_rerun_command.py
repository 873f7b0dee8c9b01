"""A stored run made again: what a command decides stands in its configuration, and is told before it is executed."""

import json
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from inductor_debug.models.errors import DamagedError
from inductor_debug.pipeline import cli
from inductor_debug.pipeline.command_line import running
from inductor_debug.pipeline.query import rerun_command, trust
from inductor_debug.pipeline.run.commands import entry


@pytest.mark.parametrize(
    "words",
    [
        ["sh", "-c", "python {} 2>&1 | grep -q 'a b'"],
        ["a\\", "b\\'c", "${x}", "\\${y}", "x\\\\${z}", "a,b=[]{}", "", " ", "é", 'q"q', "1", "null"],
    ],
)
def test_any_words_are_the_commands(words: list[str]) -> None:
    stages, command = rerun_command.minify_overrides(words)
    assert stages == "stages=[minify,report]"
    (parsed,) = OverridesParser.create().parse_overrides([command])
    assert parsed.key_or_group == "stages.minify.command"
    assert OmegaConf.to_container(OmegaConf.create({"words": parsed.value()}), resolve=True) == {"words": words}


def test_without_a_command_any_failure_is_looked_for() -> None:
    assert rerun_command.minify_overrides([]) == ["stages=[minify,report]"]


def test_a_stored_command_is_told_before_the_run_is_made_again() -> None:
    config = {"stages": {"minify": {"command": ["rm", "-r", "a b"]}}}
    assert trust.callables_in(config) == ["stages.minify.command=rm -r 'a b'"]
    assert trust.callables_in(config, ["stages.minify.command=[true]"]) == []


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["rerun", "run", "stages=[capture,report]", "accel=warn16"],
         "rerun run 'stages=[capture,report]' accel=warn16 --yes"),
        (["rerun", "run", "seed=1", "--anyway", "--format", "json"], "rerun run seed=1 --format json --anyway --yes"),
        (["minify", "run", "seed=1", "--", "sh", "-c", "grep x {}"],
         "minify run seed=1 --yes -- sh -c 'grep x {}'"),
    ],
)  # fmt: skip
def test_what_is_to_be_typed_next_has_all_words(
    words: list[str], again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run" / ".hydra").mkdir(parents=True)
    (tmp_path / "run" / ".hydra" / "config.yaml").write_text("seed: 0\n")
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    assert capsys.readouterr().err.endswith(f"Try: inductor-debug {again}\n")


@pytest.mark.parametrize("command", ["rerun", "minify"])
def test_the_new_run_is_asked_for_as_json(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(running, "rerun", lambda *_, as_json, **__: asked.append(as_json) or 0)
    assert cli.main([command, "outputs/run", "--format", "json", "--yes"]) == 0
    assert cli.main([command, "outputs/run", "--yes"]) == 0
    assert asked == [True, False]


def test_what_follows_two_dashes_is_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(running, "rerun", lambda *args, **options: asked.append((*args, options)) or 0)
    assert cli.main(["minify", "outputs/run", "seed=1", "--yes", "--", "grep", "--yes", "x"]) == 0
    ((run, words, options),) = asked
    assert str(run) == "outputs/run" and options["command"] == "minify" and words == ["seed=1"]
    assert options["own"] == ["stages=[minify,report]", "stages.minify.command=['grep','--yes','x']"]


def test_what_does_not_tell_truly_what_compiled_it_is_made_again_only_anyway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text("seed: 0\n")
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "manifest.json").write_text(json.dumps({"files": {"summary.json": "0" * 64}}))
    ran: list[bool] = []
    monkeypatch.setattr(entry, "main", lambda arguments, refuse: ran.append(refuse) or 0)
    with pytest.raises(DamagedError, match=rf"SHA-256.*\nTry: inductor-debug rerun {tmp_path} --anyway"):
        rerun_command.rerun(tmp_path, [], yes=True, anyway=False)
    assert ran == []
    assert rerun_command.rerun(tmp_path, [], yes=True, anyway=True) == 0
    assert ran == [False]
