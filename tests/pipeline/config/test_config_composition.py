"""What the command line composes: the promised forms of overrides, typed, without running anything."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from composing import compose

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.pipeline.config import arguments
from inductor_debug.pipeline.run.commands import composition, entry
from inductor_debug.pipeline.run.commands.jobs import is_sweep, planned_jobs
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.registry import declared


def jobs(*argv: str) -> list[list[str]]:
    """The overrides of every job of a sweep."""
    from hydra.types import RunMode

    args = arguments.parse(argv)
    with composition.hydra_session(args) as session:
        session.overrides.append("hydra.mode=MULTIRUN")
        return planned_jobs(session, session.compose(RunMode.MULTIRUN))


def test_defaults_are_those_of_the_contract() -> None:
    config, _ = compose()
    assert (config.model.name, config.accel.name, config.backend.name) == ("resnet18", "none", "inductor")
    assert (config.dtype, config.device, config.mode, config.seed) == ("float32", "cpu", "inference", 0)
    assert (config.model.batch_size, config.model.sequence_length, config.model.image_size) == (1, 128, 224)
    assert list(config.stages) == ["capture", "constrain", "lower", "kerneldiff", "benchmark", "minify", "report"]
    defaults = {name: stage.options for name, stage in declared().items() if stage.by_default}
    assert {name: type(options) for name, options in config.stages.items()} == defaults


@pytest.mark.parametrize(
    ("overrides", "selected"),
    [
        (["stages=[report,capture]"], ["report", "capture"]),
        (["stages=[capture]", "+stages=benchmark"], ["capture", "benchmark"]),
        (["~stages.benchmark"], ["capture", "constrain", "lower", "kerneldiff", "minify", "report"]),
    ],
)
def test_the_stage_list_is_selected_ordered_appended_and_removed(overrides: list[str], selected: list[str]) -> None:
    assert list(compose(*overrides)[0].stages) == selected


def test_a_stage_option_is_typed() -> None:
    options = compose("stages.benchmark.repeats=50")[0].stages["benchmark"]
    assert isinstance(options, BenchmarkConfig)
    assert options.repeats == 50


def test_inductor_keys_and_builder_arguments_need_no_plus() -> None:
    config, _ = compose(
        "backend.inductor.pattern_matcher=false", "model=custom", "model.build._target_=a.b", "model.build.depth=3"
    )
    assert config.backend.inductor == {"pattern_matcher": False}
    assert config.model.build == {"_target_": "a.b", "depth": 3}


@pytest.mark.parametrize("backend", ["inductor", "eager", "mock"])
def test_dynamos_keys_need_no_plus_whatever_the_backend(backend: str) -> None:
    config, _ = compose(f"backend={backend}", "backend.dynamo.allow_rnn=true")
    assert (config.backend.name, config.backend.dynamo) == (backend, {"allow_rnn": True})
    config, _ = compose("backend=dynamo", "backend.name=eager", "backend.dynamo.allow_rnn=true")
    assert (config.backend.adapter, config.backend.dynamo) == ("dynamo", {"allow_rnn": True})


def test_profile_fields_are_overridden() -> None:
    config, _ = compose("accel=strict16", "accel.alignment=32", "accel.dtypes=[float16]", "accel.strict=false")
    assert (config.accel.alignment, config.accel.dtypes, config.accel.strict) == (32, ["float16"], False)


def test_the_users_own_yaml_is_found_and_typed(tmp_path: Path) -> None:
    (tmp_path / "accel").mkdir()
    (tmp_path / "accel" / "my_chip.yaml").write_text("name: my_chip\nalignment: 64\n")
    config, _ = compose("--config-dir", str(tmp_path), "accel=my_chip")
    assert (config.accel.name, config.accel.alignment) == ("my_chip", 64)


def test_the_run_directory_is_named_after_the_choices_and_slashes_make_no_folder(monkeypatch: Any) -> None:
    _, hydra = compose("--cfg", "job")
    assert hydra.job.chdir is False
    template = yaml.safe_load((composition.CONF / "config.yaml").read_text())["hydra"]["run"]["dir"]
    assert "%H-%M-%S-%f" in template
    assert composition.slug("++model.build.width=8,+a=x+y,seed=1") == "model.build.width=8,a=x+y,seed=1"
    assert composition.slug("../org/model name") == "org_model_name"
    assert "/" not in composition.slug("a/b=c,d=/x")
    assert len(composition.slug("层" * 500).encode()) <= 60 and composition.slug("x" * 500, 120) != composition.slug(
        "x" * 501, 120
    )


def test_a_stored_configuration_composes_on_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omegaconf import OmegaConf

    stored, _ = compose(
        "model=bert", "accel=strict16", "stages=[report,capture]", "seed=7", "backend.inductor.debug=true"
    )
    (tmp_path / "run" / ".hydra").mkdir(parents=True)
    (tmp_path / "run" / ".hydra" / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(stored)))
    monkeypatch.chdir(tmp_path)
    again = ["--config-path", "run/.hydra", "--config-name", "config"]

    assert compose(*again)[0] == stored
    assert list(compose(*again)[0].stages) == ["report", "capture"]
    changed, hydra = compose(*again, "accel=warn8", "seed=8")
    assert (changed.accel.name, changed.accel.alignment, changed.accel.strict) == ("warn8", 8, False)
    assert (changed.model, changed.seed) == (stored.model, 8)
    assert "outputs" in OmegaConf.to_container(hydra.run, resolve=False)["dir"]


@pytest.mark.parametrize(
    ("typed", "selected"),
    [
        (["+stages=benchmark"], ["capture", "kerneldiff", "benchmark"]),
        (["+stages=[benchmark,report]"], ["capture", "kerneldiff", "benchmark", "report"]),
        (["+stages=kerneldiff", "seed=8"], ["capture", "kerneldiff"]),
        (["stages=[kerneldiff,bisect]"], ["kerneldiff", "bisect"]),
        (["stages=[bisect]", "+stages=report"], ["bisect", "report"]),
    ],
)
def test_stages_are_added_to_those_of_a_stored_run_and_keep_their_options(
    typed: list[str], selected: list[str], tmp_path: Path
) -> None:
    from omegaconf import OmegaConf

    stored, _ = compose("model=bert", "stages=[capture,kerneldiff]", "stages.kerneldiff.factor=2.5")
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.structured(stored)))
    config, _ = compose("--config-path", str(tmp_path), "--config-name", "config", *typed)
    assert list(config.stages) == selected
    if "kerneldiff" in selected:
        assert config.stages["kerneldiff"].factor == 2.5


def test_keys_of_a_stored_configuration_by_their_former_names_mean_those_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run" / ".hydra"
    folder.mkdir(parents=True)
    former = "model: {name: tiny, build: {_target_: tiny_models.mlp}}\nstages: {kerneldiff: {golden: old, steps: 2}}\n"
    (folder / "config.yaml").write_text(former)
    config, _ = compose("--config-path", str(folder), "--config-name", "config")
    assert (config.stages["kerneldiff"].baseline, config.stages["kerneldiff"].steps) == ("old", 2)
    with pytest.raises(ConfigurationError, match=r"Try: stages\.kerneldiff\.baseline=old"):
        compose("stages=[kerneldiff]", "stages.kerneldiff.golden=old")


def test_a_stored_configuration_with_an_unknown_key_names_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("model: {name: mine, batchsize: 4}\n")
    assert entry.main(["--config-path", str(tmp_path), "--config-name", "config"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("model.batchsize: no such key")
    assert str(tmp_path / "config.yaml") in message


def test_sweeps_are_expanded_as_they_will_run() -> None:
    assert jobs("-m", "accel.alignment=8,16", "dtype=float32,bfloat16") == [
        ["accel.alignment=8", "dtype=float32"],
        ["accel.alignment=8", "dtype=bfloat16"],
        ["accel.alignment=16", "dtype=float32"],
        ["accel.alignment=16", "dtype=bfloat16"],
    ]
    assert [job[0] for job in jobs("experiment=alignment_sweep")] == [f"accel.alignment={n}" for n in (8, 16, 32)]
    assert len(jobs("experiment=model_dtype")) == 6


def test_an_experiment_that_sweeps_needs_no_flag() -> None:
    for argv, sweeps in ((["experiment=alignment_sweep"], True), (["accel=warn16"], False)):
        args = arguments.parse(argv)
        with composition.hydra_session(args) as session:
            assert is_sweep(session, args) is sweeps


PRESETS: dict[str, dict[str, Any]] = {
    "inductor": {},
    "inductor_cpp_wrapper": {"cpp_wrapper": True},
    "inductor_debug_sync": {"triton.debug_sync_kernel": True, "triton.debug_sync_graph": True},
    "inductor_freezing": {"freezing": True},
    "inductor_max_autotune": {"max_autotune": True},
    "inductor_no_cudagraphs": {"triton.cudagraphs": False},
    "inductor_no_pattern_matcher": {"pattern_matcher": False},
    "inductor_scalar_cpp": {"cpp.simdlen": 1},
    "inductor_unique_names": {"triton.unique_kernel_names": True, "triton.unique_user_kernel_names": True},
    "aot_inductor": {},
}
"""Backend → what it patches in TorchInductor's configuration, beside the random numbers of eager."""


def test_every_preset_is_in_the_table() -> None:
    folder = {path.stem for path in (composition.CONF / "backend").glob("inductor_*.yaml")}
    assert {name for name in PRESETS if name.startswith("inductor_")} == folder


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_patches_what_it_says(name: str) -> None:
    """Composed and checked as a run does it, so that each key is one of torch's, with a value of its type."""
    from inductor_debug.stages.backends.inductor import InductorAdapter
    from inductor_debug.stages.backends.registry import build_adapter

    config, _ = compose(f"backend={name}")
    assert config.backend.name == name
    adapter = build_adapter(config.backend)
    adapter.validate()
    assert isinstance(adapter, InductorAdapter)
    assert adapter.options == {"fallback_random": True} | PRESETS[name]


def test_a_preset_takes_further_options() -> None:
    config, _ = compose("backend=inductor_scalar_cpp", "backend.inductor.pattern_matcher=false")
    assert config.backend.inductor == {"cpp": {"simdlen": 1}, "pattern_matcher": False}
