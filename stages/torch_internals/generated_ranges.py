"""Ranges for the profiler around the launches of a generated module: a rewriting of its text.

In a Python wrapper the statement becomes ``with RANGE("graph|kernel:handle"): statement``, on the same lines. In a C++
wrapper a range is opened on the line before the statement and closed on the line after it. Nothing else of the module
changes, so that what runs between the ranges is what ran without them.
"""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from inductor_debug.stages.torch_internals.generated_launches import launch_statements
from inductor_debug.stages.torch_internals.profiling import CPP_RANGE, PYTHON_RANGE

_RANGE = "profiled_range"
_IMPORT = "\nfrom {} import {} as {}\n".format(*PYTHON_RANGE, _RANGE)


def range_name(graph: str, launch: str) -> str:
    """``g0.forward|kernel:handle``: what the profiler calls the range around a launch."""
    return f"{graph}|{launch}"


@dataclass
class Ranges:
    """Puts ranges around launches.

    Attributes:
        missing: name of a range that was not placed, as :func:`range_name` makes it → why not.
    """

    missing: dict[str, str] = field(default_factory=dict)

    def rewrite(self, graph: str, text: str) -> str:
        """A generated module's text with a range around each launch; text without launches as it is."""
        lines = text.splitlines()
        spans = launch_statements(lines)
        if not spans:
            return text
        names = {range_name(graph, launch): span for launch, span in spans.items()}
        lost = {name: "no statement that launches it was found" for name, span in names.items() if not span}
        found = {name: span for name, span in names.items() if span}
        changed = _in_cpp(lines, found) if "cpp_wrapper_src" in text else _in_python(lines, found)
        try:
            ast.parse(changed)
        except SyntaxError as error:
            lost |= dict.fromkeys(found, f"the generated module could not be given ranges ({error.msg})")
            changed = text
        self.missing |= lost
        return changed


def _in_python(lines: list[str], spans: Mapping[str, range]) -> str:
    changed = list(lines)
    for name, span in spans.items():
        line = changed[span.start]
        statement = line.lstrip()
        indentation = line[: len(line) - len(statement)]
        changed[span.start] = f"{indentation}with {_RANGE}({name!r}): {statement}"
    return "\n".join(changed) + _IMPORT


def _in_cpp(lines: list[str], spans: Mapping[str, range]) -> str:
    before = {span.start: (number, name) for number, (name, span) in enumerate(spans.items())}
    after = {span.stop - 1: number for number, span in enumerate(spans.values())}
    changed = []
    for index, line in enumerate(lines):
        if index in before:
            number, name = before[index]
            changed.append(f"    {CPP_RANGE} {_RANGE}_{number}({json.dumps(name)}, nullptr);")
        changed.append(line)
        if index in after:
            changed.append(f"    {_RANGE}_{after[index]} = {CPP_RANGE}();")
    return "\n".join(changed) + "\n"
