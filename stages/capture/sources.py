"""The source of the functions that a capture's operations came from, for a page that shows findings beside lines."""

import ast
import linecache
from collections import defaultdict
from collections.abc import Iterable

from inductor_debug.stages.artifacts.sources import Excerpt
from inductor_debug.stages.graphs.records import GraphRecord, is_torchs

MOST_CHARACTERS = 1_000_000
"""Of all excerpts together; what is beyond is left out."""


def excerpts(graphs: Iterable[GraphRecord]) -> list[Excerpt]:
    """The innermost function around each line of the model's that an operation came from, each once, by file and line.

    A line that is in no function, or in a file that is not Python, stands alone. A file that can't be read gives none.
    """
    wanted: dict[str, set[int]] = defaultdict(set)
    for graph in graphs:
        for node in graph.nodes:
            if node.source is not None and not is_torchs(str(node.source)):
                wanted[node.source.file].add(node.source.line)
    found: list[Excerpt] = []
    left = MOST_CHARACTERS
    for file in sorted(wanted):
        lines = linecache.getlines(file)
        for first, last in _spans(lines, wanted[file]):
            text = "".join(lines[first - 1 : last]).rstrip("\n")
            left -= len(text)
            if text and left >= 0:
                found.append(Excerpt(file, first, text))
    return found


def _spans(lines: list[str], wanted: Iterable[int]) -> list[tuple[int, int]]:
    """First and last line of each function around wanted lines, those that overlap or touch as one."""
    try:
        nodes = list(ast.walk(ast.parse("".join(lines))))
    except (SyntaxError, ValueError):
        nodes = []
    functions = [
        (min([node.lineno, *(item.lineno for item in node.decorator_list)]), node.end_lineno or node.lineno)
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    around = set()
    for line in wanted:
        holding = [span for span in functions if span[0] <= line <= span[1]]
        around.add(min(holding, key=lambda span: span[1] - span[0], default=(line, line)))
    spans: list[tuple[int, int]] = []
    for first, last in sorted(around):
        if spans and first <= spans[-1][1] + 1:
            spans[-1] = spans[-1][0], max(last, spans[-1][1])
        else:
            spans.append((first, last))
    return spans
