"""Clean TorchInductor over many architectures: ``python tests/trials/clean_architectures.py [NAME …]``.

Each architecture is made small with random weights, and runs the stage ``kerneldiff`` with default options in both
modes and in float32 and bfloat16, each a command of its own. No run may be a defect that is not proven to be torch's.
It prints a line a run: exit code, seconds, and the stage's message. Exit code 1 where one of them is not 0.

Usage: ``python tests/trials/clean_architectures.py [--device cuda] [--dtypes float32,bfloat16] [--parallel 2]
[--localize] [--folder FOLDER] [--json FILE] [NAME …]``. A NAME that is none of these is a configuration's, as
``bert``. With ``--localize`` each run looks for wrong operations after a pass too, and fails where it names one.
``--folder`` keeps the runs, and a run that is there is not done again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from huggingface_families import FEW, NARROW, overrides

from inductor_debug.models.compat import prepare_torchvision

FAMILIES = (
    "AlbertConfig", "BartConfig", "BloomConfig", "CLIPVisionConfig", "CTRLConfig", "DebertaV2Config",
    "DistilBertConfig", "ElectraConfig", "FalconConfig", "Gemma2Config", "GPT2Config", "GPTNeoXConfig", "LlamaConfig",
    "MambaConfig", "MistralConfig", "MixtralConfig", "OPTConfig", "PhiConfig", "Qwen3Config", "RobertaConfig",
    "SwinConfig", "T5Config", "ViTConfig", "XLNetConfig",
)  # fmt: skip
VISION = ("squeezenet1_1", "shufflenet_v2_x0_5", "mnasnet0_5", "regnet_x_400mf", "mobilenet_v3_small", "alexnet")
SECONDS = 900
"""Limit of one run."""


def model(name: str) -> list[str]:
    """What chooses the architecture on the command line."""
    if name in VISION:
        return ["model=torchvision", f"model.build.name={name}", "model.image_size=96", "model.batch_size=2"]
    if name not in FAMILIES:
        return [f"model={name}"]
    prepare_torchvision()
    import transformers

    fields = overrides(getattr(transformers, name), FEW | NARROW)
    told = ",".join(f"{key}:{json.dumps(value)}" for key, value in fields.items())
    chosen = ["model=huggingface", f"model.build.config={name}", "model.sequence_length=16"]
    return [*chosen, f"model.build.overrides={{{told}}}".replace('"', "'")]


def run(
    name: str, chosen: list[str], mode: str, dtype: str, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """One run's outcome."""
    directory = folder / f"{name}-{mode}-{dtype}-{options.device}"
    command = [
        sys.executable, "-P", "-m", "inductor_debug.pipeline", "runner.cache=false", *chosen, f"model.name={name}",
        f"mode={mode}",
        f"dtype={dtype}", f"device={options.device}", "stages=[kerneldiff]", "stages.kerneldiff.plots=false",
        f"hydra.run.dir={directory}", *(["stages.kerneldiff.localize.when=always"] if options.localize else []),
    ]  # fmt: skip
    start = time.monotonic()
    if not (directory / "summary.json").is_file():
        try:
            finished = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return {"name": name, "mode": mode, "dtype": dtype, "exit": None, "message": f"more than {SECONDS} s"}
        if not (directory / "summary.json").is_file():
            said = (finished.stdout + finished.stderr).strip()
            return {"name": name, "mode": mode, "dtype": dtype, "exit": finished.returncode, "message": said[-600:]}
    summary = json.loads((directory / "summary.json").read_text())
    stage = next(entry for entry in summary["stages"] if entry["name"] == "kerneldiff")
    failed, message = stage["status"] != "passed", stage["message"]
    if options.localize and (diagnosis := directory / "kerneldiff" / "diagnosis.json").is_file():
        found = json.loads(diagnosis.read_text())["localized"]
        failed, message = failed or bool(found["culprits"]), f"{found['message']} | {message}"
    return {
        "name": name, "mode": mode, "dtype": dtype, "device": options.device, "exit": int(failed),
        "seconds": round(time.monotonic() - start, 1), "message": message, "command": command[3:],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of FAMILIES and VISION; default: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--modes", default="inference,training")
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time")
    parser.add_argument("--localize", action="store_true", help="look for wrong operations after a pass too")
    parser.add_argument("--folder", type=Path, help="where runs stay (default: nowhere)")
    parser.add_argument("--json", type=Path, help="where to store the outcomes")
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    jobs = [
        (name, chosen, mode, dtype)
        for name in options.names or (*FAMILIES, *VISION)
        for chosen in [model(name)]
        for mode in options.modes.split(",")
        for dtype in options.dtypes.split(",")
    ]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(options.parallel) as pool:
        folder = (options.folder or Path(temporary)).resolve()
        for row in pool.map(lambda job: run(*job, options, folder), jobs):
            rows.append(row)
            case = f"{row['name']:18} {row['mode']:9} {row['dtype']:8}"
            said = " ".join(row["message"].split())
            print(f"{case} exit {row['exit']} {row.get('seconds', 0):6} s  {said}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    failed = [row for row in rows if row["exit"] != 0]
    print(f"{len(rows) - len(failed)} of {len(rows)} runs of {len({row['name'] for row in rows})} architectures passed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
