"""What to do about a graph break, and about a recompilation.

torch's own break messages carry an explanation and hints; where nothing better is known here, those that say more than
"report an issue" are the suggestion.
"""

from inductor_debug.stages.torch_internals.break_text import BreakKind, break_kind, parse_break
from inductor_debug.stages.torch_internals.guard_text import FailureKind, failure_kind, size_mismatch, tensor_named

KNOWN_BREAKS = {
    BreakKind.BRANCH: "Compute both sides and choose with torch.where, use torch.cond, or decide from a "
    "shape or a Python value rather than a tensor's content.",
    BreakKind.PRINT: "Remove the print, or let torch run it after the graph: "
    "torch._dynamo.config.reorderable_logging_functions.add(print).",
    BreakKind.SCALAR: "Keep the value a tensor, or let torch capture it: "
    "torch._dynamo.config.capture_scalar_outputs = True (of a run: backend.dynamo.capture_scalar_outputs=true).",
    BreakKind.DYNAMIC_SIZE: "Replace the operation by one of a fixed output size (torch.where for a mask), or let "
    "torch capture it: torch._dynamo.config.capture_dynamic_output_shape_ops = True (of a run: "
    "backend.dynamo.capture_dynamic_output_shape_ops=true).",
    BreakKind.LOGGING: "Move the log call out of forward, or let torch leave it out: "
    "torch._dynamo.config.ignore_logging_functions.",
    BreakKind.SKIPPED: "Let Dynamo trace the function (drop the disable), or "
    "wrap it as an operator with torch.library.custom_op.",
    BreakKind.NUMPY: "Use the torch operation of the same name.",
    BreakKind.GRADIENT: "Take the gradient outside of the compiled forward.",
}

NO_HINT = ("Move what Dynamo can't trace before or after the graph, or wrap it as an operator with "
           "torch.library.custom_op.")  # fmt: skip


def for_break(detail: str) -> str:
    """What to do about a graph break of that message: what is known here, else torch's hints; never empty."""
    kind = break_kind(detail)
    text = parse_break(detail)
    own = "" if kind is None else KNOWN_BREAKS[kind]
    return own or " ".join(text.specific_hints) or " ".join([NO_HINT, *text.hints])


_KNOWN_FAILURES = {
    FailureKind.STRIDE: "Give it in one layout, e.g. {name}.contiguous() before the call: each compiles for itself.",
    FailureKind.DTYPE: "Cast it to one dtype before the call: each compiles for itself, whatever the sizes do.",
    FailureKind.GRADIENT: "Call it with gradients always required or never: each compiles for itself.",
    FailureKind.RANK: "Give it one number of dimensions: each compiles for itself.",
    FailureKind.GLOBAL_STATE: "Call it under one state of torch (gradients, autocast, "
    "inference mode): each compiles for itself.",
    FailureKind.MARKS: "Mark the sizes of every call's inputs alike, from the first call on.",
    FailureKind.ALIASING: "Let inputs share memory in every call or in none: each compiles for itself.",
    FailureKind.SYMBOLIC_SIZE: "The traced code needs this of a symbolic size: sizes that keep to it share "
    "one compilation.",
    FailureKind.VALUE: "A Python value that the code reads is a constant in the graph. Give it as a tensor, or keep "
    "it as it is (integers of modules: torch._dynamo.config.allow_unspec_int_on_nn_module = True).",
}


def for_recompile(guard: str, dynamic: bool | None) -> str:
    """What would spare a recompilation; empty where nothing is known to.

    Args:
        guard: the condition that failed, in torch's words.
        dynamic: as torch.compile was given it.
    """
    size = size_mismatch(guard)
    if size is not None:
        place = f"{size.name}, {size.dim}"
        if {0, 1} & {size.old, size.new}:
            return (
                "torch takes the sizes 0 and 1 for constants, with dynamic=True too: compile with 2 or more, or use "
                f"torch._dynamo.decorators.mark_unbacked({place})."
            )
        if dynamic:
            return (
                "A constant with dynamic=True too. The traced code needs this very size, or another dimension had the "
                "same size in the first call: torch gives equal sizes one symbol. Compile with sizes that differ."
            )
        return (
            f"torch._dynamo.mark_dynamic({place}) before the first call, or torch.compile(dynamic=True): each new size "
            "compiles again otherwise."
        )
    kind = failure_kind(guard)
    return "" if kind is None else _KNOWN_FAILURES[kind].replace("{name}", tensor_named(guard) or "it")
