"""The benchmark stage: reference and test timed in turn in fresh processes, with compile time and peak memory."""

import time
from typing import Any

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.measurements import CacheUse
from inductor_debug.stages.benchmark.checks import check_cuda_options
from inductor_debug.stages.benchmark.declaration import DECLARATION
from inductor_debug.stages.benchmark.processes import Sampled, SamplingRaised, numbered, sample_in_process
from inductor_debug.stages.benchmark.tables import figures_of, reached, report_of
from inductor_debug.stages.benchmark.throughput import by_batch_size, rows_of, with_throughput
from inductor_debug.stages.contract import Stage, StageContext, StageResult

FEWER = 3
"""Processes that sample where each has to compile anew and that takes longer than its share of the budget."""


class BenchmarkStage(Stage):
    """Times one step of the case on both sides. Raises where the test side can't be compiled."""

    declaration = DECLARATION

    def check(self, context: StageContext) -> None:
        """ConfigurationError for an option that the device or the backend does not have."""
        check_cuda_options(self.config, context.settings)

    def run(self, context: StageContext) -> StageResult:
        """Sample in processes of their own, one after the other; in this one where none may be started.

        The model is left as found.
        """
        known, began = known_compilation(context), time.monotonic()
        found = [self._here(context)] if context.children is None else self._in_processes(context, context.children)
        compile_s, caches = known or (found[0].compiled.seconds, found[0].compiled.caches)
        result = report_of(figures_of(found, compile_s, caches, context.settings), found, self.config.interval)
        if not self.config.batch_sizes:
            return result
        measured = by_batch_size(context, self.config, began)
        rows = rows_of(measured, found[0], context.settings.model.batch_size)
        return with_throughput(result, rows, whole=not measured.failed)

    def _in_processes(self, context: StageContext, environment: Any) -> list[Sampled]:
        from inductor_debug.stages.backends.compiled import compiled_case, forget_case

        forget_case(context)  # the processes need the memory
        found: list[Sampled] = []
        count, began = self.config.processes, time.monotonic()
        while len(found) < count or self._wants_more(found, time.monotonic() - began):
            context.progress(numbered(len(found), count))
            try:
                found.append(sample_in_process(context.settings, self.config, len(found), count, environment))
            except SamplingRaised:
                compiled_case(context)  # meet here what a process met, with all that such an error leaves behind it
                raise
            if len(found) == 1 and self._compiles_long(found[0]):
                count = min(count, FEWER)
        return found

    def _wants_more(self, found: list[Sampled], seconds: float) -> bool:
        """Whether a further process is to sample: the wanted interval is not reached, and the budget not spent."""
        wanted = self.config.interval
        return wanted is not None and seconds < self.config.budget_s and not reached(found, wanted)

    def _compiles_long(self, first: Sampled) -> bool:
        """Whether every process would compile for longer than it samples."""
        again = not first.compiled.loads or first.compiled.caches.loaded == 0
        return again and (first.compiled.seconds or 0.0) > self.config.budget_s / self.config.processes

    def _here(self, context: StageContext) -> Sampled:
        """One process's samples, of this one: for a debugger."""
        from inductor_debug.stages.backends.compiled import compile_case, compiled_case
        from inductor_debug.stages.benchmark.sampling import Sampler, timed_adapter

        found, compiled = Sampled(0), compiled_case(context)
        if self.config.cuda_graphs:
            compiled = compile_case(context.case, timed_adapter(compiled.adapter, self.config))
        context.progress("timing in this process")
        with context.case.preserved():
            Sampler(context, self.config, 0, 1, found.take, lambda case: compiled).run()
        return found


def known_compilation(context: StageContext) -> tuple[float | None, CacheUse] | None:
    """Seconds of the first step that compiled the test side, and the caches that it met; None where none did yet.

    Of the lower stage where it ran, else of another stage of this process. The lazy ``torch.compile()`` call is never
    what is meant.
    """
    stored = files.LOWERING.read(context.artifacts)
    if stored is not None:
        assert not isinstance(stored.compile_s, str), "a clock gives no NaN"
        return stored.compile_s, stored.caches
    compiled = context.live.get("compiled")
    return None if compiled is None else (compiled.compile_s, compiled.caches)
