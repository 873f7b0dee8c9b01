"""Storing a baseline: what it holds is told in :mod:`stages.sides.baseline`."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.baseline import (
    About,
    AnyLeaf,
    AnyNoise,
    BaselineFile,
    BaselineReference,
    HashedTensors,
    RandomState,
    SideLeaves,
)
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.settings import Settings
from inductor_debug.stages.sides import fingerprint, packing
from inductor_debug.stages.sides import running as sides

FOLDER, _, FILE = files.BASELINE.path.rpartition("/")
FORMER = tuple(files.FORMER_BASELINE.path.rsplit("/", 1))
"""The folder, and the file that tells of it, as earlier versions called them; they are read."""
JUMPS = "jumps"
FILES = tuple(f"{name}.safetensors" for name in ("inputs", "reference", "gold", "weights", JUMPS))
SCHEMA = 1
LIMIT = 64 * 2**20
"""Bytes that a baseline takes at most, unless ``store_baseline=true`` forces it. An inference's outputs fit, and so
does the training of a small model; ResNet-18's gradients take 141 MB (float32, and float64 for gold), BERT's 2.1 GB."""


Floors = tuple[list[AnyNoise], dict[str, torch.Tensor]]
"""What runs that round otherwise showed of each tensor, and the jumps at each element, by ``kind/path``."""


def refusal(case: Case, reference: sides.Side, gold: sides.Side, *, forced: bool) -> str:
    """Why a baseline of these is not stored, in one line; empty where nothing speaks against it.

    Args:
        case: the reference's.
        reference, gold: as they ran.
        forced: store more than :data:`LIMIT` too.
    """
    try:
        taken = sum(packing.size(tensors) for _, tensors in _packed(case, reference, gold).values())
    except packing.CannotStore as error:
        return f"not stored: {error}, which can't be stored"
    if taken <= LIMIT or forced:
        return ""
    cure = "stages.kerneldiff.store_baseline=true stores it"
    return f"not stored: it takes {taken:,} bytes, more than {LIMIT:,}; {cure}"


def store(
    settings: Settings,
    case: Case,
    reference: sides.Side,
    gold: sides.Side,
    *,
    forced: bool,
    floors: Floors | None = None,
) -> tuple[dict[str, Any], str]:
    """The artifacts of a baseline that is not refused (:func:`refusal`), and one line: it is stored, or why it is not.

    The leaves of both sides are given up as they are serialised, so that one file's content at most is held twice.

    Args:
        settings: the run's.
        case: the reference's.
        reference: as it ran: neither rounded nor stripped of changed buffers.
        gold: empty where there is none.
        forced: store the weights too.
        floors: stored too.
    """
    try:
        packed = _packed(case, reference, gold)
        taken = sum(packing.size(tensors) for _, tensors in packed.values())
        weights, inputs = fingerprint.weights(case), fingerprint.inputs(case)
    except packing.CannotStore as error:
        return {}, f"not stored: {error}, which can't be stored"
    for side in (reference, gold):
        side.leaves = {}
    records = {name: records for name, (records, _) in packed.items()}
    artifacts: dict[str, Any] = {}
    if forced:
        packed["weights"] = [], fingerprint.stored_weights(case)
        taken += packing.size(packed["weights"][1])
    if floors and floors[1]:
        packed[JUMPS] = [], floors[1]
        taken += packing.size(floors[1])
    for name in list(packed):
        _, tensors = packed.pop(name)
        if name == "inputs":
            tensors = {key.removeprefix("input/"): tensor for key, tensor in tensors.items()}
        artifacts[files.BASELINE_SIDE.at(name)] = packing.serialise(tensors)
        tensors.clear()
    about = About(
        schema=SCHEMA,
        settings=fingerprint.identity(settings),
        seed=settings.seed,
        reference=BaselineReference(**vars(settings.reference)),
        made_with=fingerprint.made_with(case),
        random=RandomState(reference.drew, reference.generator.hex(), gold.generator.hex()),
        weights=HashedTensors(digest(jsonable(weights)), weights),
        inputs=HashedTensors(digest(jsonable(inputs)), inputs),
        leaves=SideLeaves(records["reference"], records["gold"]),
        files={
            Path(name).name: BaselineFile(len(content), hashlib.sha256(content).hexdigest())
            for name, content in artifacts.items()
        },
        floors=floors[0] if floors else [],
    )
    artifacts[files.BASELINE.path] = jsonable(about) | {"sha256": digest(jsonable(about))}
    told = ", with the noise of runs that round otherwise" if about.floors else ""
    return artifacts, f"stored: {taken:,} bytes in {FOLDER}, {'with' if forced else 'without'} the weights{told}"


def _packed(
    case: Case, reference: sides.Side, gold: sides.Side
) -> dict[str, tuple[list[AnyLeaf], dict[str, torch.Tensor]]]:
    """What each file holds, as records and tensors."""
    parts = {
        "inputs": {"input": dict(case.named_inputs())},
        "reference": reference.leaves,
        "gold": gold.leaves,
    }
    return {name: packing.pack(leaves) for name, leaves in parts.items()}


def digest(content: Any) -> str:
    """SHA-256 of a JSON-able value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()
