"""Which layer a failure is addressed to, and what of that is seen rather than assumed.

What is seen comes of the run's files (a bisection, an exception's traceback, the localization), or of the program
itself, run through one layer of the compiler after another: :func:`through_each`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from inductor_debug.pipeline.query.handover.stored import StoredRepro, answers
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.formatting import headline
from inductor_debug.stages.repro.check import COULD_NOT_RUN, NOT_REPRODUCED, REPRODUCED
from inductor_debug.stages.repro.verify import Ending, ran

DYNAMO, AOT, DECOMPOSITIONS, INDUCTOR, TRITON = (
    "Dynamo", "AOTAutograd", "PyTorch's decompositions", "TorchInductor", "Triton",
)  # fmt: skip
CHAIN = {"eager": DYNAMO, "aot_eager": AOT, "aot_eager_decomp_partition": DECOMPOSITIONS, "inductor": INDUCTOR}
"""Backends of torch's, each with what the one before has and one layer more, and that layer."""
LIMIT_S = 300.0
"""Seconds for a script: one that looks for a hang takes its own limit first."""

_SUBSYSTEMS = {"dynamo": DYNAMO, "aot_autograd": AOT, "decompositions": DECOMPOSITIONS, "inductor": INDUCTOR}
_FOLDERS = {("torch", "_dynamo"): DYNAMO, ("torch", "_functorch"): AOT, ("torch", "_inductor"): INDUCTOR,
            ("triton",): TRITON}  # fmt: skip
_FRAME = re.compile(r'^\s*File "([^"\n]+)", line \d+, in (\S+)', re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """One run of a program through a backend.

    Attributes:
        backend: a name, or the script's own source.
        layer: that it adds.
        shows: whether the failure shows; None where that could not be seen.
        said: the script's last word.
        output: all that it printed.
    """

    backend: str
    layer: str
    shows: bool | None
    said: str
    output: str = field(default="", repr=False)


@dataclass(frozen=True)
class Owner:
    """The layer that a failure is addressed to.

    Attributes:
        layer: its name.
        established: whether something that was seen names it; else it is the last that the program went through.
        because: what names it.
        ruled_out: what is not at fault → how that is known.
        open: of what it is not known → why.
        steps: the runs that were made for this.
    """

    layer: str
    established: bool
    because: tuple[str, ...] = ()
    ruled_out: Mapping[str, str] = field(default_factory=dict)
    open: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    def __str__(self) -> str:
        return self.layer if self.established else f"{self.layer} (not established)"


def sentences(found: Mapping[str, str]) -> list[str]:
    """``SUBJECT, SUBJECT: HOW`` of what is ruled out or not known, a line for each way."""
    return [f"{', '.join(subject for subject in found if found[subject] == how)}: {how}"
            for how in dict.fromkeys(found.values())]  # fmt: skip


def owner_of(repro: StoredRepro, steps: Sequence[Step] = ()) -> Owner:
    """Whom a failure is addressed to, by what the run's files tell and the steps that were run."""
    if repro.is_violation:
        return _of_violation(repro)
    found = Owner(layer_of(repro), False, ruled_out=_torch_itself(repro), steps=tuple(steps))
    for look in (_by_steps, _by_bisection, _by_frames, _by_localization):
        seen = look(repro, found)
        if seen is None:
            continue
        if not found.established:
            found = seen
        elif seen.layer == found.layer or (found.layer, seen.layer) == (INDUCTOR, TRITON):  # which it calls
            found = replace(seen, because=(*found.because, *seen.because))
    return replace(found, open={**found.open, **_not_looked_at(repro, found)})


def through_each(repro: StoredRepro, told: Callable[[str], None] = lambda text: None) -> list[Step]:
    """Run a program with each of torch's backends that comes before its own, then with its own, until one shows it.

    Args:
        repro: of a compiler's failure; its script is executed.
        told: called before each run.

    Raises:
        DamagedError: the script is not as the run stored it.
    """
    own = repro.backend or layer_of(repro)
    before = list(CHAIN)[: list(CHAIN).index(own)] if own in CHAIN else list(CHAIN)
    steps: list[Step] = []
    for backend in (own, *before):  # its own first: where that shows nothing here, nothing can be told
        told(f"running it with {backend}")
        text = "" if backend == own else repro.through(backend)
        steps.append(_step(backend, CHAIN.get(backend, layer_of(repro)), ran(repro.script(text), timeout_s=LIMIT_S)))
        if steps[0].shows is not True or (backend != own and steps[-1].shows):
            break
    return steps


def _step(backend: str, layer: str, ending: Ending) -> Step:
    found = answers(ending.output)
    if found and ending.code in (REPRODUCED, NOT_REPRODUCED):
        return Step(backend, layer, ending.code == REPRODUCED, found[-1], ending.output)
    return Step(backend, layer, None, how_it_ended(ending), ending.output)


def how_it_ended(ending: Ending) -> str:
    """An end without an answer, in words."""
    if ending.code is None:
        return ending.not_started or f"not over after {LIMIT_S:g} s"
    if ending.code < 0:
        return f"ended by signal {-ending.code}"
    last = (ending.output.strip().splitlines() or ["it printed nothing"])[-1]
    return f"could not run: {last}" if ending.code == COULD_NOT_RUN else f"exit code {ending.code}: {last}"


def layer_of(repro: StoredRepro) -> str:
    """The last layer that the program went through: that of its backend."""
    if repro.backend in CHAIN:
        return CHAIN[repro.backend]
    package = next((name.partition(".")[0] for name in repro.packages), "")
    return f"the backend {repro.backend or package or repro.run.head.run.backend}"


def _of_violation(repro: StoredRepro) -> Owner:
    record, head = repro.record, repro.run.head
    rule = record.failure_class.partition(":")[2]
    declared = head.violations is not None and head.violations.declared_by == "backend"
    of = f"the backend {head.run.backend}" if declared else f"the profile {head.run.accel}"
    seen = f"the captured graph breaks it at {record.node} of {record.graph}"
    compilers = f"{DYNAMO}, {AOT}, {INDUCTOR}"
    if record.verified:
        clean = {compilers: "the script measures the operation as torch runs it, and compiles nothing"}
        return Owner(f"the rule {rule} of {of}", True, (seen,), clean)
    why = f"the script is not verified ({record.reason or 'no reason is stored'})"
    return Owner(f"the rule {rule} of {of}", True, (seen,), open={compilers: why})


def _torch_itself(repro: StoredRepro) -> dict[str, str]:
    """What the script itself compares with: the program as torch runs it without a compiler."""
    if not repro.record.verified:
        return {}
    if repro.record.failure_class == "defect":
        how = "in eager mode the program is as near to float64 as rounding lets it be, which the script compares with"
    else:
        how = "in eager mode the program runs to its end, before the script compiles it"
    return {"PyTorch's own operators": how}


def _by_steps(repro: StoredRepro, known: Owner) -> Owner | None:
    if not known.steps:
        return None
    own, *others = known.steps
    if own.shows is not True:
        return replace(known, open={own.layer: f"the script does not show the failure here ({own.said})"})
    first = next((step for step in others if step.shows), own)
    before = [step for step in others if step is not first]
    clean = {step.layer: f"with backend={step.backend!r} the script says {step.said}" for step in before
             if step.shows is False}  # fmt: skip
    unknown = {step.layer: f"with backend={step.backend!r} the script {step.said}" for step in before
               if step.shows is None}  # fmt: skip
    because = () if unknown else (f"with {_given(first)} the script says {first.said}, and with none before it",)
    return replace(known, layer=first.layer, established=not unknown, because=because,
                   ruled_out={**known.ruled_out, **clean}, open=unknown)  # fmt: skip


def _given(step: Step) -> str:
    return f"backend={step.backend!r}" if step.backend in CHAIN else step.backend


def _by_bisection(repro: StoredRepro, known: Owner) -> Owner | None:
    """The stage bisect, where it looked for a failure of the same kind in the whole model."""
    found = files.BISECTION.read(repro.run.artifacts)
    kind = "defect" if repro.record.failure_class == "defect" else "raised"
    if found is None or found.subsystem is None or found.fault is None or found.fault.kind != kind:
        return None
    where = files.BISECTION.path
    links = [link for link, probe in found.established.chain.items() if link in _SUBSYSTEMS and probe.fault == "gone"]
    why = f"with no more than it the whole model does not show the fault ({where})"
    gone = {_SUBSYSTEMS[link]: why for link in links}
    return replace(known, layer=_SUBSYSTEMS.get(found.subsystem, known.layer), established=True,
                   because=(f"{where}: {headline(found.answer)}",), ruled_out={**gone, **known.ruled_out})  # fmt: skip


def _by_frames(repro: StoredRepro, known: Owner) -> Owner | None:
    """The traceback of what kerneldiff met, or of the script, where it ends in the function that the failure names."""
    diagnosis = files.DIAGNOSIS.read(repro.run.artifacts)
    error = (diagnosis.error if diagnosis is not None else None) or {}
    texts = [(files.DIAGNOSIS.path, error.get("traceback", ""))]
    texts += [("the script, run here", step.output) for step in known.steps[:1]]
    for where, text in texts:
        found = innermost(text, repro)
        if found is not None:
            return replace(known, layer=found[1], established=True, because=(f"{where}: it was raised in {found[0]}",))
    return None


def innermost(traceback: str, repro: StoredRepro) -> tuple[str, str] | None:
    """The frame nearest to where a failure was raised that lies in a layer, and the layer; None where none is known.

    Args:
        traceback: as Python prints it.
        repro: of the failure, whose text names the innermost two functions. Python may print the first alone.
    """
    named = repro.record.failure.rpartition(" in ")[2].split(", ")
    frames = _FRAME.findall(traceback)
    ends = [at for at, (file, function) in enumerate(frames) if f"{PurePosixPath(file).name}:{function}" in named]
    for file, function in reversed(frames[: ends[-1] + 1] if ends else []):
        layer = _layer_at(file, repro)
        if layer is not None:
            return f"{file}, {function}", layer
    return None


def _layer_at(file: str, repro: StoredRepro) -> str | None:
    parts = PurePosixPath(file).with_suffix("").parts
    for names, layer in _FOLDERS.items():
        if any(parts[at : at + len(names)] == names for at in range(len(parts))):
            return layer
    vendors = {package.partition(".")[0] for package in repro.packages}
    return layer_of(repro) if vendors & set(parts) else None


def _by_localization(repro: StoredRepro, known: Owner) -> Owner | None:
    """kerneldiff's own finding about the operation: it is wrong in the backend's graph, for what it received there."""
    diagnosis = files.DIAGNOSIS.read(repro.run.artifacts)
    if repro.record.failure_class != "defect" or diagnosis is None or diagnosis.localized is None:
        return None
    at = next((item for item in diagnosis.localized.culprits
               if (item.place.graph, item.place.node) == (repro.record.graph, repro.record.node)), None)  # fmt: skip
    if at is None:
        return None
    kernel = f", in the kernel {at.place.kernel}" if at.place.kernel else ", in a kernel that is not known"
    told = f"{files.DIAGNOSIS.path}: {at.place.target} ({at.place.graph} {at.place.node}) is wrong for what it received"
    layer = layer_of(repro)
    why = f"the graph that it handed on has the operation, which is wrong for what it received ({files.DIAGNOSIS.path})"
    graphs = dict.fromkeys((DYNAMO, AOT) if at.kind == "operation" else (), why)
    return replace(known, layer=layer, established=True, because=(f"{told}{kernel}",),
                   ruled_out={**graphs, **known.ruled_out})  # fmt: skip


def _not_looked_at(repro: StoredRepro, found: Owner) -> dict[str, str]:
    before = [layer for layer in CHAIN.values() if layer != INDUCTOR and layer != found.layer]
    how = "not looked at" if found.steps else f"not looked at: inductor-debug repro RUN {repro.name} --owner does"
    missing = {layer: how for layer in before if layer not in found.ruled_out and layer not in found.open}
    if found.layer == INDUCTOR:
        below = f"{TRITON}, or the C++ compiler"
        missing[below] = "not looked at whether the source is wrong that TorchInductor wrote, or what was made of it"
    return missing
