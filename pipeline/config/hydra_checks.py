"""Checks of what is Hydra's own: its keys, a sweep's size, a part that is to be shown."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, RangeSweep
from omegaconf import OmegaConf

from inductor_debug.models.errors import ConfigurationError, quoted, shown, wrong_value

MOST_RUNS = 10_000
"""Of one sweep."""


def check_hydra(node: Any) -> None:
    """What Hydra would meet only when the run starts, and where an empty text would be the working directory."""
    if not isinstance(node.verbose, bool | str) and not OmegaConf.is_list(node.verbose):
        valid = "true, false, the name of a logger, or a list of names"
        raise wrong_value("hydra.verbose", node.verbose, valid, "true")
    for key in ("run", "sweep"):
        if not str(OmegaConf.to_container(node[key])["dir"]).strip():  # type: ignore[index,call-overload]
            raise ConfigurationError(
                "got ''",
                key=f"hydra.{key}.dir",
                valid="a folder; . is the working directory",
                hint=f"hydra.{key}.dir=FOLDER",
            )


def check_count(overrides: Sequence[Any]) -> None:
    """ConfigurationError for a sweep of more runs than anybody has time for, which would take as long to list."""
    counts = {}
    for override in overrides:
        value = override.value()
        if isinstance(value, RangeSweep):
            start, stop, step = (float(part or 0) for part in (value.start, value.stop, value.step))
            steps = (stop - start) / step if step else math.inf
            counts[override.input_line] = max(0.0, steps)
        elif isinstance(value, ChoiceSweep):
            counts[override.input_line] = float(len(value.list))
    total = math.prod(counts.values())
    if total > MOST_RUNS:
        largest = max(counts, key=lambda line: counts[line])
        raise ConfigurationError(
            f"got {', '.join(counts)}, which makes {total:,.0f} runs",
            key="--multirun",
            valid=f"at most {MOST_RUNS:,}",
            hint=f"--multirun {largest.partition('=')[0].lstrip('+')}=VALUE,VALUE",
        )


def check_values(overrides: Sequence[Any]) -> None:
    """ConfigurationError for a value that comes twice: its jobs would be the same job."""
    for override in overrides:
        if not isinstance(override.value(), ChoiceSweep):
            continue
        counts = Counter(override.sweep_string_iterator())
        for value, times in counts.most_common(1):
            if times > 1:
                raise ConfigurationError(
                    f"got {shown(value)} {times} times",
                    key=override.key_or_group,
                    place=override.input_line,
                    valid="each value once",
                    hint=quoted(f"{override.get_key_element()}={','.join(counts)}"),
                )


def check_package(composed: Any, package: str) -> None:
    """ConfigurationError for a part of the configuration (``--package``) that there is not."""
    found = OmegaConf.select(composed, package)
    if not OmegaConf.is_config(found):
        parts = ", ".join(str(key) for key in composed if OmegaConf.is_config(composed._get_node(key)))
        raise ConfigurationError(
            f"got {shown(package)}, which is no part of the configuration",
            key="--package",
            valid=f"{parts}, or a part of them",
            hint="--cfg job --package model",
        )
