"""Configurations composed as the command line composes them."""

from typing import Any

from inductor_debug.pipeline.config import arguments
from inductor_debug.pipeline.config.arguments import normalise
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.pipeline.config.validate import to_config
from inductor_debug.pipeline.run.commands import composition


def compose(*argv: str) -> tuple[Config, Any]:
    """The configuration that a command line makes, and Hydra's section."""
    from hydra.types import RunMode
    from omegaconf import open_dict, read_write

    args = arguments.parse(argv)
    args.overrides = normalise(args.overrides)
    with composition.hydra_session(args) as session:
        composed = session.compose(RunMode.RUN)
        hydra = composed.hydra
        with read_write(composed), open_dict(composed):
            composed.pop("hydra")
        return to_config(composed), hydra
