"""Puts a module in training or evaluation mode, those included whose mode ``torch.export`` fixed."""

from collections.abc import Iterator

import torch
from torch import fx, nn

from models.errors import ConfigurationError

_SWITCHES = ("train", "training")
"""Names of the argument by which an operator is told the mode, in its schema."""


def set_mode(module: nn.Module, mode: str) -> None:
    """``module.train()`` or ``module.eval()``.

    A graph that ``torch.export`` made has its mode in its operators' arguments, and refuses both calls. It stays as it
    is where that is the mode asked for, or where none of its operators has one.

    Args:
        mode: "training" or "inference".

    Raises:
        ConfigurationError: an exported graph of the other mode.
    """
    training = mode == "training"
    exported = {name: child for name, child in module.named_modules() if _is_exported(child)}
    for name, child in exported.items():
        _check_mode(name, child, training)
    refusing = [(child, vars(child)["train"]) for child in exported.values()]
    for child, _ in refusing:
        object.__setattr__(child, "train", lambda mode=True, child=child: child)
        child.training = training
    try:
        module.train(training)
    finally:
        for child, refusal in refusing:
            object.__setattr__(child, "train", refusal)


def _is_exported(module: nn.Module) -> bool:
    """``torch.export`` gives each such module a ``train`` of its own, which raises."""
    return isinstance(module, fx.GraphModule) and "train" in vars(module)


def _check_mode(name: str, module: nn.Module, training: bool) -> None:
    assert isinstance(module, fx.GraphModule), "an exported module is a graph"
    told = list(_told(module))
    if not told or any(value == training for _, value in told):
        return
    made, other = ("training", "eval") if told[0][1] else ("inference", "train")
    where = f" ({name})" if name else ""
    raise ConfigurationError(
        f"mode={'training' if training else 'inference'}: got a module of torch.export{where} whose graph is fixed in "
        f"{made} mode ({told[0][0]}); valid: mode={made}, or the module exported in the other mode.\n"
        f"Try: mode={made}, or torch.export.export(module.{other}(), …) in the callable of model.build._target_"
    )


def _told(module: fx.GraphModule) -> Iterator[tuple[str, bool]]:
    """Node and mode of each operator that is told one."""
    for node in module.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        for position, argument in enumerate(node.target._schema.arguments):
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            if argument.name in _SWITCHES and isinstance(value, bool):
                yield f"{node.name}, {node.target}", value
