"""Which graphs of a stored run were lowered, and those of them that are asked for."""

import re
import shlex
from collections.abc import Iterable, Iterator

from inductor_debug.models.errors import UserError, closest_first
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.stored_run import StoredRun, Wanted

NEAREST = 5
_GRAPH = re.compile(r"g\d{1,6}\.\w+")


def lowered_graphs(run: StoredRun) -> list[str]:
    """Ids of the graphs that were lowered, forward before backward."""
    found = {name.split("/")[1] for name in files.PROVENANCE.stored(run.artifacts)}
    ids = (name for name in found if _GRAPH.fullmatch(name) and run.has(files.PROVENANCE, name))
    return sorted(ids, key=lambda name: (int(name.partition(".")[0][1:]), name.endswith("backward")))


def not_found(option: str, given: str, known: Iterable[str], why: str = "") -> UserError:
    """An option's value that nothing stored has, with what is nearest.

    Args:
        option: with its dashes.
        given: its value.
        known: what there is.
        why: what there is not of it.
    """
    near = closest_first(given, known)[:NEAREST]
    hint = f"{option} {shlex.quote(near[0])}" if near else ""
    return UserError(f"got {given!r}{why}", key=option, valid=f"{', '.join(near) or 'none'}, …", hint=hint)


def wanted_graphs(run: StoredRun, wanted: Wanted) -> list[str]:
    """Ids of the lowered graphs that are asked for; UserError where none was lowered, or none has that id."""
    graphs = lowered_graphs(run)
    if not graphs:
        raise run.lacks("kernels", "lower", "stages=[capture,lower,report]", *_lowering_backend(run))
    if wanted.graph is None:
        return graphs
    if wanted.graph not in graphs:
        raise UserError(f"got {wanted.graph!r}", key="--graph", valid=", ".join(graphs), hint=f"--graph {graphs[0]}")
    return [wanted.graph]


def _lowering_backend(run: StoredRun) -> Iterator[str]:
    """Another backend where the stage found nothing that this one tells; a violation skips it before it looks."""
    if run.status("lower") == "skipped" and run.status("constrain") != "failed":
        yield "backend=inductor"
