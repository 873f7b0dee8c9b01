"""Where results and the compilers' caches lie."""

import os
from pathlib import Path
from typing import Any

VARIABLES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
    "MPLCONFIGDIR": "mpl",  # a list of fonts that matplotlib wrote is no file of the user's
    "TMPDIR": "tmp",  # where torch keeps precompiled headers, whatever its cache's folder is
}
"""Environment variable of a worker → folder within the compilers' caches."""


def shared_cache(given: str | None) -> Path:
    """``runner.cache_dir`` where the configuration has one, else the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or Path(base) / "inductor-debug").expanduser().absolute()


def results_kept(options: Any, again: bool) -> Path | None:
    """The folder below which stages' results are kept, which may not be there yet; None where they are not kept.

    Args:
        options: ``runner`` of the configuration.
        again: whether a stored run is made again, which is to show whether it comes out the same.
    """
    if again or options.cache is False or options.isolation != "process":
        return None
    return shared_cache(options.cache_dir)
