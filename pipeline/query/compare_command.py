"""``inductor-debug compare``: what differs between stored runs, and whether the second of two is worse."""

from collections.abc import Sequence
from pathlib import Path

from inductor_debug.models.errors import UserError
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.query import comparison
from inductor_debug.pipeline.query.comparison import Compared
from inductor_debug.pipeline.query.gate.gate import gate_of
from inductor_debug.pipeline.query.gate.limits import OPTION, Limits, read_limits
from inductor_debug.stages.encoding import write_atomically
from inductor_debug.stages.formatting import counted
from inductor_debug.stages.stored_run import Analysis

HEAD = ("runs", "compiled_by", "settings")
"""Tables that come before what got worse: what a reader has to know of the two sides."""


def write(folders: Sequence[Path], found: Compared, page: Path) -> None:
    """Write a page of what was found.

    Args:
        folders: as of :func:`compared`, which gave ``found``.
        page: the file; its folder is made.

    Raises:
        UserError: it can't be written.
    """
    from inductor_debug.pipeline.query.comparison_page import comparison_page

    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(page, comparison_page([*map(store.existing, folders)], found, page).encode())
    except OSError as error:
        raise UserError(f"got {page}, which can't be written ({error.strerror})", key="--page", valid="a file's path",
                        hint="inductor-debug compare A B --page compare.html") from error  # fmt: skip


def compared(folders: Sequence[Path], limits: Path | None) -> Compared:
    """Tables of what differs; of two runs, or of two sweeps, also what of the second is worse than of the first.

    Args:
        folders: of runs and of sweeps, the accepted one first.
        limits: a file as :func:`~pipeline.query.gate.limits.read_limits` takes it; None for the defaults.

    Raises:
        UserError: there is nothing to compare, or to apply the limits to, or the limits are not valid.
    """
    allowed = Limits() if limits is None else read_limits(limits)
    located = [store.existing(folder) for folder in folders]
    gate = gate_of(located, allowed)
    if gate is None:
        if limits is not None:
            raise UserError(
                f"got {counted(len(folders), 'folder')}, of which none is held to another",
                key=OPTION,
                valid="two runs or two sweeps, the accepted one first",
                hint=f"inductor-debug compare RUN RUN {OPTION} {limits}",
            )
        return Compared(comparison.compare(comparison.runs_of(folders)), {}, "", 0)
    plain = comparison.compare(gate.runs)
    head = [table for table in plain.tables if table.name in HEAD]
    rest = [table for table in plain.tables if table.name not in HEAD]
    differs = comparison.in_a_sentence(plain.tables, *gate.runs) if gate.of_runs else ""
    found = Analysis([*gate.told, *([differs] if differs else []), *plain.told], [*head, *gate.tables(), *rest])
    about = {"exit_code": gate.exit_code, "reason": gate.reason, "limits": vars(allowed)}
    return Compared(found, about, gate.reason, gate.exit_code)
