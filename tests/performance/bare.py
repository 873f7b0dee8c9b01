"""The bare work of a default BERT run, in one fresh process, with nothing of this project in it.

What any tool must do to answer the pipeline's questions about BERT: import torch and transformers, build the
model, run it in eager, run it in float64, compile it once with TorchInductor from an empty cache, and time both
sides. The pipeline is held against this figure: see ``tests/performance/ratio.py``.

Usage: ``python tests/performance/bare.py [--warmup 3] [--samples 20]``. Prints one JSON line: CPU seconds are
user + system of this process and of its reaped children (the C++ compiler), wall seconds are of this process.
"""

import argparse
import json
import os
import resource
import tempfile
import time

BEGAN = time.perf_counter()


def cpu_seconds() -> float:
    """User and system seconds of this process and of its finished children."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--warmup", type=int, default=3, help="untimed calls of each side")
    parser.add_argument("--samples", type=int, default=20, help="timed calls of each side")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        import copy

        import torch

        # PyPI's torchvision can't load its library beside a CPU-only torch, and transformers imports torchvision.
        if torch.version.cuda is None:
            library = torch.library.Library("torchvision", "DEF")
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        from transformers import BertConfig, BertModel

        torch.manual_seed(0)
        config = BertConfig(vocab_size=119_547)  # bert-base-multilingual-cased: 12 layers, width 768
        model = BertModel(config).eval()
        places = torch.arange(128)[None]
        inputs = {
            "input_ids": torch.randint(0, config.vocab_size, (1, 128)),
            "attention_mask": (places < 96).long(),
            "token_type_ids": (places >= 64).long(),
        }
        with torch.no_grad():
            reference = model(**inputs).last_hidden_state
            gold = copy.deepcopy(model).double()(**inputs).last_hidden_state
            compiled = torch.compile(model)
            test = compiled(**inputs).last_hidden_state
            seconds: dict[str, list[float]] = {"reference": [], "test": []}
            for index in range(options.warmup + options.samples):
                for side, call in (("reference", model), ("test", compiled)):
                    start = time.perf_counter()
                    call(**inputs)
                    if index >= options.warmup:
                        seconds[side].append(time.perf_counter() - start)
        floor = (reference.double() - gold).pow(2).mean().sqrt().item()
        error = (test.double() - gold).pow(2).mean().sqrt().item()
    print(
        json.dumps(
            {
                "cpu_s": cpu_seconds(),
                "wall_s": time.perf_counter() - BEGAN,
                "error_over_floor": error / floor,
                "median_ms": {side: sorted(values)[len(values) // 2] * 1e3 for side, values in seconds.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
