"""Samples per second of both sides by batch size: each size is built and sampled in a fresh process of its own."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.time_tables import ThroughputRow
from inductor_debug.stages.benchmark import timing
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.benchmark.interference import reason_against
from inductor_debug.stages.benchmark.interval import latency
from inductor_debug.stages.benchmark.processes import Sampled, SamplingDied, SamplingRaised, sample_in_process
from inductor_debug.stages.benchmark.records import Peaks
from inductor_debug.stages.contract import StageContext, StageResult
from inductor_debug.stages.formatting import MOST_OF_AN_ERROR, as_sentence, in_lines

ONE_PROCESS = "no further process may be started (runner.isolation=none, or a stage that was run from Python)"
NO_GRAPHS = "CUDA graphs were asked for, and torch recorded none"
_NAME = "its sampling process"


@dataclass
class Throughput:
    """What the batch sizes came to.

    Attributes:
        found: batch size → what its process found.
        failed: batch size → why there is nothing of it.
    """

    found: dict[int, Sampled] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)


def by_batch_size(context: StageContext, options: BenchmarkConfig, began: float) -> Throughput:
    """Measure each of ``options.batch_sizes``, one after the other. What one of them raises ends none of the others.

    No size is begun once half of the stage's time is spent, so that the runner does not end the stage with all that it
    measured before.
    """
    done, environment = Throughput(), context.children
    for size in options.batch_sizes or ():
        context.progress(f"batch size {size}")
        if environment is None:
            done.failed[size] = ONE_PROCESS
        elif context.time_s is not None and time.monotonic() - began > context.time_s / 2:
            done.failed[size] = (
                f"half of runner.timeout_s={context.time_s:g} was spent before it; "
                f"type runner.timeout_s={2 * context.time_s:g}"
            )
        else:
            settings = replace(context.settings, model=replace(context.settings.model, batch_size=size))
            try:
                done.found[size] = sample_in_process(
                    settings, _alone(options), timing.SIDES.index("test"), 1, environment, _NAME
                )
            except (SamplingRaised, SamplingDied) as error:
                done.failed[size] = _in_words(error)
    return done


def _alone(options: BenchmarkConfig) -> BenchmarkConfig:
    """The options of a process that is the only one, with the budget that each of several has."""
    return replace(options, processes=1, budget_s=options.budget_s / options.processes)


def _in_words(error: Exception) -> str:
    text = " ".join(str(error).split("\nTry: ")[0].split())
    return text if len(text) <= MOST_OF_AN_ERROR else f"{text[:MOST_OF_AN_ERROR]}…"


def rows_of(measured: Throughput, ordinary: Sampled, batch_size: int) -> list[ThroughputRow]:
    """``benchmark/throughput.csv``: of each size both sides, by size.

    Args:
        measured: the sizes.
        ordinary: a process of the run's own case, whose ``batch_size`` the model may be built with in any case.
    """
    inputs = {batch_size: ordinary.inputs} | {size: sampled.inputs for size, sampled in measured.found.items()}
    return [
        row
        for size in sorted({*measured.found, *measured.failed})
        for row in (
            _rows(size, measured.found[size], _unchanged(size, inputs))
            if size in measured.found
            else (ThroughputRow(size, side, not_established=measured.failed[size]) for side in timing.SIDES)
        )
    ]


def _rows(size: int, sampled: Sampled, unchanged: str) -> Iterator[ThroughputRow]:
    disturbed = None if sampled.load is None else reason_against([sampled.load], sampled.on_host)
    for side in timing.SIDES:
        samples = sampled.column(side)
        milliseconds = latency([samples]).value
        test = side == "test"
        yield ThroughputRow(
            size,
            side,
            milliseconds,
            None if unchanged else 1e3 * size / milliseconds,
            sampled.memory.get(side, Peaks()).peak_memory_bytes,
            len(samples),
            sampled.warm[side].steady,
            sampled.compiled.seconds if test else None,
            sampled.compiled.caches.kind if test else "",
            unchanged or (_not_the_backends(sampled) if test else "") or disturbed or "",
        )


def _unchanged(size: int, inputs: Mapping[int, list[list[int]] | None]) -> str:
    """Why a call at ``size`` may not be one of so many samples; empty where the inputs differ from every other size's.

    Args:
        size: a batch size.
        inputs: batch size → the sizes of the inputs that the model was built with.
    """
    others = [other for other in inputs if other != size]
    if not others:
        return "no other batch size was built, so that nothing tells whether the model's inputs follow it"
    alike = [other for other in others if inputs[other] == inputs[size]]
    return f"the model was built with the same inputs as with model.batch_size={alike[0]}" if alike else ""


def _not_the_backends(sampled: Sampled) -> str:
    """Why the time is not that of the test side as it was asked for; empty where it is."""
    if sampled.execution is not None and sampled.execution.elsewhere:
        return sampled.execution.elsewhere
    return NO_GRAPHS if sampled.cuda_graphs == 0 else ""


def with_throughput(result: StageResult, rows: list[ThroughputRow], whole: bool) -> StageResult:
    """The stage's result with the table, and its end of the message.

    Args:
        result: without them.
        rows: of the table.
        whole: whether each size was measured; a later run may come to more where one was not.
    """
    return replace(
        result,
        message=in_lines(result.message, as_sentence(told(rows))),
        artifacts=result.artifacts | {files.THROUGHPUT.path: files.THROUGHPUT.frame(rows)},
        repeatable=result.repeatable and whole,
    )


def told(rows: list[ThroughputRow]) -> str:
    """The most samples per second of each side, and the sizes at which that is not known."""
    missing: dict[int, str] = {}
    for row in rows:
        if row.not_established:
            missing.setdefault(row.batch_size, row.not_established)
    sizes = ", ".join(map(str, missing))
    best: dict[str, tuple[float, int]] = {}
    for side in ("test", "reference"):
        rates = [(row.samples_per_s, row.batch_size) for row in rows
                 if row.side == side and row.samples_per_s is not None and not row.not_established]  # fmt: skip
        if rates:
            best[side] = max(rates)
    if not best:
        return _none_established(missing)
    batches = {batch for _, batch in best.values()}
    if len(batches) == 1:
        text = ", ".join(f"{per_second(rate)} ({side})" for side, (rate, _) in best.items())
        text = f"most samples/s at batch {batches.pop()}: {text}"
    else:
        text = ", ".join(f"{per_second(rate)} at batch {batch} ({side})" for side, (rate, batch) in best.items())
        text = f"most samples/s: {text}"
    return f"{text}; not established at batch {sizes}" if missing else text


def _none_established(missing: Mapping[int, str]) -> str:
    """The first reason with the sizes that have it, and where those of the others are."""
    first = next(iter(missing.values()))
    alike = ", ".join(str(size) for size, reason in missing.items() if reason == first)
    others = ", ".join(str(size) for size, reason in missing.items() if reason != first)
    text = f"samples/s not established at batch {alike}: {first}"
    return f"{text}; nor at batch {others}, see {files.THROUGHPUT.path}" if others else text


def per_second(rate: float) -> str:
    """Three digits or all whole ones, never an exponent."""
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"
