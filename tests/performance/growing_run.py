"""How each stage's own user time and memory grow over whole runs: a chain and a wide graph of 100 to 20,000 nodes.

Usage: ``python tests/performance/growing_run.py [KEY=VALUE …] [--shapes chain wide] [--sizes 100 1000 10000 20000]``.
The wide graph of 20,000 nodes has 5,000 parameters and 2,000 outputs (``growing_models.py``). Each run is a command of
its own, from empty caches. ``own_share.py`` tells the tool's own user time from that of torch and the model; compilers'
processes count nowhere. For each stage it prints a row a size: seconds of both, the tool's own with the exponent of the
number of nodes between the size before and this one, and the peak of the process's resident memory, torch's and earlier
stages' included, above what it was at the first size. ``pipeline`` is what no stage does: composing, building the
model, its first step. ``bare`` is the peak of a process in which TorchInductor compiles the model alone.

``--functions 5`` prints, of each stage and size, the tool's functions with most of its own time. A word with ``=`` is
an override of the run.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
SIZES = (100, 1_000, 10_000, 20_000)
SHAPES = ("chain", "wide")
STARTED = "OWN_SHARE"
SITE = f"""
import os, sys
if folder := os.environ.get({STARTED!r}):
    sys.path.append({str(HERE)!r})
    from pathlib import Path
    import own_share
    own_share.start(Path(folder))
"""
OPTIONS = ["model=custom", "model.build._target_=growing_models.build", "runner.cache=false", "runner.timeout_s=7200"]


class Shares:
    """What the samples of one run say.

    Args:
        folder: of the samples.
        bare: peak of the process of torch alone.
    """

    def __init__(self, folder: Path, bare: int) -> None:
        self.seconds: Counter[tuple[str, str]] = Counter({("bare", "own"): 0.0})
        self.functions: Counter[tuple[str, str]] = Counter()
        self.peaks: dict[str, int] = {"bare": bare}
        for path in folder.glob("*.json"):
            stored = json.loads(path.read_text())
            for stage, part, function, seconds in stored["rows"]:
                self.seconds[stage, part] += seconds
                if part == "own":
                    self.functions[stage, function] += seconds
            for stage, peak in stored["peaks"].items():
                self.peaks[stage] = max(self.peaks.get(stage, 0), peak)

    def most(self, stage: str, count: int) -> list[tuple[str, float]]:
        """The tool's functions of a stage with most seconds."""
        found = Counter({name: seconds for (at, name), seconds in self.functions.items() if at == stage})
        return found.most_common(count)


def one_run(shape: str, size: int, overrides: list[str]) -> Shares:
    """Run the pipeline on a model and read the samples.

    Args:
        shape, size: of the model.
        overrides: of the run.
    """
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name in ("site", "samples", "tmp"):
            (work / name).mkdir()
        (work / "site/sitecustomize.py").write_text(SITE)
        path = [str(work / "site"), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {"PYTHONPATH": os.pathsep.join(path), STARTED: str(work / "samples"), "TMPDIR": str(work / "tmp")}
        model = [f"+model.build.shape={shape}", f"+model.build.nodes={size}"]
        command = [sys.executable, "-P", "-m", "inductor_debug.pipeline", *OPTIONS, *model, *overrides]
        done = subprocess.run(command, cwd=work, env=os.environ | variables, stdout=subprocess.PIPE, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"{' '.join(command)}\n{done.stdout}\nended with {done.returncode}")
        alone = [sys.executable, str(HERE / "growing_models.py"), shape, str(size)]
        peak = subprocess.run(alone, env=os.environ | {"TMPDIR": str(work / "tmp")}, stdout=subprocess.PIPE, check=True)
        return Shares(work / "samples", int(peak.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, choices=SHAPES)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--functions", type=int, default=0)
    options = parser.parse_intermixed_args()
    titles = ("graph", "stage", "nodes", "own s", "exponent", "other s", "memory MiB", "exponent")
    print("{:<6} {:<11} {:>7} {:>8} {:>8} {:>8} {:>10} {:>8}".format(*titles))
    for shape in options.shapes:
        before: tuple[int, Shares] | None = None
        least: dict[str, int] = {}
        for size in options.sizes:
            found = one_run(shape, size, options.overrides)
            for stage in dict.fromkeys(stage for stage, _ in found.seconds):
                own, other = found.seconds[stage, "own"], found.seconds[stage, "other"]
                memory = found.peaks[stage] - least.setdefault(stage, found.peaks[stage])
                exponents = ["", ""]
                if before is not None:
                    past = before[1].seconds[stage, "own"], before[1].peaks.get(stage, 0) - least[stage]
                    growth = math.log(size / before[0])
                    exponents = [
                        f"{math.log(now / then) / growth:.2f}" if now > 0 < then else ""
                        for now, then in zip((own, memory), past, strict=True)
                    ]
                print(
                    f"{shape:<6} {stage:<11} {size:>7,} {own:>8.2f} {exponents[0]:>8} {other:>8.2f} "
                    f"{memory / 2**20:>10.0f} {exponents[1]:>8}",
                    flush=True,
                )
                for name, seconds in found.most(stage, options.functions):
                    print(f"       {seconds:>8.2f} s {name}")
            before = size, found


if __name__ == "__main__":
    main()
