"""The mock accelerator: checks every graph against a profile's rules and executes it with torch.

Dynamo's graphs (``mock``), or AOTAutograd's forward and backward, apart (``aot_mock``). As ``torch.compile`` takes them
they are in :mod:`stages.mock_backends`.

A graph is first checked on records without source lines, modules and FLOPs, for the user waits for the first call.
Those are made only where something was found.
"""

import functools
import itertools
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx

from inductor_debug.models.errors import invalid_choice
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.accelerators.profile import VARIABLES, Profile, check_variables, validate_profile
from inductor_debug.stages.backends.adapter import AcceleratorAdapter, run_as_traced
from inductor_debug.stages.backends.execution import Executor
from inductor_debug.stages.backends.front import Level
from inductor_debug.stages.backends.graph_records import graph_records
from inductor_debug.stages.backends.mock_options import MockOptions, split_options
from inductor_debug.stages.backends.strict_error import SHOWN, ProfileViolated, described, unwaived
from inductor_debug.stages.rules.violations import Violations
from inductor_debug.stages.settings import BackendConfig

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.fx_records import PlaceholderInfo, RecordContext

Failed = Callable[[fx.GraphModule, Sequence[Any], bool, MockOptions], None]
"""Told of a Dynamo graph that TorchInductor failed to compile, its inputs, and whether gradients were on.

An input is None whose tensor is gone.
"""

log = logging.getLogger(__name__)

BARE_RULES = frozenset(("alignment", "dtype", "layout", "memory_tensor", "operation"))
"""Rules that decide on shapes, dtypes, strides and targets alone."""


class MockAdapter(AcceleratorAdapter):
    """Checks Dynamo's graphs, then executes them with torch.

    Args:
        profile: the rules; the profile called ``mock`` by default, with MOCK_STRICT, MOCK_ALIGNMENT and MOCK_MAX_MEMORY
            applied.
        options: how to execute, and what a violation leaves.
        run: True in the pipeline. The runner then stores what a violation leaves in the run's directory, and
            TorchInductor draws the random numbers that eager draws.
        failed: told of each graph that TorchInductor behind the checks fails to compile, before the error is raised.
    """

    name = "mock"
    level: Level = "dynamo"

    def __init__(
        self,
        profile: AccelConfig | None = None,
        options: MockOptions | None = None,
        *,
        run: bool = False,
        failed: Failed | None = None,
    ) -> None:
        self.options = options or MockOptions()
        self._config = profile
        self._profile: Profile | None = None
        self._run = run
        self._failed = failed
        self._count = itertools.count()

    def capabilities(self) -> "Profile":
        """The validated profile.

        Raises:
            ConfigurationError: it is not valid, names an operation or a dtype that torch lacks, or an environment
                variable MOCK_* is unreadable or unknown.
        """
        from inductor_debug.stages.accelerators.loading import load_profile

        if self._profile is None:
            check_variables(os.environ)
            edited = self._config is not None or not os.environ.keys().isdisjoint(VARIABLES)
            profile = load_profile("mock") if self._config is None else validate_profile(self._config)
            if edited and profile.names_of_torch:
                from inductor_debug.stages.accelerators.torch_check import check_names

                check_names(profile)
            self._profile = profile
        return self._profile

    def validate(self) -> None:
        self.capabilities()

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """Check an AOT graph, then execute it with torch. Raises ProfileViolated where the profile is strict."""
        self.enforce({f"g{next(self._count)}.forward": gm})
        return run_as_traced(gm)

    def dynamo_backend(self) -> Callable[..., Any]:
        def backend(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
            graph_id = f"g{next(self._count)}.dynamo"
            self.enforce({graph_id: gm})
            self.look_outside(gm, graph_id)
            return self.execute(gm, example_inputs)

        return backend

    @property
    def executor(self) -> Executor:
        return "inductor" if self.options.inductor else "torch"

    def execute(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """What runs a Dynamo graph behind the checks."""
        if not self.options.inductor:
            return run_as_traced(gm)
        from inductor_debug.stages.torch_internals.backends import inductor_in_mode

        patches = {"fallback_random": True} if self._run else {}
        gradients = torch.is_grad_enabled()
        # a backward is compiled when its forward has long returned, and may hold none of its inputs
        weak = [weakref.ref(value) if isinstance(value, Tensor) else (lambda: None) for value in example_inputs]
        others = [None if isinstance(value, Tensor) else value for value in example_inputs]

        def failed() -> None:
            if self._failed is not None:
                inputs = [seen() if other is None else other for seen, other in zip(weak, others, strict=True)]
                self._failed(gm, inputs, gradients, self.options)

        return inductor_in_mode(gm, example_inputs, self.options.mode, patches, failed)

    def look_outside(self, gm: fx.GraphModule, graph_id: str) -> None:
        """Tell that a Dynamo graph ends in a graph break: what Python runs between two graphs is in neither.

        Raises:
            ProfileViolated: the profile is strict, and can't be shown to be kept.
        """
        from inductor_debug.stages.torch_internals.dynamo import break_after

        reason = break_after(gm)
        if reason is None:
            return
        told = f"{graph_id} ends in a graph break, and what Python runs after it is in no graph, so it was not checked"
        self.tell_outside(f"{told}: {reason}")

    def tell_outside(self, told: str) -> None:
        """Tell what no graph holds: an error where the profile is strict, else a warning.

        Raises:
            ProfileViolated: the profile is strict, and can't be shown to be kept.
        """
        profile = self.capabilities()
        if not profile.rules:
            return
        if profile.strict and not self._run:  # a run's own stages tell what no graph holds
            raise ProfileViolated(Violations(profile=profile), outside=told)
        log.warning("%s", told)

    def enforce(
        self,
        graphs: dict[str, fx.GraphModule],
        inputs: "Callable[[RecordContext], list[PlaceholderInfo]] | None" = None,
    ) -> None:
        """Check graphs, by id, together: all violations are reported, not the first graph's alone.

        Args:
            graphs: Dynamo's graph, or the forward and backward of one; a backward finds its forward's lines.
            inputs: of AOT graphs: what their Dynamo graph's placeholders stand for.

        Raises:
            ProfileViolated: the profile is strict and broken, or can't be shown to be kept.
        """
        from inductor_debug.stages.rules.engine import check

        profile = self.capabilities()
        named = any(rule.rule == "operation" or rule.operations for rule in profile.rules)
        bare = not profile.waivers and all(rule.rule in BARE_RULES for rule in profile.rules)
        if bare and not check(graph_records(graphs, inputs, details=False, dispatched=named), profile):
            return
        records = graph_records(graphs, inputs, dispatched=named)
        violations = check(records, profile)
        if violations.failed:
            from inductor_debug.stages.rules.repros import write_repros

            repros = write_repros(records, violations, verified=self.options.verified_repros)
            error = ProfileViolated(violations, repros)
            if not self._run:
                error.write(self.options.repro_dir)
            raise error
        found = [rows for finding in violations.findings if (rows := unwaived(finding))]
        for rows in found[:SHOWN]:
            log.warning("%s", described(*rows).strip())
        for rows in [*found[SHOWN:], *([row] for row in violations if row.severity == "waived")]:
            log.info("%s", described(*rows).strip())
        if len(found) > SHOWN:
            log.warning("… and %d more of %s, logged at level INFO", len(found) - SHOWN, ", ".join(graphs))


class AotMockAdapter(MockAdapter):
    """Checks AOTAutograd's forward and backward graphs, then executes them with torch.

    With TorchInductor behind the checks the graphs are the same (before Inductor's own decompositions): AOTAutograd
    then runs twice, once for the checks and once in Inductor.
    """

    name = "aot_mock"
    level: Level = "aot"

    def dynamo_backend(self) -> Callable[..., Any]:
        from inductor_debug.stages.torch_internals.backends import aot_backend

        def backend(gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Any]:
            number = next(self._count)

            def inputs(context: "RecordContext") -> "list[PlaceholderInfo]":
                from inductor_debug.stages.torch_internals.dynamo import dynamo_placeholders

                return dynamo_placeholders(gm, context)

            operations = self.capabilities().of("operation")
            called = {f"g{number}.dynamo": gm} if operations else {}  # the user's own calls, which may be named

            def inference(forward: fx.GraphModule, _: Sequence[Tensor]) -> Callable[..., Any]:
                self.enforce(called | {f"g{number}.forward": forward}, inputs)
                return run_as_traced(forward)

            def half(part: fx.GraphModule, _: Sequence[Tensor]) -> Callable[..., Any]:
                return run_as_traced(part)

            def partitioned(forward: fx.GraphModule, backward: fx.GraphModule) -> None:
                self.enforce(called | {f"g{number}.forward": forward, f"g{number}.backward": backward}, inputs)

            checked = aot_backend(forward=half, backward=half, inference=inference, partitioned=partitioned)
            compiled: Callable[..., Any] = checked(gm, example_inputs)
            self.look_outside(gm, f"g{number}")
            return self.execute(gm, example_inputs) if self.options.inductor else compiled

        return backend


def _configured(kind: type[MockAdapter], config: BackendConfig, accel: AccelConfig | None) -> MockAdapter:
    """The adapter of a configuration; ConfigurationError for an option that it does not take."""
    options, rest = split_options(config.options, key="backend.options")
    fixed = [name for name in ("repro_dir", "minify_s") if name in config.options]
    if rest or fixed:
        key = [*rest, *fixed][0]
        raise invalid_choice("backend.options", key, ["execute", "mode", "verified_repros"])
    return kind(None if accel is None or accel.name == "none" else accel, options, run=True)


mock = functools.partial(_configured, MockAdapter)
aot_mock = functools.partial(_configured, AotMockAdapter)
