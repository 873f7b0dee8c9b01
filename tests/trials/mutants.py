"""Mutants: single changes of the code, drawn by a seed, and whether the default tests notice them.

Each mutant is one change at one place: a comparison, a condition, an operator or a number becomes another one. It is
planted in a worktree of the commit. The test files that name the module run first, then those of its folder, then all
of `make test`, until one fails. A mutant that none notices is a survivor: it wants a test, unless the change makes no
difference.

Usage: ``python tests/trials/mutants.py [--count 20] [--seed 0] [--folders stages/rules+stages/constrain,...]
[--commit HEAD] [--only 3,7] [--list] [--related]``. Prints a line for each mutant; ``--related`` leaves the last out.
Exit code 0 where at most a tenth survives.
"""

import argparse
import ast
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from same_as import worktree

FOLDERS = (
    "stages/numerics+stages/sides+stages/kerneldiff", "stages/accelerators+stages/rules+stages/constrain",
    "stages/backends+stages/lower", "stages/bisect", "stages/report",
)  # fmt: skip
"""Numerics, constrain, lower, bisect and report: as many mutants of each."""
SWAPPED: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.And: "or", ast.Or: "and", ast.Add: "-", ast.Sub: "+",
    ast.Mult: "/", ast.Div: "*", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip
"""Operator → what stands in its place."""

_NO_BEHAVIOUR = ("annotation", "returns", "decorator_list")


@dataclass(frozen=True)
class Mutant:
    """One change: ``old`` at a place of a file, in characters from its start, becomes ``new``."""

    file: str
    line: int
    start: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old!r} → {self.new!r}"

    def plant(self, root: Path) -> None:
        """Write it into the file below ``root``."""
        text = (root / self.file).read_text(encoding="utf-8")
        end = self.start + len(self.old)
        assert text[self.start : end] == self.old
        (root / self.file).write_text(text[: self.start] + self.new + text[end:], encoding="utf-8")


class Places:
    """All mutants of one file."""

    def __init__(self, root: Path, file: str) -> None:
        self.file = file
        self.text = (root / file).read_text(encoding="utf-8")
        self.lines = self.text.splitlines(keepends=True)

    def mutants(self) -> Iterator[Mutant]:
        """In the order of the syntax tree; annotations, decorators and what only type checkers read are left out."""
        yield from self._within(ast.parse(self.text))

    def _within(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        yield from self._of(node)
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and name not in _NO_BEHAVIOUR:
                    yield from self._within(child)

    def _of(self, node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from self._operator(node.left, node.ops[0], node.comparators[0])
        elif isinstance(node, ast.BoolOp):
            yield from self._operator(node.values[0], node.op, node.values[1])
        elif isinstance(node, ast.BinOp) and not isinstance(node.left, ast.JoinedStr):
            yield from self._operator(node.left, node.op, node.right)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            start = self._at(node.lineno, node.col_offset)
            yield Mutant(self.file, node.lineno, start, "not ", "")
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            start = self._at(node.lineno, node.col_offset)
            old = ast.get_source_segment(self.text, node) or ""
            new = str(not node.value) if isinstance(node.value, bool) else repr(node.value * 6 or 1)
            if old and new != old:
                yield Mutant(self.file, node.lineno, start, old, new)

    def _operator(self, left: ast.expr, operator: ast.AST, right: ast.expr) -> Iterator[Mutant]:
        new = SWAPPED.get(type(operator))
        if new is None:
            return
        start = self._at(left.end_lineno or 0, left.end_col_offset or 0)
        between = self.text[start : self._at(right.lineno, right.col_offset)]
        found = re.search(r"is not|not in|is|in|and|or|[<>=!]=|[<>+\-*/&|]", between)
        if found is not None and "#" not in between:
            yield Mutant(self.file, left.end_lineno or 0, start + found.start(), found.group(), new)

    def _at(self, line: int, byte: int) -> int:
        """Characters from the start of the file; the syntax tree counts bytes."""
        before = sum(map(len, self.lines[: line - 1]))
        return before + len(self.lines[line - 1].encode()[:byte].decode())


def drawn(root: Path, folders: list[str], count: int, seed: int) -> list[Mutant]:
    """``count`` mutants: as many of each folder, and of a folder each place as likely."""
    draw = random.Random(seed)
    found: list[Mutant] = []
    for index, folder in enumerate(folders):
        paths = [path for room in folder.split("+") for path in (root / room).rglob("*.py")]
        files = sorted(path.relative_to(root).as_posix() for path in paths)
        every = [mutant for file in files for mutant in Places(root, file).mutants()]
        share = count * (index + 1) // len(folders) - count * index // len(folders)
        found += draw.sample(every, share)
    return found


def related(root: Path, mutant: Mutant) -> list[list[str]]:
    """Test files that name the mutant's module, and then those of its folder."""
    path = Path(mutant.file).with_suffix("")
    module, package = ".".join(path.parts), ".".join(path.parts[:-1])
    names = re.compile(rf"{re.escape(module)}\b|{re.escape(package)} import .*\b{path.name}\b")
    files = [str(file.relative_to(root)) for file in sorted((root / "tests").rglob("test_*.py"))]
    near = [file for file in files if names.search((root / file).read_text(encoding="utf-8"))]
    beside = [file for file in files if file.startswith(f"tests/{path.parent}/") and file not in near]
    return [suite for suite in (near, beside) if suite]


def fails(root: Path, tests: list[str]) -> str | None:
    """The first test that fails, or None where all pass."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-n", "2", "--dist", "loadfile", *tests]
    variables = os.environ | {"PYTHONPATH": str(root)}
    finished = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True)
    if finished.returncode in (0, 5):  # 5: none was collected, as where all of them are slow
        return None
    told = re.search(r"^(?:FAILED|ERROR) (\S+)", finished.stdout, re.MULTILINE)
    return told.group(1) if told else f"exit code {finished.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folders", default=",".join(FOLDERS))
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--only", help="numbers of the mutants to run")
    parser.add_argument("--list", action="store_true", help="print them and run nothing")
    parser.add_argument("--related", action="store_true", help="run only the test files that name the module")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, worktree(options.commit, Path(scratch) / "code") as root:
        mutants = list(enumerate(drawn(root, options.folders.split(","), options.count, options.seed)))
        if options.only:
            mutants = [mutants[int(number)] for number in options.only.split(",")]
        survivors = 0
        for number, mutant in mutants:
            if options.list:
                sys.stdout.write(f"{number:3} {mutant}\n")
                continue
            mutant.plant(root)
            suites = related(root, mutant) if options.related else [*related(root, mutant), []]
            killer = next(filter(None, (fails(root, files) for files in suites)), None)
            survivors += killer is None
            sys.stdout.write(f"{number:3} {mutant}: {'survives' if killer is None else f'killed by {killer}'}\n")
            sys.stdout.flush()
            subprocess.run(["git", "-C", str(root), "checkout", "--quiet", "."], check=True)
        if not options.list:
            sys.stdout.write(f"{len(mutants) - survivors} of {len(mutants)} are killed at {options.commit}\n")
    return int(survivors > len(mutants) // 10)


if __name__ == "__main__":
    sys.exit(main())
