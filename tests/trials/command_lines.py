"""What wrong command lines get: ``python tests/trials/command_lines.py [--seed N] [--processes N] [--sample N]``.

Every line of :mod:`wrong_lines` is given to the entry, in a folder of its own; some of them to real processes as well.
Each must end with exit code 2 and one short message that says what was got and what is valid. It must leave no file and
execute nothing. What stands behind ``Try:`` must compose and pass every check when it is typed. Printed are the lines
that do not, and the counts by kind; exit code 1 where there is one.
"""

import argparse
import contextlib
import importlib
import io
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(entry) for entry in (ROOT, HERE) if str(entry) not in sys.path]

from wrong_lines import BROKEN, Line, wrong_lines  # noqa: E402

LINES, CHARACTERS = 4, 3000
"""Of a message at most."""
TEMPLATE = re.compile(r"\b(VALUE|NAME|FOLDER|KEY|RUN|INPUT|RUN1|FILE)\b|: ..*\.\.\.$|\bor\b.*\bnone\b")
"""A suggestion with a place to be filled in."""
FILES = re.compile(r"correct |[\w]+: |.*, with ")
"""A suggestion for a file."""
HELP = ("python -m pipeline --help", "inductor-debug --help", "python -m pipeline --cfg hydra")


@dataclass
class Outcome:
    """What a line ended in: exit code, both streams, what it left, and whether it got as far as a run."""

    code: object
    printed: str
    said: str
    left: tuple[str, ...] = ()
    started: bool = False


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """The working directory of every line: the user's YAML, models, a stored run, and a home of its own."""
    accel = folder / "my_conf" / "accel"
    (accel / "folder.yaml").mkdir(parents=True)
    for name, text in BROKEN.items():
        (accel / f"{name}.yaml").write_bytes(text.encode(errors="surrogateescape"))
    (accel / "nul.yaml").write_bytes(b"name: nul\x00\n")
    (accel / "dangling.yaml").symlink_to(folder / "nowhere.yaml")
    (folder / "file.txt").write_text("text\n")
    net = "import torch\nnumber = 3\ndef build(batch_size: int = 2):\n"
    net += "    return torch.nn.Linear(4, 4), (torch.randn(batch_size, 4),)\ndef nothing():\n    return None\n"
    (folder / "nets.py").write_text(net)
    (folder / "broken.py").write_text("import no_such_package_anywhere\n")
    (folder / "models").mkdir()
    (folder / "models" / "nets.py").write_text(net)
    (folder / "evil.py").write_text("open('executed', 'w')\n")
    _stored_run(folder / "stored" / "run")
    (folder / "home").mkdir()
    before = dict(os.environ), os.getcwd(), list(sys.path)
    for name in [name for name in os.environ if name.startswith("MOCK_")]:
        del os.environ[name]
    os.environ |= {"HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "home" / "cache")}
    os.chdir(folder)
    sys.path.append(str(folder))
    importlib.invalidate_caches()
    try:
        yield folder
    finally:
        os.chdir(before[1])
        sys.path[:] = before[2]
        os.environ.clear()
        os.environ.update(before[0])


def _stored_run(folder: Path) -> None:
    """A run with a capture of one operation, as the stages store it."""
    import json

    from inductor_debug.stages.encoding import encode
    from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord, TensorRecord

    tensor = TensorRecord((4, 7), "float32", (7, 1), "cpu")
    node = NodeRecord("add", "call_function", "aten.add.Tensor", outputs=[tensor])
    graph = GraphRecord("g0.forward", "forward", [node])
    summary = {"schema": 1, "run": {"id": "stored/run", "model": "mine", "accel": "none", "backend": "inductor"},
               "verdict": "passed", "stages": []}  # fmt: skip
    config = {"model": {"name": "mine", "build": {"_target_": "nets.build"}}, "stages": {"capture": {}}}
    config |= {"accel": {"name": "none"}, "backend": {"name": "inductor"}, "dtype": "float32", "mode": "inference"}
    (folder / "capture" / "graphs").mkdir(parents=True)
    (folder / ".hydra").mkdir()
    (folder / "run.log").touch()
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / ".hydra" / "config.yaml").write_text(json.dumps(config))
    (folder / "capture" / "graphs" / "g0.forward.json").write_bytes(encode("x.json", graph.to_json()))


def typed(line: Line) -> list[str]:
    """The words as typed: RUN stands for the stored run."""
    return ["stored/run" if word == "RUN" else word for word in line.words]


def outcome(words: Sequence[str], line: Line) -> Outcome:
    """Give words to the entry in this process. A run that would start is noted and does not, but for the worker's."""
    from inductor_debug.pipeline import cli
    from inductor_debug.pipeline.run.commands import entry

    started: list[object] = []
    streams = io.StringIO(), io.StringIO()
    before = _files(Path.cwd())
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, line.environment))
        if line.worker:
            words = [*words, "runner.isolation=none"]
        else:
            stack.enter_context(
                mock.patch("inductor_debug.pipeline.run.runner.run", lambda *args, **_: started.append(args) or 0)
            )
        stack.enter_context(contextlib.redirect_stdout(streams[0]))
        stack.enter_context(contextlib.redirect_stderr(streams[1]))
        try:
            code: object = cli.main(list(words)) if line.command else entry.main(list(words))
        except BaseException:  # noqa: BLE001 - whatever gets out is the finding
            code = "raised"
            streams[1].write(traceback.format_exc())
    root.handlers[:] = handlers
    root.setLevel(level)
    found = Outcome(code, streams[0].getvalue(), streams[1].getvalue(), _new(before), bool(started))
    shutil.rmtree("outputs", ignore_errors=True)
    return found


def in_a_process(words: Sequence[str], line: Line) -> Outcome:
    """Give words to a real process; it must end before it starts a run, and must not take long."""
    script = str(Path(sys.executable).parent / "inductor-debug")
    program = [script] if line.command else [sys.executable, "-m", "inductor_debug.pipeline"]
    before = _files(Path.cwd())
    done = subprocess.run(
        [*program, *words], capture_output=True, text=True, errors="replace", timeout=300,
        env=os.environ | line.environment | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr, _new(before))


def _files(folder: Path) -> dict[str, float]:
    kept = (path for path in folder.rglob("*") if "__pycache__" not in path.parts and not path.is_dir())
    return {str(path.relative_to(folder)): path.lstat().st_mtime for path in kept}


def _new(before: dict[str, float]) -> tuple[str, ...]:
    after = _files(Path.cwd())
    return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def faults(found: Outcome, line: Line) -> list[str]:
    """What is wrong with an outcome; empty where nothing is."""
    said = found.said
    checks = [
        (found.code == 2, f"exit code {found.code}" + ", a run would have started" * found.started),
        ("Traceback" not in said + found.printed, "a traceback"),
        (not found.left, f"files left: {', '.join(found.left[:3])}"),
        (bool(said.strip()), "no message"),
        (len(said.strip().splitlines()) <= LINES, f"{len(said.splitlines())} lines"),
        (len(said) <= CHARACTERS, f"{len(said)} characters"),
        (not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", said), "a control character"),
        (re.search(r"valid|missing|can't be read|Try: |not YAML|needs", said) is not None, "not said what is valid"),
        (all(part in said for part in line.says), f"not said: {line.says}"),
    ]
    return [told for right, told in checks if not right]


def suggested(said: str) -> str:
    """What stands behind ``Try:``, the first of alternatives; empty where nothing does."""
    match = re.search(r"^Try: (.*)$|Try: (.*)$", said, re.MULTILINE)
    return (match[1] or match[2] or "").strip() if match else ""


def retyped(line: Line, suggestion: str) -> list[str] | None:
    """The line with the suggestion in the place of what was wrong; None for one that no command line takes."""
    import shlex

    if TEMPLATE.search(suggestion) or suggestion in HELP or suggestion.startswith("eval ") or FILES.match(suggestion):
        return None
    first = re.split(r", or | or (?=\w+=)", suggestion)[0]
    words = shlex.split(first)
    words = [word for word in words if word not in ("python", "-m", "pipeline", "inductor-debug")]
    wrong = line.wrong or line.words[-1:]
    keys = {word.lstrip("+~").partition("=")[0] for word in words}
    kept = [word for word in line.words if word not in wrong and word.lstrip("+~").partition("=")[0] not in keys]
    kept = [word for word in kept if not (word == "--multirun" and "--multirun" in words)]
    return [*kept, *words]


def suggestion_fault(found: Outcome, line: Line) -> str:
    """Why a suggestion is of no use when it is typed; empty where it composes and passes, or has places to fill in."""
    suggestion = suggested(found.said)
    if line.command or line.worker or line.environment:
        return ""
    again = retyped(line, suggestion) if suggestion else None
    if again is None:
        return ""
    second = outcome(again, line)
    if second.started and second.code in (0, 3):  # 3: a sweep whose runs left no summary, for none ran
        return ""
    return f"'Try: {suggestion}' typed as {again} gives {second.code}: {second.said.strip()[:300]}"


def judge(lines: Sequence[Line], verbose: bool = False) -> dict[Line, list[str]]:
    """Every line that is not answered right, and what is wrong with its answer."""
    wrong: dict[Line, list[str]] = {}
    for line in lines:
        found = outcome(typed(line), line)
        told = faults(found, line)
        if not told and (useless := suggestion_fault(found, line)):
            told = [useless]
        if told:
            wrong[line] = told
        if told or verbose:
            print(f"{'WRONG' if told else 'right'}  {line.kind}: {shown(line)}\n       {'; '.join(told)}", flush=True)
            print("       " + found.said.strip()[-600:].replace("\n", "\n       "), flush=True)
    return wrong


def shown(line: Line) -> str:
    """A line as a person would type it, cut where it is long."""
    words = [*(f"{key}={value}" for key, value in line.environment.items()), *line.words]
    return " ".join(word if len(word) < 80 else f"{word[:80]}…" for word in words).encode("unicode_escape").decode()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, help="so many of the lines, drawn; by default all")
    parser.add_argument("--kind", action="append", help="lines of this kind alone; may be repeated")
    parser.add_argument("--processes", type=int, default=20, help="so many of them by real processes too")
    parser.add_argument("--verbose", action="store_true", help="print every answer")
    asked = parser.parse_args(argv)
    lines = wrong_lines(asked.seed)
    lines = [line for line in lines if not asked.kind or line.kind in asked.kind]
    draw = random.Random(asked.seed)
    if asked.sample is not None:
        lines = draw.sample(lines, min(asked.sample, len(lines)))
    with tempfile.TemporaryDirectory() as folder, workplace(Path(folder)):
        wrong: dict[Any, list[str]] = dict(judge(lines, asked.verbose))
        plain = [line for line in lines if "\x00" not in "".join(line.words)]
        for line in draw.sample(plain, min(asked.processes, len(plain))):
            told = faults(in_a_process(typed(line), line), line)
            if told:
                wrong["process", line] = told
                print(f"WRONG  as a process: {shown(line)}: {'; '.join(told)}", flush=True)
    counts = Counter(line.kind for line in lines)
    for kind, count in counts.items():
        bad = sum(1 for key in wrong if isinstance(key, Line) and key.kind == kind)
        print(f"{count:5}  {kind}" + (f", {bad} answered wrong" if bad else ""))
    processes = min(asked.processes, len(lines))
    print(f"{len(lines)} command lines, {processes} of them by processes too: {len(wrong)} answered wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
