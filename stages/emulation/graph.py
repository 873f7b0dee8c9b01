"""One graph with the numerics of a profile, as a callable."""

from collections.abc import Callable, Sequence

from torch import Tensor, fx

from inductor_debug.stages.accelerators.profile import Profile
from inductor_debug.stages.emulation.findings import Findings
from inductor_debug.stages.emulation.interpreter import EmulatingInterpreter
from inductor_debug.stages.emulation.plan import Numerics, plan
from inductor_debug.stages.emulation.weights import WeightCache
from inductor_debug.stages.graphs.records import GraphRecord


def emulated_graph(
    gm: fx.GraphModule, record: GraphRecord, profile: Profile, weights: WeightCache, findings: Findings
) -> Callable[..., Sequence[Tensor]]:
    """The AOT graph ``gm``, executed on the host with the profile's numerics.

    Args:
        gm: aten operations.
        record: the graph's own, whose id and lines the findings bear.
        profile: states numerics.
        weights: rounded weights, shared by graphs.
        findings: filled while the graph runs.
    """
    numerics = Numerics.of(profile.numerics)
    return EmulatingInterpreter(gm, record.id, plan(gm, record, profile), numerics, weights, findings).run
