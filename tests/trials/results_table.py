"""The tables of docs/case-studies/results.md: ``python tests/trials/results_table.py SWEEP…``.

A SWEEP is what ``python -m pipeline --multirun model=bert,resnet18,ssm accel=warn16`` leaves, in one dtype or several.
Each model's capture in the first dtype is held to every profile of ``conf/accel`` but ``mock`` and the ``warn…`` ones,
whose rules the ``strict…`` ones have. It prints Markdown: the answers to each question by model, then the fit by
profile. Nothing runs again. ``--readme`` prints the README's table instead, which is an extract of that page.
"""

import argparse
import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductor_debug.pipeline.directory.store import find_runs
from inductor_debug.pipeline.query.check_command import read_graphs
from inductor_debug.pipeline.query.check_profile import Asked, against
from inductor_debug.stages.accelerators.profile import profile_names, validate_profile
from inductor_debug.stages.formatting import percent
from inductor_debug.stages.rules.affected import AffectedOperations
from inductor_debug.stages.rules.engine import check
from inductor_debug.stages.rules.findings import by_finding
from inductor_debug.stages.rules.violation import Violation

LEFT_OUT = ("none", "mock", "warn")
"""Starts of the names of profiles that are no chip, or have the rules of another profile."""
STRICT = "strict"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Fit:
    """One capture against one profile.

    Attributes:
        findings: what a user changes once each.
        operations_share, flops_share: of the operations that a finding concerns, each once, over all.
        rejected: findings that the chip refuses, and does not mend by a pad, a cast, a copy or the host.
    """

    findings: int
    operations_share: float
    flops_share: float
    rejected: int

    @property
    def told(self) -> str:
        """A cell of the table."""
        if not self.findings:
            return "fits"
        rejected = f", {self.rejected} rejected" if self.rejected else ""
        shares = f"{percent(self.operations_share)} of operations, {percent(self.flops_share)} of FLOPs"
        return f"{self.findings:,} ({shares}{rejected})"


def fit(run: Path, profile: str) -> Fit:
    """Hold a run's stored capture to a profile, by its name in ``conf/accel``."""
    graphs, found = read_graphs(run), against(run, Asked.of([], profile, None))
    violations = check(graphs, validate_profile(found.config, {}, base=found.base))
    affected = AffectedOperations(graphs)
    rows = list(violations)
    places, _ = affected.of(rows)
    operations, _, flops = affected.totals()
    rejected = _findings([row for row in rows if row.effect == "reject"])
    found_flops = affected.flops(places or ())
    return Fit(_findings(rows), len(places or ()) / max(1, operations), found_flops / max(1, flops), rejected)


def _findings(rows: Sequence[Violation]) -> int:
    return len(by_finding(list(rows), lambda row: row.finding))


def _summary(run: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return loaded


def numbers(run: Path) -> str:
    """The comparison's verdict, and of all compared tensors the largest error over its noise floor and resolution."""
    verdict = _summary(run)["numerics"]["verdict"]
    table = run / "kerneldiff/outputs.csv"
    if not table.is_file():
        return "not asked"
    with table.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    ratio = max(float(row["ratio"]) for row in rows if row["ratio"])
    resolution = max(float(row["resolution"]) for row in rows if row["resolution"])
    return f"{verdict}: {ratio:.3g} of {float(rows[0]['factor']):g}; an error above {resolution:.1e} of RMS is seen"


def kernels(run: Path) -> str:
    """How many launches the compiler made, how many of them call a library, and how many kernels it wrote."""
    lowered = json.loads((run / "lower/summary.json").read_text(encoding="utf-8"))
    launches, library, own = (
        sum(graph[name] for graph in lowered["graphs"].values()) for name in ("launches", "extern_launches", "kernels")
    )
    operations = _summary(run)["graphs"]["nodes"]
    return f"{operations:,} → {launches} ({library} library; {own} kernels written)"


def speed(run: Path) -> str:
    """The speed-up and its 95 % interval, or why there is none."""
    found = _summary(run)["benchmark"]
    if found["speedup"] is None:
        return NOT_MEASURED
    low, high = found["speedup_ci95"]
    told = f"{found['speedup']:.2f} ({low:.2f} to {high:.2f})"
    return told if found["established"] else f"not established ({told})"


def cells(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def table(runs: dict[tuple[str, str], Path], profiles: Sequence[str]) -> str:
    """Markdown.

    Args:
        runs: model and dtype → the run's folder.
        profiles: the rows of the second table.
    """
    models = list(dict.fromkeys(model for model, _ in runs))
    dtypes = list(dict.fromkeys(dtype for _, dtype in runs))
    first = {model: runs[model, dtypes[0]] for model in models}
    fits = {name: {model: fit(run, name) for model, run in first.items()} for name in profiles}
    chips = [name for name in profiles if not name.startswith(STRICT)]
    head = [cells(["", *models]), cells(["---"] * (len(models) + 1))]

    def fitting(model: str) -> str:
        met = [name for name in chips if not fits[name][model].findings]
        return f"{len(met)} of {len(chips)}" + (f": {', '.join(met)}" if met else "")

    rows = [["published chips that it fits", *map(fitting, models)]]
    rows.append([f"operations → kernel launches ({dtypes[0]})", *(kernels(first[model]) for model in models)])
    for dtype in dtypes:
        rows.append([f"numbers in {dtype}", *(numbers(runs[model, dtype]) for model in models)])
    for dtype in dtypes:
        told = [speed(runs[model, dtype]) for model in models]
        rows += [[f"speed-up in {dtype}", *told]] if set(told) != {NOT_MEASURED} else []
    by_profile = [[name, *(fits[name][model].told for model in models)] for name in profiles]
    return "\n".join([*head, *map(cells, rows), "", cells(["profile", *models]), head[1], *map(cells, by_profile)])


PAGE = Path(__file__).parents[2] / "docs/case-studies/results.md"
NAMES = {"bert": "BERT", "resnet18": "ResNet-18", "ssm": "a state-space model"}
SHOWN = ("strict16", "google_tpu", "ibm_spyre")
"""Profiles whose violations the README tells."""


def readme(page: str) -> str:
    """The README's table, of the figures of docs/case-studies/results.md.

    Args:
        page: that page's text.
    """
    split = [[part.strip() for part in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]
    models = [name for name in split[0] if name]
    rows: dict[str, list[list[str]]] = {}
    for name, *found in split:
        rows.setdefault(name, []).append(found)

    def of(name: str) -> list[str]:
        return rows[name][0]

    def violations(column: int) -> str:
        return ", ".join(of(profile)[column].partition(" ")[0].replace("fits", "0") for profile in SHOWN)

    def right(told: str) -> str:
        verdict, ratio = re.findall(r"(\w+): ([\d.]+) of", told)[0]
        return f"{float(ratio):.2f}, {'right' if verdict in ('exact', 'within_floor') else verdict}"

    def seen(told: str) -> str:
        mantissa, exponent = re.findall(r"above ([\d.]+)e(-?\d+)", told)[0]
        return f"{mantissa}e{int(exponent)}"

    chips = {told.split(" of ")[1].partition(":")[0] for told in of("published chips that it fits")}
    numbers, columns = of("numbers in float32"), range(len(models))
    limit = re.findall(r" of ([\d.]+);", numbers[0])[0]
    listed = ", ".join(f"`{profile}`" for profile in SHOWN)
    lines = [
        ["", *(NAMES[model] for model in models)],
        ["---"] * (len(models) + 1),
        [
            f"published chips that it fits, of {chips.pop()}",
            *(told.split()[0] for told in of("published chips that it fits")),
        ],
        [f"violations of {listed}", *map(violations, columns)],
        [
            "operations → kernel launches on a CPU",
            *(told.partition(" (")[0] for told in of("operations → kernel launches (float32)")),
        ],
        [f"numbers on a CPU: error over noise floor, limit {limit}", *map(right, numbers)],
        ["an error of the result that would be seen, of its RMS", *map(seen, numbers)],
        ["speed-up by TorchInductor on two CPU cores, 95 % interval", *of("speed-up in float32")],
        ["the same on an H200", *of("speed-up")],
    ]
    return "\n".join("|" + "|".join(f" {part} " if part else " " for part in line) + "|" for line in lines).replace(
        " --- ", "---"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", metavar="SWEEP", nargs="*", type=Path)
    parser.add_argument("--readme", action="store_true", help="print the README's table instead")
    asked, runs = parser.parse_args(), {}
    if asked.readme:
        print(readme(PAGE.read_text(encoding="utf-8")))
        return
    for sweep in asked.sweeps:
        for run in find_runs(sweep):
            if not (run / "summary.json").is_file():
                parser.error(f"{run}: has no result yet; start the sweep's command again, which goes on from there")
            told = _summary(run)["run"]
            runs[told["model"], told["dtype"]] = run
    if not runs:
        parser.error("no run with a result below the folders that were given")
    names = [name for name in profile_names() if not name.startswith(LEFT_OUT)]
    print(
        table(
            runs,
            sorted(
                names, key=lambda name: (not name.startswith(STRICT), len(name) if name.startswith(STRICT) else 0, name)
            ),
        )
    )


if __name__ == "__main__":
    main()
