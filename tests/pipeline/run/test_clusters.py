"""Launchers that would let two jobs share an accelerator."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline.run.commands.clusters import check_launcher

SUBMITIT = "hydra_plugins.hydra_submitit_launcher.submitit_launcher"
SLURM, LOCAL = {"_target_": f"{SUBMITIT}.SlurmLauncher"}, {"_target_": f"{SUBMITIT}.LocalLauncher"}
RAY = {"_target_": "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher"}
JOBLIB = {"_target_": "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"}
BASIC = {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}


@pytest.mark.parametrize(
    ("launcher", "told"),
    [
        (SLURM, "hydra.launcher.gres=gpu:1"),
        (LOCAL | {"gpus_per_node": 1}, "cluster=basic"),  # of each job the first
        (SLURM | {"gres": "shard:1"}, "hydra.launcher.gres=gpu:1"),  # a part of one
        (SLURM | {"gres": "gpu:0"}, "hydra.launcher.gres=gpu:1"),
        (SLURM | {"gpus_per_node": 0}, "hydra.launcher.gres=gpu:1"),
        (RAY, "hydra.launcher.ray.remote.num_gpus=1"),
        (RAY | {"ray": {"remote": {"num_gpus": 0.5}}}, "hydra.launcher.ray.remote.num_gpus=1"),
        (JOBLIB | {"n_jobs": 2}, "cluster=basic"),
    ],
)
@pytest.mark.parametrize("devices", [["cpu", None, "cuda", None], ["cpu", "cuda:1"], ["neuron", None]])
def test_jobs_that_would_share_an_accelerator_are_refused(
    launcher: dict[str, Any], told: str, devices: list[str | None]
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_launcher(OmegaConf.create(launcher), devices, several=True)
    assert str(raised.value).endswith(told) and "two jobs would share it" in str(raised.value)


@pytest.mark.parametrize(
    ("launcher", "device", "several"),
    [
        (BASIC, "cuda", True),
        (SLURM | {"gres": "gpu:1"}, "cuda", True),
        (SLURM | {"gres": "nvme:1,gpu:h100:10"}, "cuda", True),
        (SLURM | {"gres": "gpu"}, "cuda", True),
        (SLURM | {"gpus_per_node": 1}, "cuda", True),
        (RAY | {"ray": {"remote": {"num_gpus": 1}}}, "cuda", True),
        (RAY | {"ray": {"remote": {"resources": {"my_chip": 1}}}}, "neuron", True),
        (JOBLIB | {"n_jobs": 1}, "cuda", True),
        (JOBLIB | {"n_jobs": 2}, "cpu", True),
        (JOBLIB | {"n_jobs": 2}, "cuda", False),
    ],
)
def test_jobs_that_share_none_are_not(launcher: dict[str, Any], device: str, several: bool) -> None:
    check_launcher(OmegaConf.create(launcher), [device, None], several=several)
