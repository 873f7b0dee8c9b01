"""What a run writes directly into its directory, by name."""

from inductor_debug.stages.artifacts import files
from inductor_debug.stages.registry import declared

OWNER, SWEEP_OWNER = ".owner.json", ".sweep.json"
STAGES = files.STAGE_RECORD.folder.rstrip("/")
"""Folder of each stage's stored result, from which a new worker and the parent process go on."""
CACHE_PREFIX = ".cache-"
"""Start of the private cache folder's name; the folder lives as long as the run does."""
UNFINISHED = ".unfinished"
"""Folder of what stages know of work that was cut short: the same configuration started again goes on from it."""
RESERVE = ".reserve"
HYDRA = ".hydra"
LOG = "run.log"
SUMMARY, MANIFEST, CONFIGURATION_ERROR = files.SUMMARY.path, files.MANIFEST.path, files.CONFIGURATION_ERROR.path

MARKS = (HYDRA, STAGES, LOG, SUMMARY, MANIFEST, CONFIGURATION_ERROR)
"""Any of them says that a directory holds a run."""


def own_names() -> tuple[str, ...]:
    """Files and folders that a run writes; what else is there is the user's."""
    return (OWNER, RESERVE, UNFINISHED, *MARKS, files.REPRO.folder.rstrip("/"), *declared())
