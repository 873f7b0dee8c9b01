"""What one sampling process does (:mod:`stages.benchmark.process`).

It builds the case, loads the run's compiled code, measures, and tells events (:mod:`stages.benchmark.records`) on the
results' descriptor.
"""

import contextlib
import ctypes
import dataclasses
import itertools
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.errors import message_of, root_cause
from inductor_debug.models.nested import strided_parts
from inductor_debug.stages.artifacts.measurements import FirstStep, Surroundings
from inductor_debug.stages.artifacts.time_tables import SampleRow
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.compiled import CompiledCase, load_case
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.benchmark import timing
from inductor_debug.stages.benchmark.calls import DeviceClock, L2Flush, OptimizerClock, PartClock, stepper
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.benchmark.device_use import look
from inductor_debug.stages.benchmark.interference import LoadMeter
from inductor_debug.stages.benchmark.memory import allocated_peak, peak_memory
from inductor_debug.stages.benchmark.records import LINES, Done, Event, Inputs, Memory, Peaks, Raised, Warm
from inductor_debug.stages.benchmark.warmup import SHARE, warm_up
from inductor_debug.stages.config_json import from_primitives
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.formatting import in_one_line
from inductor_debug.stages.settings import Settings
from inductor_debug.stages.sides.running import case_for, reference_function
from inductor_debug.stages.sides.training_steps import OPTIMIZERS
from inductor_debug.stages.torch_internals.compile_workers import end_compile_workers
from inductor_debug.stages.torch_internals.cuda_graphs import recorded_graphs
from inductor_debug.stages.torch_internals.dynamo_options import in_force

log = logging.getLogger(__name__)

Emit = Callable[[Event], None]


@dataclasses.dataclass
class Sampler:
    """Samples both sides of a run in this process.

    Attributes:
        context: of the run; its case is taken where there is one, else built. In a process of its own nothing is put
            back, and no copy of the weights is made.
        options: the stage's.
        index: of this process, from 0.
        processes: how many there are at least; the budget is divided by them.
        emit: told of every event.
        load: makes the compiled test side of the case.
        own: whether the process is the sampler's alone, so that the side that it begins with is all that it holds.
    """

    context: StageContext
    options: BenchmarkConfig
    index: int
    processes: int
    emit: Emit
    load: Callable[[Case], Any]
    own: bool = False

    def run(self) -> None:
        """Measure and sample. A process begins with one side, which it holds alone while it measures its memory:
        the first process with the reference, the second with the test side.
        """
        if self.options.batch_sizes:
            self.emit(Inputs(input_sizes(self.context.case)))
        cases: dict[str, Case] = {}
        functions: dict[str, Callable[..., Any]] = {}
        for side in timing.SIDES if self.index % 2 == 0 else timing.SIDES[::-1]:
            cases[side] = self._case(side, cases)
            functions[side] = self._function(side, cases[side])
            call = stepper(cases[side], functions[side])
            with cases[side].surroundings():
                self._warm(side, functions[side], call)
                if self.index == timing.SIDES.index(side) or self.processes == 1:
                    self.emit(
                        Memory(side, peaks(cases[side], call, alone=len(cases) == 1 and self._alone(cases[side])))
                    )
        with cases["reference"].surroundings(), cases["test"].surroundings():  # mode and TF32 are the run's: both alike
            self._sample(cases, functions)

    def _alone(self, case: Case) -> bool:
        """Whether a case's device holds no other: a reference of another dtype is made of the run's case."""
        run = self.context.case
        return self.own and (case is run or case.device.type != run.device.type)

    def _case(self, side: str, cases: Mapping[str, Case]) -> Case:
        """The case of one side; the same object for both where they do not differ in dtype or device."""
        if side == "reference":
            return case_for(self.context.case, self.context.settings.reference)
        return self.context.case

    def _function(self, side: str, case: Case) -> Callable[..., Any]:
        if side == "reference":
            return reference_function(self.context, case, loads=True)
        compiled = self.load(case)
        self.emit(FirstStep(compiled.compile_s, compiled.adapter.loads, compiled.caches))
        return compiled

    def _warm(self, side: str, function: Callable[..., Any], call: Callable[[], object]) -> None:
        compiled = function if isinstance(function, CompiledCase) else None
        with contextlib.nullcontext() if compiled is None else compiled.watch.step():
            start = time.perf_counter()
            call()
            seconds = time.perf_counter() - start
        if compiled is not None:
            self.emit(compiled.watch.execution())
        most = self.options.max_warmup
        count, steady = warm_up(
            call,
            least=self.options.warmup - 1,
            most=None if most is None else most - 1,
            budget_s=self.options.budget_s / self.processes / SHARE,
        )
        self.emit(Warm(side, seconds, 1 + count, steady))

    def _sample(self, cases: Mapping[str, Case], functions: Mapping[str, Callable[..., Any]]) -> None:
        end_compile_workers()
        on_device = all(case.device.type == "cuda" for case in cases.values())
        flush = L2Flush(cases["test"].device) if self.options.flush_l2 else None
        queued = (lambda: None) if flush is None else flush.queue
        sides = timing.SIDES if on_device else ()
        clocks = {side: DeviceClock(cases[side], functions[side], queued) for side in sides}
        on_host = any(case.device.type == "cpu" for case in cases.values())
        on_some_device = any(case.device.type != "cpu" for case in cases.values())
        before = look() if on_some_device else None
        by_size = f" at batch size {self.context.settings.model.batch_size}" if self.options.batch_sizes else ""
        log.info("benchmark: sampling process %d times both sides%s", self.index + 1, by_size)
        meter = LoadMeter(torch.get_num_threads(), on_host=on_host)
        samples = timing.interleave(
            {side: stepper(cases[side], functions[side]) for side in timing.SIDES},
            repeats=self.options.repeats,
            max_repeats=self.options.most_repeats,
            relative_ci=self.options.process_width,
            budget_s=self.options.budget_s / self.processes,
            seed=self.context.settings.seed,
            first=self.index % 2,
            device=dict(clocks),
            before=flush,
        )
        parts, missing = self._parts(cases, functions, samples, (lambda: None) if flush is None else flush)
        load = meter.read()
        for side in timing.SIDES:
            columns = [samples.milliseconds[side], samples.device[side], samples.started[side], *parts[side]]
            for index, cells in enumerate(itertools.zip_longest(*columns)):
                self.emit(SampleRow(self.index, side, index, *cells))
        device_use = before.joined(look()).record if before is not None else None
        index = cases["test"].device.index
        graphs = None
        if self.options.cuda_graphs:
            graphs = recorded_graphs(torch.cuda.current_device() if index is None else index)
        waited = {side: clock.waited for side, clock in clocks.items()}
        self.emit(
            Done(samples.stopped, load, on_host, environment(), device_use, waited, missing, flush is not None, graphs)
        )

    def _parts(
        self,
        cases: Mapping[str, Case],
        functions: Mapping[str, Callable[..., Any]],
        samples: timing.Samples,
        before: Callable[[], None],
    ) -> tuple[dict[str, list[list[float]]], str]:
        """By side the milliseconds of :data:`timing.PARTS`; and why the optimizer's are missing.

        All of it happens once every whole step was timed.
        """
        if cases["test"].mode != "training":
            return {side: [[], [], []] for side in timing.SIDES}, ""
        rounds = min(max(self.options.repeats, timing.LEAST), len(samples.milliseconds["test"]))
        forward, backward = dict(samples.forward), {}
        for side in timing.SIDES:
            whole = samples.milliseconds[side]
            backward[side] = [ms - part for ms, part in zip(whole, forward[side], strict=False)]
        if not all(forward.values()):
            clocks = {side: PartClock(cases[side], functions[side], before) for side in timing.SIDES}
            for side, times in timing.in_turn(clocks, rounds, self.index % 2).items():
                forward[side], backward[side] = ([part[place] for part in times] for place in (0, 1))
        found: dict[str, list[float]] = {side: [] for side in timing.SIDES}
        missing = ""
        if self.options.optimizer != "none":
            try:
                kind = OPTIMIZERS[self.options.optimizer]
                steps = {side: OptimizerClock(cases[side], kind) for side in timing.SIDES}
                found = timing.in_turn(steps, rounds, self.index % 2)
            except Exception as error:  # what an optimizer can't do says nothing of the step without it
                log.info("benchmark: the optimizer was not timed", exc_info=True)
                missing = in_one_line(error)
        return {side: [forward[side], backward[side], found[side]] for side in timing.SIDES}, missing


def timed_adapter(adapter: AcceleratorAdapter, options: BenchmarkConfig) -> AcceleratorAdapter:
    """What compiles the test side: the run's adapter, or the same one with CUDA graphs."""
    return adapter.switched({"triton.cudagraphs": True}) if options.cuda_graphs else adapter


def input_sizes(case: Case) -> list[list[int]]:
    """Sizes of each input tensor, of a nested or sparse one those of what holds it."""
    return [[*map(int, part.shape)] for tensor in case.named_inputs().values() for part in strided_parts(tensor)]


def peaks(case: Case, call: Callable[[], object], *, alone: bool) -> Peaks:
    """Peaks in bytes of one step; ``peak_memory_bytes`` is the allocator's of the device that the case is on.

    Weights, inputs and what the step allocates at its highest. None where the device does not tell (what the host's
    allocator held is not the device's memory), and on a device where the process holds more than this side.

    Args:
        alone: whether it holds this side alone, without copies of the weights.
    """
    with peak_memory(case.device) as peak:
        call()
    on_device = peak.device if alone else None
    return Peaks(allocated_peak(case, call) if case.device.type == "cpu" else on_device, peak.host, peak.method)


def environment() -> Surroundings:
    """Now."""
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    return Surroundings(
        load_average=list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        cpu_count=os.cpu_count(),
        cpu_usable=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        threads=torch.get_num_threads(),
        interop_threads=torch.get_num_interop_threads(),
        cpu_mhz=frequency.current if frequency else None,
        memory_available_bytes=psutil.virtual_memory().available,
    )


def main(arguments: list[str]) -> int:
    """Serve one request. Exit code 0 where it was sampled, 1 where something raised, which is told."""
    results = int(arguments[0])
    os.set_inheritable(results, False)
    request = json.loads(sys.stdin.read())
    _end_with(request["parent"])
    logging.basicConfig(level="INFO", format="[%(asctime)s][%(name)s][%(levelname)s] - %(message)s")
    sys.path += [path for path in request["path"] if path not in sys.path]
    with open(results, "w", encoding="utf-8") as file:

        def emit(event: Event) -> None:
            file.write(LINES.write(event))
            file.flush()

        try:
            settings: Settings = from_primitives(Settings, request["settings"])
            with in_force(settings.backend.dynamo):
                _sampler(settings, request, emit).run()
        except Exception as error:  # a model, or a backend, may raise anything: the stage makes a result of it
            log.exception("benchmark: the sampling process raised")
            cause = root_cause(error)
            emit(Raised(f"{type(cause).__name__}: {message_of(cause)}"))
            return 1
    return 0


def _sampler(settings: Settings, request: Mapping[str, Any], emit: Emit) -> Sampler:
    options: BenchmarkConfig = from_primitives(BenchmarkConfig, request["options"])
    adapter = build_adapter(settings)  # before the case is built: it may add the case's device to torch
    adapter.validate()
    compiler = timed_adapter(adapter, options)
    context = StageContext(settings, MemoryArtifacts())
    index, processes = request["index"], request["processes"]
    return Sampler(context, options, index, processes, emit, lambda case: load_case(case, compiler), own=True)


def _end_with(parent: int) -> None:
    """Let the system end this process when its parent ends, which may have happened already."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)
