"""Every reading command on damaged and hostile copies of one good run: ``python tests/trials/hostile_folders.py``.

For each folder of :mod:`hostile_damage` a fresh interpreter, started in that folder, runs every command of
:func:`commands`; beside the folder lies a healthy run. It is held that

- the exit code is 0, 1 or 2, no error gets out, and no command takes longer than its time;
- no payload ran, and the value of the variable that interpolations ask for is printed nowhere and stored nowhere;
- what is printed holds no control character but newlines, and nothing that turns text around;
- nothing outside the results' folder was changed, the hostile folder and its neighbour included;
- the neighbour is listed as if it were alone;
- of damage (the manifest tells other SHA-256 than the files have) each answer is the healthy run's, or a refusal.

Options: ``--run FOLDER`` a good run, by default made here (half a minute); ``--seed N``; ``--only PART`` of a name.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import hostile_damage as damage  # noqa: E402

SECONDS = 60
"""For one command, beside seven others on two cores."""
_FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff]")
NO_ROOT = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""What root starts a program with that permissions hold for."""

MODEL = """\
import torch


def build(batch_size: int = 3):
    layers = torch.nn.Linear(12, 20), torch.nn.ReLU(), torch.nn.Linear(20, 5), torch.nn.Softmax(-1)
    return torch.nn.Sequential(*layers), (torch.randn(batch_size, 12),)
"""


def commands(run: Path, good: Path, out: Path) -> list[list[str]]:
    """Every command that reads stored runs, each of its questions, both formats."""
    from inductor_debug.pipeline.query import questions

    check = ["check", str(run), "--out", str(out)]
    found = [["list", str(run.parent)], ["list", str(run.parent), "--format", "json"]]
    found += [["show", str(run)], ["show", str(run), "--format", "json"]]
    found += [["analyze", str(run), "--type", kind] for kind in questions()]
    found += [["analyze", str(run), "--format", "json"]]
    found += [["analyze", str(run), "--type", "kernels", "--line", "nets.py:5"]]
    found += [check, [*check, "accel=strict8"], [*check, "max_rank=1"], [*check, "--models"]]
    found += [[*check, "--grid", "alignment=7:9"], [*check, "--format", "json"]]
    found += [["repro", str(run)], ["repro", str(run.parent), "--format", "json"]]
    return [*found, ["compare", str(run), str(good)], ["compare", str(good), str(run), "--format", "json"]]


def answer(command: Sequence[str]) -> dict[str, Any]:
    """Run a command in this process: its exit code (None where an error got out), and what it printed."""
    from inductor_debug.pipeline import cli

    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code: int | None = cli.main(list(command))
    except BaseException:  # noqa: BLE001 - whatever gets out of a command is what is looked for
        code = None
        err.write(traceback.format_exc())
    return {"command": list(command), "code": code, "out": out.getvalue(), "err": err.getvalue()}


def faults(
    kind: str, folder: Path, good: Path, answers: Sequence[dict[str, Any]], healthy: Sequence[dict[str, Any]]
) -> Iterator[str]:
    """What is wrong with the answers of one folder.

    Args:
        kind: of the folder.
        folder: it.
        good: its healthy neighbour.
        answers: one for each of :func:`commands`.
        healthy: the same, of a healthy folder of the usual name.
    """
    for found, usual in zip(answers, healthy, strict=True):
        words = " ".join(found["command"])
        printed = found["out"] + found["err"]
        if found["code"] not in (0, 1, 2):
            yield f"exit code {found['code']}: {words}\n{found['err'][-1500:]}"
        if "Traceback" in printed:
            yield f"traceback: {words}"
        if damage.SECRET_VALUE in printed:
            yield f"the variable is printed: {words}"
        if _FORBIDDEN.search(printed):
            character = _FORBIDDEN.search(printed)
            yield f"prints {character and character[0]!r}: {words}"
        if found["command"][0] == "list" and "--format" in found["command"]:
            yield from _neighbour(found, usual, good)
        same = _alike(found["out"]) == _alike(usual["out"])
        if kind in damage.DAMAGE and found["code"] in (0, 1) and not same and not _told(found):
            yield f"another answer than that of the healthy run, and no word of it: {words}"


def _neighbour(found: dict[str, Any], usual: dict[str, Any], good: Path) -> Iterator[str]:
    rows = [[row for row in json.loads(each["out"]) if Path(row["run"]).name == good.name]
            if each["out"] else [] for each in (found, usual)]  # fmt: skip
    if rows[0] != rows[1] or len(rows[0]) != 1:
        yield f"the healthy neighbour is listed as {rows[0]}"


def _alike(text: str) -> str:
    """What was printed with blanks as one: widths follow the longest cell."""
    return re.sub(r"\s+", " ", text)


def _told(found: dict[str, Any]) -> bool:
    """Whether an answer says that something could not be read: the row of a listing, a question without its answer."""
    words = ("damaged", "not listed", "note: ", "no result", '"held": false', " false ", "not established", "manifest")
    return any(word in found["out"] + found["err"] for word in words)


def digest(folder: Path, *, times: bool = True) -> str:
    """A digest of everything in a folder: names, kinds, permissions, times, contents of small files, links' targets."""
    seen = hashlib.sha256()
    for place, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*files, *folders]):
            path = Path(place) / name
            about = path.lstat()
            seen.update(f"{path} {about.st_mode} {about.st_size} {about.st_mtime_ns if times else ''}\n".encode(
                "utf-8", "surrogateescape"))  # fmt: skip
            if path.is_symlink():
                seen.update(os.readlink(path).encode("utf-8", "surrogateescape"))
            elif path.is_file() and about.st_size < 2**26 and os.access(path, os.R_OK):
                seen.update(path.read_bytes())
    return seen.hexdigest()


def leaks(folder: Path) -> bool:
    """Whether the variable's value is in a file below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return any(damage.SECRET_VALUE.encode() in path.read_bytes() for path in files)


def make_outside(parent: Path) -> Path:
    """A folder that no command may look into: a summary that links lead to."""
    outside = parent / "outside"
    outside.mkdir()
    summary = {"run": {"model": damage.SECRET_VALUE}, "verdict": "passed", "stages": []}
    (outside / "summary.json").write_text(json.dumps(summary))
    return outside


def place(kind: str, good: Path, parent: Path, seed: int) -> tuple[Path, Path]:
    """A folder of that kind and its healthy neighbour, below ``parent/runs/day``; returns both."""
    day = parent / "runs" / "day"
    day.mkdir(parents=True)
    make_outside(parent / "runs")
    neighbour = day / "2-healthy"
    shutil.copytree(good, neighbour)
    return damage.make(kind, good, day, seed), neighbour


def make_good(folder: Path) -> Path:
    """A good run of a small model, with all stages that a command reads."""
    folder.mkdir(parents=True)
    (folder / "nets.py").write_text(MODEL)
    stages = "stages=[capture,constrain,lower,kerneldiff,guards,profile,report]"
    words = ["model=custom", "model.build._target_=nets.build", "accel=warn8", stages, f"hydra.run.dir={folder}/good"]
    entry = [sys.executable, "-m", "inductor_debug.pipeline", *words]
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
    subprocess.run(entry, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
    return folder / "good"


def _try(kind: str, folder: Path, good: Path, work: Path) -> tuple[list[dict[str, Any]], str]:
    """The answers of one folder from a fresh interpreter that is started in it, and what hung or died."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {
        damage.SECRET: damage.SECRET_VALUE, damage.MARKER: str(work / "marker"), "MPLCONFIGDIR": str(work / "mpl"),
        "HOME": str(work / "home"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    words = [sys.executable, "-P", str(HERE / "hostile_folders.py"), "--read", str(folder), str(good), str(work)]
    words = [*(NO_ROOT if "unreadable" in kind and os.geteuid() == 0 else []), *words]
    cwd = work if kind == "run unreadable" else folder
    process = subprocess.Popen(
        words, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, err = process.communicate(timeout=SECONDS * len(commands(folder, good, work)))
        died = "" if process.returncode == 0 else f"the interpreter ended with {process.returncode}\n{err[-1500:]}"
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        died = "hung"
    scene = f"{work.parent}/"  # each folder has one of its own, answers are compared between them
    found = [json.loads(line) for line in out.splitlines()]
    found = [item | {key: item[key].replace(scene, "") for key in ("out", "err")} for item in found]
    return found, died and f"{died}: after {len(found)} commands"


def _read(folder: Path, good: Path, work: Path) -> int:
    """What the fresh interpreter does: each command's answer as a line of JSON."""
    out = sys.stdout
    for command in commands(folder, good, work / "results"):
        out.write(json.dumps(answer(command)) + "\n")
        out.flush()
    return 0


def trial(good: Path, parent: Path, seed: int, only: str = "") -> Counter[str]:
    """All folders; prints each fault. Returns how many folders, answers by exit code, and faults there were."""
    counts: Counter[str] = Counter()
    healthy: list[dict[str, Any]] = []
    for kind in ["", *(kind for kind in damage.every() if only in kind)]:
        scene = parent / f"{counts['folders']:03}"
        folder, neighbour = place(kind, good, scene, seed)
        work = scene / "work"
        (work / "home").mkdir(parents=True)
        before = digest(scene / "runs")
        answers, died = _try(kind, folder, neighbour, work)
        if not kind:
            assert not died, died
            healthy = answers
            refused = [item["command"] for item in answers if item["code"] == 2]
            print(f"healthy: {len(answers)} commands, {len(refused)} of them without an answer in this run")
            shutil.rmtree(scene)
            continue
        found = [died] if died else list(faults(kind, folder, neighbour, answers, healthy))
        found += ["something outside was changed"] * (digest(scene / "runs") != before)
        found += ["a payload ran"] * (work / "marker").exists() + ["the variable is stored"] * leaks(work)
        counts.update(["folders"], commands=len(answers), faults=len(found))
        counts.update(f"exit code {item['code']}" for item in answers)
        codes = dict(sorted(Counter(str(item["code"]) for item in answers).items()))
        print(f"{kind}: {codes}{'' if not found else ' FAULTS'}", flush=True)
        for fault in found:
            print(f"    {fault}", flush=True)
        folder.chmod(0o755)
        for path in scene.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(scene)
    return counts


def main(argv: Sequence[str] | None = None) -> int:
    """The trial, or one folder of it; exit code 1 where there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a good run, by default a new one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="folders whose name has this part")
    parser.add_argument("--read", nargs=3, type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.read:
        return _read(*asked.read)
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        parent = Path(name)
        counts = trial(asked.run or make_good(parent / "good"), parent, asked.seed, asked.only)
    print(dict(counts))
    return 1 if counts["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
