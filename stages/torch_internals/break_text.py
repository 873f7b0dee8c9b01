"""Dynamo's messages on graph breaks, read.

Relies on the layout that ``torch._dynamo.exc.format_graph_break_message`` gives a message: the reason, then an
explanation, hints and the developer's context, each behind its title, then the page on the web. Relies also on the
reasons of ``torch/_dynamo/graph_break_registry.json`` that :class:`BreakKind` tells apart, and on those hints of
``torch._dynamo.graph_break_hints`` that only ask to report an issue.
"""

import enum
import re
from dataclasses import dataclass

_PAGE = re.compile(r"For more details about this graph break, please visit: (\S+)")
_SECTION = re.compile(r"^\s*(Explanation|Hint|Developer debug context): ?|^\s*For more details about this graph break")
_SETTING = re.compile(r"torch\._dynamo\.config\.([A-Za-z]\w*)`?\s*(?:=|to)\s*`?(True|False)\b")
_DELAYED = re.compile(r"\(delayed\)$")
_WHY = re.compile(r"^\s*Explanation: .*? Reason: (.+)$", re.MULTILINE)
_LIMIT = "Dynamo recompile limit exceeded"
_GENERAL_HINTS = (
    "It may be possible to write Dynamo tracing rules", "This graph break may be difficult to debug",
    "This graph break is fundamental", "Please report an issue", "Please open an issue",
    "This is likely to be a Dynamo bug", "Your code may result in an error when running in eager",
)  # fmt: skip


class BreakKind(enum.Enum):
    """What broke a graph; the value is a pattern over the message. The first that matches is meant."""

    BRANCH = r"Data-dependent branching"
    PRINT = r"Failed to trace builtin operator[\s\S]*`print`"
    SCALAR = r"Unsupported Tensor\.item"
    DYNAMIC_SIZE = r"Dynamic shape operator"
    LOGGING = r"^logging\.Logger|Logger|logging"
    SKIPPED = r"marked as skipped|torch\.compiler\.disable|disable\(\)"
    NUMPY = r"numpy|ndarray"
    GRADIENT = r"backward|autograd\.grad|requires_grad_"


@dataclass(frozen=True)
class BreakText:
    """A break's message in its parts; all but ``reason`` may be empty.

    Attributes:
        documentation: address of torch's page on this kind of break.
    """

    reason: str
    explanation: str
    hints: list[str]
    documentation: str | None

    @property
    def specific_hints(self) -> list[str]:
        """The hints that say more than that Dynamo can't trace it, or that it should be reported."""
        return [hint for hint in self.hints if not hint.startswith(_GENERAL_HINTS)]


def reason_in(detail: str) -> str:
    """The line of a message that says why; "" of an empty one.

    It is the first, unless Dynamo puts a break off until the object is used (``Unsupported function call (delayed)``):
    then the explanation has it. From torch 2.15 an LSTM is told so.
    """
    first = next((line.strip() for line in detail.splitlines() if line.strip()), "")
    why = _WHY.search(detail) if _DELAYED.search(first) else None
    return why[1].strip() if why else first


def parse_break(detail: str) -> BreakText:
    """The parts of torch's message on a graph break."""
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in detail.splitlines():
        match = _SECTION.match(line)
        if match:
            sections.append((match[1] or "documentation", [line[match.end() :].strip()]))
        else:
            sections[-1][1].append(line.strip())
    page = _PAGE.search(detail)
    text = [(name, " ".join(filter(None, lines))) for name, lines in sections]
    return BreakText(
        reason=reason_in(detail),
        explanation=next((content for name, content in text if name == "Explanation"), ""),
        hints=[content for name, content in text if name == "Hint"],
        documentation=page[1] if page else None,
    )


def break_kind(detail: str) -> BreakKind | None:
    """What broke a graph with that message; None where it is none of the known kinds."""
    return next((kind for kind in BreakKind if re.search(kind.value, detail)), None)


def setting_named(detail: str) -> tuple[str, bool] | None:
    """The setting of ``torch._dynamo.config`` that a message suggests, with its value; None where it has none."""
    found = _SETTING.search(detail)
    return (found[1], found[2] == "True") if found else None


def is_recompile_limit(detail: str) -> bool:
    """Whether Dynamo broke off because a frame was compiled too often, which is told as a limit."""
    return detail.startswith(_LIMIT)
