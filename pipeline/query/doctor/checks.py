"""What ``doctor`` looks at, what it found, and what to type where that is not well."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductor_debug.models.units import format_bytes
from inductor_debug.pipeline.cache.folders import shared_cache
from inductor_debug.pipeline.directory import store
from inductor_debug.stages.backends.plugins import distribution, installed_adapters, installed_stages
from inductor_debug.stages.registry import declared
from inductor_debug.stages.torch_internals.versions import NEWEST, OLDEST, warning_for

COLUMNS = ("what", "state", "found", "mend")
TIMEOUT_S = 300.0
"""Seconds that a trial may take; a first compilation on a slow machine takes half a minute."""
LEAST_FREE = 5 * 2**30
"""Bytes free below which a run may fill the disk: a run of BERT in training keeps some 300 MB."""
_LINES = 2
"""Lines of a trial's error that are shown, the last ones."""


@dataclass(frozen=True)
class Check:
    """One thing that runs need.

    Attributes:
        what: is looked at.
        state: ``ok``, ``bad`` (a run that needs it fails), ``absent`` (not there, and needed by some runs alone).
        found: what is there, or what went wrong.
        mend: what to type where it is not ok.
    """

    what: str
    state: str
    found: str
    mend: str = ""


def checks() -> Iterator[Check]:
    """Each check as soon as it is done; some start a process and compile."""
    yield _python()
    build = _tried("torch_build")
    yield _torch(build)
    if not isinstance(build, str):
        yield _compiler()
        yield _cuda(build)
        yield _library("torchvision", "torchvision_operators", build)
        yield _library("transformers", "transformers_models", build)
    yield from _folders()
    yield from _packages()


def _tried(trial: str, *arguments: str, cache: Path | None = None) -> dict[str, Any] | str:
    """What a trial found; the end of its error where it did not come to its end."""
    environment = dict(os.environ)
    if cache is not None:
        environment |= {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    command = [sys.executable, "-P", str(Path(__file__).with_name("trials.py")), trial, *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment,
                               errors="replace", check=False)  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"did not end within {TIMEOUT_S:g} s"
    if ended.returncode == 0:
        found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return found
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    told = [line for line in lines if line.partition(":")[0].endswith(("Error", "Exception"))] or lines
    return " ".join(told[-_LINES:]) or f"ended with code {ended.returncode}"


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    known = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Check("Python", "ok" if known else "bad", version, "" if known else "a Python of 3.11 to 3.13")


def _torch(build: dict[str, Any] | str) -> Check:
    if isinstance(build, str):
        return Check("torch", "bad", build, f"pip install 'torch=={_dotted(NEWEST)}.*'")
    devices = ", ".join(build["devices"])
    found = f"{build['version']}{f', sees {devices}' if devices else ''}"
    if warning_for(build["version"]):
        tried = f"{_dotted(OLDEST)} to {_dotted(NEWEST)}"
        return Check("torch", "bad", f"{found}; tried were {tried}", f"pip install 'torch=={_dotted(NEWEST)}.*'")
    return Check("torch", "ok", found)


def _dotted(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))


def _compiler() -> Check:
    with tempfile.TemporaryDirectory() as cache:
        found = _tried("compiles_on_cpu", cache=Path(cache))
    name = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or "no C++ compiler on PATH"
    if isinstance(found, str):
        mend = "apt-get install g++ python3-dev, or CXX=PATH of a compiler"
        return Check("TorchInductor on the CPU", "bad", f"{name}: {found}", mend)
    return Check("TorchInductor on the CPU", "ok", f"compiles with {name}")


def _cuda(build: dict[str, Any]) -> Check:
    what, driver = "TorchInductor on CUDA", shutil.which("nvidia-smi") is not None
    if not build["devices"]:
        own = build["cuda"] or build["hip"]
        if not driver:
            return Check(what, "absent", "no driver of a GPU on PATH", "nothing, where runs stay on the CPU")
        why = "torch sees no device" if own else "there is a driver, and torch is a build for the CPU"
        return Check(what, "bad", why, "nvidia-smi" if own else "a CUDA build: https://pytorch.org/get-started/locally")
    with tempfile.TemporaryDirectory() as cache:
        found = _tried("compiles_on_cuda", cache=Path(cache))
    if isinstance(found, str):
        return Check(what, "bad", found, "pip install triton, and a C compiler for its launchers")
    return Check(what, "ok", f"compiles for {build['devices'][0]}")


def _library(name: str, trial: str, build: dict[str, Any]) -> Check:
    with tempfile.TemporaryDirectory() as cache:  # a folder that can't be written is told by itself
        found = _tried(trial, cache=Path(cache))
    torch = f"torch=={build['version'].partition('+')[0]}"
    if isinstance(found, str):
        return Check(name, "bad", found, f"pip install '{torch}' --upgrade {name}")
    if found.get("operators", True):
        return Check(name, "ok", str(found["version"]))
    without = f"{found['version']} is for another build of torch; only detection models call them"
    index = f"https://download.pytorch.org/whl/{build['version'].partition('+')[2] or 'cpu'}"
    return Check(
        f"{name}'s operators", "absent", without, f"pip install '{torch}' {name} --force-reinstall --index-url {index}"
    )


def _folders() -> Iterator[Check]:
    kept = shared_cache(None)
    compilers = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir())
    for what, folder, mend in (
        ("kept results", kept, "runner.cache_dir=FOLDER"),
        ("the compilers' caches", compilers, "TORCHINDUCTOR_CACHE_DIR=FOLDER, or TMPDIR=FOLDER"),
        ("runs", store.OUTPUTS.absolute(), "hydra.run.dir=FOLDER"),
    ):
        yield _folder(what, folder, mend)


def _folder(what: str, folder: Path, mend: str) -> Check:
    """Whether a folder, or the one above it that is there, can be written, and has room."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    what = f"folder of {what}"
    try:
        with tempfile.NamedTemporaryFile(dir=there):
            free = shutil.disk_usage(there).free
    except OSError as error:
        return Check(what, "bad", f"{folder}: {error.strerror}", mend)
    found = f"{folder}, {format_bytes(free)} free"
    if free < LEAST_FREE:
        return Check(what, "bad", found, f"inductor-debug cache --limit 1GiB, inductor-debug clean, or {mend}")
    return Check(what, "ok", found)


def _packages() -> Iterator[Check]:
    """The backends and stages that installed packages add."""
    for name, points in installed_adapters().items():
        owner = ", ".join(sorted({distribution(point) for point in points}))
        found = _tried("adapter", name) if len(points) == 1 else "several packages offer it"
        bad = isinstance(found, str)
        told = f"{owner}: {found}" if bad else owner
        yield Check(f"backend {name}", "bad" if bad else "ok", told, f"pip install --upgrade {owner}" if bad else "")
    for name, points in installed_stages().items():
        owner, bad = distribution(points[0]), name not in declared()
        told = f"{owner}: its declaration could not be taken" if bad else owner
        yield Check(f"stage {name}", "bad" if bad else "ok", told, f"pip install --upgrade {owner}" if bad else "")
