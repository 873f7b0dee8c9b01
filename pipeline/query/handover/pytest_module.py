"""A reproduction as a module of tests: the script itself, and a test that runs it."""

import ast
from pathlib import Path
from string import Template

from inductor_debug.pipeline.query.handover.owner import LIMIT_S
from inductor_debug.pipeline.query.handover.stored import StoredRepro
from inductor_debug.stages.repro.check import COULD_NOT_RUN, NOT_REPRODUCED

_TEST = Path(__file__).with_name("test.template")
_NEEDED = ("os", "subprocess", "pytest")
"""Modules that the test needs beside ``sys``, which every script has."""


def pytest_module(repro: StoredRepro, data: str) -> str:
    """The text of a module that is the script as before, run by itself, and a test of it under pytest.

    Args:
        repro: the reproduction.
        data: name of the file of numbers beside the module, where the script reads one.

    Raises:
        DamagedError: the script is not as this tool writes one.
    """
    text, body = repro.reading(data), repro.tree.body
    imports = [node for node in body if isinstance(node, ast.Import)]
    torch = next((node for node in imports if node.names[0].name == "torch"), None)
    main = next((node for node in body if isinstance(node, ast.If)), None)
    if torch is None or main is None:
        raise repro.damaged(f"{repro.record.path} has no import of torch, or no call of its main function")
    lines, first, last = text.splitlines(), torch.lineno - 1, main.lineno - 1
    known = {alias.name for node in imports for alias in node.names}
    test = Template(_TEST.read_text(encoding="utf-8")).substitute(
        limit=f"{LIMIT_S:g}", could_not_run=COULD_NOT_RUN, not_reproduced=NOT_REPRODUCED
    )
    more = [f"import {name}" for name in _NEEDED if name not in known]
    head = [*lines[:first], *more, "", 'pytest.importorskip("torch")', ""]
    return "\n".join([*head, *lines[first:last], *test.splitlines(), "", "", *lines[last:]]) + "\n"
