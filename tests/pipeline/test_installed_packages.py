"""Composing with what installed packages add: a backend by name, their YAML, a target, a device of theirs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from composing import compose
from hydra.core.config_store import ConfigStore

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline.config import validate as validation
from inductor_debug.pipeline.config.validate import validate
from inductor_debug.pipeline.run.commands.entry import main


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path with the metadata of a package that adds the backend ``chip`` and a folder of YAML."""
    info = tmp_path / "chip_vendor-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chip-vendor\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[inductor_debug.adapters]\nchip = chip_vendor.adapter:Chip\n[inductor_debug.conf]\nchip = chip_vendor.conf\n"
    )
    (tmp_path / "chip_vendor" / "conf").mkdir(parents=True)
    (tmp_path / "chip_vendor" / "__init__.py").write_text("raise SystemExit('imported in the parent process')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "chip_vendor", raising=False)  # another test's, from another folder
    yield tmp_path / "chip_vendor" / "conf"
    ConfigStore.instance().repo.get("backend", {}).pop("chip.yaml", None)


def yaml(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_an_installed_backend_needs_no_yaml(site: Path) -> None:
    config, hydra = compose("backend=chip", "backend.options.lanes=4")
    assert (config.backend.name, config.backend.adapter, config.backend.options) == ("chip", "chip", {"lanes": 4})
    assert hydra.run.dir.endswith("-resnet18-none-chip")
    validate(config)


def test_the_packages_yaml_comes_before_the_bare_name_and_the_users_before_it(site: Path, tmp_path: Path) -> None:
    yaml(site, "backend/chip.yaml", "name: chip\nadapter: chip\noptions: {lanes: 8}\n")
    yaml(site, "accel/chip_strict.yaml", "name: chip_strict\nstrict: true\nalignment: 8\n")
    config, _ = compose("backend=chip", "accel=chip_strict")
    assert (config.backend.options, config.accel.alignment) == ({"lanes": 8}, 8)
    yaml(tmp_path / "mine", "backend/chip.yaml", "name: chip\nadapter: chip\noptions: {lanes: 2}\n")
    config, _ = compose("--config-dir", str(tmp_path / "mine"), "backend=chip")
    assert config.backend.options == {"lanes": 2}


def test_a_package_cannot_change_what_is_ours(site: Path) -> None:
    yaml(site, "backend/eager.yaml", "name: eager\nadapter: chip_vendor.adapter.Chip\n")
    assert compose("backend=eager")[0].backend.adapter == "eager"


def test_an_unknown_backend_names_the_installed_ones(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backend=chpi"]) == 2
    assert "backend: got 'chpi' (in backend=chpi); valid: chip, aot_eager" in capsys.readouterr().err


def test_a_target_on_the_command_line_and_in_yaml(site: Path, tmp_path: Path) -> None:
    config, hydra = compose("backend._target_=my_package.MyAdapter")
    assert (config.backend.adapter, config.backend.shown) == ("my_package.MyAdapter", "MyAdapter")
    assert hydra.run.dir.endswith("-MyAdapter")
    yaml(tmp_path / "mine", "backend/own.yaml", "name: own\n_target_: my_package.MyAdapter\n")
    config, _ = compose("--config-dir", str(tmp_path / "mine"), "backend=own")
    assert (config.backend.name, config.backend.adapter) == ("own", "my_package.MyAdapter")


def test_a_device_of_a_packages_is_left_to_the_worker(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("npu", "npu:1"):
        validate(compose("backend=chip", f"device={device}")[0])
    with pytest.raises(ConfigurationError, match=r"device: got 'np u'; valid: cpu, cuda, cuda:0"):
        validate(compose("backend=chip", "device='np u'")[0])
    with pytest.raises(ConfigurationError, match=r"device: got 'npu'"):
        validate(compose("backend=inductor", "device=npu")[0])
    monkeypatch.setattr(validation, "adds_devices", lambda: True)
    validate(compose("backend=inductor", "device=npu")[0])
