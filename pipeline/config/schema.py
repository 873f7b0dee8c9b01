"""What the whole configuration looks like. Imports neither torch nor Hydra.

:func:`register` tells Hydra; every YAML file, ours or the user's, is then merged onto :class:`Config` and so
validated by it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inductor_debug.models.config import ModelConfig
from inductor_debug.models.options import chosen, real
from inductor_debug.stages.backends.plugins import installed_adapters
from inductor_debug.stages.registry import declared
from inductor_debug.stages.settings import Settings

ISOLATIONS = ("process", "none")


@dataclass
class RunnerConfig:
    """How the stages are run.

    Attributes:
        timeout_s: seconds that one stage may take.
        memory_limit: address space or resident memory that the worker may use, e.g. ``8GB``; None for no limit.
        isolation: ``process`` runs the stages in a worker process, ``none`` in this one, for a debugger.
        cache: take a stage's result from an earlier run in which all that it depends on was the same. None: the jobs
            of a sweep do, and a run from an earlier one in its own directory, which was cut short.
        cache_limit: bytes that these results may take, e.g. ``10GiB``; those unused for longest are removed. None for
            no limit.
        cache_dir: where they lie, and the compilers' caches that runs share.
        compiler_cache: share the caches of the compilers with other runs, so that compile times are those of a warm
            cache. Otherwise each run has its own, which ends with it.
        overwrite: remove first what another run wrote into the same directory.
        log_limit: bytes that ``run.log`` may have, e.g. ``64MiB``; of more its start and its end are kept. None for no
            limit.
    """

    timeout_s: float = real(1800.0, above=0)
    memory_limit: str | None = None
    isolation: str = chosen("process", ISOLATIONS)
    cache: bool | None = None
    cache_limit: str | None = "10GiB"
    cache_dir: str | None = None
    compiler_cache: bool = False
    overwrite: bool = False
    log_limit: str | None = "64MiB"


@dataclass
class Config(Settings):
    """One run.

    Attributes:
        stages: a stage's name → its options, in the order in which the stages run; ``report`` runs last. The command
            line gives the names: ``stages=[capture,constrain]``, ``+stages=profile``, ``~stages.benchmark``.
        runner: how they are run.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    stages: dict[str, Any] = field(default_factory=dict)
    runner: RunnerConfig = field(default_factory=RunnerConfig)


def register(folders: Iterable[Path] = ()) -> None:
    """Put the schema, the stages' typed options and installed packages' backends into Hydra's ConfigStore.

    Safe to call twice.

    Args:
        folders: of YAML, ours aside. A backend that has a file there is not stored: Hydra would take what is stored for
            the file's schema.
    """
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for name in installed_adapters():
        if any((folder / "backend" / f"{name}.yaml").is_file() for folder in folders):
            store.repo.get("backend", {}).pop(f"{name}.yaml", None)
            continue
        store.store(group="backend", name=name, node={"name": name, "adapter": name})
    for name, stage in declared().items():
        store.store(group="stages", name=name, node={name: stage.options})
