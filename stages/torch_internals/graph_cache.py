"""TorchInductor's compiled graphs, stored by one process of a run and loaded by others, and what its caches hold.

Relies on ``torch._inductor.codecache.FxGraphCache.{prepare_key, _lookup_graph}`` (the second returns a graph, or None,
and a dict), on ``torch._functorch._aot_autograd.autograd_cache.AOTAutogradCache._lookup`` (returns None where nothing
is found), on ``torch._inductor.codecache._HEADER_DIR``, on ``torch._inductor.runtime.cache_dir_utils.cache_dir``, on
``torch._inductor.config`` (``fx_graph_cache``, ``_pre_fusion_custom_pass``, ``_post_fusion_custom_pass``) and on
``torch._dynamo.utils.counters["inductor"]`` (``fxgraph_cache_hit``, ``fxgraph_cache_miss``, ``fxgraph_cache_bypass``).
"""

import contextlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

COMPILED = (".so", ".gch", ".pch", ".cubin", ".hsaco", ".spv")
"""Ends of the names of files that a compiler made: libraries, precompiled headers, device code."""


def graphs_stored() -> contextlib.AbstractContextManager[Any]:
    """While open, what Inductor compiles with ``fx_graph_cache`` on is stored, and nothing is looked up.

    The key leaves out the recording passes: they change nothing, and a process that loads the graph has none.
    """
    from torch._inductor import config
    from torch._inductor.codecache import FxGraphCache

    prepare_key = FxGraphCache.prepare_key

    def key_of(*args: Any, **kwargs: Any) -> Any:
        with config.patch({"_pre_fusion_custom_pass": None, "_post_fusion_custom_pass": None}):
            return prepare_key(*args, **kwargs)

    nothing_found: Any = staticmethod(lambda *args, **kwargs: (None, {}))
    return mock.patch.multiple(FxGraphCache, prepare_key=staticmethod(key_of), _lookup_graph=nothing_found)


def traces_stored() -> contextlib.AbstractContextManager[Any]:
    """The same of what AOTAutograd made of a Dynamo graph, with ``enable_autograd_cache`` on."""
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache

    return mock.patch.object(AOTAutogradCache, "_lookup", staticmethod(lambda *args, **kwargs: None))


@dataclass
class GraphLookups:
    """How often a process looked compiled graphs up: found, missed, or could not ask (a graph that can't be stored)."""

    found: int = 0
    missed: int = 0
    refused: int = 0

    @classmethod
    def now(cls) -> "GraphLookups":
        """Counts since the process began; zeros where torch's compiler was not imported."""
        utils: Any = sys.modules.get("torch._dynamo.utils")
        counts = utils.counters["inductor"] if utils is not None else {}
        names = ("fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass")
        return cls(*(int(counts.get(name, 0)) for name in names))

    def since(self, before: "GraphLookups") -> "GraphLookups":
        """What was counted after ``before``."""
        return GraphLookups(self.found - before.found, self.missed - before.missed, self.refused - before.refused)


def cache_folders() -> list[Path]:
    """Where TorchInductor keeps what it and Triton compiled.

    Without ``TRITON_CACHE_DIR`` Triton's files are in TorchInductor's own folder: it sets that variable as it compiles
    the process's first Triton kernel (``torch/_inductor/runtime/triton_heuristics.py``).
    """
    from torch._inductor.codecache import _HEADER_DIR
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    folders = (cache_dir(), os.environ.get("TRITON_CACHE_DIR"), _HEADER_DIR)
    return [Path(folder) for folder in dict.fromkeys(folders) if folder]


def compiled_files(folders: Iterable[Path]) -> set[str]:
    """Paths of the files in these folders that a compiler made."""
    return {
        os.path.join(folder, name)
        for root in folders
        for folder, _, names in os.walk(root)
        for name in names
        if name.endswith(COMPILED)
    }
