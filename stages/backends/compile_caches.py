"""Whether a compilation was cold: what compilers had left in TorchInductor's and Triton's caches, and what it added."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from inductor_debug.stages.artifacts.measurements import CacheUse
from inductor_debug.stages.formatting import counted

COLD, PARTLY_WARM, WARM, UNKNOWN = "cold", "partly warm", "warm", "unknown"


@contextmanager
def cache_use(by_inductor: bool, *, looks_up: bool = True) -> Iterator[CacheUse]:
    """Observe a compilation; the result is complete after the block.

    Args:
        by_inductor: whether it goes through TorchInductor. What other backends cache, nobody here knows.
        looks_up: whether it looks compiled graphs up; else torch counts each as missed.
    """
    use = CacheUse(reason="the backend does not compile through TorchInductor; caches of its own were not looked at")
    if not by_inductor:
        yield use
        return
    from inductor_debug.stages.torch_internals.graph_cache import GraphLookups, cache_folders, compiled_files

    folders = cache_folders()
    before, lookups = compiled_files(folders), GraphLookups.now()
    yield use
    asked = GraphLookups.now().since(lookups)
    use.folders = [str(folder) for folder in folders]
    use.found, use.made = len(before), len(compiled_files(folders) - before)
    use.found_in = _by_folder(before, use.folders)
    use.loaded, use.missed, use.refused = asked.found, asked.missed, asked.refused
    use.kind, use.reason = _judged(use, looks_up)


def _by_folder(files: Iterable[str], folders: Sequence[str]) -> dict[str, int]:
    """How many files each folder holds. Of folders within each other it is the inner one that holds a file."""
    inner_first = sorted(folders, key=len, reverse=True)
    counts = dict.fromkeys(folders, 0)
    for file in files:
        counts[next(folder for folder in inner_first if Path(file).is_relative_to(folder))] += 1
    return {folder: count for folder, count in counts.items() if count}


def _judged(use: CacheUse, looks_up: bool) -> tuple[str, str]:
    if use.found == 0 and not use.loaded:
        return COLD, "the caches held no compiled file before"
    anew = [f"{counted(use.missed, 'graph')} not in the cache"] if use.missed else []
    anew += [f"{counted(use.refused, 'graph')} that torch can't store"] if use.refused else []
    if anew and looks_up:
        return PARTLY_WARM, f"TorchInductor compiled {' and '.join(anew)}, beside what was in the caches before"
    if use.found == 0:
        return WARM, f"{counted(use.loaded, 'compiled graph')} came out of the cache in {use.folders[0]}"
    there = ", ".join(f"{count} in {folder}" for folder, count in use.found_in.items())
    if use.made == 0:
        return WARM, f"no compiler ran: what was needed was among the compiled files that were there before: {there}"
    return PARTLY_WARM, f"{counted(use.made, 'file')} compiled, beside compiled files that were there before: {there}"
