"""Values of a configuration's interpolations."""

from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.config.resolved import resolved

TEXT = """
seed: ${oc.decode:${oc.env:MY_SEED}}
dtype: ${ oc.env:MY_DTYPE,float32}
accel: {alignment: 16, row: "${.alignment}", next: "${oc.select:accel.alignment}"}
model:
  build: {path: "x/${oc.env:MY_SEED}", sizes: [1, "${oc.decode:${oc.env:MY_SEED}}"], part: "${accel}"}
  sizes: {num_tokens: "${oc.env:MY_SEED}", num_key_value_heads: "${oc.env:MY_SEED}"}
  secrets: {token: "${oc.env:MY_TOKEN}", of_name: "${oc.env:MY_API_KEY}", copied: "${.of_name}", all: "${model.login}"}
  head: {key: 7}
  login: {user: me, password: "${oc.env:MY_WORD}"}
"""


def test_each_interpolation_has_its_value_and_no_secret_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SEED", "7")
    for name in ("MY_API_KEY", "MY_TOKEN", "MY_WORD"):
        monkeypatch.setenv(name, f"very secret {name}")
    assert resolved(OmegaConf.create(TEXT)) == {
        "seed": 7, "dtype": "float32", "accel.row": 16, "accel.next": 16, "model.build.path": "x/7",
        "model.build.sizes": [1, 7], "model.build.part": {"alignment": 16, "row": 16, "next": 16},
        "model.sizes.num_tokens": "7", "model.sizes.num_key_value_heads": "7",
    }  # fmt: skip


def test_a_run_stores_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_SEED", "7")
    words = ["stages=[report]", "hydra.run.dir=here"]
    assert cli.main(["run", *words, "seed=${oc.env:MY_SEED}"]) == 0
    folder = tmp_path / "here" / ".hydra"
    assert yaml.safe_load((folder / "resolved.yaml").read_text()) == {"seed": 7}
    assert yaml.safe_load((folder / "config.yaml").read_text())["seed"] == "${oc.env:MY_SEED}"
    assert cli.main(["run", *words, "seed=8", "runner.overwrite=true"]) == 0
    assert not (folder / "resolved.yaml").exists()
