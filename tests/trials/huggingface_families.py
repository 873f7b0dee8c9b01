"""How many architectures of transformers start: ``python tests/trials/huggingface_families.py [NAME …]``.

Every configuration class that ``AutoModel`` has a model for is made small (few layers, few words), built as
``model=huggingface`` builds it, and takes the eager step that precedes a run's first stage. It prints a line a class:
``starts``, ``exit 2`` (the inputs don't fit; the message says what to type), ``not built`` (the class wants settings of
its own, or more than ``SECONDS`` or ``MEMORY``), ``exit 3`` (anything else, and there should be none); then totals.
"""

import argparse
import contextlib
import importlib
import json
import multiprocessing
import resource
import signal
import sys
import time
from collections import Counter
from typing import Any

SECONDS, MEMORY = 40, 6 * 2**30
"""Limits of one architecture."""

SMALL = {
    "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_decoder_layers": 2, "depth": 2, "vocab_size": 512, "num_local_experts": 8, "num_experts": 8,
    "n_routed_experts": 8, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "intermediate_size": 64,
    "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64, "ffn_dim": 64, "d_ff": 64, "n_inner": 64,
}  # fmt: skip
"""Fields that make a model small whatever its width is: widths have to fit each other, each family's in its own way."""


def overrides(kind: Any) -> dict[str, Any]:
    """What of ``SMALL`` a configuration class takes, in the configurations that it is made of as well."""
    template = kind()
    found: dict[str, Any] = {}
    for name in getattr(template, "sub_configs", None) or {}:
        inner = getattr(template, name, None)
        if inner is not None:
            found[name] = _smaller(inner)
    return found | _smaller(template)


def _smaller(config: Any) -> dict[str, Any]:
    fields = config.to_dict()
    found: dict[str, Any] = {}
    for name, value in SMALL.items():
        if isinstance(fields.get(name), int) and not isinstance(fields.get(name), bool) and fields[name] > value:
            found[name] = value
    layers = found.get("num_hidden_layers")
    if layers is not None and isinstance(fields.get("layer_types"), list):
        found["layer_types"] = fields["layer_types"][:layers]
    return found


def _without_values() -> contextlib.AbstractContextManager[Any]:
    """Weights are left as memory holds them, where this transformers can: whether a model starts is in its shapes."""
    import transformers

    initialization = getattr(transformers, "initialization", None)
    return getattr(initialization, "no_init_weights", contextlib.nullcontext)()


def trial(name: str) -> tuple[str, str]:
    """One architecture: its class of outcome, and the message."""
    import torch
    import transformers

    from models.config import ModelConfig
    from models.errors import UserError, is_out_of_memory
    from stages.contract import Settings
    from stages.eager_check import check_eager

    torch.set_num_threads(1)
    try:
        small = overrides(getattr(transformers, name))
    except Exception as error:  # noqa: BLE001 - a class that can't be made without arguments
        return "not built", f"{type(error).__name__}: {error}"
    last = ""
    for fields in (small, {}):
        build = {"_target_": "models.huggingface.build", "config": name, "overrides": fields, "model_class": None,
                 "checkpoint": None, "input_shapes": {}}  # fmt: skip
        settings = Settings(ModelConfig("huggingface", build, sequence_length=16))
        try:
            with _without_values():
                case = settings.build_case()
        except UserError as error:
            if "no known shape" in str(error) or "takes" in str(error):
                return "exit 2", str(error)
            last = str(error)
            continue
        except Exception as error:  # noqa: BLE001 - of the architecture's own constructor
            last = f"{type(error).__name__}: {error}"
            continue
        try:
            check_eager(case, settings)
        except UserError as error:
            return "exit 2", str(error)
        except Exception as error:  # noqa: BLE001 - what is counted here
            if is_out_of_memory(error):
                return "not built", f"more than {MEMORY >> 30} GiB"
            return "exit 3", f"{type(error).__name__}: {error}"
        return "starts", str({key: list(value.shape) for key, value in case.kwargs.items()})
    return "not built", last


def _child(name: str, pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    signal.alarm(SECONDS)
    with contextlib.redirect_stdout(sys.stderr):
        pipe.send(trial(name))


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
    parser.add_argument("--out", help="a JSON file for the outcomes")
    arguments = parser.parse_args()
    from models.compat import prepare_torchvision

    prepare_torchvision()
    for module in ("transformers.modeling_utils", "transformers.models.auto.modeling_auto", "stages.eager_check"):
        importlib.import_module(module)  # once, before the processes are forked
    forked = multiprocessing.get_context("fork")
    outcomes: dict[str, tuple[str, str]] = {}
    for name in arguments.names or families():
        began = time.monotonic()
        receiving, sending = forked.Pipe(duplex=False)
        process = forked.Process(target=_child, args=(name, sending))
        process.start()
        sending.close()
        try:
            outcomes[name] = receiving.recv()
        except EOFError:
            outcomes[name] = "not built", f"ended within {SECONDS} s and {MEMORY >> 30} GiB"
        process.join()
        kind, told = outcomes[name]
        sys.stdout.write(f"{kind:10} {name:40} {time.monotonic() - began:5.1f} s  {told!r}\n")
        sys.stdout.flush()
        if arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(outcomes, file, indent=1)
    totals = Counter(kind for kind, _ in outcomes.values())
    sys.stdout.write(f"{len(outcomes)} architectures: {dict(totals)}\n")
    return 1 if totals["exit 3"] else 0


if __name__ == "__main__":
    sys.exit(main())
