"""Puts a module in training or evaluation mode, those included whose mode ``torch.export`` fixed."""

from collections.abc import Iterator

from torch import fx, nn

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.torch_private import OpOverload, schema_of

_SWITCHES = ("train", "training")
"""Names of the argument by which an operator is told the mode, in its schema."""


def set_mode(module: nn.Module, mode: str) -> None:
    """``module.train()`` or ``module.eval()``.

    A graph of ATen operators, as ``torch.export`` makes, has its mode in their arguments, and refuses both calls or
    takes them without effect. It stays as it is where that is the mode asked for, or where no operator has one.

    Args:
        mode: "training" or "inference".

    Raises:
        ConfigurationError: an exported graph of the other mode.
    """
    training = mode == "training"
    for name, child in module.named_modules():
        if isinstance(getattr(child, "graph", None), fx.Graph):
            _check_mode(name, child, training)
    # torch.export gives each of its modules a train() of its own, which raises
    graphs = [child for child in module.modules() if isinstance(child, fx.GraphModule)]
    refusing = [(child, vars(child)["train"]) for child in graphs if "train" in vars(child)]
    for child, _ in refusing:
        object.__setattr__(child, "train", lambda mode=True, child=child: child)
        child.training = training
    try:
        module.train(training)
    finally:
        for child, refusal in refusing:
            object.__setattr__(child, "train", refusal)


def _check_mode(name: str, module: nn.Module, training: bool) -> None:
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


def _told(module: nn.Module) -> Iterator[tuple[str, bool]]:
    """Node and mode of each operator that is told one."""
    graph = module.graph
    assert isinstance(graph, fx.Graph), "a module without a graph has no operators to ask"
    for node in graph.nodes:
        if not isinstance(node.target, OpOverload):
            continue
        for position, argument in enumerate(schema_of(node.target).arguments):
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            if argument.name in _SWITCHES and isinstance(value, bool):
                yield f"{node.name}, {node.target}", value
