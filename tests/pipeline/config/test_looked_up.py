"""Values that a configuration took from its surroundings."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from inductor_debug.pipeline import cli
from inductor_debug.pipeline.config.looked_up import looked_up

TEXT = """
seed: ${oc.decode:${oc.env:MY_SEED}}
dtype: ${ oc.env:MY_DTYPE,float32}
accel: {alignment: 16, row: "${.alignment}", next: "${oc.select:accel.alignment}"}
model:
  build: {path: "x/${oc.env:MY_SEED}", token: "${oc.env:MY_TOKEN}", sizes: [1, "${oc.decode:${oc.env:MY_SEED}}"]}
  name: \\${oc.env:MY_SEED}
"""


def test_what_follows_from_the_configuration_itself_was_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SEED", "7")
    monkeypatch.setenv("MY_TOKEN", "very secret")
    found = looked_up(OmegaConf.create(TEXT))
    secret = found.pop("model.build.token")
    assert found == {"seed": 7, "dtype": "float32", "model.build.path": "x/7", "model.build.sizes": [1, 7]}
    assert secret.startswith("sha256:") and len(secret) == 15
    monkeypatch.setenv("MY_TOKEN", "another")
    assert looked_up(OmegaConf.create(TEXT))["model.build.token"] != secret


def test_a_run_records_what_it_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_SEED", "7")
    words = ["stages=[report]", "seed=${oc.env:MY_SEED}", "hydra.run.dir=here"]
    assert cli.main(["run", *words]) == 0
    summary = json.loads((tmp_path / "here" / "summary.json").read_text())
    assert summary["run"]["looked_up"] == {"seed": 7}
