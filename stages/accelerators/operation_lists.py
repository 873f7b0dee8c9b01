"""Which operations of a profile need no torch to be known to exist."""

import fnmatch
import logging
from collections.abc import Iterable

from inductor_debug.stages.accelerators.profile import Profile, listed, load_config, profile_names, validate_profile
from inductor_debug.stages.graphs.operation_names import AUTO_FUNCTIONALIZED, WILD, Operation, normal
from inductor_debug.stages.graphs.records import GraphRecord

log = logging.getLogger(__name__)


def unfamiliar(profile: Profile, graphs: Iterable[GraphRecord]) -> list[str]:
    """The listed operations that occur neither in ``graphs`` nor in a profile of ``conf/accel``, in order.

    Those occur in torch, or are registered where the graphs were captured; of the others only torch can tell.
    """
    left = {normal(pattern): pattern for pattern, _ in listed(profile)}
    if not left:
        return []
    names = _names_in(graphs)
    left = {pattern: given for pattern, given in left.items() if not _among(pattern, names)}
    if left:
        profiles = (validate_profile(load_config(name), {}) for name in profile_names())
        shipped = {normal(pattern) for profile in profiles for pattern, _ in listed(profile)}
        left = {pattern: given for pattern, given in left.items() if pattern not in shipped}
    return list(left.values())


def confirm_names(profile: Profile, graphs: Iterable[GraphRecord] = ()) -> str:
    """ConfigurationError for an operation or a dtype that torch does not have, the nearest ones named.

    Torch is imported only for names that are :func:`unfamiliar`. A name of a library that is not imported passes with a
    warning; where torch is not installed, every name does.

    Returns:
        In words what torch was asked for, or could not be; empty where no name was unfamiliar.
    """
    names = unfamiliar(profile, graphs)
    if not names:
        return ""
    shown = f"{', '.join(names[:3])}{'' if len(names) < 4 else f' and {len(names) - 3} more'}"
    try:
        from inductor_debug.stages.accelerators.torch_check import check_names
    except ImportError:
        log.warning("that torch has %s is not checked: torch can't be imported", shown)
        return f"that torch has {shown} is not checked: torch can't be imported, and the capture holds none"
    check_names(profile, libraries=False)  # the case, which may register some, is not built here
    return f"torch was imported to look up {shown}, which the capture does not hold"


def _names_in(graphs: Iterable[GraphRecord]) -> set[str]:
    """Overloads, packets and bare names of what the graphs call, as they are written there."""
    names: set[str] = set()
    for graph in graphs:
        for node in graph.nodes:
            if node.op != "call_function":
                continue
            names.add(node.target)
            called = [str(node.args[0])] if node.target.startswith(AUTO_FUNCTIONALIZED) and node.args else []
            for overload in [node.target, *called, *(node.dispatched or ())]:
                if overload.startswith("aten.") or not Operation.of_target(overload).python:
                    parts = overload.split(".")
                    names |= {overload, ".".join(parts[:2]), parts[1]}
    return names


def _among(pattern: str, names: set[str]) -> bool:
    return bool(fnmatch.filter(names, pattern)) if any(sign in pattern for sign in WILD) else pattern in names
