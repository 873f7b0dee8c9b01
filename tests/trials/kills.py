"""Kills and faults at random points of a small run: ``python tests/trials/kills.py --count 100 --seed 0``.

After each, what is left is judged from outside. No process of the run's lives. The exit code is a documented one that
fits, and nothing printed is a traceback. Summary and manifest agree with each other and with every file, and all
records are of one run. ``show`` and ``list`` say what the summary says. No file outside the run's directory has
changed.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from inductor_debug.pipeline import cli

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MARK = "INDUCTOR_DEBUG_TRIAL"
PATIENCE_S = 120.0
STAGES = "stages=[capture,constrain,kerneldiff,report]"
SIGNALS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT")
TARGETS = ("parent", "guard", "worker", "group", "any")
MISBEHAVIOURS = ("foreign", "closes", "recursion", "prints")


@dataclass
class Command:
    """One started command, what it prints, and where."""

    process: "subprocess.Popen[bytes]"
    printed: Path

    @property
    def text(self) -> str:
        return self.printed.read_text(errors="replace") if self.printed.exists() else ""


@dataclass
class Place:
    """A folder for one trial: a working directory, a home and a temporary directory, and what is wrong with it."""

    root: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("work", "home", "tmp"):
            (self.root / name).mkdir(parents=True)
        (self.root / "work" / "notes.txt").write_text("mine")
        self.before = self.listing()

    @property
    def run(self) -> Path:
        return self.root / "work" / "disk" / "run"

    def start(self, *overrides: str, **streams: Any) -> Command:
        """The command in a session of its own, marked so that its processes can be found."""
        printed = self.root / f"printed-{uuid.uuid4().hex}.txt"
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(HERE), str(ROOT))),
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
            MARK: self.mark,
        }
        words = [
            "model=custom",
            "model.build._target_=kill_models.build",
            "backend=aot_eager",
            f"hydra.run.dir={self.run}",
        ]
        with printed.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "inductor_debug.pipeline", *words, "runner.cache=false", *overrides],
                cwd=self.root / "work",
                env=environment,
                start_new_session=True,
                **({"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file} | streams),
            )
        return Command(process, printed)

    def processes(self) -> list[psutil.Process]:
        """Living processes of this trial's commands."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def listing(self) -> dict[str, str]:
        """Every path outside the run's directory, with a digest of its content."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            if path.name.startswith("printed-") or path.is_relative_to(self.run.parent):
                continue
            found[str(path.relative_to(self.root))] = _digest(path) if path.is_file() else "folder"
        return found

    def expect(self, right: bool, what: str) -> None:
        if not right:
            self.wrong.append(what)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def wait_for(command: Command, when: float | str) -> None:
    """Until a time in seconds, or a text in what the command prints, or its end."""
    end = time.monotonic() + (when if isinstance(when, float) else PATIENCE_S)
    while time.monotonic() < end and command.process.poll() is None:
        if isinstance(when, str) and when in command.text:
            return
        time.sleep(0.01)


def hit(place: Place, command: Command, target: str, number: int, choice: random.Random) -> None:
    """Send a signal to the command's process, its guard, its worker, its group or any one of its processes."""
    end = time.monotonic() + PATIENCE_S
    while command.process.poll() is None and time.monotonic() < end:
        if target == "group":
            os.killpg(command.process.pid, number)
            return
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            _target(psutil.Process(command.process.pid), target, choice).send_signal(number)
            return
        time.sleep(0.005)


def _target(parent: psutil.Process, target: str, choice: random.Random) -> psutil.Process:
    """The process that is meant; IndexError where there is none yet."""
    if target == "parent":
        return parent
    if target == "any":
        return choice.choice(parent.children(recursive=True))
    (guard, *_) = [child for child in parent.children() if "guard.py" in " ".join(child.cmdline())] or [parent]
    if guard is parent:
        raise IndexError("no guard yet")
    return guard if target == "guard" else guard.children()[0]


def judge(place: Place, command: Command, codes: set[int]) -> None:
    """What holds after every command, however it ended."""
    try:
        code = command.process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        place.wrong.append("it does not end")
        command.process.kill()
        code = command.process.wait()
    place.expect(code in codes, f"exit code {code}, not one of {sorted(codes)}: {command.text[-300:]!r}")
    place.expect("Traceback" not in command.text, f"a traceback: {command.text[-600:]!r}")
    end = time.monotonic() + 30
    while (left := place.processes()) and time.monotonic() < end:
        time.sleep(0.05)
    place.expect(not left, f"processes are left: {[process.info for process in left] if left else ''}{left}")
    for process in left:
        process.kill()
    judge_directory(place, code)
    place.expect(
        place.listing() == place.before,
        f"outside: {sorted(set(place.listing().items()) ^ set(place.before.items()))[:5]}",
    )


def judge_directory(place: Place, code: int) -> None:
    """Summary, manifest, records and files agree, and the reading commands say the same."""
    run = place.run
    shown, told = _called("show", str(run))
    if not (run / "summary.json").is_file():
        place.expect(code not in (0, 1), f"exit code {code} and no summary")
        place.expect(
            shown == 2 and told.count("\n") <= 2, f"show says {shown} of a run without a result: {told[-200:]!r}"
        )
        if (run / "run.log").is_file() and (run / ".hydra" / "config.yaml").is_file():
            rows = json.loads(_called("list", str(run.parent), "--format", "json")[1])
            place.expect([row["verdict"] for row in rows] == ["no result"], f"list says {rows}")
        return
    summary = json.loads((run / "summary.json").read_bytes())
    statuses = [stage["status"] for stage in summary["stages"]]
    place.expect(shown == 0 and f" {summary['verdict']}\n" in told, f"show says {shown}: {told[:300]!r}")
    rows = json.loads(_called("list", str(run.parent), "--format", "json")[1])
    place.expect([row["verdict"] for row in rows] == [summary["verdict"]], f"list says {rows}")
    passed = all(status == "passed" for status in statuses) and len(statuses) > 1
    place.expect((summary["verdict"] == "passed") <= passed, f"passed with {statuses}")
    if code >= 0:
        expected = {"passed": (0, 130), "failed": (1, 130), "crashed": (3, 130)}[summary["verdict"]]
        place.expect(code in expected, f"exit code {code} of a run that {summary['verdict']}")
    identity = summary["run"]["identity"]
    records = [json.loads(path.read_bytes()) for path in (run / ".stages").glob("*.json")]
    place.expect({record["identity"] for record in records} == {identity}, "records of another run")
    place.expect(json.loads((run / ".owner.json").read_bytes())["identity"] == identity, "an owner of another identity")
    if not (run / "manifest.json").is_file():
        place.expect(code < 0, "no manifest")
        return
    manifest = json.loads((run / "manifest.json").read_bytes())
    files = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()} - {"manifest.json"}
    files -= {".reserve"} if code < 0 else set()
    place.expect(manifest["identity"] == identity, "a manifest of another run")
    place.expect(set(manifest["files"]) == files, f"files: {sorted(set(manifest['files']) ^ files)[:5]}")
    wrong = [
        name for name, digest in manifest["files"].items() if (run / name).is_file() and _digest(run / name) != digest
    ]
    place.expect(not wrong, f"digests of {wrong[:5]}")


def _called(*words: str) -> tuple[int, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = cli.main(words)
    return code, printed.getvalue()


def kill(place: Place, target: str, name: str, when: float | str, choice: random.Random, *words: str) -> None:
    """A signal to one of the run's processes."""
    command = place.start(*(words or (STAGES,)))
    wait_for(command, when)
    number = getattr(signal, name)
    hit(place, command, target, number, choice)
    if target in ("parent", "group"):
        # before Python has its handlers, and after the last of them, the system's own way to end remains
        # 0 is that of a run that was ending by itself
        judge(place, command, {-number, 0} if name == "SIGKILL" else {130, -number, 0})
    else:
        judge(place, command, {0, 1, 3})


def misbehave(place: Place, what: str, *words: str) -> None:
    """A model that does what no model should: nothing comes of it."""
    command = place.start(f"+model.build.misbehaviour={what}", "runner.log_limit=1MiB", *(words or (STAGES,)))
    judge(place, command, {0})
    log = place.run / "run.log"
    place.expect(log.is_file() and log.stat().st_size < 2 << 20, "run.log is too long")


def again(place: Place, when: float | str, *words: str) -> None:
    """Killed, and started again at once in the same directory; then with another configuration."""
    words = words or (STAGES,)
    first = place.start(*words)
    wait_for(first, when)
    first.process.kill()
    first.process.wait()
    judge(place, place.start(*words), {0})
    before = {path: path.read_bytes() for path in place.run.rglob("*") if path.is_file()}
    judge_refused(place, place.start(*words, "seed=7"))
    after = {path: path.read_bytes() for path in place.run.rglob("*") if path.is_file()}
    place.expect(before == after, "a refused command changed the directory")


def judge_refused(place: Place, command: Command) -> None:
    code = command.process.wait(PATIENCE_S)
    lines = command.text.splitlines()
    place.expect(
        code == 2 and len(lines) == 2 and lines[1].startswith("Try: "), f"refused with {code}: {command.text!r}"
    )


def two_at_once(place: Place, *words: str) -> None:
    """Two commands started in the same instant: one runs, the other is refused."""
    commands = [place.start(*(words or (STAGES,)), f"seed={seed}") for seed in (1, 2)]
    for command in commands:
        command.process.wait(PATIENCE_S)
    refused = [command for command in commands if command.process.returncode == 2]
    place.expect(len(refused) == 1, f"{len(refused)} of two were refused")
    for command in commands:
        if command in refused:
            judge_refused(place, command)
        else:
            judge(place, command, {0})


@contextlib.contextmanager
def small_disk(place: Place, mebibytes: int) -> Iterator[Path]:
    """A file system of its own where the run's directory will be; only root can mount one."""
    disk = place.run.parent
    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def fill(place: Place, when: float | str, *words: str) -> None:
    """The disk is filled by somebody else at some moment."""
    with small_disk(place, 24) as disk:
        place.before = place.listing()
        command = place.start(*(words or (STAGES,)))
        wait_for(command, when)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        judge(place, command, {0, 2, 3})


def remove(place: Place, when: float | str, *words: str) -> None:
    """The run's directory is removed while it runs: no result is right, a false one or a traceback is not."""
    command = place.start(*(words or (STAGES,)))
    wait_for(command, when)
    shutil.rmtree(place.run, ignore_errors=True)
    with contextlib.suppress(subprocess.TimeoutExpired):
        command.process.wait(PATIENCE_S)
    place.expect("Traceback" not in command.text, f"a traceback: {command.text[-600:]!r}")
    place.expect(command.process.returncode in (0, 1, 2, 3), f"exit code {command.process.returncode}")
    place.expect(not place.processes(), "processes are left")


def unwritable(place: Place) -> None:
    """A file is where the run's directory should be made."""
    place.run.parent.write_text("")
    judge_refused(place, place.start(STAGES))


def streams(place: Place, which: str, *words: str) -> None:
    """Standard streams that are closed, full, or whose reader leaves."""
    words = words or (STAGES,)
    if which == "reader leaves":
        command = place.start(*words, stdout=subprocess.PIPE)
        assert command.process.stdout is not None
        command.process.stdout.readline()
        command.process.stdout.close()
        judge(place, command, {0})
    elif which == "full":
        with open("/dev/full", "wb") as full:
            judge(place, place.start(*words, stdout=full), {0})
    else:
        closed = {"stdin": (0,), "stdout": (1,), "all": (0, 1, 2)}[which]
        judge(place, place.start(*words, preexec_fn=lambda: [os.close(number) for number in closed]), {0})


def trial(place: Place, choice: random.Random, seconds: float) -> str:
    """One trial of a random kind at a random moment of a run that takes ``seconds``; what it was."""
    when = choice.random() * seconds
    kinds = (
        ["kill"] * 12 + ["misbehave"] * 2 + ["again", "again", "two", "fill", "fill", "remove", "unwritable", "streams"]
    )
    kind = choice.choice(kinds)
    if kind == "kill":
        target, name = choice.choice(TARGETS), choice.choice(SIGNALS)
        kill(place, target, name, when, choice)
        return f"{name} to {target} at {when:.2f} s"
    if kind == "misbehave":
        what = choice.choice(MISBEHAVIOURS)
        misbehave(place, what)
        return f"a model that {what}"
    if kind == "streams":
        which = choice.choice(["stdin", "stdout", "all", "full", "reader leaves"])
        streams(place, which)
        return f"streams: {which}"
    if kind == "two":
        two_at_once(place)
    elif kind == "unwritable":
        unwritable(place)
    else:
        {"again": again, "fill": fill, "remove": remove}[kind](place, when)
    return kind if kind in ("two", "unwritable") else f"{kind} at {when:.2f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        place = Place(Path(folder) / "clean")
        began = time.monotonic()
        judge(place, place.start(STAGES), {0})
        seconds = time.monotonic() - began
        print(f"a clean run takes {seconds:.1f} s {place.wrong or ''}", flush=True)
        bad = len(place.wrong)
        for number in range(options.first, options.first + options.count):
            place = Place(Path(folder) / str(number))
            told = trial(place, random.Random(f"{options.seed}-{number}"), seconds)
            bad += bool(place.wrong)
            print(f"{number:3} {told}: {'; '.join(place.wrong) or 'right'}", flush=True)
            shutil.rmtree(place.root, ignore_errors=True)
    print(f"{options.count} trials of seed {options.seed}: {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
