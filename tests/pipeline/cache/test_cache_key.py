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
        ("benchmark", "cpu", None, False),
    ],
)
def test_what_an_accelerator_or_a_clock_had_part_in_is_of_one_machine(
    stage: str, device: str, reference: str | None, shared: bool
) -> None:
    settings = Settings(model=ModelConfig(), device=device, reference=ReferenceConfig(device=reference))
    here, there = (
        key.key_of(key.parts_of(declared()[stage], None, settings, {}, {}, machine, {}, ""))
        for machine in (dataclasses.replace(describe_machine(), hostname=name) for name in ("here", "there"))
    )
    assert (here == there) == shared


@pytest.mark.parametrize(("device", "same"), [("cpu", True), ("cuda", False)])
def test_on_an_accelerator_the_version_of_a_library_counts_that_torch_loads(
    device: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No module is imported of such a package."""
    keys, machine = [], describe_machine()
    for version in ("9.15", "9.16"):
        found = tmp_path / version / f"nvidia_cudnn_cu13-{version}.dist-info"
        found.mkdir(parents=True)
        (found / "METADATA").write_text(f"Metadata-Version: 2.1\nName: nvidia-cudnn-cu13\nVersion: {version}\n")
        settings = Settings(model=ModelConfig(), device=device)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(found.parent)
            parts = key.parts_of(declared()["kerneldiff"], None, settings, {}, {}, machine, {}, "")
        keys.append(key.key_of(parts))
    assert (keys[0] == keys[1]) == same


@pytest.mark.parametrize(("stage", "same"), [("kerneldiff", True), ("benchmark", False)])
def test_a_time_is_of_one_kernel(stage: str, same: bool) -> None:
    before, after = (
        key.key_of(key.parts_of(declared()[stage], None, Settings(model=ModelConfig()), {}, {}, machine, {}, ""))
        for machine in (dataclasses.replace(describe_machine(), platform=name) for name in ("Linux-6.1", "Linux-6.8"))
    )
    assert (before == after) == same
