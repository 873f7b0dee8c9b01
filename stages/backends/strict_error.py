"""The error of a strict profile that a graph breaks, with what it leaves on disk."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inductor_debug.models.errors import wrapped
from inductor_debug.stages.accelerators.profile import REPRO_DIRECTORY
from inductor_debug.stages.artifacts.files import REPRO
from inductor_debug.stages.encoding import encode, write_atomically
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.graphs.records import NO_LINE, is_torchs

if TYPE_CHECKING:
    from inductor_debug.stages.rules.repros import Repros
    from inductor_debug.stages.rules.violation import Violation
    from inductor_debug.stages.rules.violations import Violations

SHOWN = 20
"""Violations, and reproductions, that the message lists; a file has every one."""
TABLE = "violations.csv"


class ProfileViolated(RuntimeError):
    """A graph breaks a strict profile. The message lists the violations with their source lines, and their repros.

    Attributes:
        violations: every row.
        rows: those that are not waived. findings: the same, by finding.
        repros: the reproductions, None where none was asked for.
        files: name → content of what belongs on disk: the reproductions, and ``violations.csv`` with every row.
        folder: where ``files`` lie: a folder's path, or ``repros`` for that of the run's directory.
        outside: what no graph holds, where that alone is why the profile can't be shown to be kept; else empty.
    """

    def __init__(
        self,
        violations: "Violations",
        repros: "Repros | None" = None,
        folder: str | None = "repros",
        *,
        outside: str = "",
    ) -> None:
        self.violations = violations
        self.outside = outside
        self.repros = repros
        self.rows = [row for row in violations if row.severity != "waived"]
        self.findings = [rows for group in violations.findings if (rows := unwaived(group))]
        self.files = {TABLE: encode(TABLE, violations.table).decode()} | ({} if repros is None else repros.files)
        self.folder, self.problem = folder, ""
        super().__init__()

    def __str__(self) -> str:
        if self.outside:
            name = self.violations.profile.name
            lenient = "MOCK_STRICT=0" if name == "mock" else 'options={…, "strict": False}'
            return (
                f"not established that the model keeps the profile {name!r}: {self.outside}\n"
                f"Try: torch.compile(…, fullgraph=True), which shows every break, or a warning mode: {lenient}"
            )
        count, name = len(self.findings), self.violations.profile.name
        undecided = [rows[0] for rows in self.findings if all(row.severity == "undecided" for row in rows)]
        broken = f"{counted(count - len(undecided), 'violation')} of the profile {name!r}"
        head = f"not established that the model keeps the profile {name!r}" if count == len(undecided) else broken
        also = f", and {len(undecided)} not established" if undecided and count > len(undecided) else ""
        lines = [f"{head}{also}:", *(described(*rows) for rows in self.findings[:SHOWN])]
        if count > SHOWN:
            lines.append(f"  … and {count - SHOWN} more: all rows are in {self._path(TABLE)}")
        lines += [f"Try: {told}" for told in dict.fromkeys(row.suggestion for row in undecided)]
        return "\n".join([*lines, *self._repros()])

    @property
    def artifacts(self) -> dict[str, str]:
        """The files by path in a run's directory."""
        return {REPRO.at(name): content for name, content in self.files.items()}

    def write(self, folder: str | None) -> None:
        """Write the files into a folder: the one given, MOCK_REPRO_DIR, or a fresh temporary one.

        A folder that can't be written is told in the message, and never hides the violations.
        """
        try:
            chosen = folder or os.environ.get(REPRO_DIRECTORY) or tempfile.mkdtemp(prefix="mock-repros-")
            path = Path(chosen).absolute()
            path.mkdir(parents=True, exist_ok=True)
            self.folder = str(path)
            for name, content in self.files.items():
                write_atomically(path / name, content.encode())
        except OSError as error:
            self.problem = f"the reproductions could not be written: {error}"

    def _repros(self) -> list[str]:
        if self.problem:
            return [self.problem]
        if self.repros is None or not (self.repros.scripts or self.repros.without):
            return []
        lines = ["Reproductions (python FILE, or python FILE --backend NAME; exit code 1: the violation shows):"]
        for item in self.repros.scripts[:SHOWN]:
            seen = item.verification
            state = "verified in a fresh process" if seen.verified else f"not verified: {seen.reason}"
            lines.append(f"  {self._path(item.name)}  {state}")
        return [*lines, f"  {self.repros.describe(str(self.folder))}"]

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}"


def unwaived(rows: "Sequence[Violation]") -> "list[Violation]":
    """A finding's rows that no waiver accepts, what is known to be violated before what is not."""
    return sorted((row for row in rows if row.severity != "waived"), key=lambda row: row.severity == "undecided")


def described(row: "Violation", *others: "Violation") -> str:
    """One finding as a line of a message: its first row, and where else it was seen."""
    inside = f"in the module {row.module}" if row.module else "no source line recorded"
    if is_torchs(row.source):
        inside = f"in the module {row.module}, {NO_LINE}" if row.module else NO_LINE
    place = f"  at {row.source}" if row.source and not is_torchs(row.source) else f"  ({inside})"
    rule = f"{row.rule}, not established" if row.severity == "undecided" else row.rule
    also = f"  (also {', '.join(f'{other.graph}:{other.node}' for other in others)})" if others else ""
    return f"  {row.graph}:{row.node} {row.target} [{rule}] {row.message}{place}{also}"


def violation_in(error: BaseException) -> ProfileViolated | None:
    """The violated profile at the bottom of what torch or Python wrapped around it, if that is what it is."""
    return next((item for item in wrapped(error, contexts=True) if isinstance(item, ProfileViolated)), None)
