"""Keys that had other names in earlier versions: a stored run's are read as what they are now."""

from typing import Any

RENAMED = {
    "stages.kerneldiff.golden": "stages.kerneldiff.baseline",
    "stages.kerneldiff.store_golden": "stages.kerneldiff.store_baseline",
}
"""Key by its former name → what it is called now; only the last part may differ."""


def with_names_of_today(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration, changed in place: its keys have the names that they have now."""
    for former, now in RENAMED.items():
        *parents, name = former.split(".")
        section: Any = stored
        for parent in parents:
            section = section.get(parent) if isinstance(section, dict) else None
        if isinstance(section, dict) and name in section:
            section[now.rpartition(".")[2]] = section.pop(name)
    return stored
