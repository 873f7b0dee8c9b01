"""``compiled_by`` of summary.json: what compiled a run, and what was written in it."""

from dataclasses import dataclass, field
from typing import Any

from inductor_debug.models.shapes import OMITTED


@dataclass(frozen=True)
class Commit:
    """A repository's commit, and whether its tracked files differ from it."""

    commit: str
    dirty: bool


@dataclass(frozen=True)
class ModelCode:
    """Whose code a model is: versions of the libraries, and SHA-256 of its own modules' files, by module."""

    libraries: dict[str, str | None]
    files: dict[str, str]


@dataclass(frozen=True)
class CompiledFor:
    """What code was generated for.

    Attributes:
        name: the GPU's, or the kind of device.
        threads: None where torch was not imported.
        cpu_capability: the processor's vector instructions; not on a CUDA device. cuda_version: there alone.
    """

    name: str
    threads: int | None = None
    cpu_capability: str | None = field(default=None, metadata=OMITTED)
    cuda_version: str | None = field(default=None, metadata=OMITTED)


@dataclass(frozen=True)
class CompiledBy:
    """What compiled a run.

    The last five parts are told by the worker, once the model is built and again once it is compiled; None where no
    stage needed torch.

    Attributes:
        versions: of Python, torch, Triton, this package, packages that add a backend; None for what is not installed.
        commit: of this package and of the working directory; None where that is in no repository.
        variables: those of the user's that change what is compiled, or how fast it runs.
        set_by_run: such variables that the run set itself.
        model: whose code the model is.
        device: what the code is for.
        settings: of the process that are not torch's own, as the model's code left them: the precision of float32
            products, deterministic algorithms, cuDNN's, attention's kernels.
        options: by compiler (TorchInductor, TorchDynamo, AOTAutograd), those of its options that differed from their
            defaults when it compiled the case.
        options_before: of options that changed between building and compiling the model, the earlier value (None: the
            default); the model, the backend or torch changed them.
    """

    versions: dict[str, str | None] = field(default_factory=dict)
    commit: dict[str, Commit | None] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    set_by_run: dict[str, str] = field(default_factory=dict)
    model: ModelCode | None = None
    device: CompiledFor | None = None
    settings: dict[str, Any] | None = None
    options: dict[str, dict[str, Any]] | None = None
    options_before: dict[str, dict[str, Any]] | None = None
