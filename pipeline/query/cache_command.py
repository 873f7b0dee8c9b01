"""``inductor-debug cache``: the stages' results that are kept for later runs."""

import datetime
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline.cache.folders import shared_cache
from inductor_debug.pipeline.cache.store import Cache, Kept
from inductor_debug.pipeline.config.limits import memory_limit_of
from inductor_debug.stages.formatting import counted, human_bytes

COLUMNS = ("stage", "results", "size", "hits", "used")
"""Of the table that is printed."""
_DAY_S = 86400.0


def rows(cache_dir: str | None) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of the kept results, and one row a stage: how many, how large, how often given out, used when last."""
    cache = _cache(cache_dir)
    by_stage: dict[str, list[Kept]] = {}
    for item in cache.kept():
        by_stage.setdefault(item.stage, []).append(item)
    return cache.root, [
        {
            "stage": stage,
            "results": len(items),
            "bytes": sum(item.nbytes for item in items),
            "hits": sum(item.hits for item in items),
            "used": datetime.datetime.fromtimestamp(items[-1].used).astimezone().isoformat(timespec="seconds"),
        }
        for stage, items in sorted(by_stage.items())
    ]


def _cache(cache_dir: str | None) -> Cache:
    folder = shared_cache(cache_dir)
    if cache_dir is not None and not folder.is_dir():
        raise ConfigurationError(f"--cache-dir: no folder {cache_dir!r}; valid: a runner.cache_dir of earlier runs.\n"
                                 "Try: inductor-debug cache")  # fmt: skip
    return Cache(folder)


def prune(cache_dir: str | None, older_than_days: float | None, limit: str | None) -> str:
    """Remove kept results, and say what was removed.

    Args:
        cache_dir: as ``runner.cache_dir``.
        older_than_days: those that were not used for so many days.
        limit: then those unused for longest, until the rest has so many bytes, e.g. ``5GiB``.

    Raises:
        ConfigurationError: a number of days below 0, or a limit that is no size.
    """
    if older_than_days is not None and not older_than_days >= 0:
        raise ConfigurationError(f"--older-than: got {older_than_days:g}; valid: days, 0 or more.\n"
                                 "Try: inductor-debug cache --older-than 30")  # fmt: skip
    removed = _cache(cache_dir).prune(
        older_than_s=None if older_than_days is None else older_than_days * _DAY_S,
        limit=memory_limit_of(limit, "--limit"),
    )
    return f"removed {counted(len(removed), 'result')}, {human_bytes(sum(item.nbytes for item in removed))}"
