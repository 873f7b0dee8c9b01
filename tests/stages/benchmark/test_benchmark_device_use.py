"""Others on the device: what nvidia-smi tells, in its own format, and what is said where it tells nothing."""

import os
import stat
from pathlib import Path

import pytest

from inductor_debug.models.config import ModelConfig
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.artifacts.measurements import CacheUse, FirstStep, Load
from inductor_debug.stages.artifacts.time_tables import SampleRow
from inductor_debug.stages.benchmark.device_use import UNSEEN, DeviceUse, look, of_record, read, told
from inductor_debug.stages.benchmark.processes import Sampled
from inductor_debug.stages.benchmark.records import LINES, Done, Event, Warm
from inductor_debug.stages.benchmark.sampling import environment
from inductor_debug.stages.benchmark.tables import figures_of, report_of
from inductor_debug.stages.contract import MemoryArtifacts
from inductor_debug.stages.settings import Settings

ONE, TWO = "GPU-5c1a0b7e-1111-2222-3333-444455556666", "GPU-99999999-1111-2222-3333-444455556666"


def nvidia_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name, first on the path."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_others_are_those_on_the_same_device_without_the_runs_own() -> None:
    output = f"10, {ONE}\n11, {ONE}\n12, {TWO}\n13, {ONE}\n"
    assert read(output, 10, [13]) == DeviceUse((11,))
    assert read(output, 12) == DeviceUse(())
    assert read(f"10, {ONE}\n10, {TWO}\n12, {TWO}\n", 10) == DeviceUse((12,))


@pytest.mark.parametrize("output", ["", f"11, {ONE}\n", "No devices were found\n", "[N/A], [N/A]\n", "10\n"])
def test_where_this_process_is_not_listed_nothing_is_known(output: str) -> None:
    use = read(output, 10)
    assert use.others is None and use.reason and told([use]) == UNSEEN


def test_the_program_is_asked_for_what_it_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = "--query-compute-apps=pid,gpu_uuid --format=csv,noheader"
    answer = f"echo $PPID, {ONE}; echo {os.getppid()}, {ONE}; echo 999999, {ONE}"
    nvidia_smi(tmp_path, f'[ "$*" = "{wanted}" ] || exit 9\n{answer}', monkeypatch)
    assert look() == DeviceUse((999999,))


@pytest.mark.parametrize(
    "script", ["exit 9", "echo 'NVIDIA-SMI has failed'; exit 0", "kill -9 $$", "printf '\\377\\376'"]
)
def test_a_program_that_fails_tells_nothing(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvidia_smi(tmp_path, script, monkeypatch)
    assert look().others is None


def test_without_the_program_it_is_said_that_nobody_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    use = look()
    assert use == DeviceUse(None, "there is no nvidia-smi") and told([use]) == UNSEEN
    assert of_record(use.record) == use


def test_two_looks_are_joined_and_one_that_could_not_look_is_none() -> None:
    blind = DeviceUse(None, "x")
    assert DeviceUse((1,)).joined(DeviceUse((2,))) == DeviceUse((1, 2))
    assert DeviceUse((1,)).joined(blind) == blind.joined(DeviceUse(())) == blind


def test_what_is_told() -> None:
    assert told([]) == told([DeviceUse(())] * 5) == ""
    assert told([DeviceUse(()), DeviceUse((3, 4))]).startswith("2 other processes had the device open")
    assert told([DeviceUse((3,)), DeviceUse(None, "x")]) == UNSEEN


def process(index: int, use: DeviceUse | None) -> Sampled:
    """One process's samples, told as a sampling process tells them."""
    load = Load(1.0, 2.0, 1.0, 1, own=1.0, others=0.0, waited=None, involuntary=0, taken=0.0)
    events: list[Event] = [FirstStep(1.0, True)]
    for side in ("reference", "test"):
        samples = [SampleRow(index, side, number, 1.0 + number / 100, None, number) for number in range(3)]
        events += [Warm(side, 0.1, 3, True), *samples]
    events.append(Done("", load, use is None, environment(), None if use is None else use.record, {}))
    sampled = Sampled(index)
    for event in events:
        sampled.take(LINES.read(LINES.write(event).encode()))
    return sampled


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (None, None),
        (DeviceUse(()), None),
        (DeviceUse((7,)), "1 other process had the device open, and what they did there is not known"),
        (DeviceUse(None, "there is no nvidia-smi"), UNSEEN),
    ],
)
def test_the_message_and_the_record_say_so_where_a_device_did_the_work(use: DeviceUse | None, said: str | None) -> None:
    found = [process(index, use) for index in range(2)]
    result = report_of(figures_of(found, 1.0, CacheUse(), Settings(ModelConfig())), found)
    stored = result.artifacts["benchmark/environment.json"]
    assert files.MACHINE.read(MemoryArtifacts(result.artifacts)) == stored
    assert stored.others_on_device == said and result.summary["benchmark"].established is True
    if said:
        assert f"{said[0].upper()}{said[1:]}." in result.message.splitlines()
    else:
        assert "device" not in result.message
    assert [item.device_use and item.device_use.reason for item in stored.processes] == [use and use.reason] * 2
