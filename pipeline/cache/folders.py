"""Where results and the compilers' caches lie."""

import os
from pathlib import Path
from typing import Any

from inductor_debug.pipeline.directory.folders import made

VARIABLES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
    "MPLCONFIGDIR": "mpl",
    "TMPDIR": "tmp",  # where torch keeps precompiled headers, whatever its cache's folder is
}
"""Environment variable of a worker → folder within the compilers' caches."""


def shared_cache(given: str | None) -> Path:
    """``runner.cache_dir`` where the configuration has one, else the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or Path(base) / "inductor-debug").expanduser().absolute()


def results_kept(options: Any, again: bool) -> str | None:
    """The folder below which stages' results are kept; None where they are not.

    Args:
        options: ``runner`` of the configuration.
        again: whether a stored run is made again, which is to show whether it comes out the same.

    Raises:
        UserError: the folder that the configuration names can't be written.
    """
    if again or options.cache is False or options.isolation != "process":
        return None
    folder = shared_cache(options.cache_dir)
    return str(folder if options.cache_dir is None else made(folder, "runner.cache_dir"))
