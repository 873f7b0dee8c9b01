"""What a sweep needs of the launcher that runs its jobs, which is Hydra's or a package's."""

from collections.abc import Iterable, Mapping
from typing import Any

from omegaconf import OmegaConf

from inductor_debug.models.errors import ConfigurationError

_ALONE = ("basic_launcher",)
_ACCELERATORS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "SlurmLauncher": (("gres", "gpus_per_node", "gpus_per_task"), "hydra.launcher.gres=gpu:1"),
    "ray": (("ray.remote.num_gpus", "ray.remote.resources"), "hydra.launcher.ray.remote.num_gpus=1"),
}
"""Part of a launcher's class → its options that give a job an accelerator of its own, and one of them as an example.

submitit's launcher for one machine is not among them: it gives each job the first ones.
"""


def check_launcher(launcher: Any, devices: Iterable[str | None], *, several: bool) -> None:
    """Refuse a launcher that would let two jobs share an accelerator: both would be wrong about time and memory.

    Args:
        launcher: ``hydra.launcher`` of the sweep's configuration.
        devices: of the jobs and of their references; the sweep's own where its sweeper decides as it goes.
        several: whether there may be more than one job.

    Raises:
        ConfigurationError: a job's device is no CPU, and the launcher gives none of its own to each.
    """
    given: dict[str, Any] = OmegaConf.to_container(launcher, resolve=False)  # type: ignore[assignment]
    target = str(given.get("_target_", ""))
    found = sorted({device for device in devices if device is not None and not device.startswith("cpu")})
    if not found or any(name in target for name in _ALONE) or not several:
        return
    known = next((found for name, found in _ACCELERATORS.items() if name in target), None)
    if known is None:
        if given.get("n_jobs") == 1:
            return
        raise ConfigurationError(
            f"got {target}, which runs jobs at the same time on one machine, and device={found[0]}: two jobs would "
            "share it",
            key="hydra.launcher",
            valid="cluster=basic, or cluster=slurm or cluster=ray, which give each job an accelerator of its own",
            hint="cluster=basic",
        )
    options, example = known
    if not any(_gives_one(_at(given, option)) for option in options):
        raise ConfigurationError(
            f"got no whole accelerator by {', '.join(options)}, and a job with device={found[0]}: two jobs would "
            "share it",
            key="hydra.launcher",
            valid="a number of accelerators for each job",
            hint=example,
        )


def _gives_one(value: Any) -> bool:
    """Whether an option gives a job an accelerator at least that no other has: half of one, or a share, is none.

    SLURM's ``gres`` is NAME, NAME:COUNT or NAME:TYPE:COUNT, with commas; ``mps`` and ``shard`` are shares of a GPU
    (https://slurm.schedmd.com/gres.html).
    """
    if isinstance(value, Mapping):
        return any(map(_gives_one, value.values()))
    if isinstance(value, str):
        parts = [part.removeprefix("gres:").removeprefix("gres/").split(":") for part in value.split(",")]
        return any(part[0] not in ("", "mps", "shard") and part[-1].lstrip("0") != "" for part in parts)
    return isinstance(value, int | float) and value >= 1


def _at(node: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
