"""What makes two configurations the same: of a composed one, and of one that a run stored."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import UserError
from inductor_debug.models.stored import read_yaml
from inductor_debug.pipeline.config.renamed import with_names_of_today
from inductor_debug.pipeline.config.schema import Config
from inductor_debug.stages.config_json import from_primitives
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.registry import declared

CONFIGURATION = Path(".hydra", "config.yaml")
"""Where a run's directory has its configuration."""


def fingerprint(config: Any) -> str:
    """SHA-256 of a composed configuration. Equal for two commands that would run the same.

    Args:
        config: a ``pipeline.config.schema.Config``. Its order of stages counts, ``runner.overwrite`` does not.
    """
    content = jsonable(dataclasses.asdict(config))
    content["runner"] = {key: value for key, value in content["runner"].items() if key != "overwrite"}
    return digest([list(content["stages"]), content])


def digest(content: Any) -> str:
    """SHA-256 of a JSON-able value."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def stored_fingerprint(directory: Path) -> str | None:
    """:func:`fingerprint` of the configuration that a run's directory holds; options that it lacks have their defaults.

    None where there is no configuration, it can't be read, the schema has other keys by now, or it has an
    interpolation, whose value was looked up elsewhere.
    """
    try:
        content = with_names_of_today(read_yaml(directory / CONFIGURATION, dict[str, Any], directory))
        if "${" in json.dumps(content, default=str):
            return None
        config = from_primitives(Config, content)
        stages = {name: _stage(name, options) for name, options in config.stages.items()}
        return fingerprint(dataclasses.replace(config, stages=stages))
    except (UserError, OSError, TypeError, AttributeError, RecursionError):  # it may hold anything
        return None


def _stage(name: str, options: Any) -> Any:
    known = declared().get(name)
    return options if known is None else from_primitives(known.options, options, key=f"stages.{name}")
