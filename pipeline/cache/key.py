"""What a stage's result depends on, as far as it is known before the stage runs."""

import contextlib
import datetime
import functools
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import inductor_debug
from inductor_debug.pipeline.config.fingerprint import digest
from inductor_debug.pipeline.directory.file_digest import file_sha256
from inductor_debug.pipeline.directory.records import Machine
from inductor_debug.stages.accelerators.profile import has_expired
from inductor_debug.stages.backends.plugins import packages_state
from inductor_debug.stages.declaration import Declaration
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.settings import Settings, may_declare

SCHEMA = 2
ABSENT = "not there"
_CPU, _BOOT = Path("/proc/cpuinfo"), Path("/proc/sys/kernel/random/boot_id")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_PCI_DRIVERS = Path("/sys/bus/pci/drivers")
WHICH_DEVICES = re.compile(
    "VISIBLE_(DEVICES|CORES|MODULES|CHIPS)$|^ZE_AFFINITY_MASK$|^ONEAPI_DEVICE_SELECTOR$|^GPU_DEVICE_ORDINAL$"
)
"""Variables that say which of a machine's accelerators a process has. A launcher sets them for each job."""
_PACKAGES = ("nvidia-", "rocm", "amd")
"""How the names of packages begin whose libraries torch loads on the device ``cuda``."""
_NO_ACCELERATOR = ("0x01", "0x02", "0x04", "0x06", "0x07", "0x09", "0x0c", "0x0d")
"""Classes of PCI devices: storage, network, sound, bridges, ports, input, buses, radio."""


def parts_of(
    declaration: Declaration,
    options: Any,
    settings: Settings,
    followed: Mapping[str, str],
    versions: Mapping[str, str | None],
    machine: Machine,
    variables: Mapping[str, str],
    source: str,
) -> dict[str, Any]:
    """All that a stage's key covers, for :func:`key_of` and for telling what differs.

    Args:
        declaration: of the stage; ``reads`` is not None.
        options: the stage's.
        settings: the run's, of which the stage's part counts.
        followed: key of each stage that it follows; empty text for one that is not selected.
        versions: of Python and of packages.
        machine: that of this process.
        variables: those of the stage's process that change what is compiled, or how fast it runs.
        source: :func:`own_source`.
    """
    read = settings.narrowed(declaration.reads or ())
    given = {"options": jsonable(options), "settings": jsonable(read)}
    devices = {settings.device, read.reference.device or "cpu"}
    return {
        "stage": declaration.name,
        **given,
        "follows": dict(followed),
        "files": {path: content_of(path) for path in sorted(set(_paths(given)))},
        "expired": _expired(settings, datetime.date.today()) if declaration.waives else {},
        "versions": dict(versions),
        "source": source,
        "variables": dict(sorted(variables.items())),
        "machine": _machine(machine, devices) if declaration.uses_torch else {},
        "schema": SCHEMA,
    }


def key_of(parts: Mapping[str, Any]) -> str:
    """SHA-256 of a stage's parts."""
    return digest(parts)


def differing(parts: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """What differs, in words: dotted names of the parts, each with its value there and here, what a stage follows last.

    Args:
        parts, others: as :func:`parts_of` gives them, here and there.
    """
    apart = [key for key in dict.fromkeys((*parts, *others)) if parts.get(key, ABSENT) != others.get(key, ABSENT)]
    here, there = (dict(_flat({key: each[key] for key in apart if key in each})) for each in (parts, others))
    names = [name for name in sorted({*here, *there}) if here.get(name, ABSENT) != there.get(name, ABSENT)]
    over = (False, True)
    names = [name for name in names if not name.startswith("expired.") or (there.get(name), here.get(name)) == over]
    return [_told(name, there.get(name, ABSENT), here.get(name, ABSENT))
            for name in sorted(names, key=lambda name: name.startswith("follows."))]  # fmt: skip


def _told(name: str, there: Any, here: Any) -> str:
    kind, _, what = name.partition(".")
    if kind == "follows":
        return f"what {what} depends on"
    if kind == "source":
        return "this package's source"
    if kind == "expired":
        return f"a waiver that expired on {what}" if what else f"the day ({there} → {here})"
    return f"the content of {what}" if kind == "files" else f"{name} ({there} → {here})"


def content_of(path: str) -> str:
    """SHA-256 of a file's content, or of the names, sizes and times of what is in a folder; or that none is there."""
    try:
        if os.path.isdir(path):
            below = sorted(f"{folder}/{name}" for folder, _, names in os.walk(path) for name in names)
            return digest([(item, *_size_and_time(item)) for item in below])
        return file_sha256(path)
    except OSError:
        return ABSENT


def _size_and_time(path: str) -> tuple[int, int] | tuple[str]:
    """Of what a link leads to; that nothing is there for one that leads nowhere."""
    try:
        found = os.stat(path)
    except OSError:
        return (ABSENT,)
    return found.st_size, found.st_mtime_ns


def own_source() -> str:
    """SHA-256 of this package's files: any may change what a stage does. Read once in each state of them."""
    root, found = Path(inductor_debug.__file__).resolve().parent, []
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", "conf"))
        for name in sorted(names):
            found.append((f"{folder}/{name}", *_size_and_time(f"{folder}/{name}")))
    return _source_digest(str(root), tuple(found))


@functools.lru_cache(maxsize=1)
def _source_digest(root: str, files: tuple[tuple[Any, ...], ...]) -> str:
    found = hashlib.sha256()
    for path, *_ in files:
        found.update(path.removeprefix(root).encode())
        with contextlib.suppress(OSError):  # an editor's link that leads nowhere, or a file that is being replaced
            found.update(Path(path).read_bytes())
    return found.hexdigest()


def clock_of(declaration: Declaration, machine: Machine) -> dict[str, str]:
    """On what a stage's times were measured, which no other machine is given; empty for one that holds none.

    A time is of one machine and its kernel; of a timed stage also of one boot and quota, for containers of several
    machines may have one name. Stages that follow rest on no time, and so not on this.
    """
    if not (declaration.timed or declaration.holds_times):
        return {}
    of_boot = {"boot": _line(_BOOT), "quota of processors": _line(_QUOTA)} if declaration.timed else {}
    return {"machine": machine.hostname, "kernel": machine.platform} | of_boot


def _machine(machine: Machine, devices: set[str]) -> dict[str, Any]:
    """Vector instructions, threads, the accelerator and its driver change numbers and code; the kernel may hold that
    driver."""
    found: dict[str, Any] = {"cpu": machine.cpu, "architecture": machine.architecture, "cores": machine.cores_usable,
                             "instructions": digest(_features())}  # fmt: skip
    compiler = shutil.which(os.environ.get("CXX", "g++")) or ""
    found["compiler"] = [os.path.realpath(compiler), *os.stat(compiler)[6:9:2]] if compiler else None
    if devices != {"cpu"}:
        installed = _installed(packages_state())
        by_cuda = all(device.partition(":")[0] in ("cpu", "cuda") for device in devices)
        found["libraries"] = {name: version for name, version in installed.items()
                              if name.startswith(_PACKAGES) or not by_cuda}  # fmt: skip
        found["drivers"] = _drivers()
        found["visible"] = {name: value for name, value in sorted(os.environ.items()) if WHICH_DEVICES.search(name)}
        found |= {"host": machine.hostname, "platform": machine.platform}
    return found


@functools.cache
def _features() -> str:
    """The processor's instructions, as Linux lists them: virtual machines hide some, and ARM has no name of a model."""
    try:
        with _CPU.open() as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""


def _drivers() -> dict[str, str]:
    """Address on the PCI bus of what may be an accelerator → its vendor, its number, and its driver, with the version
    of one that has its own; of drivers that are modules, for others are parts of the kernel."""
    found = {}
    for module in sorted(_PCI_DRIVERS.glob("*/module")):
        driver = [module.parent.name, _line(module / "version")]
        for device in module.parent.glob("*:*"):
            if _line(device / "class").startswith(_NO_ACCELERATOR):
                continue
            numbers = (_line(device / name) for name in ("vendor", "device"))
            found[device.name] = " ".join([":".join(numbers), *filter(None, driver)])
    return dict(sorted(found.items()))


def _line(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # it has none, or the device was removed meanwhile
        return ""


@functools.lru_cache(maxsize=1)
def _installed(_: tuple[tuple[str, int], ...]) -> dict[str, str]:
    """Versions of what is installed, of the first on the path. Of the libraries and compilers in a vendor's packages no
    module is imported."""
    found: dict[str, str] = {}
    for each in metadata.distributions():
        found.setdefault(str(each.metadata["Name"]), each.version)
    return dict(sorted(found.items()))


def _expired(settings: Settings, today: datetime.date) -> dict[str, bool] | str:
    """Days on which waivers expire → whether they are over; today where a backend may have waivers of its own."""
    if may_declare(settings.backend.adapter):
        return today.isoformat()
    days = {str(waiver.expires): has_expired(waiver, today) for waiver in settings.accel.waivers if waiver.expires}
    return dict(sorted(days.items()))


def _paths(value: Any) -> Iterator[str]:
    """Texts in a value that name a file or a folder."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _paths(item)
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item)
    elif isinstance(value, str) and value not in ("", ".", "..", "/") and "\0" not in value and os.path.exists(value):
        yield value


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value
