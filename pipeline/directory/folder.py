"""A stored run's folder as its readers see it: data from strangers, or from a damaged disk."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from inductor_debug.models import stored
from inductor_debug.models.errors import DamagedError
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.directory.names import CACHE_PREFIX, MANIFEST, STAGES, UNFINISHED
from inductor_debug.stages.artifacts.files import shape_of, table_of
from inductor_debug.stages.artifacts.records import Manifest
from inductor_debug.stages.stored_run import made_again


class StoredFolder:
    """What a run stored, as :class:`~stages.contract.Artifacts`: read within limits, nothing ever written.

    Each file has the shape that :mod:`stages.artifacts.files` declares, and the SHA-256 that the run's manifest tells.
    A run that left no manifest (it was killed) is read without; one that was made before and lacks a file that its
    manifest lists is damaged.

    Args:
        path: the run's folder. It may be a link; a link within it is followed only to a file within it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self, prefix: str = "") -> list[str]:
        """Stored paths that start with ``prefix``, sorted: those that the manifest lists, else those that are there."""
        found = self._files() if self.listed is None else self.listed
        return sorted(name for name in found if name.startswith(prefix) and not name.startswith(_BOOKKEEPING))

    def has(self, name: str) -> bool:
        """Whether there is such a file, or should be."""
        return name in (self.listed or ()) or os.path.lexists(self.path / name)

    def read_bytes(self, name: str, kind: str = "text") -> bytes:
        """Content of one file.

        Raises:
            FileNotFoundError: there is none, and none was stored.
            DamagedError: it can't be read, is not what the run stored, or is gone.
        """
        with self._told():
            told = (self.listed or {}).get(name)
            try:
                content = stored.read_bytes(self.path / name, kind, self.path)
            except FileNotFoundError:
                if told is None:
                    raise
                raise self._damaged(name, f"is missing, though {MANIFEST} lists it") from None
            if told is not None and hashlib.sha256(content).hexdigest() != told:
                raise self._damaged(name, f"has another SHA-256 than {MANIFEST} tells: it was changed or damaged")
            return content

    def read_text(self, name: str) -> str:
        content = self.read_bytes(name)
        with self._told():
            return stored.decoded(content, self.path / name)

    def read_json(self, name: str) -> Any:
        """Plain data, which are of the file's shape."""
        content = self.read_bytes(name, "json")
        with self._told():
            found = stored.parse_json(content, self.path / name)
            stored.shaped(found, shape_of(name), self.path / name)
        return found

    def read_yaml(self, name: str, shape: Any = Any) -> Any:
        """YAML, its interpolations as text: nothing is looked up for them."""
        content = self.read_bytes(name, "yaml")
        with self._told():
            return stored.parse_yaml(content, self.path / name, shape)

    def read_table(self, name: str) -> list[dict[str, str]]:
        content = self.read_bytes(name, "csv")
        with self._told():
            return stored.parse_csv(content, self.path / name, table_of(name).checks())

    @cached_property
    def listed(self) -> dict[str, str] | None:
        """Path → SHA-256, as the manifest tells; None where there is no manifest or it tells nothing."""
        try:
            manifest: Manifest = stored.read_json(self.path / MANIFEST, Manifest, self.path)
        except FileNotFoundError:
            return None
        return manifest.files or None

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """A message on damage ends with what to type."""
        try:
            yield
        except DamagedError as error:
            raise error.with_parts(hint=made_again(self.path)) from error

    def _damaged(self, name: str, what: str) -> DamagedError:
        return DamagedError(what, key=visible(str(self.path / name)), valid="a run whose files are as it wrote them")

    def _files(self) -> Iterator[str]:
        for folder, files in stored.files_below(self.path):
            yield from ((folder / file).relative_to(self.path).as_posix() for file in files)


_BOOKKEEPING = (STAGES + "/", CACHE_PREFIX, UNFINISHED + "/")
