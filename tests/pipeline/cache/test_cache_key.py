"""What a stage's key covers besides the configuration."""

import dataclasses
import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inductor_debug.models.config import ModelConfig
from inductor_debug.pipeline.cache import key
from inductor_debug.pipeline.directory.manifest import describe_machine
from inductor_debug.pipeline.directory.records import Machine
from inductor_debug.stages.accelerators.config import AccelConfig, Waiver
from inductor_debug.stages.declaration import Declaration
from inductor_debug.stages.registry import declared
from inductor_debug.stages.settings import BackendConfig, ReferenceConfig, Settings


def parts(day: str, monkeypatch: pytest.MonkeyPatch, adapter: str = "inductor", **waiver: str) -> dict[str, Any]:
    """Of constrain, on a day."""

    class Calendar(datetime.date):
        @classmethod
        def today(cls) -> datetime.date:
            return datetime.date.fromisoformat(day)

    monkeypatch.setattr(key, "datetime", SimpleNamespace(date=Calendar))
    accel = AccelConfig(waivers=[Waiver("alignment", reason="r", **waiver)])
    settings = Settings(model=ModelConfig(), accel=accel, backend=BackendConfig(adapter=adapter))
    machine = Machine.__new__(Machine)  # constrain's result does not depend on it
    return key.parts_of(declared()["constrain"], None, settings, {}, {}, machine, {}, key.own_source())


def test_a_result_is_not_kept_beyond_the_day_on_which_a_waiver_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    before, last, after = (parts(day, monkeypatch, expires="2027-01-31")
                           for day in ("2026-12-01", "2027-01-30", "2027-01-31"))  # fmt: skip
    assert key.key_of(before) == key.key_of(last) != key.key_of(after)
    assert key.differing(after, last) == ["a waiver that expired on 2027-01-31"]
    assert parts("2026-12-01", monkeypatch) == parts("2030-12-01", monkeypatch)
    later = parts("2026-12-01", monkeypatch, expires="2027-06-30")
    assert not any("expired" in reason for reason in key.differing(later, before))


def test_rules_of_a_backend_may_have_waivers_that_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    first, next_day = (parts(day, monkeypatch, "my_backend.Mine") for day in ("2026-12-01", "2026-12-02"))
    assert key.differing(next_day, first) == ["the day (2026-12-01 → 2026-12-02)"]


@pytest.mark.parametrize(
    ("stage", "device", "reference", "shared"),
    [
        ("capture", "cpu", None, True),
        ("capture", "cpu", "cuda", True),  # which has no reference
        ("capture", "cuda", None, False),
        ("kerneldiff", "cpu", None, True),
        ("kerneldiff", "cpu", "cpu", True),
        ("kerneldiff", "cpu", "cuda", False),
        ("kerneldiff", "cuda", "cpu", False),
        ("benchmark", "cpu", None, True),  # whose times are of one, by its clock
        ("benchmark", "cpu", "cuda", False),
    ],
)
def test_what_an_accelerator_had_part_in_is_of_one_machine(
    stage: str, device: str, reference: str | None, shared: bool
) -> None:
    settings = Settings(model=ModelConfig(), device=device, reference=ReferenceConfig(device=reference))
    here, there = (
        key.key_of(key.parts_of(declared()[stage], None, settings, {}, {}, machine, {}, ""))
        for machine in (dataclasses.replace(describe_machine(), hostname=name) for name in ("here", "there"))
    )
    assert (here == there) == shared


def of(
    device: str = "cpu",
    stage: str = "kerneldiff",
    machine: Machine | None = None,
    declaration: Declaration | None = None,
) -> dict[str, Any]:
    """What the key of a stage's result covers."""
    settings = Settings(model=ModelConfig(), device=device)
    declaration = declaration or declared()[stage]
    return key.parts_of(declaration, None, settings, {}, {}, machine or describe_machine(), {}, "")


@pytest.mark.parametrize(
    ("device", "package", "same"),
    [
        ("cpu", "nvidia-cudnn-cu13", True),
        ("cuda", "nvidia-cudnn-cu13", False),
        ("cuda", "neuronx-cc", True),
        ("cuda", "rocm-sdk-libraries-gfx94x", False),
        ("neuron:0", "neuronx-cc", False),
    ],
)
def test_on_an_accelerator_the_version_of_a_library_counts_of_which_no_module_is_imported(
    device: str, package: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    for version in ("9.15", "9.16"):
        found = tmp_path / version / f"{package.replace('-', '_')}-{version}.dist-info"
        found.mkdir(parents=True)
        (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(found.parent)
            keys.append(key.key_of(of(device)))
    assert (keys[0] == keys[1]) == same


@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("cpu", []),
        ("cuda", ["machine.drivers.0000:17:00.0 (10de:2335 nvidia 570.1 → 10de:2335 nvidia 580.2)"]),
        ("neuron", ["machine.drivers.0000:17:00.0 (10de:2335 nvidia 570.1 → 10de:2335 nvidia 580.2)"]),
    ],
)
def test_on_an_accelerator_its_driver_counts(
    device: str, told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders as the kernel shows them below /sys/bus/pci/drivers."""
    driver, built_in = tmp_path / "drivers" / "nvidia", tmp_path / "drivers" / "pcieport"
    card, network, port = driver / "0000:17:00.0", driver / "0000:18:00.0", built_in / "0000:00:01.0"
    for place, numbers in ((card, "10de 2335 0x030200"), (network, "15b3 1 0x020000"), (port, "8086 1 0x060400")):
        place.mkdir(parents=True)
        for name, number in zip(("vendor", "device", "class"), numbers.split(), strict=True):
            (place / name).write_text(f"{number}\n")
    version = tmp_path / "module" / "version"
    version.parent.mkdir()
    (driver / "module").symlink_to(version.parent)
    monkeypatch.setattr(key, "_PCI_DRIVERS", tmp_path / "drivers")
    version.write_text("570.1\n")
    before = of(device)
    version.write_text("580.2\n")
    assert key.differing(of(device), before) == told


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "NEURON_RT_VISIBLE_CORES", "HABANA_VISIBLE_MODULES",
                                  "ONEAPI_DEVICE_SELECTOR"])  # fmt: skip
def test_which_accelerators_a_process_has_counts_on_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "0")
    first, on_cpu = of("cuda"), of("cpu")
    monkeypatch.setenv(name, "1")
    assert key.differing(of("cuda"), first) == [f"machine.visible.{name} (0 → 1)"]
    assert key.differing(of("cpu"), on_cpu) == []


@pytest.mark.parametrize(("device", "same"), [("cpu", True), ("cuda", False)])
def test_what_an_accelerator_had_part_in_is_of_one_kernel(device: str, same: bool) -> None:
    before, after = (
        key.key_of(of(device, machine=dataclasses.replace(describe_machine(), platform=name)))
        for name in ("Linux-6.1", "Linux-6.8")
    )
    assert (before == after) == same


def test_a_time_is_of_one_machine_and_what_is_timed_of_one_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers of two machines may have one host name. A package's stage may time without torch."""
    (tmp_path / "boot").write_text("one\n")
    monkeypatch.setattr(key, "_BOOT", tmp_path / "boot")
    monkeypatch.setattr(key, "_QUOTA", tmp_path / "none")
    machine = dataclasses.replace(describe_machine(), hostname="here", platform="Linux-6.1")
    of_compiling = {"machine": "here", "kernel": "Linux-6.1"}
    simulated = Declaration("simulated", "package:Stage", object, uses_torch=False, timed=True, reads=("device",))
    assert key.clock_of(declared()["kerneldiff"], machine) == {}
    assert key.clock_of(declared()["lower"], machine) == of_compiling
    for stage in (declared()["benchmark"], declared()["profile"], simulated):
        assert key.clock_of(stage, machine) == of_compiling | {"boot": "one", "quota of processors": ""}


def test_processors_of_one_name_differ_by_their_instructions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    for text in ("model name\t: AMD EPYC\nflags\t\t: fpu avx2\n", "model name\t: AMD EPYC\nflags\t\t: fpu avx512f\n",
                 "Features\t: fp asimd\n", "Features\t: fp asimd sve\n"):  # fmt: skip
        (tmp_path / "cpuinfo").write_text(text)
        monkeypatch.setattr(key, "_CPU", tmp_path / "cpuinfo")
        key._features.cache_clear()
        keys.append(key.key_of(of("cpu")))
    key._features.cache_clear()
    assert len(set(keys)) == 4


def test_a_link_that_leads_nowhere_hides_nothing_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "weights").write_text("1")
    (tmp_path / ".#weights").symlink_to("me@host.1234")
    first = key.content_of(str(tmp_path))
    (tmp_path / "weights").write_text("12")
    assert key.ABSENT not in (first, key.content_of(str(tmp_path))) and key.content_of(str(tmp_path)) != first
