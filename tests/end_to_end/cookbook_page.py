"""docs/how-to/cookbook.md taken apart, and its commands run as a reader would type them, on smaller models."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command_line import Finished, command

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.directory import store

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/cookbook.md"
CUDA = "(CUDA)"
PIPELINE = "python -m pipeline "


@dataclass(frozen=True)
class Entry:
    """One question of the page.

    Attributes:
        group: heading above it.
        title: its own heading.
        commands: of its ``sh`` blocks, in order.
        text: all of it.
    """

    group: str
    title: str
    commands: list[str]
    text: str


def read_page() -> tuple[str, list[Entry]]:
    """The command of the base run, and the entries."""
    head, *groups = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (base,) = commands_of(head)
    entries = []
    for group in groups:
        name, *parts = re.split(r"^### ", group, flags=re.MULTILINE)
        for part in parts:
            title, _, text = part.partition("\n")
            entries.append(Entry(name.strip(), title.strip(), commands_of(text), text))
    return base, entries


def commands_of(text: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [line.partition(" #")[0].rstrip() for block in blocks for line in block.splitlines() if line]


def substituted(text: str, words: Mapping[str, str]) -> str:
    """A command on a smaller model: each word of the page in the test's own."""
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    return text


@dataclass
class Reader:
    """Types an entry's commands into one working directory.

    Attributes:
        cwd: with ``outputs`` below it.
        caches: overrides for the compilers' caches.
        code: exit code of the last run of the pipeline.
        output: what that printed.
        answers: of each ``inductor-debug`` command, as JSON.
    """

    cwd: Path
    caches: tuple[str, ...] = ()
    code: int = 0
    output: str = ""
    answers: list[Any] = field(default_factory=list)

    @property
    def runs(self) -> list[Path]:
        """Folders of the runs, oldest first."""
        return store.find_runs(self.cwd / "outputs")

    @property
    def newest(self) -> Finished:
        return Finished(self.code, self.output, self.runs[-1])

    def type(self, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """Type one line; AssertionError where an ``inductor-debug`` command does not answer."""
        if text.startswith(PIPELINE):
            done = command(*shlex.split(text)[3:], *self.caches, cwd=self.cwd)
            self.code, self.output = done.returncode, done.stdout + done.stderr
            assert self.code in (0, 1), self.output
            return
        words = shlex.split(text)
        assert words[0] == "inductor-debug", text
        monkeypatch.chdir(self.cwd)
        names = [str(run.relative_to(self.cwd)) for run in self.runs]
        sweeps = [str(file.parent.relative_to(self.cwd)) for file in self.cwd.rglob("sweep.csv")]
        places = {"SWEEP": iter(sweeps), "RUN": iter(reversed(names))}
        words = [next(places[word]) if word in places else word for word in words]
        capsys.readouterr()
        answered = (0, 1) if words[1] == "compare" else (0,)  # 1: the second run is worse
        assert cli.main(words[1:]) in answered, capsys.readouterr().err
        assert capsys.readouterr().out.strip()
        assert cli.main([*words[1:], "--format", "json"]) in answered
        self.answers.append(json.loads(capsys.readouterr().out))

    @property
    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Tables of the last answer."""
        return self.answers[-1]["tables"]

    @property
    def told(self) -> str:
        """Sentences of the last answer."""
        return "\n".join(self.answers[-1]["told"])


Check = Callable[[Reader], None]
