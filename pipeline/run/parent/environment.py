"""A worker's environment variables."""

import os
import site
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path

import inductor_debug
from inductor_debug.pipeline.cache.folders import VARIABLES
from inductor_debug.pipeline.directory.folders import made
from inductor_debug.stages.settings import Settings


def worker_environment(cache: Path) -> dict[str, str]:
    """This process's variables, and those that a run sets for every worker.

    Args:
        cache: folder of the compilers' and matplotlib's caches.
    """
    environment = dict(os.environ)
    for variable, folder in VARIABLES.items():
        environment[variable] = str(cache / folder)
    environment["PYTHONHASHSEED"] = "0"
    environment["MPLBACKEND"] = "Agg"
    environment.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
    environment["PYTHONPATH"] = _python_path(environment.get("PYTHONPATH", ""))
    return environment


def make_caches(cache: Path) -> Path:
    """The folders of the caches that :func:`worker_environment` names, made below ``cache``, which is returned."""
    for folder in VARIABLES.values():
        made(cache / folder, "runner.cache_dir")
    return cache


def for_reproduction(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that equal bits need, where the user did not set them.

    cuBLAS may otherwise take another workspace, and with it another order of sums, in another run. With it BERT's eager
    step on an H200 took up to three times as long: what is timed runs without.
    """
    on_cuda = any((device or "").startswith("cuda") for device in (settings.device, settings.reference.device))
    wanted = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if on_cuda else {}
    return {name: value for name, value in wanted.items() if name not in environment}


def _python_path(inherited: str) -> str:
    """The user's PYTHONPATH; before it our sources' folder, where a child would find none of it or another."""
    folders = [*inherited.split(os.pathsep), *site.getsitepackages(), site.getusersitepackages()]
    editable = (finder for finder in sys.meta_path if finder is not PathFinder and hasattr(finder, "find_spec"))
    found = PathFinder.find_spec("inductor_debug", [folder for folder in folders if folder])
    found = found or next(filter(None, (finder.find_spec("inductor_debug", None) for finder in editable)), None)
    ours = Path(inductor_debug.__file__).absolute()
    if found is not None and found.origin is not None and Path(found.origin).resolve() == ours.resolve():
        return inherited
    return os.pathsep.join(part for part in (str(ours.parents[1]), inherited) if part)
