"""How Hydra reads a YAML file: after :mod:`models.stored` has looked at it."""

import os
from pathlib import Path

from hydra._internal.core_plugins import file_config_source
from hydra._internal.sources_registry import SourcesRegistry
from hydra.plugins.config_source import ConfigResult

from inductor_debug.models.stored import read_own_yaml


class FileConfigSource(file_config_source.FileConfigSource):
    """Hydra's source of the same name, which refuses a file beyond our limits before it is parsed."""

    def load_config(self, config_path: str) -> ConfigResult:
        """The parsed file; ConfigurationError where it is too large, too deep, or repeats too much by aliases."""
        path = Path(os.path.realpath(os.path.join(self.path, self._normalize_file_name(config_path))))
        if path.exists():  # else Hydra's own message
            read_own_yaml(path)
        return super().load_config(config_path)


def limit_yaml() -> None:
    """Let Hydra read files through :class:`FileConfigSource`, whatever folder they are found in."""
    SourcesRegistry.instance().types["file"] = FileConfigSource
