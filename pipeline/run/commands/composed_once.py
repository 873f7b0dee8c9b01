"""Hydra composes each job of a sweep once: it takes a tenth of a second, and is asked for three times."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra._internal.defaults_list import DefaultsList, Overrides, create_defaults_list
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

_KEPT = 2_000
"""Jobs whose configuration is kept, of 140 kB each."""
_USES = 2
"""After ours: Hydra's own check of the batch, and the launcher's. All get the same object, for a copy takes long: who
comes before the launcher sets no more than the job's number, which the launcher sets again."""


@contextmanager
def without_hydra(composed: DictConfig) -> Iterator[None]:
    """While open, a composed configuration is without Hydra's own part. Assigning that again would copy it."""
    content = composed.__dict__["_content"]
    hydra = content.pop("hydra")
    try:
        yield
    finally:
        content["hydra"] = hydra


class ReadOnce(ConfigRepository):
    """Reads each file of the search path once in a command. Who composes changes what was read, and so gets a copy."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._read: dict[str, ConfigResult | None] = {}

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        super().initialize_sources(config_search_path)
        self._read = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path not in self._read:
            self._read[config_path] = super().load_config(config_path)
        return copy.deepcopy(self._read[config_path])

    def __deepcopy__(self, memo: dict[int, Any]) -> "ReadOnce":
        """What Hydra composes with: it may get other folders to look in, and what was read is shared until then."""
        other = copy.copy(self)
        other._read, other.sources = self._read, list(self.sources)
        return other

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_read": {}}


class ComposedOnce(ConfigLoaderImpl):
    """Keeps what it composed for a job of a sweep until the launcher has it. In another process it starts anew."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path=config_search_path)
        self.repository = ReadOnce(config_search_path=config_search_path)
        self._kept: dict[tuple[str, ...], list[DictConfig]] = {}
        self._listed: tuple[Any, DefaultsList] | None = None
        self._merged: tuple[Any, DictConfig] | None = None

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        typed: Any = OmegaConf.to_container(master_config.hydra.overrides.hydra)  # may hold what no text is yet
        key = (*typed, *sweep_overrides)
        if self._kept.get(key):
            return self._kept[key].pop()
        composed = super().load_sweep_config(master_config, sweep_overrides)
        if key not in self._kept and len(self._kept) < _KEPT:
            self._kept[key] = [composed] * _USES
        return composed

    def _load_configuration_impl(self, *args: Any, **kwargs: Any) -> DictConfig:
        with mock.patch.object(config_loader_impl, "create_defaults_list", self._create_defaults_list):
            return super()._load_configuration_impl(*args, **kwargs)

    def _create_defaults_list(
        self, repo: IConfigRepository, config_name: str | None, overrides_list: list[Override], **how: bool
    ) -> DefaultsList:
        """Which files are composed, and what is set on them: jobs that choose the same files have one such list."""
        values = Overrides(repo=repo, overrides_list=overrides_list).config_overrides
        choices = [override.input_line for override in overrides_list if override not in values]
        key = [str(source) for source in repo.get_sources()], config_name, choices, how
        if self._listed is None or self._listed[0] != key:
            self._listed = key, create_defaults_list(repo, config_name, overrides_list, **how)
        listed = self._listed[1]
        return DefaultsList(copy.deepcopy(listed.defaults), listed.defaults_tree, values, listed.overrides)

    def _compose_config_from_defaults_list(self, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
        """The files merged, before values are set on them: jobs that differ in values alone have one such."""
        key = [vars(default) for default in defaults], [str(source) for source in repo.get_sources()]
        if self._merged is None or self._merged[0] != key:
            self._merged = copy.deepcopy(key), super()._compose_config_from_defaults_list(defaults, repo)
        return copy.deepcopy(self._merged[1])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": {}, "_listed": None, "_merged": None}
