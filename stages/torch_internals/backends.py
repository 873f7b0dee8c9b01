"""Backends registered with torch, and AOTAutograd as a backend.

Relies on ``torch._dynamo.list_backends``, ``torch._dynamo.lookup_backend`` and
``torch._dynamo.backends.common.aot_autograd``.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import fx

from models.errors import invalid_choice


def registered_backends() -> list[str]:
    """Names that ``torch.compile(backend=…)`` knows, entry points of installed packages included."""
    import torch._dynamo

    return sorted(torch._dynamo.list_backends(None))


def registered_backend(name: str, *, key: str = "backend.name") -> Callable[..., Any]:
    """The backend registered as ``name``; ConfigurationError with all names, closest first, where there is none."""
    import torch._dynamo

    names = registered_backends()
    if name not in names:
        raise invalid_choice(key, name, names)
    return torch._dynamo.lookup_backend(name)


def aot_backend(
    *,
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    inference: Callable[..., Any],
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    partitioned: Callable[[fx.GraphModule, fx.GraphModule], None] | None = None,
    recompute: bool = True,
) -> Callable[..., Any]:
    """A Dynamo backend that gives AOT graphs to the three compilers.

    Args:
        forward, backward: compile the two halves of a training graph, as torch's partitioner makes them.
        inference: compiles a graph that needs no gradient.
        decompositions: applied while AOTAutograd traces.
        partitioned: called with both halves before either is compiled.
        recompute: True for the min-cut partitioner; False for the one whose backward computes nothing of the forward
            again, as capture uses it.
    """
    from functorch.compile import default_partition, make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    def partition(joint: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        split = min_cut_rematerialization_partition if recompute else default_partition
        halves = split(joint, joint_inputs, **kwargs)
        if partitioned is not None:
            partitioned(*halves)
        return halves

    def boxed(compiler: Callable[..., Any]) -> Callable[..., Any]:
        def compile_boxed(gm: fx.GraphModule, example_inputs: Any) -> Any:
            compiled = compiler(gm, example_inputs)
            return compiled if getattr(compiled, "_boxed_call", False) else make_boxed_func(compiled)

        return compile_boxed

    options: dict[str, Any] = {} if decompositions is None else {"decompositions": dict(decompositions)}
    backend: Callable[..., Any] = aot_autograd(
        fw_compiler=boxed(forward),
        bw_compiler=boxed(backward),
        inference_compiler=boxed(inference),
        partition_fn=partition,
        keep_inference_input_mutations=True,
        **options,
    )
    return backend
