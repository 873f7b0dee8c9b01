"""Backends registered with torch, and AOTAutograd as a backend.

Relies on ``torch._dynamo.list_backends``, ``torch._dynamo.lookup_backend``,
``torch._dynamo.backends.common.aot_autograd``, ``torch._inductor.list_mode_options`` and
``torch._inductor.compile_fx.{compile_fx,compile_fx_inner}`` and ``_python_dispatch._disable_current_modes``.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch._dynamo
import torch._inductor
from functorch.compile import default_partition, make_boxed_func, min_cut_rematerialization_partition
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch.utils._python_dispatch import _disable_current_modes

from inductor_debug.models.errors import invalid_choice


def registered_backends() -> list[str]:
    """Names that ``torch.compile(backend=…)`` knows, entry points of installed packages included."""
    return sorted(torch._dynamo.list_backends(None))


def registered_backend(name: str, *, key: str = "backend.name") -> Callable[..., Any]:
    """The backend registered as ``name``; ConfigurationError with all names, closest first, where there is none."""
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
    return aot_autograd(
        fw_compiler=boxed(forward),
        bw_compiler=boxed(backward),
        inference_compiler=boxed(inference),
        partition_fn=partition,
        keep_inference_input_mutations=True,
        **options,
    )


def inductor_modes() -> dict[str, dict[str, Any]]:
    """``mode=`` of torch.compile → the options of TorchInductor that it stands for."""
    return {name: dict(options) for name, options in torch._inductor.list_mode_options().items()}


def inductor_in_mode(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    mode: str | None,
    patches: Mapping[str, Any],
    failed: Callable[[], None] = lambda: None,
) -> Callable[..., Any]:
    """A Dynamo graph compiled by TorchInductor as ``torch.compile(mode=mode)`` would.

    Args:
        gm: Dynamo's graph.
        example_inputs: its inputs, fake or real.
        mode: one of :func:`inductor_modes`; None for the default.
        patches: further options of TorchInductor.
        failed: called before the first error of compiling is raised: now, or of the backward when it is asked for.
    """
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    @functools.cache
    def tell() -> None:
        with _disable_current_modes():  # that of fake tensors, in which inputs can't be read
            failed()

    def inner(*args: Any, **kwargs: Any) -> Any:
        try:
            return compile_fx_inner(*args, **kwargs)
        except Exception:
            tell()
            raise

    options = (inductor_modes()[mode] if mode is not None else {}) | dict(patches)
    try:
        compiled = compile_fx(gm, list(example_inputs), inner_compile=inner, config_patches=options)
    except Exception:
        tell()
        raise
    assert callable(compiled)
    return compiled
