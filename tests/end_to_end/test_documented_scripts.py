"""Every script of ``tests/performance`` and ``tests/trials`` whose figures the documentation quotes does its work.

The slow tests run each at its smallest size, as a fresh process. That shows that the command still regenerates its
figures, not what they are.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from command_line import Finished
from documented_commands import PAGES, ROOT
from markdown_it import MarkdownIt
from test_documented_commands import ON_STORED, SCRIPTS

WAIT_S = 900
NAMED = re.compile(r"\btests/(?:performance|trials)/\w+\.(?:py|sh)")
RUN = "RUN"
"""Stands for a stored run among a script's arguments."""


@dataclass(frozen=True)
class Script:
    """A script at its smallest size.

    Attributes:
        path: below ``tests``.
        arguments: as typed.
        says: a regular expression that what it prints matches; ``.`` matches no line break.
        needs: a key of NEEDS; empty where it runs anywhere.
        codes: exit codes that are right.
    """

    path: str
    arguments: str
    says: str
    needs: str = ""
    codes: tuple[int, ...] = (0,)

    @property
    def name(self) -> str:
        return f"tests/{self.path}"

    def __str__(self) -> str:
        return f"{self.path} {self.arguments}".strip()


def installed(*packages: str) -> bool:
    return all(map(find_spec, packages))


CUDA, RAY, SLURM = "a CUDA device", "Ray and Hydra's launcher for it", "SLURM (sinfo) and Hydra's launcher for it"
BROWSER = "Chromium"
GIT, THROWAWAY = "a Git checkout", "THROWAWAY_MACHINE=1, root, slurm-wlm and munge: it sets up SLURM on the machine"
NEEDS: dict[str, Callable[[], bool]] = {
    CUDA: torch.cuda.is_available,
    RAY: lambda: installed("ray", "hydra_plugins.hydra_ray_launcher"),
    SLURM: lambda: shutil.which("sinfo") is not None and installed("hydra_plugins.hydra_submitit_launcher"),
    BROWSER: lambda: shutil.which("chromium") is not None,
    GIT: lambda: (ROOT / ".git").exists(),
    THROWAWAY: lambda: (
        os.environ.get("THROWAWAY_MACHINE") == "1" and os.geteuid() == 0 and shutil.which("slurmctld") is not None
    ),
}
"""What a script asks of the machine, and whether it is there."""

FIGURE = r"[\d.]+"
EVERY = [
    Script("trials/alexnet_gradients.py", "", r"^features\.0\.weight +eager \d\S+e-0\d  inductor \d\S+e[+-]\d+$",
           codes=(0, 1)),
    Script("performance/growth.py", "constrain --shapes chain --sizes 50 100 --rounds 1",
           rf"^constrain +chain +100 +{FIGURE} +-?{FIGURE} +{FIGURE} +-?{FIGURE}$"),
    Script("performance/graph_pictures.py", "RUN --rounds 1", r'"graph": "g0\.forward",\s+"nodes": [1-9]'),
    Script("performance/dashboard.py", "RUN --runs 5 --rounds 1",
           rf"^5 runs: counted after {FIGURE} s, their table drawn after {FIGURE} s$", BROWSER),
    Script("performance/latency_pairs.py", "RUN RUN",
           r"over the reference 1\.00 \(.*\n.*: 1 is in 1 of 1 intervals, 0 beyond"),
    Script("performance/compare.py", "--elements 100000 --rounds 1",
           rf"^compare_tensors {FIGURE} s, plain torch {FIGURE} s, ratio"),
    Script("performance/compare.py", "--cases --elements 1000000 --rounds 1",
           rf"^channels last: CPU {FIGURE} ms, assert_close {FIGURE} ms, ratio(.*\n)+int64: wall "),
    Script("performance/compare.py", "--pairs 20 --rounds 1",
           rf"^equal: CPU {FIGURE} us a pair, assert_close {FIGURE} us a pair, ratio"),
    Script("performance/compare.py", "--elements 100000 --layout csr --stored 0.1 --rounds 1",
           rf"^sparse {FIGURE} s, made dense {FIGURE} s, ratio"),
    Script("performance/pictures.py", "--elements 4000000",
           rf"^\[4, 100, 100, 100\] channels last +{FIGURE} s CPU +-?{FIGURE} MiB extra, \d{{4,}} bytes of PNG$"),
    Script("performance/false_alarms.py", "--seeds 2 --only 0",
           r"^mean of 512 outputs: of 2 seeds .* for \d, by all draws for 0; an error of 0\.1 % is a defect for 2$"),
    Script("performance/emulation.py", "--rounds 1",
           rf"^eager: {FIGURE} ms CPU, 1\.00 times eager\nbfloat16 storage: .*\nbfloat16 storage, sums in bfloat16 "),
    Script("performance/mock_first_call.py", "--runs 1 --own 1 --layers 1 --pairs eager:mock",
           rf'^{{"pair": "eager:mock", "own_share": {FIGURE}, "first_cpu_s": {{"ratio": {FIGURE},'),
    Script("performance/lowering.py", "--runs 1 --layers 1 --mode inference",
           rf'"layers": 1, "caches": false, "cpu_s": {{"ratio": {FIGURE}, .*"python_cpu_s"'),
    Script("performance/input_draws.py", "--model resnet18 --rounds 1",
           rf"^resnet18 inference float32: {FIGURE} s, {FIGURE} s, {FIGURE} times$"),
    Script("performance/sensitivity.py", "--sites 1", rf"^resnet18 inference float32: {FIGURE} s, {FIGURE} s, "),
    Script("performance/rounding_noise.py", "--model resnet18 --mode inference --dtype float32 --runs 1",
           rf"^  output +1, eager {FIGURE} {FIGURE} {FIGURE}, inductor {FIGURE} "),
    Script("performance/detection.py", "--model ssm --dtype float32 --seeds 1",
           rf"^ssm float32: largest effect passed {FIGURE}, smallest defect {FIGURE}$"),
    Script("performance/growing_run.py", "stages=[capture] --shapes chain --sizes 30 60",
           rf"^chain +capture +60 +{FIGURE} "),
    Script("performance/sweep.py", "model=custom model.build._target_=small_models.perceptron backend=aot_eager "
           "stages=[capture,constrain]",
           rf"^1 value {FIGURE} s of CPU, each further {FIGURE} s: 3 values are {FIGURE} of 1$"),
    Script("performance/ratio.py", "resnet18 --mode inference stages=[kerneldiff,benchmark] "
           "stages.benchmark.processes=2 stages.benchmark.repeats=3 stages.benchmark.max_repeats=3",
           rf"^resnet18 inference: {FIGURE} s of CPU over {FIGURE} s .*\n.*: median of 1: CPU {FIGURE} \("),
    Script("performance/aa_pairs.py", "--pairs 1 --planted 1 --processes 2",
           r"^A/A covered, of all +[01] of 1 (.*\n)+planted found .* [01] of 1 "),
    Script("trials/command_lines.py", "--sample 20 --processes 1",
           r"^20 command lines, 1 of them by processes too: 0 answered wrong$"),
    Script("trials/kills.py", "--count 1", r"^  0 .*: right\n1 trials of seed 0: 0 wrong$"),
    Script("trials/resumed.py", "--kills 1", r"^sweep \d+: 1 kills, 1 in all: as undisturbed$"),
    Script("trials/hostile_folders.py", "--run RUN --only cut",
           r"^healthy: [1-9]\d+ commands, (.*\n)+summary cut short: \{.*\}$"),
    Script("trials/planted_constants.py", "--sites 1 --model mobilenet_v3_small",
           rf"^mobilenet_v3_small,bias dropped,\S+,{FIGURE}\S*,defect,(.*\n)+# 0 of 8 floors or more were missed$"),
    Script("trials/planted_gradients.py", "--sites 1 --model llama",
           rf"^llama,\S+\.weight,0\.0,{FIGURE}\S*,(.*\n)+# 0 were missed$"),
    Script("trials/planted_kinds.py", "--models resnet10 --kinds scale --only always --graphs forward",
           r"^resnet10 \S+forward scale always at .*: named (.*\n)+\{'always named': 1\}"),
    Script("trials/localized_faults.py", "--models bert --faults 1 --modes inference --dtypes float32",
           r"^bert inference float32 clean: (.*\n)+\{'planted': 1, 'named': \d, 'missed': 0, 'clean': 1, 'false': 0\}"),
    Script("trials/localization_cost.py", "--layers 1 --batch 1 --sequence 8 --modes inference",
           rf"^aot_eager inference: float64 {FIGURE} s; .*checking {FIGURE}.*, closure {FIGURE}$"),
    Script("trials/shares_memory.py", "aot_eager --layers 1 --batch 1 --sequence 8",
           rf"^eager: \d+ MB, 1\.00 of eager, .*\naot_eager: \d+ MB, {FIGURE} of eager, \d+ s, closure {FIGURE}$"),
    Script("trials/blind_faults.py", "--count 1", r"^2 runs of seed 0, in .*: 1 clean: passed; 1 seen$"),
    Script("trials/blind_localization.py", "--only rsub_swapped",
           r"^rsub_swapped +recurrent +training +float32 .*\| exact \d+ s$"),
    Script("trials/clean_architectures.py", "squeezenet1_1 --modes inference --dtypes float32",
           r"^squeezenet1_1 +inference float32 +exit 0 (.*\n)+1 of 1 runs of 1 architectures passed$"),
    Script("trials/clean_architectures.py", "squeezenet1_1 --modes inference --dtypes float32 --localize",
           r"^squeezenet1_1 +inference float32 +exit 0 .* (\d+) of \1 operations .* checked.*\n1 of 1 runs of 1 archi"),
    Script("trials/replaced_kernels.py", "--model resnet18 --mode inference --dtype float32",
           r"right kernels passed in 12 of 12 judgements .* a defect in 12 of 12 "),
    Script("trials/minified_failures.py", "--out rows.jsonl --small --only denied.gpt2 --budget 120 --seconds 600",
           r"^denied gpt2 small inference dynamic, ours: [1-3] of \d+ operations, (.*\n)+0 left after \d+ s$"),
    Script("trials/mutants.py", "--count 1 --folders stages/accelerators --related",
           r"^  0 \S+\.py:\d+: .*: (survives|killed by \S+)\n[01] of 1 are killed at HEAD$", GIT, (0, 1)),
    Script("performance/device.py", "--elements 1048576 --rounds 2 --pairs 2",
           rf"^compare_tensors: \d+ GB/s, {FIGURE} of the copy, (.*\n)+bfloat16 by the device's clock: \d+ us", CUDA),
    Script("performance/cuda_options.py", "--processes 2", r"^both options do what they say$", CUDA),
    Script("performance/cuda_agreement.py", "--models resnet18 --repetitions 1 --rounds 10 --limit 10 "
           f"--core {min(os.sched_getaffinity(0))}",
           r"^1 resnet18 +inductor +wall_ms (.*\n)+2 of 2 rows agree within 1000 %$", CUDA),
    Script("trials/cluster_ray.py", "--jobs 2 --kill-every 3 --stages capture,constrain",
           r"^2 jobs, as under the basic launcher; [1-9]\d* kills of a node in \d+ s$", RAY),
    Script("trials/slurm_here.sh", "", r"^idle", THROWAWAY),
    Script("trials/cluster_slurm.py", "--jobs 2 --disturb-every 10 --stages capture,constrain",
           r"^2 jobs, as under the basic launcher; \d+ disturbances in \d+ s, started \d times$", SLURM),
]  # fmt: skip
"""Each documented script: its smallest arguments, what it prints of its work, and what it needs."""
OTHER_HALF = {
    "tests/performance/bare.py": "tests/performance/ratio.py",
    "tests/performance/cuda_bare.py": "tests/performance/cuda_agreement.py",
}
"""Scripts that another one runs."""


def texts() -> Iterator[tuple[str, str]]:
    """Path and content of each page."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        yield str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")


def typed_inline() -> Iterator[tuple[str, str]]:
    """Path of a page, and a command of a script that it has within a sentence or a table."""
    parser = MarkdownIt("commonmark")
    for page in PAGES:
        for token in parser.parse(page.read_text(encoding="utf-8")):
            for part in token.children or ():
                if part.type == "code_inline" and NAMED.search(part.content):
                    yield str(page.relative_to(ROOT)), part.content


TYPED = sorted({*((command.page, command.text) for command in SCRIPTS), *typed_inline()})


def test_the_table_has_the_scripts_that_are_documented() -> None:
    """Each once at least, or a page's own test or another script runs it; and no other script."""
    documented = {name for _, text in texts() for name in NAMED.findall(text)}
    by_page = {name for command in ON_STORED for name in NAMED.findall(command.text)}
    assert documented - by_page == {script.name for script in EVERY} | OTHER_HALF.keys()
    for name, other in OTHER_HALF.items():
        assert Path(name).name in (ROOT / other).read_text(), f"{other} does not run {name}"


@pytest.mark.parametrize("typed", TYPED, ids=": ".join)
def test_a_script_has_the_options_that_are_typed(typed: tuple[str, str]) -> None:
    _, text = typed
    (name,) = NAMED.findall(text)
    source = (ROOT / name).read_text()
    assert [option for option in re.findall(r"(?<!\S)\[?(--[\w-]+)", text) if f'"{option}"' not in source] == []


@pytest.mark.slow
@pytest.mark.timeout(WAIT_S + 60)
@pytest.mark.parametrize("script", EVERY, ids=str)
def test_a_script_does_its_work(script: Script, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if script.needs and not NEEDS[script.needs]():
        pytest.skip(f"needs {script.needs}")
    words = script.arguments.split()
    if RUN in words:
        run: Finished = request.getfixturevalue("inference_run")
        words = [str(run.directory) if word == RUN else word for word in words]
    program = [sys.executable] if script.path.endswith(".py") else ["bash"]
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [*program, str(ROOT / script.name), *words], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    told = f"exit code {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    print(told)
    assert done.returncode in script.codes, told
    assert re.search(script.says, done.stdout, re.MULTILINE), told
