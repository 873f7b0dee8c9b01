"""A wrong configuration is exit code 2 and one message that names the key and the choices; nothing is left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import SMALL, command

from inductor_debug.pipeline.run.commands.entry import main

USER_YAML = {
    "accel/wrong_type.yaml": "name: wrong_type\nalignment: sixteen\n",
    "accel/wrong_key.yaml": "name: wrong_key\nalignmnt: 16\n",
    "accel/wrong_rule.yaml": "name: wrong_rule\nrules: [{rule: alignment, efect: pad}]\n",
    "accel/negative.yaml": "name: negative\nalignment: -3\n",
    "accel/not_yaml.yaml": "name: not_yaml\ndtypes: [float32\nstrict: true\n",
    "accel/listed.yaml": "- alignment\n",
    "model/unknown_key.yaml": "name: mine\nbuild: {_target_: my.build}\nbatchsize: 4\n",
    "backend/wrong_type.yaml": "name: mine\ninductor: fast\n",
    "experiment/broken.yaml": "# @package _global_\ndtypo: float16\n",
}
STAGES = ["capture", "constrain", "lower", "kerneldiff", "benchmark", "minify", "report"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
MODELS = ["bert", "resnet18", "ssm", "huggingface", "torchvision", "custom"]

# arguments, the key that the message starts with, what else it says
CASES: dict[str, tuple[list[str], str, list[str]]] = {
    # a name that a group does not have
    "model name": (["model=berrt"], "model", ["'berrt'", "valid: bert", *MODELS]),
    "accel name": (["accel=strict9"], "accel", ["'strict9'", "none", "mock", "warn16", "strict8"]),
    "backend name": (["backend=inductr"], "backend", ["valid: inductor", "eager", "aot_mock", "dynamo"]),
    "dynamo without a name": (
        ["backend=dynamo"],
        "backend.name",
        ["got no value", "cudagraphs", "Try: backend=dynamo"],
    ),
    "experiment name": (["experiment=alignment"], "experiment", ["alignment_sweep", "model_dtype"]),
    "stage name": (
        ["stages=[capture,constrian]"],
        "stages",
        ["valid: constrain", "stages=[capture,constrain]", *STAGES],
    ),
    # a key that there is not
    "top-level key": (["modell=bert"], "modell", ["valid: model", "accel", "runner"]),
    "accel key": (["accel.alignmnt=8"], "accel.alignmnt", ["valid: accel.alignment", "Try: accel.alignment=8"]),
    "model key": (["model.batchsize=8"], "model.batchsize", ["valid: model.batch_size", "model.image_size"]),
    "backend key": (["backend.nmae=x"], "backend.nmae", ["valid: backend.name", "backend.inductor"]),
    "runner key": (["runner.timeout=8"], "runner.timeout", ["valid: runner.timeout_s", "runner.isolation"]),
    "reference key": (["reference.dtpye=x"], "reference.dtpye", ["valid: reference.dtype", "reference.backend"]),
    "stage option": (["stages.benchmark.repeat=8"], "stages.benchmark.repeat", ["valid: stages.benchmark.repeats"]),
    "rule key": (["accel.rules=[{rule: alignment, efect: pad}]"], "efect", ["valid: effect", "roles", "version"]),
    # a plus does not open the schema
    "added key": (["+accel.foo=1"], "accel.foo", ["accel.alignment", "in +accel.foo=1"]),
    "forced key": (["++foo=1"], "foo", ["model", "runner"]),
    "added stage": (["+stages.nonsense.x=1"], "stages", ["'nonsense'", *STAGES]),
    # a wrong type
    "text for integer": (["accel.alignment=sixteen"], "accel.alignment", ["'sixteen'", "an integer or null"]),
    "text for boolean": (["accel.strict=maybe"], "accel.strict", ["'maybe'", "true or false"]),
    "integer for list": (["accel.denied=5"], "accel.denied", ["'5'", "a list"]),
    "null for integer": (["model.batch_size=null"], "model.batch_size", ["'null'", "an integer"]),
    "stage option's type": (["stages.benchmark.repeats=many"], "stages.benchmark.repeats", ["'many'", "an integer"]),
    # a value outside its set or range
    "dtype": (["dtype=float33"], "dtype", ["'float33'", "in dtype=float33", "valid: float32", *DTYPES]),
    "device": (["device=gpu"], "device", ["'gpu'", "cpu", "cuda"]),
    "mode": (["mode=train"], "mode", ["valid: training", "inference"]),
    "precision": (["precision=auto"], "precision", ["valid: autocast", "cast"]),
    "isolation": (["runner.isolation=thread"], "runner.isolation", ["process", "none"]),
    "memory limit": (["runner.memory_limit=lots"], "runner.memory_limit", ["'lots'", "Try: runner.memory_limit=8G"]),
    "timeout": (["runner.timeout_s=0"], "runner.timeout_s", ["got 0", "a finite number above 0"]),
    "batch size": (["model.batch_size=-1"], "model.batch_size", ["got -1", "a whole number above 0"]),
    "benchmark's batch size": (
        ["stages.benchmark.batch_sizes=[4,0]"],
        "stages.benchmark.batch_sizes",
        ["got [4, 0]", "whole numbers above 0, each of them once", "Try: stages.benchmark.batch_sizes=[4]\n"],
    ),
    "benchmark's batch size, twice": (
        ["stages.benchmark.batch_sizes=[1,4,1]"],
        "stages.benchmark.batch_sizes",
        ["got [1, 4, 1]", "each of them once", "Try: stages.benchmark.batch_sizes=[1,4]\n"],
    ),
    "seed": (["seed=-1"], "seed", ["got -1", "a whole number from 0"]),
    "reference dtype": (["reference.dtype=half"], "reference.dtype", DTYPES),
    "alignment": (["accel.alignment=0"], "accel.alignment", ["got 0", "above 0"]),
    "alignment dims": (["accel.alignment_dims=lst"], "accel.alignment_dims", ["valid: last", "contraction"]),
    "interpolation": (["seed=${nope}"], "seed", ["nope", "valid:"]),
    # stages
    "stage not selected": (
        ["stages=[capture,report]", "stages.benchmark.repeats=5"],
        "stages.benchmark.repeats",
        ["benchmark is not selected", "capture, report", "Try: 'stages=[capture,report,benchmark]'"],
    ),
    "stage not selected, added": (
        ["stages=[capture]", "+stages.benchmark.repeats=5"],
        "stages.benchmark",
        ["benchmark is not selected", *STAGES],
    ),
    "duplicate stage": (
        ["stages=[capture,constrain,capture]"],
        "stages",
        ["twice", "Try: 'stages=[capture,constrain]'"],
    ),
    "no stage": (["stages=[]"], "stages", STAGES),
    "option of an unknown stage": (
        ["stages.kerneldif.factor=3"],
        "stages",
        ["'kerneldif'", "Try: stages.kerneldiff.factor=3\n"],
    ),
    "removed stage": (["~stages.nope"], "stages", ["'nope'", *STAGES]),
    # a command line that can't be read
    "no key": (["bert"], "command line", ["'bert'", "KEY=VALUE", "Try: model=bert"]),
    "open bracket": (["accel.dtypes=["], "command line", ["'accel.dtypes=['", "[a,b]"]),
    "flag": (["--multi-run"], "command line", ["--multi-run", "valid flags: --multirun"]),
    "sweep without the flag": (["accel=none,mock"], "accel", ["--multirun accel=none,mock"]),
    "sweep of a value": (["dtype=float32,float64"], "dtype", ["Try: --multirun dtype=float32,float64\n"]),
    "sweep of models": (["model=resnet18,bert"], "model", ["one value", "Try: --multirun model=resnet18,bert\n"]),
    "list without brackets": (
        ["accel.dtypes=float16,int8"],
        "accel.dtypes",
        ["Try: 'accel.dtypes=[float16,int8]', or"],
    ),
    "stages without brackets": (["stages=capture,lower"], "stages", ["Try: 'stages=[capture,lower]', or --multirun"]),
    "experiment with a plus": (["+experiment=alignment_sweep"], "experiment", ["Try: experiment=alignment_sweep"]),
    "config dir": (["--config-dir", "nowhere"], "--config-dir", ["nowhere", "folders beside it"]),
    "config path": (["--config-path", "nowhere"], "--config-path", ["nowhere", "RUN/.hydra"]),
    "config name": (["--config-path", "conf", "--config-name", "x"], "--config-name", ["'x'", "valid: none"]),
    "missing value": (["model=custom"], "model.build._target_", ["in model=custom", "Try: model.build._target_="]),
    # YAML of the user's
    "YAML type": (["accel=wrong_type"], "accel.alignment", ["'sixteen'", "accel/wrong_type.yaml", "an integer"]),
    "YAML key": (["accel=wrong_key"], "accel.alignmnt", ["accel/wrong_key.yaml", "valid: accel.alignment"]),
    "YAML rule": (["accel=wrong_rule"], "efect", ["accel/wrong_rule.yaml", "valid: effect"]),
    "YAML value": (["accel=negative"], "accel.alignment", ["got -3", "accel=negative"]),
    "YAML syntax": (["accel=not_yaml"], "", ["accel/not_yaml.yaml:3:", "not YAML", "correct line 3"]),
    "YAML shape": (["accel=listed"], "accel", ["accel/listed.yaml", "alignment_dims"]),
    "YAML model key": (["model=unknown_key"], "model.batchsize", ["model/unknown_key.yaml", "valid: model.batch_size"]),
    "YAML mapping": (["backend=wrong_type"], "backend.inductor", ["backend/wrong_type.yaml", "a mapping"]),
    "YAML experiment": (["experiment=broken"], "dtypo", ["experiment/broken.yaml", "valid: dtype"]),
    # any job of a sweep, before the first one runs
    "sweep value": (["-m", "dtype=float32,float33"], "dtype", ["'float33'", *DTYPES]),
    "sweep type": (["-m", "accel.alignment=8,x"], "accel.alignment", ["'x'", "an integer"]),
    "sweep option": (["-m", "model=resnet18,berrt"], "model", ["'berrt'", *MODELS]),
    "sweep stages": (["-m", "stages=[capture],[capture,nope]"], "stages", ["'nope'", *STAGES]),
    "experiment's sweep": (["experiment=alignment_sweep", "accel.strict=maybe"], "accel.strict", ["true or false"]),
}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the user's YAML in ``conf``."""
    for name, text in USER_YAML.items():
        file = tmp_path / "conf" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assert_one_message(message: str, key: str, words: list[str], workplace: Path) -> None:
    assert message.startswith((f"{key}:" if key else str(workplace), f"{key}=")), message
    assert "Traceback" not in message
    assert len(message.splitlines()) <= 2, message
    for word in words:
        assert word in message, f"{word!r} is not in {message!r}"
    assert sorted(entry.name for entry in workplace.iterdir()) == ["conf"]


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_configuration_is_one_message_and_exit_code_2(
    name: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, key, words = CASES[name]
    extra = [] if "--config-dir" in arguments else ["--config-dir", "conf"]

    code = main([*arguments, *extra])

    printed = capsys.readouterr()
    assert code == 2, printed.err
    assert printed.out == ""
    assert_one_message(printed.err, key, words, workplace)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ([sys.executable, "-m", "inductor_debug.pipeline"], "dtype"),
        ([sys.executable, "-m", "inductor_debug.pipeline"], "YAML syntax"),
        ([sys.executable, "-m", "inductor_debug.pipeline"], "sweep value"),
        ([str(Path(sys.executable).parent / "inductor-debug"), "run"], "stage not selected"),
    ],
)
def test_the_real_command_line_says_the_same(command: list[str], name: str, workplace: Path) -> None:
    arguments, key, words = CASES[name]

    done = subprocess.run(
        [*command, *arguments, "--config-dir", "conf"],
        cwd=workplace,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 2, done.stderr
    assert_one_message(done.stderr, key, words, workplace)


@pytest.mark.parametrize(
    ("stage", "options"), [("capture", "{facto: 2}"), ("kerneldiff", "{facto: 2}"), ("kerneldiff", "{factor: 0}")]
)
def test_options_that_the_adapter_does_not_take_stop_the_run_before_any_stage(
    stage: str, options: str, workplace: Path
) -> None:
    adapter = ("backend.adapter=faulty_adapters.ScaledOutput", f"backend.options={options}")
    done = command(*SMALL, *adapter, f"stages=[{stage}]", cwd=workplace)

    assert done.returncode == 2, done.stdout + done.stderr
    assert "backend.options" in done.stderr and "factor" in done.stderr
    assert f"{stage} …" not in done.stdout
    assert not list(workplace.glob("outputs/*/*"))


def test_an_option_that_torchinductor_does_not_have_stops_the_run_before_any_stage(workplace: Path) -> None:
    """Before capture too, which compiles nothing with it."""
    done = command(*SMALL, "backend.inductor.patern_matcher=false", "stages=[capture]", cwd=workplace)

    assert done.returncode == 2, done.stdout + done.stderr
    assert "backend.inductor.patern_matcher: TorchInductor has no such option; valid: pattern_matcher," in done.stderr
    assert "Try: backend.inductor.pattern_matcher=false" in done.stderr and "Traceback" not in done.stderr
    assert "capture …" not in done.stdout
    assert not list(workplace.glob("outputs/*/*"))


@pytest.mark.parametrize("source", ["import no_such_driver", "class Chip(AcceleratorAdapter):\n    pass"])
def test_an_adapter_that_cant_be_one_stops_the_run_and_names_its_file(source: str, workplace: Path) -> None:
    (workplace / "broken_chip.py").write_text(f"from inductor_debug import AcceleratorAdapter\n{source}\n")
    done = command(*SMALL, "backend._target_=broken_chip.Chip", cwd=workplace)

    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{workplace}/broken_chip.py:2" in done.stderr and "Traceback" not in done.stderr
    assert not list(workplace.glob("outputs/*/*"))


@pytest.mark.parametrize("stage", ["kerneldiff", "benchmark"])
def test_what_only_compiling_can_tell_of_the_configuration_is_exit_code_2_too(stage: str, workplace: Path) -> None:
    backend = ("backend=dynamo", "backend.name=mock", "backend.options={profile: no_such_profile}")
    done = command(*SMALL, *backend, f"stages=[{stage}]", cwd=workplace)

    assert done.returncode == 2, done.stdout + done.stderr
    assert "accel: got 'no_such_profile'" in done.stderr and "Traceback" not in done.stderr
