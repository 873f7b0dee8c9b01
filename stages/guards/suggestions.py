"""What to do about a graph break, and about a recompilation. Free of torch.

torch's own break messages carry an explanation and hints, by kind (the first line, ``gb_type`` in torch's registry of
graph breaks); where nothing better is known here, those that say more than "report an issue" are the suggestion.
"""

import re
from dataclasses import dataclass

KNOWN_BREAKS = {
    r"Data-dependent branching": "Compute both sides and choose with torch.where, use torch.cond, or decide from a "
    "shape or a Python value rather than a tensor's content.",
    r"Failed to trace builtin operator[\s\S]*`print`": "Remove the print, or let torch run it after the graph: "
    "torch._dynamo.config.reorderable_logging_functions.add(print).",
    r"Unsupported Tensor\.item": "Keep the value a tensor, or let torch capture it: "
    "torch._dynamo.config.capture_scalar_outputs = True (of a run: backend.dynamo.capture_scalar_outputs=true).",
    r"Dynamic shape operator": "Replace the operation by one of a fixed output size (torch.where for a mask), or let "
    "torch capture it: torch._dynamo.config.capture_dynamic_output_shape_ops = True (of a run: "
    "backend.dynamo.capture_dynamic_output_shape_ops=true).",
    r"^logging\.Logger|Logger|logging": "Move the log call out of forward, or let torch leave it out: "
    "torch._dynamo.config.ignore_logging_functions.",
    r"marked as skipped|torch\.compiler\.disable|disable\(\)": "Let Dynamo trace the function (drop the disable), or "
    "wrap it as an operator with torch.library.custom_op.",
    r"numpy|ndarray": "Use the torch operation of the same name.",
    r"backward|autograd\.grad|requires_grad_": "Take the gradient outside of the compiled forward.",
}
"""Pattern over a break's text → what to do; the first that matches."""

NO_HINT = ("Move what Dynamo can't trace before or after the graph, or wrap it as an operator with "
           "torch.library.custom_op.")  # fmt: skip

_GENERAL_HINTS = (
    "It may be possible to write Dynamo tracing rules", "This graph break may be difficult to debug",
    "This graph break is fundamental", "Please report an issue", "Please open an issue",
    "This is likely to be a Dynamo bug", "Your code may result in an error when running in eager",
)  # fmt: skip
_PAGE = re.compile(r"For more details about this graph break, please visit: (\S+)")
_SECTION = re.compile(r"^\s*(Explanation|Hint|Developer debug context): ?|^\s*For more details about this graph break")


@dataclass
class BreakText:
    """A break's message in its parts."""

    reason: str
    explanation: str
    hints: list[str]
    documentation: str | None


def parse_break(detail: str) -> BreakText:
    """The parts of torch's message on a graph break; all but ``reason`` may be empty."""
    sections: list[tuple[str, list[str]]] = [("reason", [])]
    for line in detail.splitlines():
        match = _SECTION.match(line)
        if match:
            sections.append((match[1] or "documentation", [line[match.end() :].strip()]))
        else:
            sections[-1][1].append(line.strip())
    page = _PAGE.search(detail)
    text = [(name, " ".join(filter(None, lines))) for name, lines in sections]
    return BreakText(
        reason=next((line.strip() for line in sections[0][1] if line.strip()), ""),
        explanation=next((content for name, content in text if name == "Explanation"), ""),
        hints=[content for name, content in text if name == "Hint"],
        documentation=page[1] if page else None,
    )


def for_break(detail: str) -> str:
    """What to do about a graph break of that message: what is known here, else torch's hints; never empty."""
    own = next((advice for pattern, advice in KNOWN_BREAKS.items() if re.search(pattern, detail)), "")
    hints = parse_break(detail).hints
    specific = [hint for hint in hints if not hint.startswith(_GENERAL_HINTS)]
    return own or " ".join(specific) or " ".join([NO_HINT, *hints])


_SIZE = re.compile(
    r"tensor '(?P<name>.+?)' size mismatch at index (?P<dim>\d+)\. expected (?P<old>\d+), actual (?P<new>\d+)"
)
_KNOWN_FAILURES = {
    r"stride mismatch": "Give it in one layout, e.g. {name}.contiguous() before the call: each compiles for itself.",
    r"dtype mismatch": "Cast it to one dtype before the call: each compiles for itself, whatever the sizes do.",
    r"requires_grad mismatch": "Call it with gradients always required or never: each compiles for itself.",
    r"rank mismatch": "Give it one number of dimensions: each compiles for itself.",
    r"dispatch key set mismatch|GLOBAL_STATE|grad_mode": "Call it under one state of torch (gradients, autocast, "
    "inference mode): each compiles for itself.",
    r"_dynamo_\w*indices": "Mark the sizes of every call's inputs alike, from the first call on.",
    r"check_no_aliasing|Duplicate tensor|check_overlapping| is (?=[LGa-z])": "Let inputs share memory in every call or "
    "in none: each compiles for itself.",
    r"\.(size|stride)\(\)|storage_offset": "The traced code needs this of a symbolic size: sizes that keep to it share "
    "one compilation.",
    r"==|len\(": "A Python value that the code reads is a constant in the graph: give it as a tensor, or keep it as it "
    "is (integers of modules: torch._dynamo.config.allow_unspec_int_on_nn_module = True).",
}


def for_recompile(guard: str, dynamic: bool | None) -> str:
    """What would spare a recompilation; empty where nothing is known to.

    Args:
        guard: the condition that failed, in torch's words.
        dynamic: as torch.compile was given it.
    """
    size = _SIZE.search(guard)
    if size is not None:
        place = f"{size['name']}, {size['dim']}"
        if {"0", "1"} & {size["old"], size["new"]}:
            return (
                "torch takes the sizes 0 and 1 for constants, with dynamic=True too: compile with 2 or more, or use "
                f"torch._dynamo.decorators.mark_unbacked({place})."
            )
        if dynamic:
            return (
                "A constant with dynamic=True too: the traced code needs this very size, or another dimension had the "
                "same size in the first call (torch gives equal sizes one symbol): compile with sizes that differ."
            )
        return (
            f"torch._dynamo.mark_dynamic({place}) before the first call, or torch.compile(dynamic=True): each new size "
            "compiles again otherwise."
        )
    name = re.search(r"tensor '(.+?)' \w", guard)
    for pattern, advice in _KNOWN_FAILURES.items():
        if re.search(pattern, guard):
            return advice.replace("{name}", name[1] if name else "it")
    return ""
