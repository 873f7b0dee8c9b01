"""Launchers that would let two jobs share an accelerator."""

from types import SimpleNamespace
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


def job(device: str, reference: str | None = None) -> Any:
    return SimpleNamespace(device=device, reference=SimpleNamespace(device=reference))


@pytest.mark.parametrize(
    ("launcher", "told"),
    [
        (SLURM, "hydra.launcher.gres=gpu:1"),
        (LOCAL | {"gpus_per_node": 1}, "cluster=basic"),  # of each job the first
        (RAY, "hydra.launcher.ray.remote.num_gpus=1"),
        (JOBLIB | {"n_jobs": 2}, "cluster=basic"),
    ],
)
@pytest.mark.parametrize("jobs", [[job("cpu"), job("cuda")], [job("cpu", "cuda:1")], [job("neuron")]])
def test_jobs_that_would_share_an_accelerator_are_refused(launcher: dict[str, Any], told: str, jobs: list[Any]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        check_launcher(OmegaConf.create(launcher), jobs, several=True)
    assert str(raised.value).endswith(told) and "two jobs would share it" in str(raised.value)


@pytest.mark.parametrize(
    ("launcher", "jobs", "several"),
    [
        (BASIC, [job("cuda")] * 2, True),
        (SLURM | {"gres": "gpu:1"}, [job("cuda")] * 2, True),
        (RAY | {"ray": {"remote": {"num_gpus": 1}}}, [job("cuda")] * 2, True),
        (RAY | {"ray": {"remote": {"resources": {"my_chip": 1}}}}, [job("neuron")] * 2, True),
        (JOBLIB | {"n_jobs": 1}, [job("cuda")] * 2, True),
        (JOBLIB | {"n_jobs": 2}, [job("cpu")] * 2, True),
        (JOBLIB | {"n_jobs": 2}, [job("cuda")], False),
    ],
)
def test_jobs_that_share_none_are_not(launcher: dict[str, Any], jobs: list[Any], several: bool) -> None:
    check_launcher(OmegaConf.create(launcher), jobs, several=several)
