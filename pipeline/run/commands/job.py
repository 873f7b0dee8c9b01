"""One run as Hydra's task: in this process, or wherever a launcher calls it."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from inductor_debug.models.errors import RunDirectoryError, UserError
from inductor_debug.pipeline.config.resolved import resolved
from inductor_debug.pipeline.config.validate import to_config
from inductor_debug.pipeline.directory import store, summary
from inductor_debug.pipeline.run import runner
from inductor_debug.pipeline.run.commands.origin import Origin
from inductor_debug.pipeline.run.restoring import Expected

logger = logging.getLogger(f"{__package__}.entry")

_SUBMITIT = "SUBMITIT_EXECUTOR"
"""Variable of a job of submitit, whose checkpoint queues the job again and ends its process."""


class Ended(NamedTuple):
    """How a job ended: its exit code, and why its directory was refused."""

    code: int
    refused: str = ""

    def tell(self) -> int:
        """The exit code, after a refusal was told."""
        if self.refused:
            sys.stderr.write(f"{self.refused}\n")
        return self.code


def run_job(composed: Any, origin: Origin, flags: Sequence[str] = (), expected: Expected | None = None) -> Ended:
    """Hydra's task: one run, and its end. Only KeyboardInterrupt gets out, so that a sweep's other jobs go on, and the
    SystemExit with which SLURM's checkpoint ends a job that is queued again.

    Args:
        composed: the job's configuration.
        origin: where the command was started.
        flags: the command line's, see :func:`pipeline.run.commands.composition.hydra_session`.
        expected: of a stored run that is made again, what compiled it.
    """
    hydra = HydraConfig.get()
    directory = Path(hydra.runtime.output_dir)
    in_sweep = hydra.mode == RunMode.MULTIRUN  # its table tells of a rejected job too
    overrides = list(hydra.overrides.task)
    flags = [*flags, *(word for word in hydra.overrides.hydra if word.lstrip("+").startswith("hydra.searchpath="))]
    if in_sweep and any(word.startswith("experiment=") for word in overrides):
        flags.append("hydra.mode=RUN")  # the experiment may say that it is a sweep: this is one run of it
    try:
        config = to_config(composed)
        files = _stored_configuration(composed)
        more: dict[str, Any] = {"keep_rejected": in_sweep, "flags": flags, "expected": expected, "files": files}
        with origin.restored():
            code = runner.run(config, directory, overrides, **more)
    except RunDirectoryError as error:
        return Ended(summary.EXIT_CONFIGURATION, str(error))
    except UserError as error:
        logger.error("%s", error)
        return Ended(summary.EXIT_CONFIGURATION)
    except SystemExit as error:
        if _SUBMITIT in os.environ and config.runner.isolation == "process":  # no model can have raised it here
            raise
        logger.error("the run ended itself with exit code %s", error.code)
        return Ended(summary.EXIT_CRASHED)
    except Exception:
        logger.exception("the run in %s crashed", directory)
        return Ended(summary.EXIT_CRASHED)
    return Ended(code)


def _stored_configuration(composed: Any) -> dict[str, str]:
    """Hydra's three files, which it would write before anybody has asked whose directory it is; and ours."""
    hydra: Any = HydraConfig.instance().cfg
    parts = {"config": composed, "hydra": hydra, "overrides": hydra.hydra.overrides.task}
    texts = {f".hydra/{name}.yaml": OmegaConf.to_yaml(part) for name, part in parts.items()}
    found = resolved(composed) if "${" in texts[store.HYDRA] else {}
    return texts | ({store.RESOLVED: OmegaConf.to_yaml(found)} if found else {})
