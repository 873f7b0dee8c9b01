"""Stages for the runner's tests: each does one real thing to its process. Loaded by the worker through PYTHONPATH."""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.artifacts.records import ReproRecord
from inductor_debug.stages.contract import Stage, StageContext, StageResult
from inductor_debug.stages.declaration import Declaration
from inductor_debug.stages.repro.fingerprint import fingerprint


def _declared(name: str, needs: tuple[str, ...] = ()) -> Declaration:
    """A stage of this module, none of which needs torch."""
    return Declaration(name, f"{__name__}:{name}", options=dict, needs=needs, uses_torch=False)


class Plain(Stage):
    declaration = _declared("plain")

    def run(self, context: StageContext) -> StageResult:
        context.live["token"] = os.getpid()
        table = {"value": 3 * context.settings.seed, "nan": float("nan"), "pid": os.getpid()}
        return StageResult(
            "passed", "all is well", {"plain/numbers.json": table, "plain/rows.json": [{"a": 1, "t": time.time()}]},
            {"graphs": {"dynamo": 1, "nodes": 7}}, {"plain/numbers.json": ["value"], "plain/rows.json": ["a"]},
        )  # fmt: skip


class LeavesARepro(Stage):
    """Fails, and leaves a reproduction of a failure that depends on the run's seed."""

    declaration = _declared("leaves_a_repro")

    def run(self, context: StageContext) -> StageResult:
        failure = f"error ValueError in net.py:forward, net.py:scale{context.settings.seed}"
        record = ReproRecord("repros/one.py", "error", failure=failure, fingerprint=fingerprint(failure))
        return StageResult("failed", "it fails.", {record.path: "raise SystemExit(0)"}, {"repros": [record]})


class After(Stage):
    """Says whether it shares a process with ``plain``, and what it sees of it."""

    declaration = _declared("after")

    def run(self, context: StageContext) -> StageResult:
        shared = context.live.get("token") == os.getpid()
        value = (
            context.artifacts.read_json("plain/numbers.json")["value"] if context.artifacts.names("plain/") else None
        )
        return StageResult("passed", f"shared={shared} value={value} torch={'torch' in sys.modules}")


class Raises(Stage):
    declaration = _declared("raises")

    def run(self, context: StageContext) -> StageResult:
        raise RuntimeError("planted failure\nsecond line")


class RaisesForADtype(Stage):
    """Raises as a model does whose weights were cast when it was built."""

    declaration = _declared("raises_for_a_dtype")

    def run(self, context: StageContext) -> StageResult:
        context.live["case"] = SimpleNamespace(cast="dtype=float32 cast the model's bfloat16 weights")
        raise RuntimeError("mat1 and mat2 must have the same dtype")


class RaisesWrapped(Stage):
    """Raises as torch does where a backend raised."""

    declaration = _declared("raises_wrapped")

    def run(self, context: StageContext) -> StageResult:
        try:
            raise KeyError("the cause")
        except KeyError as error:
            wrapper = RuntimeError("backend='compiler_fn' raised:\nKeyError: 'the cause'\n\nSet TORCHDYNAMO_VERBOSE=1")
            wrapper.inner_exception = error  # type: ignore[attr-defined]
            raise wrapper from None


class Announces(Stage):
    declaration = _declared("announces")

    def run(self, context: StageContext) -> StageResult:
        raise RuntimeError("3 violations:\n  at net.py:7\n  at net.py:8") from ValueError("x" * 1000)


class Exits(Stage):
    declaration = _declared("exits")

    def run(self, context: StageContext) -> StageResult:
        os._exit(self.config["code"])


class Segfaults(Stage):
    declaration = _declared("segfaults")

    def run(self, context: StageContext) -> StageResult:
        ctypes.CDLL(None).puts(b"native line before the fault")
        os.write(1, b"descriptor line before the fault\n")
        ctypes.string_at(0)
        return StageResult("passed")


class Killed(Stage):
    declaration = _declared("killed")

    def run(self, context: StageContext) -> StageResult:
        os.kill(os.getpid(), signal.SIGKILL)
        return StageResult("passed")


class Hangs(Stage):
    """Hangs, and so does a child in a session of its own."""

    declaration = _declared("hangs")

    def run(self, context: StageContext) -> StageResult:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        file = Path(context.artifacts.path, "hangs", "child.pid")  # type: ignore[attr-defined]
        file.parent.mkdir()
        file.write_text(str(child.pid))
        while True:
            time.sleep(60)


class HangsPlainly(Stage):
    declaration = _declared("hangs_plainly")

    def run(self, context: StageContext) -> StageResult:
        context.progress("hanging now")
        while True:
            time.sleep(60)


class HangsInItsCheck(HangsPlainly):
    """Hangs before the worker has told anything."""

    declaration = _declared("hangs_in_its_check")

    def check(self, context: StageContext) -> None:
        time.sleep(600)


class Allocates(Stage):
    """Allocates in this process: the limit on private memory makes it raise."""

    declaration = _declared("allocates")

    def run(self, context: StageContext) -> StageResult:
        return StageResult("passed", str(len(bytearray(4 << 30))))


class AllocatesInChildren(Stage):
    """Two children below the limit each, beyond it together."""

    declaration = _declared("allocates_in_children")

    def run(self, context: StageContext) -> StageResult:
        code = "import time; data = b'x' * (180 << 20); time.sleep(600)"
        children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
        return StageResult("passed", str([child.wait() for child in children]))


class Needy(Stage):
    declaration = _declared("needy", ("raises",))

    def run(self, context: StageContext) -> StageResult:
        return StageResult("passed")


class NeedsPlain(Needy):
    declaration = _declared("needs_plain", ("plain",))


class Constrain(Stage):
    declaration = _declared("constrain")

    def run(self, context: StageContext) -> StageResult:
        violations = {"total": 2, "by_rule": {"alignment": 2}, "by_effect": {"reject": 2}, "strict": True}
        return StageResult("failed", "2 violations", summary={"violations": violations})


class Surroundings(Stage):
    """Stores what surrounds it: its process and the variables that a run sets for it."""

    uses_torch = False

    def run(self, context: StageContext) -> StageResult:
        return StageResult("passed", "", {f"{self.name}/surroundings.json": self.told(context)})

    def told(self, context: StageContext) -> dict[str, object]:
        return {"pid": os.getpid(), "temporary": tempfile.gettempdir(), "workspace": workspace(os.environ)}


class SurroundingsOfChildren(Surroundings):
    """And the variables of processes that it may start."""

    def told(self, context: StageContext) -> dict[str, object]:
        children = None if context.children is None else workspace(context.children)
        return super().told(context) | {"children": children}


def workspace(variables: Mapping[str, str]) -> str | None:
    return variables.get("CUBLAS_WORKSPACE_CONFIG")


class Tells(Stage):
    """Tells of the process: all its variables, hash seed, path, whether torch is there, and what it has open."""

    declaration = _declared("tells")

    def run(self, context: StageContext) -> StageResult:
        opened = sorted(os.readlink(f"/proc/self/fd/{name}").partition(":")[0] for name in os.listdir("/proc/self/fd")
                        if os.path.exists(f"/proc/self/fd/{name}"))  # fmt: skip
        told = {
            "variables": dict(os.environ), "hash": hash("text"), "path": sys.path, "torch": "torch" in sys.modules,
            "arguments": sys.argv[0], "folder": os.getcwd(), "open": opened, "parent": os.getppid(),
            "group": os.getpgid(0), "safe_path": sys.flags.safe_path,
        }  # fmt: skip
        return StageResult("passed", "", {"tells/told.json": told})


class Lower(SurroundingsOfChildren):
    declaration = _declared("lower")


class Benchmark(SurroundingsOfChildren):
    declaration = _declared("benchmark")


class Bisect(Plain):
    declaration = _declared("bisect")


class Profile(Surroundings):
    declaration = _declared("profile")


class Recalls(Stage):
    """Says how the stages before it ended, and what an earlier run left it; is killed where it was left nothing."""

    declaration = _declared("recalls")

    def run(self, context: StageContext) -> StageResult:
        told = {name: [record.status, record.cause] for name, record in context.earlier.items()}
        assert context.unfinished is not None
        folder = context.unfinished / "recalls"
        left = sorted(path.name for path in folder.rglob("*"))
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("known.jsonl", "large.pt"):
            (folder / name).write_text("1")
        (folder / "known.jsonl").unlink() if left else None
        return StageResult("passed", "", {"recalls/told.json": {"told": told, "left": left, "time_s": context.time_s}})


class Rejects(Stage):
    declaration = _declared("rejects")

    def check(self, context: StageContext) -> None:
        raise ConfigurationError("stages.rejects.x: got 1; valid: 2.\nTry: stages.rejects.x=2")

    def run(self, context: StageContext) -> StageResult:
        return StageResult("passed")


class Refuses(Stage):
    """Meets a mistake that only compiling can tell, wrapped as torch wraps what a backend raises."""

    declaration = _declared("refuses")

    def run(self, context: StageContext) -> StageResult:
        wrapper = RuntimeError("backend='compiler_fn' raised")
        wrapper.inner_exception = ConfigurationError("backend.options.x: got 1; valid: 2.\nTry: backend.options.x=2")  # type: ignore[attr-defined]
        raise wrapper


class KernelDiff(Segfaults):
    declaration = _declared("kerneldiff")


class Report(Stage):
    """Stores what it was shown of the run."""

    declaration = _declared("report")

    def run(self, context: StageContext) -> StageResult:
        shown = context.artifacts.read_json("summary.json")
        versions = context.artifacts.read_json("manifest.json")["versions"]
        return StageResult("passed", "", {"report/seen.json": {"summary": shown, "versions": versions}})


class Prints(Stage):
    """Prints much, partly by a child process."""

    declaration = _declared("prints")

    def run(self, context: StageContext) -> StageResult:
        print("first line of the model")
        subprocess.run(["seq", "-f", "%020.0f", "1", str(self.config["lines"])], check=True)
        print("last line of the model")
        return StageResult("passed")


class WritesEverywhere(Stage):
    """Writes to every descriptor that it finds, without an end of line, and lets a child do the same."""

    declaration = _declared("writes_everywhere")

    def run(self, context: StageContext) -> StageResult:
        for descriptor in _own_descriptors():
            os.write(descriptor, b'{"event": "done"}\n\xff{"event": 7}\n[1]\nnull\nforeign')
        return StageResult("passed", "wrote")


class ClosesEverything(Stage):
    declaration = _declared("closes_everything")

    def check(self, context: StageContext) -> None:
        if self.config.get("at_once"):
            self.run(context)

    def run(self, context: StageContext) -> StageResult:
        for descriptor in _own_descriptors():
            os.close(descriptor)
        return StageResult("passed", "closed")


def _own_descriptors() -> list[int]:
    """Open pipes of this process beyond the standard streams."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.readlink(f"/proc/self/fd/{name}").startswith("pipe:"):
                found.append(int(name))
        except FileNotFoundError:  # the listing's own
            continue
    return found


class LowersRecursionLimit(Stage):
    declaration = _declared("lowers_recursion_limit")

    def run(self, context: StageContext) -> StageResult:
        sys.setrecursionlimit(30)
        deep: list[object] = []
        for _ in range(100):
            deep = [deep]
        return StageResult("passed", "set", {"lowers_recursion_limit/deep.json": deep})


class LeavesADaemon(Stage):
    """Leaves a process behind: of a session of its own, whose parent is dead and whose environment is empty."""

    declaration = _declared("leaves_a_daemon")

    def run(self, context: StageContext) -> StageResult:
        code = (
            "import os, subprocess, sys\n"
            "daemon = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], env={},\n"
            "                          start_new_session=True, stdout=subprocess.DEVNULL)\n"
            "print(daemon.pid)"
        )
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        return StageResult("passed", done.stdout.strip())


class FillsTheDisk(Stage):
    """Fills the disk of the run's directory and leaves it full."""

    declaration = _declared("fills_the_disk")

    def run(self, context: StageContext) -> StageResult:
        path = Path(context.artifacts.path, self.name, "filler")  # type: ignore[attr-defined]
        path.parent.mkdir()
        with path.open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue
        return StageResult("passed", "full")


CLASSES = {
    cls.declaration.name: f"runner_stages:{cls.__name__}"
    for cls in (Plain, LeavesARepro, After, Raises, RaisesWrapped, RaisesForADtype, Announces, Exits, Segfaults,
                Killed, Hangs,
                HangsPlainly, HangsInItsCheck, Allocates, AllocatesInChildren, Needy,
                NeedsPlain, Recalls, Constrain, Lower, Benchmark, Bisect,
                Profile, Rejects, Refuses, KernelDiff, Report, Prints, WritesEverywhere, ClosesEverything,
                LowersRecursionLimit, LeavesADaemon, FillsTheDisk, Tells)
}  # fmt: skip
