"""Hydra as this program uses it: started once a command, with its errors worded as ours."""

import argparse
import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from inductor_debug.models.errors import RunDirectoryError
from inductor_debug.pipeline.config import arguments
from inductor_debug.pipeline.config.help import CONF
from inductor_debug.pipeline.config.hydra_errors import translate
from inductor_debug.pipeline.config.schema import register
from inductor_debug.pipeline.config.yaml_source import limit_yaml
from inductor_debug.pipeline.directory.names import LOG
from inductor_debug.pipeline.run.commands.composed_once import ComposedOnce
from inductor_debug.pipeline.run.restoring import Expected, recorded
from inductor_debug.stages.backends.plugins import conf_folders
from inductor_debug.stages.file_names import shortened
from inductor_debug.stages.settings import shown_name


def slug(text: object, limit: int = 60) -> str:
    """A text as one file name: no slash, no blank, no shell character, at most ``limit`` bytes.

    The pluses before an override's key say nothing to a reader of the folder's name.
    """
    name = re.sub(r"(^|,)\++", r"\1", str(text))
    name = re.sub(r"[^\w.=,+-]+", "_", name).strip("._") or "default"
    return shortened(name, name, limit)


@dataclass
class Session:
    """One composition: Hydra, the primary configuration's name, the overrides, and the stored file it came from.

    ``expected`` is what compiled the stored run. With ``as_json`` standard output is for the result alone. ``shows``
    are the words that ask for a configuration, where nothing is to be run (``--cfg job``).
    """

    hydra: Any
    name: str
    overrides: list[str]
    stored_file: str
    flags: list[str] = field(default_factory=list)
    expected: Expected | None = None
    folders: Sequence[Path] = ()
    as_json: bool = False
    shows: str = ""

    @contextmanager
    def readable_errors(
        self, overrides: Sequence[str] = (), choices: Mapping[str, Any] | None = None
    ) -> Iterator[None]:
        """Errors of Hydra, omegaconf and YAML leave as ConfigurationError.

        Args:
            overrides: a job's own, where they are not those of the command line.
            choices: group → selected option, where they are known.
        """
        typed = [override.removeprefix("++") for override in [*self.overrides, *overrides]]
        try:
            yield
        except RunDirectoryError:
            raise  # says all itself
        except (
            HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError, TypeError, OSError, ArithmeticError
        ) as error:  # fmt: skip
            raise translate(error, typed, self.stored_file, choices, self.folders, self.shows) from None

    def compose(self, mode: Any) -> Any:
        with self.readable_errors():
            return self.hydra.compose_config(
                config_name=self.name, overrides=self.overrides, run_mode=mode, with_log_configuration=False
            )


@contextmanager
def hydra_session(args: argparse.Namespace, refuse: bool = False) -> Iterator[Session]:
    stored = arguments.stored_config(args.config_path, args.config_name)
    extra = arguments.config_directory(args.config_dir)
    version.setbase("1.3")
    folders = ([extra] if extra is not None else []) + conf_folders()
    register(folders)
    OmegaConf.register_new_resolver("slug", slug, replace=True)
    OmegaConf.register_new_resolver("shown_backend", shown_name, replace=True)
    name = "config"
    if stored is not None:
        base = yaml.safe_load((CONF / "config.yaml").read_text())
        session = Session(None, name, args.overrides, str(stored))
        with session.readable_errors():
            session.overrides[:] = arguments.added_to(stored, session.overrides)
            ConfigStore.instance().store(name="stored_run", node=arguments.rerun_node(stored, base, session.overrides))
        name = "stored_run"
    search_path = create_config_search_path(f"file://{CONF}")
    for folder in folders:  # behind ours, the user's before the packages'
        search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
    GlobalHydra.instance().clear()
    started = datetime.datetime.now()
    try:
        limit_yaml()
        hydra = Hydra("inductor-debug", ComposedOnce(config_search_path=search_path))
        GlobalHydra.instance().initialize(hydra)
        # one moment for the whole command: each composition names the same directories
        OmegaConf.register_new_resolver("now", started.strftime, use_cache=True, replace=True)
        expected = None if stored is None else _expected(stored, args.overrides, refuse)
        flags, as_json = _flags(stored, extra), args.format == "json"
        yield Session(hydra, name, args.overrides, str(stored or ""), flags, expected, folders, as_json)
    finally:
        GlobalHydra.instance().clear()


def _expected(stored: Path, overrides: Sequence[str], refuse: bool) -> Expected | None:
    """What compiled the run that a stored configuration is of; None for a configuration that is no run's."""
    run = stored.parent.parent
    if stored.parent.name != ".hydra" or not (run / LOG).is_file():
        return None
    names = [override.lstrip("+~").partition("=")[0] for override in overrides]
    changed = not all(name.startswith(("hydra.", "runner.", "stages")) for name in names)
    return Expected(str(run), recorded(run), refuse, changed)


def _flags(stored: Path | None, extra: Path | None) -> list[str]:
    """The flags without which the overrides compose something else, with paths that hold from anywhere."""
    flags = ["--config-path", str(stored.parent), "--config-name", stored.stem] if stored is not None else []
    return flags + (["--config-dir", str(extra)] if extra is not None else [])
