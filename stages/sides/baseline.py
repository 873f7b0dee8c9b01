"""Baseline runs: a reference stored once, and compared with on another machine, another device or another version.

A run stores under ``kerneldiff/baseline``:

- ``reference.safetensors``, ``gold.safetensors``: the leaves of the reference and of gold, by ``kind/path``; of the
  buffers and inputs those that the step changed;
- ``inputs.safetensors``: the inputs, by argument name (``model.inputs`` takes it too where safetensors has
  their dtypes);
- ``weights.safetensors``, only with ``store_baseline=true``: every parameter and buffer, by name. Without them the run
  that compares must have the same weights already, and torch draws others on another kind of CPU or in another version;
- ``jumps.safetensors``, only with ``store_baseline=true``: of tensors behind a branch, how far right computations go
  there at each element;
- ``baseline.json``: what no safetensors file holds, and the SHA-256 of the files and of itself. These are the leaves
  in order, leaves that are no tensors, dtypes, digests of every parameter and buffer, the configuration, and versions.
  With ``store_baseline=true`` it has the noise of references that round otherwise too, by tensor, so that another
  machine judges by it and needs no eager run.

A baseline is compared with only where it is whole, was made from the same model in the same mode, dtype and precision,
and, tensor by tensor, from the same weights.
"""

import contextlib
import copy
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from inductor_debug.models.build import available_device
from inductor_debug.models.case import Case
from inductor_debug.models.contents import same_bits
from inductor_debug.models.errors import ConfigurationError, DamagedError
from inductor_debug.models.nested import map_tensors
from inductor_debug.models.stored import lies_within, read_json, shaped
from inductor_debug.models.visible import visible
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.baseline import About, DiscreteNoise, Stamp, StoredTensor, TensorLeaf
from inductor_debug.stages.artifacts.comparison import Diagnosis
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.settings import ReferenceConfig, Settings
from inductor_debug.stages.sides import fingerprint, packing
from inductor_debug.stages.sides import running as sides
from inductor_debug.stages.sides.aliased_copies import Contradiction, aliased_copies
from inductor_debug.stages.sides.baseline_store import FILE, FILES, FOLDER, FORMER, JUMPS, SCHEMA, Floors, digest

log = logging.getLogger(__name__)

GOLD_DIGITS = 1e-9
"""Two machines' float64 results of one model differ by less than this share of a tensor's largest magnitude. It is some
10^7 times their unit roundoff (1.1e-16), and a hundredth of float32's (6e-8), the finest that gold judges."""

KEY = "stages.kerneldiff.baseline"
_HERE = f"or {KEY}=null to run the reference here"


@dataclass
class Baseline:
    """A stored reference whose files are whole.

    Attributes:
        run: its run's directory, as the user wrote it.
        folder: where its files are.
        about: content of ``baseline.json``.
        replaced: how many of the case's parameters and buffers :meth:`case_with_weights` took from it.
    """

    run: str
    folder: Path
    about: About
    replaced: int = 0

    @property
    def origin(self) -> str:
        """The run, with torch's version and the device that made the reference."""
        made = self.about.made_with
        device = self.reference.device or made.device
        weights = f", whose weights were taken for {self.replaced} parameters and buffers" if self.replaced else ""
        return f"{self.run} (torch {made.torch}, {device}{weights})"

    @property
    def reference(self) -> ReferenceConfig:
        """What the reference was."""
        return ReferenceConfig(**vars(self.about.reference))

    def same_place(self, case: Case) -> bool:
        """True where this process would run the same eager kernels as the one that stored the reference."""
        return self.about.made_with == fingerprint.made_with(case)

    def check(self, settings: Settings, case: Case) -> None:
        """Raise ConfigurationError where the baseline is of another model, mode, dtype, precision or input shape."""
        here, there = fingerprint.identity(settings), self.about.settings
        if there.get("mode") == here["mode"] and there.get("loss") != here.get("loss"):
            what = f"holds a baseline with another training loss ({there.get('loss', 'mean square')})"
            raise _error(self.run, what, f"one with the {here['loss']} of the outputs", _made_again(self.run))
        differing = [key for key in {**there, **here} if here.get(key) != there.get(key)]
        keys = [key for key in differing if key != "loss" and not _is_path(here.get(key))]
        if keys:
            told, got = [f"{key}={there.get(key)}" for key in keys], [f"{key}={here.get(key)}" for key in keys]
            raise self._other(", ".join(told), ", ".join(got), " ".join(told))
        for key, value in vars(settings.reference).items():
            stored = getattr(self.about.reference, key)
            if value not in (None, "eager", stored):
                cure = f"this run without reference.{key}, for the reference is not run"
                raise self._other(f"reference.{key}={stored}", f"reference.{key}={value}", cure)
        weights, inputs = fingerprint.named_weights(case), case.named_inputs()
        for what, mine, theirs in (("weights", weights, self.about.weights), ("inputs", inputs, self.about.inputs)):
            self._check_shapes(what, fingerprint.shapes(mine), fingerprint.stored_shapes(theirs))

    def foreign_weights(self, settings: Settings, case: Case) -> str:
        """How the case's parameters and buffers differ from those that gave the reference; empty where none does."""
        mine, theirs = fingerprint.weights(case), self.about.weights.tensors
        names = [name for name in theirs if mine[name].sha256 != theirs[name].sha256]
        if not names:
            return ""
        made, here = self.about.made_with, fingerprint.made_with(case)
        differ = [key for key in ("torch", "machine", "cpu_capability") if getattr(made, key) != getattr(here, key)]
        cure = self._its_seed(settings) or "the weights of that run"
        if differ and not self._its_seed(settings):
            places = [", ".join(f"{key} {getattr(place, key)}" for key in differ) for place in (made, here)]
            cure = (
                f"stages.kerneldiff.store_baseline=true in that run, which stores its weights too, or a checkpoint: "
                f"the same seed may draw other weights under {places[0]} than under {places[1]}"
            )
        return (
            f"{len(names)} of {len(theirs)} parameters and buffers have other values than in {self.origin}, the first "
            f"is {names[0]}; so its reference says nothing of this backend. Try: {cure}, {_HERE}"
        )

    def foreign_draws(self, settings: Settings, rows: list[TensorComparison]) -> str:
        """What to type where other random numbers than the reference's withdrew a verdict; empty without a cure."""
        seed = self._its_seed(settings)
        return f". Try: {seed}, {_HERE}" if seed and any(row.bound == "random" for row in rows) else ""

    def _its_seed(self, settings: Settings) -> str:
        """The option that gives this run the baseline's seed; empty where it has it."""
        seed = self.about.seed
        return "" if seed == settings.seed else f"seed={seed} (this run has seed={settings.seed})"

    def case_with_weights(self, case: Case) -> Case:
        """``case`` with a copy of its module that has the stored weights; itself where none is stored or differs."""
        file, records = "weights.safetensors", self.about.weights.tensors
        if file not in self.about.files:
            return case
        mine = fingerprint.weights(case)
        names = [name for name, record in records.items() if mine[name].sha256 != record.sha256]
        if not names:
            return case
        self.replaced = len(names)
        log.info("kerneldiff: %d of %d parameters and buffers are taken from %s", len(names), len(records), self.run)
        loaded = self._load(file)
        case = replace(case, module=copy.deepcopy(case.module))
        held = fingerprint.named_weights(case)
        with torch.no_grad():
            for name in names:
                held[name].copy_(self._restored(records[name], loaded, name, file))
        return case

    def case_with_inputs(self, case: Case) -> Case:
        """``case`` with the stored inputs on its device, which share memory as its own do (:func:`aliased_copies`)."""
        loaded = self._load("inputs.safetensors")
        records, mine = self.about.inputs.tensors, case.named_inputs()
        stored = {name: self._restored(records[name], loaded, name).to(case.device) for name in mine}
        try:
            new = aliased_copies(mine, stored)
        except Contradiction as name:
            shared = f"input {name}, which shares memory with another input,"
            cure = "inputs that share memory as those of that run do"
            raise self._other(f"{shared} of other values than that one", f"{shared} of the same values", cure) from name
        if not new:
            return case
        args, kwargs = map_tensors(lambda tensor: new.get(id(tensor), tensor), (case.args, case.kwargs))
        return replace(case, args=args, kwargs=kwargs)

    def both_sides(self, case: Case) -> tuple[sides.Side, sides.Side]:
        """The stored reference and gold as if they had run from ``case``, on its device; gold empty without one."""
        random = self.about.random
        reference, gold = self._leaves("reference", case), self._leaves("gold", case)
        changed = {kind: set(reference[kind]) for kind in sides.STATE if kind in reference}
        drew, state = random.drew, bytes.fromhex(random.generator)
        return (
            sides.Side(reference, changed, drew, state),
            sides.Side(gold, drew=drew, generator=bytes.fromhex(random.gold)),
        )

    def floors(self) -> Floors:
        """The stored noise of runs that round otherwise, on the host; empty where none is stored.

        Raises:
            ConfigurationError: it is of no tensor of gold, or of numbers that no run gives.
        """
        leaves = [leaf for leaf in self.about.leaves.gold if isinstance(leaf, TensorLeaf)]
        shapes = {f"{leaf.kind}/{leaf.path}": leaf.shape for leaf in leaves}
        left = set(shapes)
        for item in self.about.floors:
            known = f"{item.kind}/{item.path}" in left
            left.discard(f"{item.kind}/{item.path}")  # each once
            if isinstance(item, DiscreteNoise):
                runs, others = len(item.counts), [float(min(item.counts, default=-1))]
            else:
                runs, others = len(item.rms), [item.jump_rms, item.jump_max, item.gain]
            right = 0 < runs == len(item.rms) == len(item.maximum)
            right = right and min(*others, *item.rms, *item.maximum) >= 0
            if not known or not right:
                raise _damaged(self.run, f"{FILE} has a noise of {item.kind} {item.path} that no run gives")
        jumps = self._load(f"{JUMPS}.safetensors") if f"{JUMPS}.safetensors" in self.about.files else {}
        for name, tensor in jumps.items():
            fits = list(tensor.shape) == shapes.get(name) and tensor.dtype == torch.bfloat16
            if not fits or not bool((tensor.isfinite() & (tensor >= 0)).all()):
                raise _damaged(self.run, f"{JUMPS}.safetensors has jumps of {name} that no run gives")
        return self.about.floors, jumps

    def repeated(
        self, case: Case, reference: sides.Leaves, test: sides.Leaves, gold: sides.Leaves
    ) -> tuple[Case | None, str]:
        """The case, on the stored reference's device, from which other rounding may judge; and a note.

        None where they would say nothing of the stored one, for eager on a device that is itself wrong would call its
        own errors noise. They do where eager gives the stored reference bit for bit, and, since another version or
        another processor of that kind rounds otherwise, where float64 gives the stored gold.

        Args:
            case: of this run.
            reference, test, gold: their leaves; the reference's and gold's are the stored ones.
        """
        why = "references that round otherwise were not run, so the noise floor is that of one run: "
        if not self.reference.uncompiled:
            return None, f"{why}the reference was {self.reference.backend}"
        device = torch.device(self.reference.device or self.about.made_with.device)
        device = case.device if device.type == case.device.type else device
        try:
            available_device(str(device))
        except ConfigurationError:
            return None, f"{why}the reference is of {device}, which is not here"
        base = sides.case_for(case, replace(self.reference, device=str(device)))
        here = sides.run_side("reference", base, lambda: base.module)
        if here.drew:
            base.watch_draws()
        done = f"references that round otherwise were run here, where eager on {device} gives"
        if _all(_same, reference, sides.round_to(here.leaves, test)):
            return base, f"{done} the stored reference bit for bit"
        exact = base.to_gold()
        if _all(_near, gold, sides.run_side("gold", exact, lambda: exact.module).leaves):
            return base, f"{done} the stored gold in float64"
        return None, f"{why}eager on {device} here gives neither the stored reference nor, in float64, the stored gold"

    def _leaves(self, part: Literal["reference", "gold"], case: Case) -> sides.Leaves:
        loaded = {name: tensor.to(case.device) for name, tensor in self._load(f"{part}.safetensors").items()}
        try:
            return packing.unpack(getattr(self.about.leaves, part), loaded)
        except (KeyError, ValueError, RuntimeError) as error:
            raise _damaged(self.run, f"{part}.safetensors does not hold what baseline.json lists: {error}") from error

    def _restored(
        self, record: StoredTensor, loaded: dict[str, torch.Tensor], name: str, file: str = "inputs.safetensors"
    ) -> torch.Tensor:
        try:
            return packing.unpack_tensor(record, loaded[name])
        except (KeyError, ValueError, RuntimeError) as error:
            raise _damaged(self.run, f"{file} does not hold what baseline.json lists: {error}") from error

    def _load(self, file: str) -> dict[str, torch.Tensor]:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            loaded: dict[str, torch.Tensor] = load_file(self.folder / file)
        except (SafetensorError, OSError) as error:
            raise _damaged(self.run, f"{file} can't be read: {error}") from error
        return loaded

    def _check_shapes(self, what: str, mine: dict[str, Any], theirs: dict[str, Any]) -> None:
        names = [name for name in {**theirs, **mine} if mine.get(name) != theirs.get(name)]
        if not names:
            return
        first = names[0]
        raise self._other(
            f"{what} of which {len(names)} differ in name, dtype or shape, the first is {first}: {theirs.get(first)}",
            f"{mine.get(first)}",
            "model.batch_size=…, model.sequence_length=…, model.image_size=… or model.build.…=… of that run",
        )

    def _other(self, theirs: str, mine: str, cure: str) -> ConfigurationError:
        return ConfigurationError(
            f"{KEY}: got {self.run}, made with {visible(theirs)}; this run has {mine}; valid: a run of the same model, "
            f"inputs' shapes, mode, dtype and precision.\nTry: {visible(cure)}, {_HERE}"
        )


def open_baseline(run: str) -> Baseline:
    """The baseline of a run's directory, absolute or relative to the working directory.

    Raises:
        ConfigurationError: no such directory, no baseline in it, or one that is damaged.
    """
    place, main = FOLDER, FILE
    if not (Path(run).expanduser() / place / main).exists() and Path(run).expanduser().joinpath(*FORMER).exists():
        place, main = FORMER
    folder = Path(run).expanduser() / place
    try:
        plain = read_json(folder / main, root=folder.parents[1])
        stamp: Stamp = shaped(plain, Stamp, folder / main)
        if stamp.sha256 != digest({key: value for key, value in plain.items() if key != "sha256"}):
            raise _damaged(run, f"{main} has not the SHA-256 that it tells")
        if stamp.schema != SCHEMA:
            raise _error(run, f"holds a baseline of schema {stamp.schema}", f"schema {SCHEMA}", _made_again(run))
        about: About = shaped(plain, About, folder / main)
    except FileNotFoundError:
        raise _missing(run) from None
    except DamagedError as error:
        raise _damaged(run, f"{main} can't be read: {error}") from error
    for name, expected in about.files.items():
        baseline_file = folder / name
        if name not in FILES:
            raise _damaged(run, f"{main} lists the file {name!r}")
        if not baseline_file.is_file():
            raise _damaged(run, f"{name} is missing")
        if not lies_within(baseline_file, folder.parents[1]):
            raise _damaged(run, f"{name} is a link that leads out of the run")
        size = baseline_file.stat().st_size
        if size != expected.bytes:
            raise _damaged(run, f"{name} has {size:,} bytes, {main} tells {expected.bytes:,}")
        with baseline_file.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected.sha256:
                raise _damaged(run, f"{name} has another SHA-256 than {main} tells")
    baseline = Baseline(run, folder, about)
    baseline.floors()  # whole too
    return baseline


def _missing(run: str) -> ConfigurationError:
    """The error for a run without a baseline, with the reason where the run told it."""
    told, folder = "", Path(run).expanduser()
    with contextlib.suppress(FileNotFoundError, DamagedError):  # no readable reason: the error stands without
        told_then = read_json(folder / files.DIAGNOSIS.path, Diagnosis, folder)
        note = told_then.baseline or told_then.golden
        told = f" ({visible(note)})" if note else ""
    return _error(
        run,
        f"holds no {FOLDER}/{FILE}{told}",
        "a run's directory",
        "in that run: stages.kerneldiff.store_baseline=true",
    )


def _damaged(run: str, what: str) -> ConfigurationError:
    return _error(run, f"is damaged: {what}", "a run whose files are as it wrote them", _made_again(run))


def _made_again(run: str) -> str:
    return f"inductor-debug rerun {run}"


def _error(run: str, what: str, valid: str, cure: str) -> ConfigurationError:
    return ConfigurationError(f"{KEY}: got {run!r}, which {visible(what)}; valid: {valid}.\nTry: {cure}, {_HERE}")


def _is_path(value: object) -> bool:
    """A checkpoint may lie elsewhere on another machine: its weights are compared instead."""
    return isinstance(value, str) and ("/" in value or "\\" in value) and Path(value).exists()


def _all(same: Callable[[Any, Any], bool], mine: sides.Leaves, theirs: sides.Leaves) -> bool:
    return all(same(leaf, theirs.get(kind, {}).get(path)) for kind, part in mine.items() for path, leaf in part.items())


def _near(left: Any, right: Any) -> bool:
    """Equal to :data:`GOLD_DIGITS` of the tensor's largest magnitude; whatever is no floating tensor by its bits."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor) or not left.is_floating_point():
        return _same(left, right)
    if left.shape != right.shape:
        return False
    left, right = left.double(), right.to(left.device).double()
    limit = GOLD_DIGITS * left.abs().max() if left.numel() else 0.0
    return bool((left.isclose(right, rtol=0.0, atol=float(limit), equal_nan=True)).all())


def _same(left: Any, right: Any) -> bool:
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return type(left) is type(right) and bool(left == right or left != left)
    return left.shape == right.shape and left.dtype == right.dtype and same_bits(left, right.to(left.device))
