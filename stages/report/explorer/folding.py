"""Operations folded by module at every depth, each module a group that a reader opens in its place.

Only a folding without cycles can be read from top to bottom, so a group is a visit of its module; see
:mod:`stages.graph_pictures.clusters`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inductor_debug.stages.graph_pictures.clusters import cluster, ordered
from inductor_debug.stages.graph_pictures.flow import Flow, Path, common
from inductor_debug.stages.graph_pictures.labels import dotted

MOST = 36
"""Parts of a group; more are put together by their order, which leaves no cycle."""
FEWEST = 8
"""Parts that are put together by their order, at least."""


@dataclass(frozen=True)
class Group:
    """What is folded to one box.

    Attributes:
        title: the module, relative to the group around it; of operations together by their order alone, which.
        parts: numbers of operations, and groups, each after what it reads.
    """

    title: str
    parts: "list[int | Group]"


def folded(flow: Flow, name: Callable[[int], str]) -> "list[int | Group]":
    """The parts of a whole graph. An operation that takes one of several results is in none: its maker stands for it.

    Args:
        flow: the graph.
        name: what an operation is called.
    """
    everything = list(range(len(flow.operations)))
    if not everything:
        return []
    found = _inside(flow, everything, common([flow.paths[number] for number in everything]))
    while len(found) == 1 and isinstance(found[0], Group):
        found = found[0].parts
    return _split(found, name)


def _inside(flow: Flow, numbers: list[int], scope: Path) -> "list[int | Group]":
    def key(number: int) -> Path | None:
        path = flow.paths[number]
        return path[: len(scope) + 1] if len(path) > len(scope) else None

    groups = cluster(flow, numbers, key) if any(map(key, numbers)) else _makers(flow, numbers)
    order = ordered(flow, groups)
    assert order is not None, "clusters have no cycle"
    visits: Counter[Path] = Counter()
    found: list[int | Group] = []
    for members in (groups[index] for index in order):
        made = [number for number in members if not flow.is_item(number)]
        if len(made) < 2:
            found += made
            continue
        path = common([flow.paths[number] for number in made])
        visits[path] += 1
        visit = f", visit {visits[path]}" if visits[path] > 1 else ""
        found.append(Group(f"{dotted(path, scope)}{visit}", _inside(flow, members, path)))
    return found


def _makers(flow: Flow, numbers: Sequence[int]) -> list[list[int]]:
    """Each operation alone, in order, those that take one of its results with it."""
    groups: dict[int, list[int]] = {}
    for number in numbers:
        maker = flow.reads[number][0] if flow.is_item(number) else number
        groups.setdefault(maker if maker in groups else number, []).append(number)
    return list(groups.values())


def _split(parts: "list[int | Group]", name: Callable[[int], str]) -> "list[int | Group]":
    """The same with at most :data:`MOST` parts at every depth."""
    inner: list[int | Group] = [
        part if isinstance(part, int) else Group(part.title, _split(part.parts, name)) for part in parts
    ]
    while len(inner) > MOST:
        size = min(max(-(-len(inner) // MOST), FEWEST), MOST)
        runs = [inner[start : start + size] for start in range(0, len(inner), size)]
        inner = [run[0] if len(run) == 1 else Group(_run_title(run, name), run) for run in runs]
    return inner


def _run_title(run: "Sequence[int | Group]", name: Callable[[int], str]) -> str:
    first, last = (name(part) if isinstance(part, int) else part.title for part in (run[0], run[-1]))
    return f"{first.partition(' … ')[0]} … {last.rpartition(' … ')[2]}"
