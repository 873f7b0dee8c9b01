"""Hydra composes each job of a sweep once: it takes a tenth of a second, and is asked for three times."""

import copy
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import DictConfig

_KEPT = 2_000
"""Jobs whose configuration is kept, of 140 kB each."""
_USES = 2
"""After ours: Hydra's own check of the batch, which looks at it, and the launcher's, which takes it."""


class ComposedOnce(ConfigLoaderImpl):
    """Keeps what it composed for a job of a sweep until the launcher has it. In another process it starts anew."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept: dict[tuple[str, ...], list[DictConfig]] = {}

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        key = tuple(sweep_overrides)
        if self._kept.get(key):
            return self._kept[key].pop()
        composed = super().load_sweep_config(master_config, sweep_overrides)
        if key not in self._kept and len(self._kept) < _KEPT:
            self._kept[key] = [copy.deepcopy(composed)] * _USES
        return composed

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": {}}
