"""What kerneldiff/baseline/baseline.json holds: see :mod:`stages.sides.baseline`."""

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class StoredTensor:
    """How a tensor lies in a safetensors file: see :func:`stages.sides.packing.pack_tensor`.

    Attributes:
        dtype: without ``torch.``.
        stored: ``plain``, ``real`` (a complex one's real view) or ``bytes``.
    """

    type: Literal["tensor"]
    dtype: str
    shape: list[int]
    stored: str


@dataclass(frozen=True)
class HashedTensor(StoredTensor):
    """A parameter, buffer or input, with the SHA-256 of its dtype, shape and bytes."""

    sha256: str


@dataclass(frozen=True)
class Leaf:
    """A leaf of a side: output, loss, gradient, …, and where it is in it."""

    kind: str
    path: str


@dataclass(frozen=True)
class TensorLeaf(StoredTensor, Leaf):
    """A leaf that is a tensor."""


@dataclass(frozen=True)
class ValueLeaf(Leaf):
    """Any other leaf: its type's name, and the text that gives the value back, two of a complex number."""

    type: str
    value: str | list[str]


AnyLeaf = TensorLeaf | ValueLeaf


@dataclass(frozen=True)
class TensorNoise(Leaf):
    """How far right computations are from gold: see :class:`stages.kerneldiff.rounding_floor.RoundingFloor`.

    Attributes:
        rms, maximum: of each run's distance, eager's own first.
        jump_rms, jump_max, gain: of gold's jumps; what they are at each element is in ``jumps.safetensors``.
    """

    rms: list[float]
    maximum: list[float]
    jump_rms: float
    jump_max: float
    gain: float


@dataclass(frozen=True)
class DiscreteNoise(Leaf):
    """The same of integers and bools: see :class:`stages.kerneldiff.discrete_outputs.DiscreteOutput`.

    Attributes:
        counts: of each run, the elements that differ from gold's.
        rms, maximum: of each run's distance.
    """

    counts: list[int]
    rms: list[float]
    maximum: list[float]


AnyNoise = TensorNoise | DiscreteNoise


@dataclass(frozen=True)
class Stamp:
    """What any schema of baseline.json has; ``sha256`` is of all the rest."""

    schema: int
    sha256: str


@dataclass(frozen=True)
class BaselineReference:
    """What the reference was: see :class:`stages.settings.ReferenceConfig`."""

    backend: str
    device: str | None
    dtype: str | None


@dataclass(frozen=True, kw_only=True)
class MadeWith:
    """Versions, and what decides which of torch's kernels run."""

    torch: str
    numpy: str = ""
    safetensors: str = ""
    python: str = ""
    machine: str
    cpu_capability: str
    device: str
    device_name: str = ""


@dataclass(frozen=True)
class RandomState:
    """Whether the reference drew random numbers; the generators' states after it and after gold, in hexadecimal."""

    drew: bool
    generator: str
    gold: str


@dataclass(frozen=True)
class HashedTensors:
    """Tensors by name; ``sha256`` is of all their records."""

    sha256: str
    tensors: dict[str, HashedTensor]


@dataclass(frozen=True)
class SideLeaves:
    """The leaves of both sides, in their order."""

    reference: list[AnyLeaf]
    gold: list[AnyLeaf]


@dataclass(frozen=True)
class BaselineFile:
    """One of the safetensors files."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class About:
    """baseline.json without the SHA-256 of itself.

    Attributes:
        settings: the part of the configuration that decides what the reference is, by dotted key.
        files: by name.
        floors: what runs that round otherwise showed of each tensor; empty where none was stored.
    """

    schema: int
    settings: dict[str, Any]
    seed: int
    reference: BaselineReference
    made_with: MadeWith
    random: RandomState
    weights: HashedTensors
    inputs: HashedTensors
    leaves: SideLeaves
    files: dict[str, BaselineFile]
    floors: list[AnyNoise] = field(default_factory=list)
