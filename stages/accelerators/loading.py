"""Profiles by name or file, for the library. Free of torch, unless a profile names what no shipped one does."""

from pathlib import Path
from typing import Any

from inductor_debug.stages.accelerators.operation_lists import confirm_names
from inductor_debug.stages.accelerators.profile import Profile, load_config, validate_profile


def load_profile(name_or_path: str | Path, **overrides: Any) -> Profile:
    """A profile of ``conf/accel`` by name, or a YAML file by path, with fields replaced.

    Args:
        name_or_path: ``"strict16"``, or ``"my/chip.yaml"``.
        overrides: fields of :class:`~stages.accelerators.config.AccelConfig`, e.g. ``alignment=32``.

    Raises:
        ConfigurationError: no such profile, not readable as one, a value that is not valid, or the name of an
            operation that torch does not have.
    """
    profile = validate_profile(load_config(name_or_path, **overrides))
    if overrides or Path(name_or_path).suffix:  # our own are checked by a test
        confirm_names(profile)
    return profile
