"""``manifest.json``: what ran, on what, with what, and what it left, with a digest of what must repeat."""

import functools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

import psutil

from inductor_debug.models.visible import is_secret
from inductor_debug.pipeline.directory.digest import digest_of
from inductor_debug.pipeline.directory.records import (
    Devices,
    FullManifest,
    Machine,
    Repository,
    RunDescription,
    StageOutcome,
)
from inductor_debug.pipeline.directory.rundir import RunDirectory
from inductor_debug.stages.artifacts.records import StageRecord
from inductor_debug.stages.backends.plugins import adding_distributions, packages_state
from inductor_debug.stages.settings import Settings

SCHEMA = 1
DISTRIBUTIONS = (
    "inductor-debug", "torch", "transformers", "torchvision", "hydra-core", "omegaconf", "numpy", "pandas",
    "matplotlib", "safetensors", "triton",
)  # fmt: skip
ENVIRONMENT_PREFIXES = (
    "TORCH", "PYTORCH", "TRITON", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "CUDA", "CUBLAS_", "NVIDIA_", "NCCL_",
    "PYTHON", "MOCK_", "AOT_", "INDUCTOR_", "HF_", "TRANSFORMERS_", "ATEN_", "DNNL_", "ONEDNN_", "LD_PRELOAD",
    "LD_LIBRARY_PATH", "CXX", "CC", "MPLCONFIGDIR",
)  # fmt: skip
_STATUS = ("status", "--porcelain=v2", "--branch", "--no-ahead-behind", "--untracked-files=no")
_OF_ONE_REPOSITORY = ("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
"""Variables that git sets for a hook: its own repository would be told for every folder."""


def describe_machine() -> Machine:
    """What this process runs on."""
    return Machine(
        platform=platform.platform(),
        architecture=platform.machine(),
        cpu=_cpu_model(),
        cores_physical=psutil.cpu_count(logical=False),
        cores_logical=psutil.cpu_count(),
        cores_usable=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        memory_bytes=psutil.virtual_memory().total,
        hostname=platform.node(),
    )


def installed_versions() -> dict[str, str | None]:
    """Versions of Python, of what is installed here and of packages that add an adapter.

    Read from the packages' metadata, without importing them, once in each state of the folders that hold them.
    """
    return dict(_versions(packages_state()))


@functools.lru_cache(maxsize=2)
def _versions(_: tuple[tuple[str, int], ...]) -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in (*DISTRIBUTIONS, *adding_distributions()):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def git_state(folder: Path) -> Repository | None:
    """The repository that holds ``folder``; None where there is none, or no git."""
    root = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)
    if root is None:
        return None
    command = ["git", "--no-optional-locks", "-C", str(root), *_STATUS]  # else it would write the repository's index
    environment = {name: value for name, value in os.environ.items() if name not in _OF_ONE_REPOSITORY}
    environment["GIT_CEILING_DIRECTORIES"] = str(root.parent)
    try:
        told = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=True,
                              env=environment).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    commit = re.search(r"^# branch\.oid ([0-9a-f]+)$", told, re.MULTILINE)
    changed = any(not line.startswith("#") for line in told.splitlines())
    return None if commit is None else Repository(str(root), commit[1], changed)


def environment_that_matters(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what torch, its compilers or this tool do; secrets are never among them."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(ENVIRONMENT_PREFIXES) and not is_secret(name)
    }


def describe_run(settings: Settings, environment: Mapping[str, str], identity: str) -> RunDescription:
    """The part of the manifest that is known before the first stage runs.

    Args:
        environment: the worker's variables.
        identity: the run's.
    """
    return RunDescription(
        schema=SCHEMA,
        command=list(sys.argv),
        working_directory=str(Path.cwd()),
        versions=installed_versions(),
        git={"working_directory": git_state(Path.cwd()), "package": git_state(Path(__file__).resolve().parent)},
        machine=describe_machine(),
        devices=Devices(settings.device),
        seeds={"seed": settings.seed, "PYTHONHASHSEED": environment.get("PYTHONHASHSEED")},
        environment=environment_that_matters(environment),
        identity=identity,
    )


def build_manifest(
    described: RunDescription, directory: RunDirectory, stages: Iterable[str], records: Mapping[str, StageRecord]
) -> FullManifest:
    """The whole manifest, once all other files of the run are written.

    Args:
        described: what :func:`describe_run` gave, with the devices that were found.
        directory: the run's directory, whose files are hashed.
        stages: names of the selected stages, in order.
        records: stage name → stored record.
    """
    present = [records[name] for name in stages if name in records]
    digests = {name: sha256 for record in present for name, sha256 in record.digests.items()}
    inputs = {name: columns for record in present for name, columns in record.digest.items() if name in digests}
    return FullManifest(
        **vars(described),
        stages=[StageOutcome(record.name, record.status, record.seconds, record.message) for record in present],
        digest=digest_of(digests),
        digest_inputs={name: inputs[name] for name in sorted(inputs)},
        files=directory.sha256(),
    )


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor()
    return platform.processor()
