"""What a machine holds of the plan: no circle of imports, what may import torch, and how large files and rooms are.

Layers are import-linter's (pyproject.toml).
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from inductor_debug.stages.registry import declared

ROOT = Path(__file__).parents[1]
PACKAGE = "inductor_debug"
MOST_LINES = 400
MANY = 4
"""Parameters from which on a public function needs an Args section."""

CIRCLES: set[frozenset[str]] = set()
"""Circles that still stand, by an import inside a function. The list only shrinks."""
LONGER: set[str] = set()
"""Files that are longer: none."""
INSIDE_FUNCTIONS = 77
"""Imports of ours inside functions: where torch is loaded late, or a stage that may not be needed. It only shrinks."""
IN_STRINGS = 19
"""Modules of ours that a string names: entry points of processes, and former names. It only shrinks."""

TORCH = re.compile(
    r"models\.(?!(config|errors|options|shapes|stored|target|torch_text|units|visible|yaml_limits)$)"
    r"|stages\.(eager_check|mock_backends)|stages\.accelerators\.torch_check|stages\.graphs\.(flops|sources)"
    r"|pipeline\.query\.doctor\.trials$|stages\.backends\.(?!(compile_caches|mock_options|plugins|strict_error)$)"
    r"|stages\.emulation\.(?!findings|kinds)|stages\.(sensitivity|sides|tensor_pictures)\.|stages\.numerics\.(?!limits$)"
    r"|stages\.localize\.(?!(config|messages|slopes)$)"
    r"|stages\.torch_internals\.(aot|backends|device_clock|dispatch|dynamo$|execution|failed_compilation|frames|fx_"
    r"|guard_hooks|history|inductor(_options|_scheduler)?$|inductor_nodes|loading|operators|storages|switches)"
)
"""Modules that may import torch when they are imported. Beside them those of a stage that :func:`of_stages` tells."""


@cache
def modules() -> dict[str, Path]:
    """Every module of ours but the process's own entries, by its name below the package."""
    found = {}
    for top in ("models", "stages", "pipeline"):
        for path in (ROOT / top).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str) -> Iterator[str]:
    """Modules of ours that a module imports anywhere: at its top, inside functions, and for type checkers alone."""
    for node in ast.walk(ast.parse(modules()[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name}: a relative import"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        else:
            continue
        for target in targets:
            place = target.removeprefix(f"{PACKAGE}.")
            while place and place not in modules():
                place = place.rpartition(".")[0]
            if place and place != name and target.startswith(f"{PACKAGE}."):
                yield place


def test_no_modules_import_each_other_in_a_circle() -> None:
    arrows = {name: set(imported(name)) for name in modules()}
    found = set()
    while True:
        try:
            TopologicalSorter(arrows).prepare()
            break
        except CycleError as error:
            circle = error.args[1]
            found.add(frozenset(circle))
            arrows[circle[1]].discard(circle[0])  # the sorter's arrows point to what comes first
    assert all(any(circle <= known for known in CIRCLES) for circle in found), found
    assert all(any(circle <= known for circle in found) for known in CIRCLES), "a circle is gone: take it off the list"


def of_stages() -> set[str]:
    """Modules in stages' folders that may import torch.

    A declaration may not, nor what it imports or names as text, but for the stage itself. A stage that runs without
    torch has no such module.
    """
    found = set()
    for stage in declared().values():
        room = f"stages.{stage.name}."
        named = re.findall(rf"{PACKAGE}\.([\w.]+):", modules()[f"{room}declaration"].read_text(encoding="utf-8"))
        without = {f"{room}declaration", stage.options.__module__.removeprefix(f"{PACKAGE}."), *named}
        stage_module = stage.stage.partition(":")[0].removeprefix(f"{PACKAGE}.")
        if stage.uses_torch:
            found |= {name for name in modules() if name.startswith(room)} - without | {stage_module}
    return found


def test_what_need_not_import_torch_does_not() -> None:
    free = {name for name in modules() if not TORCH.match(name) and not name.endswith(("__main__", "run.guard"))}
    free -= of_stages()
    assert {"stages.constrain.stage", "stages.report.stage", "stages.lower.questions.kernels"} <= free
    assert len(free) > 200
    program = (
        f"import importlib, sys\nfor name in {sorted(free)!r}:\n"
        f"    importlib.import_module('{PACKAGE}.' + name)\n"
        "    if 'torch' in sys.modules:\n        sys.exit(name + ' imports torch')\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_imports_that_a_reader_does_not_see_at_the_top_are_counted() -> None:
    inside, named = set(), []
    for name, path in modules().items():
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        for function in (node for node in nodes if isinstance(node, ast.FunctionDef)):
            lines = (node.lineno for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))
            inside |= {(name, line) for line in lines if PACKAGE in path.read_text().splitlines()[line - 1]}
        strings = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        named += [value for value in strings if "." in value and value.removeprefix(f"{PACKAGE}.") in modules()]
    assert (len(inside), len(named)) == (INSIDE_FUNCTIONS, IN_STRINGS), "fewer: lower it; more: import at the top"


TEXT_ROOMS = re.compile(r"models\.torch_(private|text)$|stages\.torch_internals\.|pipeline\.")
"""What torch says is read here alone; the pipeline reads Hydra's messages and what users type."""
READS = {
    "models.blame": "Python's and transformers' errors",
    "models.errors": "what a shell would take apart",
    "models.huggingface_input_maker": "the words of an error",
    "models.stored": "bytes of stored JSON",
    "models.units": "a user's number of bytes",
    "models.visible": "characters that do not print",
    "models.yaml_limits": "YAML's numbers",
    "stages.minify.minimize": "the words of an error, of which some name operations",
    "stages.accelerators.number_formats": "names of formats in a profile",
    "stages.accelerators.profile": "numbers in environment variables",
    "stages.accelerators.rule_kinds": "names of operations in a profile",
    "stages.accelerators.torch_check": "names of operations in a profile",
    "stages.artifacts.kinds": "paths and cells of stored files",
    "stages.backends.planted": "our ids of graphs",
    "stages.bisect.probing": "numbers and paths in any error",
    "stages.constrain.grid": "a user's numbers",
    "stages.eager_check": "the words of an error",
    "stages.file_names": "characters of a file's name",
    "stages.formatting": "a library's path",
    "stages.graphs.sources": "Python's tracebacks",
    "stages.graphs.stored": "our ids of graphs",
    "stages.kerneldiff.tasks": "our paths of outputs",
    "stages.lower.first_nonfinite": "our own column",
    "stages.lower.questions.graphs": "our ids of graphs",
    "stages.report.html": "numbers in text",
    "stages.minify.failures": "what our own scripts say",
    "stages.repro.expressions": "constants of graph records",
    "stages.rules.measures": "cells of violations.csv",
    "stages.rules.repros": "cells of violations.csv",
}
"""Modules with regular expressions beside these rooms → what they read: nothing that torch words or generates."""


def test_the_text_of_torch_is_read_in_its_rooms_alone() -> None:
    outside = [name for name in modules() if not TEXT_ROOMS.match(name)]
    found = {name for name in outside if re.search(r"^import re$", modules()[name].read_text(encoding="utf-8"), re.M)}
    assert found == set(READS), "READS says of each what its regular expressions read"


def literals_looked_for(tree: ast.AST) -> Iterator[str]:
    """Texts that a module looks for in others: ``"a b" in x``, ``x == "a b"``, ``x.startswith("a b")``."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=[*rights]):
                places = [left, *rights]
            case ast.Call(
                func=ast.Attribute(attr="startswith" | "endswith" | "partition" | "rpartition" | "find"), args=args
            ):
                places = args
            case ast.MatchValue(value=value):
                places = [value]
            case _:
                continue
        for place in places:
            for item in place.elts if isinstance(place, ast.Tuple | ast.List | ast.Set) else [place]:
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    yield item.value


SENTENCES = {
    "models.huggingface": {"Unrecognized configuration class"},  # transformers'
    "pipeline.directory.manifest": {"model name"},  # a line of /proc/cpuinfo
    "stages.constrain.grid": {"int | None"},  # an annotation
}
"""Texts with a space that a module looks for."""


def test_no_sentence_of_ours_steers() -> None:
    """Reasons are enums and fields, and sentences are made last; what others word is read in the rooms for it."""
    found = {
        name: {text for text in literals_looked_for(ast.parse(path.read_text(encoding="utf-8"))) if " " in text.strip()}
        for name, path in modules().items()
        if not name.startswith("stages.torch_internals.")
    }
    assert {name: texts for name, texts in found.items() if texts} == SENTENCES


def test_no_file_is_too_long_to_take_in() -> None:
    long = {
        str(path.relative_to(ROOT))
        for path in modules().values()
        if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES
    }
    assert long == LONGER


@pytest.mark.parametrize("room", ["kerneldiff", "numerics"])
def test_a_room_holds_what_one_can_keep_in_mind(room: str) -> None:
    assert len(list((ROOT / "stages" / room).glob("*.py"))) <= 22  # metrics, one a file, are a room below


def named_in(path: Path) -> set[str]:
    """Every name and attribute that a module's code uses."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return found


def public_functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef, str]]:
    """The name under which others call a public function, method or class, what takes the arguments, and docstrings."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node, ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for method in (item for item in node.body if isinstance(item, ast.FunctionDef)):
                whole = f"{ast.get_docstring(node)}\n{ast.get_docstring(method)}"
                if method.name == "__init__":
                    yield node.name, method, whole
                elif not method.name.startswith("_"):
                    yield method.name, method, ast.get_docstring(method) or ""


def test_public_functions_of_four_parameters_say_what_each_is() -> None:
    used = {name: named_in(path) for name, path in modules().items()}
    silent = []
    for module, path in modules().items():
        elsewhere = set().union(*(names for name, names in used.items() if name != module))
        for name, function, docstring in public_functions(path):
            arguments = function.args
            parameters = [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
            parameters = [item for item in parameters if item not in ("self", "cls") and not item.isupper()]
            if len(parameters) < MANY or name not in elsewhere:
                continue
            section = re.search(r"(Args|Attributes):.*", docstring, re.DOTALL)
            unnamed = [item for item in parameters if not re.search(rf"\b{item}\b", section[0] if section else "")]
            if unnamed:
                silent.append(f"{module}.{name}: {', '.join(unnamed)}")
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize("folder", ["performance", "trials"])
def test_scripts_that_no_test_runs_take_from_each_other_what_is_there(folder: str) -> None:
    for path in (ROOT / "tests" / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            other = path.with_name(f"{node.module}.py") if isinstance(node, ast.ImportFrom) else path
            if isinstance(node, ast.ImportFrom) and not node.level and other.exists():
                bound = set(compile(other.read_text(encoding="utf-8"), str(other), "exec").co_names)
                assert {alias.name for alias in node.names} <= bound, f"{path.name} takes from {other.name}"
