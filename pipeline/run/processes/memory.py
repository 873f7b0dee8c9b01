"""Memory that a case asks for against what the machine has."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from inductor_debug.models.errors import ConfigurationError, shown, wrapped
from inductor_debug.models.options import INT64
from inductor_debug.models.torch_text import bytes_told
from inductor_debug.models.units import format_bytes
from inductor_debug.stages.settings import Settings

_CGROUP = Path("/sys/fs/cgroup/memory.max")


def machine_memory() -> int:
    """Bytes that this machine, or the container on it, has in all, swap included."""
    total = int(psutil.virtual_memory().total + psutil.swap_memory().total)
    limit = _CGROUP.read_text().strip() if _CGROUP.is_file() else ""
    return min(total, int(limit)) if limit.isdecimal() else total


@contextmanager
def within_the_machine(settings: Settings) -> Iterator[None]:
    """Build a case of these settings: one tensor that asks for more than the machine has raises ConfigurationError.

    On the CPU memory beyond the machine's can't be allocated meanwhile, so that the operating system kills nobody for
    it. What is raised otherwise passes through, memory that the machine has and that others use included.
    """
    total = machine_memory()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    unlimited = soft == resource.RLIM_INFINITY
    if settings.device.startswith("cpu"):
        resource.setrlimit(resource.RLIMIT_DATA, (total if unlimited else min(soft, total), hard))
    try:
        yield
    except Exception as error:
        asked = bytes_asked(error)
        if asked is None or asked <= total:
            raise
        raise _too_large(settings, asked, total) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def bytes_asked(error: BaseException) -> int | None:
    """The bytes that a failed allocation asked for; None where neither it nor what it came from tells of any."""
    told = (bytes_told(str(item)) for item in wrapped(error, contexts=True))
    return next((found for found in told if found is not None), None)


def _too_large(settings: Settings, asked: int, total: int) -> ConfigurationError:
    model = settings.model
    usual = {"batch_size": 1, "sequence_length": 128, "image_size": 224}
    name = max(usual, key=lambda name: getattr(model, name) / usual[name])
    grown = getattr(model, name) > usual[name]
    key, given = (f"model.{name}", getattr(model, name)) if grown else ("model.build", shown(model.build))
    hint = f"\nTry: {key}={usual[name]}" if grown else ""
    needs = "2**63 bytes or more" if asked > INT64 else format_bytes(asked)
    return ConfigurationError(
        f"{key}: got {given}, with which one tensor of the model or its inputs needs {needs} of memory, the machine "
        f"has {format_bytes(total)}; valid: sizes that fit.{hint}"
    )
