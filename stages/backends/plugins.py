"""What installed packages add, read from their metadata alone: nothing of theirs is imported.

==========================  =====================================================================================
entry-point group           what it names
==========================  =====================================================================================
``inductor_debug.adapters``  ``NAME = "package.module:Class"``: ``backend=NAME``
``inductor_debug.stages``    ``NAME = "package.module:DECLARATION"``: a stage, see :mod:`stages.declaration`
``inductor_debug.metrics``   ``NAME = "package.module:Class"``: a column of ``kerneldiff/outputs.csv``
``inductor_debug.conf``      ``ANY = "package.folder"``: a folder of YAML, as ``--config-dir`` takes one
``torch.backends``           torch's own: called at ``import torch``, where a package registers a device
==========================  =====================================================================================
"""

import functools
import importlib.util
import logging
import os
import sys
from collections import defaultdict
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.settings import BUILT_IN

log = logging.getLogger(__name__)

ADAPTERS = "inductor_debug.adapters"
STAGES = "inductor_debug.stages"
METRICS = "inductor_debug.metrics"
CONF = "inductor_debug.conf"
DEVICES = "torch.backends"


def packages_state() -> tuple[tuple[str, int], ...]:
    """The folders on Python's path, each with when something was put into it or taken out of it, in ns.

    What packages' metadata says holds for as long as this does.
    """
    return tuple((path, os.stat(path).st_mtime_ns) for path in sys.path if os.path.exists(path))


def _offered(group: str) -> EntryPoints:
    """A group's entry points."""
    return _offered_in(group, packages_state())


@functools.lru_cache
def _offered_in(group: str, _: tuple[tuple[str, int], ...]) -> EntryPoints:
    return entry_points(group=group)


def installed_adapters() -> dict[str, list[EntryPoint]]:
    """Backend name → the entry points that offer it, sorted; names of our own adapters are left out."""
    found: dict[str, list[EntryPoint]] = defaultdict(list)
    for point in sorted(set(_offered(ADAPTERS)), key=lambda point: (point.name, point.value)):
        if point.name in BUILT_IN:
            log.warning(
                "%s offers a backend called %s, which is one of ours; it is reached as backend._target_=%s",
                distribution(point), point.name, point.value.replace(":", "."),
            )  # fmt: skip
        else:
            found[point.name].append(point)
    return dict(found)


def installed_stages() -> dict[str, list[EntryPoint]]:
    """Stage name → the entry points that offer it, sorted."""
    found: dict[str, list[EntryPoint]] = defaultdict(list)
    for point in sorted(set(_offered(STAGES)), key=lambda point: (point.name, point.value)):
        found[point.name].append(point)
    return dict(found)


def adapter_path(name: str) -> str | None:
    """``package.module:Class`` of the installed adapter called ``name``; None where there is none.

    Raises:
        ConfigurationError: two packages offer that name for different classes.
    """
    points = installed_adapters().get(name, [])
    if len({point.value for point in points}) > 1:
        offers = ", ".join(f"{point.value} ({distribution(point)})" for point in points)
        raise ConfigurationError(
            f"backend: {name!r} is offered by several packages; valid: one of {offers}.\n"
            f"Try: backend._target_={points[0].value.replace(':', '.')}"
        )
    return points[0].value if points else None


def distribution(point: EntryPoint) -> str:
    """``name version`` of the package that an entry point comes from."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unnamed package"


def adding_distributions() -> list[str]:
    """Names of the installed packages that add an adapter, a stage or a metric, for a run's record."""
    points = (point for group in (ADAPTERS, STAGES, METRICS) for point in _offered(group))
    return sorted({point.dist.name for point in points if point.dist is not None})


def conf_folders() -> list[Path]:
    """Folders of YAML that packages ship, in the order of their entry points' names.

    Only a package's top level is looked up, and that without importing it. One whose folder is not there is left out
    with a warning.
    """
    folders = []
    for point in sorted(set(_offered(CONF)), key=lambda point: (point.name, point.value)):
        top, *inner = point.value.split(".")
        spec = importlib.util.find_spec(top)
        places = [Path(place).joinpath(*inner) for place in (spec.submodule_search_locations or [])] if spec else []
        found = [place for place in places if place.is_dir()]
        if not found:
            log.warning("%s names the folder %s of YAML, which is not there", distribution(point), point.value)
        folders += found
    return folders


def adds_devices() -> bool:
    """Whether a package may make a device known to torch when torch is imported."""
    return bool(_offered(DEVICES))
