"""A sweep's jobs, composed from what earlier ones read, against Hydra's own loader."""

from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from inductor_debug.pipeline.config import arguments
from inductor_debug.pipeline.run.commands.composed_once import ComposedOnce
from inductor_debug.pipeline.run.commands.composition import hydra_session

JOBS = [
    ["model=bert", "accel.alignment=8"],
    ["model=bert", "accel.alignment=16"],  # of the same files
    ["model=resnet18", "accel.alignment=16"],
    ["model=bert", "accel=strict16", "mode=training"],
    ["accel=strict16", "model=bert", "+model.build.more=1"],
    ["model=bert", "accel.alignment=8"],  # the first again
    ["model=bert", "~accel"],
    ["model=bert", "accel=none_such"],
    ["model=bert", "accel.alignments=8"],
    ["model=bert", "hydra.launcher.number=8"],
    ["model=bert", "experiment=alignment_sweep"],
]


def told(loader: ConfigLoaderImpl, master: Any, overrides: list[str]) -> Any:
    """What it composes, or how it refuses."""
    try:
        composed = loader.load_sweep_config(master, overrides)
    except HydraException as error:
        return type(error), str(error)
    return OmegaConf.to_container(composed), composed._metadata.flags, composed.hydra._metadata.flags


def test_a_job_is_composed_as_hydra_composes_it() -> None:
    with hydra_session(arguments.parse(["stages=[capture]", "seed=3"])) as session:
        ours = session.hydra.config_loader
        assert isinstance(ours, ComposedOnce)
        master = session.compose(RunMode.MULTIRUN)
        found = [told(ours, master, overrides) for overrides in JOBS]
        for overrides, composed in zip(JOBS, found, strict=True):
            theirs = ConfigLoaderImpl(config_search_path=ours.config_search_path)
            assert composed == told(theirs, master, overrides), overrides
        refused = [overrides[1] for overrides, composed in zip(JOBS, found, strict=True) if len(composed) == 2]
        assert refused == ["accel=none_such", "accel.alignments=8", "hydra.launcher.number=8"]
    assert found[0] != found[1]
