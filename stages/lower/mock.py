"""The mock accelerator: checks every graph against a profile's rules and executes it with torch."""

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, fx

from stages.constrain.config import AccelConfig
from stages.graphs import GraphRecord
from stages.lower.adapter import AcceleratorAdapter, run_as_traced

if TYPE_CHECKING:
    from stages.constrain import Profile, Violations

log = logging.getLogger(__name__)


class ProfileViolated(RuntimeError):
    """A graph breaks a strict profile. The message lists every violation with its source line.

    Attributes:
        violations: the rows.
    """

    def __init__(self, violations: "Violations") -> None:
        self.violations = violations
        rows = [row for row in violations if row.severity != "waived"]
        lines = [
            f"  {row.graph}:{row.node} {row.target} [{row.rule}] {row.message}{_place(row.source)}" for row in rows
        ]
        super().__init__(
            f"{len(rows)} violation{'s' * (len(rows) != 1)} of the profile {violations.profile.name!r}:\n"
            + "\n".join(lines)
        )


def _place(source: str) -> str:
    return f"  at {source}" if source else "  (no source line recorded)"


class MockAdapter(AcceleratorAdapter):
    """Checks Dynamo's graphs, then executes them with torch.

    Args:
        profile: the rules; the profile called ``mock`` by default, with MOCK_STRICT, MOCK_ALIGNMENT and MOCK_MAX_MEMORY
            applied.
    """

    name = "mock"

    def __init__(self, profile: AccelConfig | None = None) -> None:
        self._config = profile
        self._profile: Profile | None = None
        self._count = itertools.count()

    def capabilities(self) -> "Profile":
        """The validated profile; ConfigurationError where it or a MOCK_* variable is not valid."""
        from stages.constrain import load_profile, validate_profile

        if self._profile is None:
            self._profile = load_profile("mock") if self._config is None else validate_profile(self._config)
        return self._profile

    def validate(self) -> None:
        self.capabilities()

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """Check an AOT graph, then execute it with torch. Raises ProfileViolated where the profile is strict."""
        self.enforce({f"g{next(self._count)}.forward": gm})
        return run_as_traced(gm)

    def dynamo_backend(self) -> Callable[..., Any]:
        def backend(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
            self.enforce({f"g{next(self._count)}.dynamo": gm})
            return gm.forward

        return backend

    def enforce(self, graphs: dict[str, fx.GraphModule]) -> None:
        """Check graphs, by id, together: all violations are reported, not the first graph's alone.

        Raises:
            ProfileViolated: the profile is strict and broken, or can't be shown to be kept.
        """
        from stages.constrain import check

        violations = check(graph_records(graphs), self.capabilities())
        if violations.failed:
            raise ProfileViolated(violations)
        for row in violations:
            log.warning("%s:%s [%s] %s%s", row.graph, row.node, row.rule, row.message, _place(row.source))


class AotMockAdapter(MockAdapter):
    """Checks AOTAutograd's forward and backward graphs, then executes them with torch."""

    name = "aot_mock"

    def dynamo_backend(self) -> Callable[..., Any]:
        from stages.torch_internals.backends import aot_backend

        def inference(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
            self.enforce({f"g{next(self._count)}.forward": gm})
            return run_as_traced(gm)

        def execute(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
            return run_as_traced(gm)

        def partitioned(forward: fx.GraphModule, backward: fx.GraphModule) -> None:
            number = next(self._count)
            self.enforce({f"g{number}.forward": forward, f"g{number}.backward": backward})

        return aot_backend(forward=execute, backward=execute, inference=inference, partitioned=partitioned)


def graph_records(graphs: dict[str, fx.GraphModule]) -> list[GraphRecord]:
    """Records of traced graphs by id; a backward finds the lines of the forward before it."""
    from stages.torch_internals.fx_records import RecordContext, graph_record

    context: RecordContext | None = None
    records = []
    for graph_id, gm in graphs.items():
        context = context or RecordContext.of(gm)
        records.append(graph_record(gm.graph, id=graph_id, context=context))
    return records


def mock_backend(gm: fx.GraphModule, example_inputs: Sequence[Tensor], **options: Any) -> Callable[..., Any]:
    """``torch.compile(model, backend="mock")``: Dynamo's graph checked against a profile, then executed by torch.

    Args:
        options: ``options={"profile": NAME_OR_PATH, …}`` of torch.compile; other keys override the profile's fields.
            Default: the profile ``mock`` with MOCK_STRICT, MOCK_ALIGNMENT and MOCK_MAX_MEMORY applied.

    Raises:
        ProfileViolated: the profile is strict and the graph breaks it.
        ConfigurationError: a profile, field or environment variable is not valid.
    """
    return MockAdapter(_profile_of(options)).dynamo_backend()(gm, example_inputs)


def aot_mock_backend(gm: fx.GraphModule, example_inputs: Sequence[Tensor], **options: Any) -> Callable[..., Any]:
    """``torch.compile(model, backend="aot_mock")``: as :func:`mock_backend`, for AOTAutograd's forward and backward."""
    return AotMockAdapter(_profile_of(options)).dynamo_backend()(gm, example_inputs)


def _profile_of(options: dict[str, Any]) -> AccelConfig | None:
    given = dict(options.get("options") or {})
    if not given:
        return None
    from stages.constrain import load_config

    return load_config(given.pop("profile", "mock"), **given)
