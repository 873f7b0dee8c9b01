"""torchvision beside a torch that its compiled library was not built for.

PyPI's torchvision is built against PyPI's torch. Beside a CPU-only torch its C++ library can't be loaded, so its
operators are not defined. ``import torchvision`` then raises, and so do the parts of transformers that look for it. The
models need none of those operators: defining the schemas that the import asks for is enough.
"""

import importlib.util
import logging
import sys
from pathlib import Path

import torch

logger = logging.getLogger(__name__)

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_libraries: list[torch.library.Library] = []
"""Keeps the definitions alive: torch forgets a schema when its library object goes."""


def prepare_torchvision() -> bool:
    """Make ``import torchvision`` possible. Call before importing torchvision or transformers; may be called again.

    Does nothing where the library loads (defining the schemas a second time would abort the process) and where
    torchvision is not installed.

    Returns:
        True where schemas had to be defined.
    """
    if "torchvision" in sys.modules or _libraries:
        return False
    library = _torchvision_library()
    if library is None or _loads(library):
        return False
    missing = [schema for name, schema in _SCHEMAS.items() if not hasattr(torch.ops.torchvision, name)]
    if missing:
        definitions = torch.library.Library("torchvision", "FRAGMENT")
        for schema in missing:
            definitions.define(schema)
        _libraries.append(definitions)
    return bool(missing)


def _torchvision_library() -> Path | None:
    """The compiled library that torchvision loads when it is imported; torchvision itself is not imported."""
    specification = importlib.util.find_spec("torchvision")
    if specification is None or not specification.submodule_search_locations:
        return None
    folder = Path(specification.submodule_search_locations[0])
    candidates = sorted(folder.glob("_C*.so")) + sorted(folder.glob("_C*.pyd"))
    return candidates[0] if candidates else folder / "_C.so"


def _loads(library: Path) -> bool:
    try:
        torch.ops.load_library(str(library))
    except (ImportError, OSError) as error:
        logger.debug("torchvision's library does not load, its operators are defined without kernels: %s", error)
        return False
    return True
