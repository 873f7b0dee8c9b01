"""TorchInductor's options that may make a fault go away, each with the value to try."""

from collections.abc import Mapping
from typing import Any

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.torch_internals.inductor_options import check_options
from inductor_debug.stages.torch_internals.switches import inductor_defaults

CANDIDATES: tuple[tuple[str, Any], ...] = (
    ("pattern_matcher", False),
    ("joint_graph_constant_folding", False),
    ("epilogue_fusion", False),
    ("max_fusion_size", 1),
    ("split_reductions", False),
    ("inplace_buffers", False),
    ("allow_buffer_reuse", False),
    ("emulate_precision_casts", True),
    ("layout_optimization", False),
    ("comprehensive_padding", False),
    ("fallback_random", True),
    ("freezing", False),
    ("max_autotune", False),
    ("max_autotune_gemm", False),
    ("max_autotune_pointwise", False),
    ("coordinate_descent_tuning", False),
    ("cpp_wrapper", False),
)
ON_CPU: tuple[tuple[str, Any], ...] = (("cpp.simdlen", 1), ("cpp.threads", 1))
ON_CUDA: tuple[tuple[str, Any], ...] = (
    ("triton.cudagraphs", False),
    ("triton.persistent_reductions", False),
    ("triton.prefer_nd_tiling", False),
    ("shape_padding", False),
)


def inductor_switches(given: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Option → the value to try.

    First the options that the user gave, back to torch's default; then the candidates that have another value now and
    are known to this torch.

    Args:
        given: the options in force that are not torch's default, flat.
        device: the case's kind of device.
    """
    defaults = inductor_defaults()
    back = [(name, defaults[name]) for name, value in given.items() if name in defaults and defaults[name] != value]
    candidates = [*CANDIDATES, *(ON_CPU if device == "cpu" else ON_CUDA)]
    changed = {name: value for name, value in back if name != "fallback_random"}
    for name, value in candidates:
        if name in defaults and name not in changed and given.get(name, defaults[name]) != value:
            changed[name] = value
    return {name: value for name, value in changed.items() if _accepted(name, value)}


def _accepted(name: str, value: Any) -> bool:
    """Whether the option may be typed: a default of torch's can be of another type than its annotation."""
    try:
        check_options({name: value})
    except ConfigurationError:
        return False
    return True
