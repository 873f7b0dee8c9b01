"""What installed packages add: found in their metadata, reachable by name, and never imported to be listed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline.directory.manifest import installed_versions
from inductor_debug.stages.backends import plugins
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext
from inductor_debug.stages.settings import BackendConfig, ReferenceConfig, Settings, shown_name
from inductor_debug.stages.sides.running import reference_function

ADAPTER = """
from inductor_debug import AcceleratorAdapter

class Chip(AcceleratorAdapter):
    name = "chip"

    def __init__(self, lanes: int = 4) -> None:
        self.lanes = lanes

    def compile(self, gm, example_inputs):
        return gm.forward
"""


def distribution(folder: Path, name: str, *points: str, version: str = "1.2") -> None:
    """A fake installed package: metadata with entry points, as ``group: name = value``."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups: dict[str, list[str]] = {}
    for point in points:
        group, _, line = point.partition(": ")
        groups.setdefault(group, []).append(line)
    sections = "\n".join(f"[{group}]\n" + "\n".join(lines) for group, lines in groups.items())
    (info / "entry_points.txt").write_text(sections)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path that holds the module ``chip_vendor`` and its package's metadata."""
    (tmp_path / "chip_vendor").mkdir()
    (tmp_path / "chip_vendor" / "__init__.py").write_text("")
    (tmp_path / "chip_vendor" / "adapter.py").write_text(ADAPTER)
    distribution(tmp_path, "chip-vendor", "inductor_debug.adapters: chip = chip_vendor.adapter:Chip")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("chip_vendor", "chip_vendor.adapter"):  # another test's, from another folder
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_an_installed_adapter_is_built_by_its_name_with_its_options(site: Path) -> None:
    adapter = build_adapter(BackendConfig("chip", "chip", {"lanes": 8}))
    assert (adapter.name, adapter.lanes) == ("chip", 8)  # type: ignore[attr-defined]


def test_a_name_that_no_package_offers_lists_the_installed_adapters(site: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"backend\.adapter: got 'chpi'; valid: chip, eager.*package\.module"):
        build_adapter(BackendConfig("x", "chpi"))


def test_an_option_that_the_installed_adapter_does_not_take(site: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"backend\.options: got \{'lane': 8\}.*lanes: int"):
        build_adapter(BackendConfig("chip", "chip", {"lane": 8}))


def test_two_packages_that_offer_one_name_are_both_named(site: Path) -> None:
    distribution(site, "other-vendor", "inductor_debug.adapters: chip = other_vendor:Chip", version="0.9")
    message = r"several packages; valid: one of .*\(chip-vendor 1\.2\), other_vendor:Chip \(other-vendor 0\.9\)"
    with pytest.raises(ConfigurationError, match=message):
        build_adapter(BackendConfig("chip", "chip"))


def test_a_package_cannot_take_the_name_of_one_of_ours(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    distribution(site, "bold-vendor", "inductor_debug.adapters: eager = chip_vendor.adapter:Chip")
    assert list(plugins.installed_adapters()) == ["chip"]
    assert "bold-vendor 1.2 offers a backend called eager" in caplog.text
    assert build_adapter(BackendConfig("eager", "eager")).name == "eager"


def test_a_folder_of_yaml_is_found_without_importing_its_package(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    (site / "chip_vendor" / "__init__.py").write_text("raise SystemExit('imported')")
    (site / "chip_vendor" / "conf").mkdir()
    distribution(site, "chip-conf", "inductor_debug.conf: chip = chip_vendor.conf")
    distribution(site, "lost-conf", "inductor_debug.conf: lost = chip_vendor.nowhere")
    assert plugins.conf_folders() == [site / "chip_vendor" / "conf"]
    assert "lost-conf 1.2 names the folder chip_vendor.nowhere" in caplog.text


def test_listing_imports_neither_torch_nor_the_package(site: Path) -> None:
    (site / "chip_vendor" / "__init__.py").write_text("raise SystemExit('imported')")
    script = (
        "import sys; from inductor_debug.pipeline.run.commands.entry import main; code = main(['--help'])\n"
        "assert 'torch' not in sys.modules and 'hydra' not in sys.modules, 'too much was imported'\n"
        "sys.exit(code)"
    )
    path = os.pathsep.join([str(site), *sys.path])
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "installed backends: chip (chip-vendor 1.2)" in done.stdout
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("  backend       aot_eager, "))
    assert "chip," in line.split()


def test_a_target_takes_the_place_of_the_adapter() -> None:
    config = BackendConfig("inductor", "inductor", _target_="my_package.MyAdapter")
    assert (config.adapter, config.shown) == ("my_package.MyAdapter", "MyAdapter")
    assert shown_name("inductor", "inductor", "my_package.MyAdapter") == "MyAdapter"
    assert shown_name("inductor", "inductor", None) == "inductor"


def test_installed_adapters_distributions_belong_to_the_manifest(site: Path) -> None:
    assert installed_versions()["chip-vendor"] == "1.2"


def test_a_reference_can_be_an_installed_adapter(site: Path) -> None:
    module, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    case = Case("linear", module, (x,), {}, "inference", torch.float32, torch.device("cpu"))
    settings = Settings(ModelConfig(), reference=ReferenceConfig(backend="chip"))
    function = reference_function(StageContext(settings, MemoryArtifacts()), case)
    torch.testing.assert_close(function(x), module(x))
