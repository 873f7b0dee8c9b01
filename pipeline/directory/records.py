"""What ``manifest.json`` holds."""

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True)
class Repository:
    """A repository's folder, its commit, and whether its tracked files differ from that."""

    root: str
    commit: str
    dirty: bool


@dataclass(frozen=True)
class Machine:
    """What a run was on; ``cores_usable`` are those that its process may use."""

    platform: str
    architecture: str
    cpu: str
    cores_physical: int | None
    cores_logical: int | None
    cores_usable: int | None
    memory_bytes: int
    hostname: str


@dataclass(frozen=True)
class CudaDevice:
    """A CUDA device that torch found."""

    name: str
    memory_bytes: int


@dataclass(frozen=True)
class TorchFound:
    """What torch found and was set to; ``cuda`` is empty where no process of the run started CUDA."""

    threads: int
    cpu_capability: str
    deterministic_algorithms: bool
    cuda: list[CudaDevice]
    cuda_version: str | None

    def after(self, earlier: "TorchFound | None") -> "TorchFound":
        """The same with the devices that an earlier process of the run found: this one may leave CUDA alone."""
        return self if self.cuda or earlier is None else dataclasses.replace(self, cuda=earlier.cuda)


@dataclass(frozen=True)
class Devices:
    """The device that was asked for; ``found`` is None where no stage imported torch."""

    requested: str
    found: TorchFound | None = None


@dataclass(frozen=True)
class RunDescription:
    """The part of the manifest that is known before the first stage runs.

    Attributes:
        schema: the file's version.
        command: ``sys.argv``.
        versions: package → version; None for what is not installed.
        git: ``working_directory`` and ``package``.
        environment: the variables that matter.
        identity: the run's own; it tells its files from those of another run in the same directory.
    """

    schema: int
    command: list[str]
    working_directory: str
    versions: dict[str, str | None]
    git: dict[str, Repository | None]
    machine: Machine
    devices: Devices
    seeds: dict[str, int | str | None]
    environment: dict[str, str]
    identity: str


@dataclass(frozen=True)
class StageOutcome:
    """One of the manifest's ``stages``."""

    name: str
    status: str
    seconds: float
    message: str


@dataclass(frozen=True)
class FullManifest(RunDescription):
    """The manifest.

    Attributes:
        stages: those that have a result, in order.
        digest: of what must repeat; digest_inputs: artifact → its columns or keys that are in it, empty for all.
        files: relative path → SHA-256.
    """

    stages: list[StageOutcome]
    digest: str
    digest_inputs: dict[str, list[str]]
    files: dict[str, str]
