"""How many architectures of transformers start: ``python tests/trials/huggingface_families.py [NAME …]``.

Every configuration class that ``AutoModel`` has a model for is made small, built as ``model=huggingface`` builds it,
and takes the eager step that precedes a run's first stage. Small means few layers, words and experts (``FEW``); where
that does not start, narrow as well (``NARROW``); where that is not built either, as the class itself makes it. The best
outcome counts. It prints a line a class, then totals. ``starts``. ``exit 2``: the inputs don't fit; the message says
what to type. ``not built``: the class wants settings of its own, a package that is not there, or more than ``SECONDS``
or ``MEMORY``. ``exit 3``: anything else, and there should be none. ``--json FILE`` keeps the outcomes; ``--but FILE``
leaves out what starts in such a file.
"""

import argparse
import contextlib
import importlib
import json
import multiprocessing
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECONDS, MEMORY = 40, 4 * 2**30
"""Limits of one architecture: of processor time, for other processes may take the processor; and of memory."""

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers",
           "num_decoder_layers", "encoder_num_hidden_layers", "decoder_num_hidden_layers", "depth")  # fmt: skip
FEW = {
    **dict.fromkeys(_LAYERS, 2), "vocab_size": 512, "vocab_size_per_layer_input": 512, "num_local_experts": 8,
    "num_experts": 8, "n_routed_experts": 8, "moe_num_experts": 8, "num_experts_per_tok": 2, "moe_topk": 2,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
    "intermediate_size": 64, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "ffn_dim": 64,
    "d_ff": 64, "n_inner": 64,
}  # fmt: skip
"""Upper bounds of fields that make a model small whatever its width is."""
NARROW = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "q_lora_rank": 8,
    "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "qk_head_dim": 16, "v_head_dim": 16, "d_model": 64,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "mlp_hidden_size": 64, "global_head_dim": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    "index_n_heads": 2, "index_head_dim": 16, "expert_ffn_hidden_size": 64, "ffn_hidden_size": 64, "swa_head_dim": 16,
}  # fmt: skip
"""Upper bounds of widths, which have to fit each other: each family's in its own way, so not all build."""


def overrides(kind: Any, bounds: dict[str, int]) -> dict[str, Any]:
    """What of ``bounds`` a configuration class takes, in the configurations that it is made of as well."""
    return _smaller(kind(), bounds)


def _smaller(config: Any, bounds: dict[str, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in getattr(config, "sub_configs", None) or {}:
        inner = getattr(config, name, None)
        if inner is not None and (smaller := _smaller(inner, bounds)):
            found[name] = smaller
    fields = {name: value for name, value in config.to_dict().items() if name not in found}
    sizes = {name: value for name, value in fields.items() if isinstance(value, int) and not isinstance(value, bool)}
    found |= {name: bound for name, bound in bounds.items() if sizes.get(name, 0) > bound}
    long = {sizes[name]: bounds[name] for name in _LAYERS if name in found}
    for name, value in fields.items():  # what is told for each layer
        if isinstance(value, list) and len(value) in long:
            found[name] = _kinds(value, long[len(value)])
    words = bounds["vocab_size"]
    tokens = [name for name, value in sizes.items() if re.search("_token_(id|index)$", name) and value >= words]
    found |= {name: words - 1 - place for place, name in enumerate(sorted(tokens))}
    return found


def _kinds(layers: list[Any], count: int) -> list[Any]:
    """``count`` of the layers, as many kinds of them as can be."""
    first = [value for place, value in enumerate(layers) if value not in layers[:place]]
    return (first + layers)[:count]


def _without_values() -> contextlib.AbstractContextManager[Any]:
    """Weights are left as memory holds them, where this transformers can: whether a model starts is in its shapes."""
    import transformers

    initialization = getattr(transformers, "initialization", None)
    return getattr(initialization, "no_init_weights", contextlib.nullcontext)()


def trials(name: str) -> Iterator[tuple[str, str]]:
    """The outcome of each size of one architecture until it starts: its class, and the message."""
    import torch
    import transformers

    from inductor_debug.models.config import ModelConfig
    from inductor_debug.stages.settings import Settings

    torch.set_num_threads(1)
    for bounds in (FEW, FEW | NARROW, None):
        try:
            fields = overrides(getattr(transformers, name), bounds) if bounds else {}
        except Exception as error:  # noqa: BLE001 - a class that can't be made without arguments
            yield "not built", f"{type(error).__name__}: {error}"
            return
        build = {"_target_": "models.huggingface.build", "config": name, "overrides": fields, "model_class": None,
                 "checkpoint": None, "input_shapes": {}}  # fmt: skip
        outcome = _outcome(Settings(ModelConfig("huggingface", build, sequence_length=16)))
        yield outcome
        if outcome[0] in ("starts", "exit 3") or "but it was not found in your environment" in outcome[1]:
            return
        if bounds == FEW | NARROW and outcome[0] == "exit 2":
            return  # what was built small and does not run would not run large either


ORDER = ("starts", "exit 3", "exit 2", "not built")
"""Outcomes; of several trials of one class the first in this order counts."""


def _outcome(settings: Any) -> tuple[str, str]:
    from inductor_debug.models.errors import UserError, is_out_of_memory
    from inductor_debug.stages.contract import StageContext
    from inductor_debug.stages.eager_check import built_case, check_eager

    case = None
    try:
        with _without_values():
            case = built_case(StageContext(settings, Path()))
        check_eager(case, settings)
    except UserError as error:
        inputs = case is not None or "no known shape" in str(error) or "does not take" in str(error)
        return "exit 2" if inputs else "not built", str(error)
    except Exception as error:  # noqa: BLE001 - what is counted here
        if is_out_of_memory(error):
            return "not built", f"more than {MEMORY >> 30} GiB"
        return "exit 3", f"{type(error).__name__}: {error}"
    return "starts", str({key: list(value.shape) for key, value in case.kwargs.items()})


def _child(name: str, pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    with contextlib.redirect_stdout(sys.stderr):
        for outcome in trials(name):
            pipe.send(outcome)


def families() -> list[str]:
    """Configuration classes that ``AutoModel`` knows, each once."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    names = {CONFIG_MAPPING_NAMES[key] for key in MODEL_MAPPING_NAMES if key in CONFIG_MAPPING_NAMES}
    return sorted(name for name in names if hasattr(transformers, name))


def main() -> int:
    """Try all, or those named; exit code 1 where one is ``exit 3``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", help="a file for the outcomes")
    parser.add_argument("--but", help="such a file: what starts in it is left out")
    arguments = parser.parse_args()
    from inductor_debug.models.compat import prepare_torchvision

    prepare_torchvision()
    for module in (
        "transformers.modeling_utils",
        "transformers.models.auto.modeling_auto",
        "inductor_debug.stages.eager_check",
    ):
        importlib.import_module(module)  # once, before the processes are forked
    forked = multiprocessing.get_context("fork")
    outcomes: dict[str, tuple[str, str]] = {}
    done = json.loads(Path(arguments.but).read_text(encoding="utf-8")) if arguments.but else {}
    for name in arguments.names or families():
        if done.get(name, [""])[0] == "starts":
            continue
        began = time.monotonic()
        receiving, sending = forked.Pipe(duplex=False)
        process = forked.Process(target=_child, args=(name, sending))
        process.start()
        sending.close()
        found = []
        with contextlib.suppress(EOFError):
            while True:
                found.append(receiving.recv())
        process.join()
        late = "not built", f"more than {SECONDS} s or {MEMORY >> 30} GiB"
        kind, told = outcomes[name] = min(found or [late], key=lambda outcome: ORDER.index(outcome[0]))
        sys.stdout.write(f"{kind:10} {name:40} {time.monotonic() - began:5.1f} s  {told!r}\n")
        sys.stdout.flush()
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(outcomes, file, indent=1)
    totals = Counter(kind for kind, _ in outcomes.values())
    sys.stdout.write(f"{len(outcomes)} architectures: {dict(totals)}\n")
    return 1 if totals["exit 3"] else 0


if __name__ == "__main__":
    sys.exit(main())
