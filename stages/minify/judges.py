"""What decides whether a program shows the failure: what a compiler makes of it, a function, or any command."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.minify.candidate import Candidate
from inductor_debug.stages.minify.config import asked_of
from inductor_debug.stages.minify.failures import ASKED, DEFECT, Failure
from inductor_debug.stages.minify.script import About, Compiler, Predicate, script
from inductor_debug.stages.minify.workers import LAST, Outcome, Workers
from inductor_debug.stages.repro import Script, Verification, verify
from inductor_debug.stages.repro.check import COULD_NOT_RUN
from inductor_debug.stages.repro.verify import TIMEOUT_S

EAGER = "--eager"
"""Has a script that looks for any failure run the program by torch alone."""


class Judge(ABC):
    """Decides of each program that is tried.

    Attributes:
        packages: what its scripts import beside torch.
        compiles_cpp: whether they compile C++ by TorchInductor.
        backend: what programs are compiled with, as source; empty if that is not known.
    """

    packages: tuple[str, ...]
    compiles_cpp: bool
    backend: str = ""

    @abstractmethod
    def text(self, candidate: Candidate, data: str) -> str:
        """The script of a program that is tried.

        Args:
            candidate: the program.
            data: the folder of the numbers that it is given.

        Raises:
            NotReproducible: part of the program can't be written.
        """

    @abstractmethod
    def final(self, candidate: Candidate, failure: Failure, about: About) -> str:
        """The script that is handed over."""

    @abstractmethod
    def what(self, failure: Failure, target: str) -> str:
        """What goes wrong at an operation, in a sentence."""

    def outcome(self, workers: Workers, path: Path, limit_s: float) -> Outcome:
        """How the script of a program ended."""
        return workers.run(path, timeout_s=limit_s, compiles_cpp=self.compiles_cpp)

    def failure(self, outcome: Outcome) -> Failure | None:
        """What it showed."""
        return Failure.of(outcome)

    def verified(self, text: str, failure: Failure, beside: Sequence[Path], limit_s: float) -> Verification:
        """Whether a fresh process shows the failure.

        Args:
            text: the script that is handed over.
            failure: what it is to show.
            beside: files that it reads.
            limit_s: seconds after which it is taken to hang.
        """
        item = Script("repro", text, f"FOUND {failure.text}", beside=tuple(beside), packages=self.packages)
        [found] = verify([item], timeout_s=TIMEOUT_S + limit_s)
        return found


class Compiled(Judge):
    """Compares what a compiler makes of a program with torch, and with float64.

    Args:
        compiler: that.
        factor: error over that of eager above which a result is wrong.
    """

    def __init__(self, compiler: Compiler, factor: float = 4.0) -> None:
        self.compiler, self.factor = compiler, factor
        self.packages, self.compiles_cpp, self.backend = compiler.packages, compiler.compiles_cpp, compiler.backend

    def text(self, candidate: Candidate, data: str) -> str:
        return script(candidate, self.compiler, data=data, factor=self.factor)

    def final(self, candidate: Candidate, failure: Failure, about: About) -> str:
        return script(candidate, self.compiler, failure, about=about, factor=self.factor)

    def what(self, failure: Failure, target: str) -> str:
        found = {DEFECT: "computes wrong numbers in"}.get(failure.kind, f"gives {failure.text} on")
        return f"torch.compile with {self.compiler.backend} {found} {target}."


class Asked(Judge):
    """Asks a function of a user, ``failing(program, inputs)``."""

    compiles_cpp = True  # it may

    def __init__(self, predicate: Predicate) -> None:
        self.predicate, self.packages = predicate, predicate.packages

    def text(self, candidate: Candidate, data: str) -> str:
        return script(candidate, self.predicate, data=data)

    def failure(self, outcome: Outcome) -> Failure | None:
        found = Failure.of(outcome)
        return found if found is not None and found.kind == ASKED else None

    def final(self, candidate: Candidate, failure: Failure, about: About) -> str:
        return script(candidate, self.predicate, failure, about=about)

    def what(self, failure: Failure, target: str) -> str:
        return f"{self.predicate.name} says yes of {target}."


def check_words(words: Sequence[str]) -> None:
    """ConfigurationError for words of which the first is no program."""
    if not words or shutil.which(words[0]) is None:
        raise ConfigurationError(
            shlex.join(words), key="stages.minify.command", valid="a program that can be run, and its arguments",
            hint="inductor-debug minify RUN -- sh -c 'python {} 2>&1 | grep -q \"what the failure prints\"'",
        )  # fmt: skip


class Command(Judge):
    """Runs a command with the path of each script, which compiles the program; exit code 0 says that it is the failure.

    Args:
        words: of the command; ``{}`` in them stands for the script's path, which else is the last word.
        compiled: makes the scripts.

    Raises:
        ConfigurationError: the first word is no program.
    """

    compiles_cpp = False  # the workers run torch's own kernels alone

    def __init__(self, words: Sequence[str], compiled: Compiled) -> None:
        check_words(words)
        self.words, self._compiled = tuple(words), compiled
        self.packages, self.backend = compiled.packages, compiled.backend

    def text(self, candidate: Candidate, data: str) -> str:
        return self._compiled.text(candidate, data)

    def outcome(self, workers: Workers, path: Path, limit_s: float) -> Outcome:
        """The command's; what torch itself does not run is not given to it."""
        eager = workers.run(path, EAGER, timeout_s=limit_s, compiles_cpp=False)
        if eager.code is None or eager.code == COULD_NOT_RUN:
            return replace(eager, code=COULD_NOT_RUN)
        return self._ran(path, limit_s)

    def failure(self, outcome: Outcome) -> Failure | None:
        return Failure(ASKED, ASKED) if outcome.code == 0 else None

    def final(self, candidate: Candidate, failure: Failure, about: About) -> str:
        note = f"Whether it is the failure, a command says by exit code 0: {shlex.join(self.words)}"
        told = replace(about, notes=[*about.notes, note])
        return script(candidate, self._compiled.compiler, None, about=told, factor=self._compiled.factor)

    def what(self, failure: Failure, target: str) -> str:
        return f"{shlex.join(self.words)} ends with exit code 0 on {target}."

    def verified(self, text: str, failure: Failure, beside: Sequence[Path], limit_s: float) -> Verification:
        """Whether the command says yes.

        Args:
            text: the script that is handed over.
            failure: what the command says yes of.
            beside: files that the script reads.
            limit_s: seconds that the command may take beyond the usual.
        """
        with tempfile.TemporaryDirectory(prefix="repro-") as folder:
            path = Path(folder) / "repro.py"
            path.write_text(text, encoding="utf-8")
            for other in beside:
                shutil.copy(other, folder)
            outcome = self._ran(path, TIMEOUT_S + limit_s)
        lines = outcome.output.strip().splitlines() or ["it printed nothing"]
        how = "timed out" if outcome.timed_out else f"ended with exit code {outcome.code}"
        reason = "" if outcome.code == 0 else f"the command {how}: {lines[-1]}"
        return Verification(reason == "", reason, outcome.seconds)

    def _ran(self, path: Path, limit_s: float) -> Outcome:
        began, timed_out = time.monotonic(), False
        process = subprocess.Popen(
            asked_of(self.words, str(path)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            printed = process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            timed_out = True
            os.killpg(process.pid, signal.SIGKILL)
            printed = process.communicate()[0]
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        code = process.returncode
        ended = None if timed_out else code
        return Outcome(
            code=None if ended is None or ended < 0 else ended,
            signal=-ended if ended is not None and ended < 0 else None,
            timed_out=timed_out,
            output=printed[-LAST:].decode(errors="replace"),
            seconds=time.monotonic() - began,
        )
