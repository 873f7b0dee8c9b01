"""The smallest program that still shows a failure, of one that does."""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence

from inductor_debug.stages.minify.modules import edits, readable
from inductor_debug.stages.minify.modules.program import calls_of, functions, statements, text, tidied
from inductor_debug.stages.minify.modules.stubs import Stub, replaced
from inductor_debug.stages.minify.search import reduced

SIZES = (2, 3, 4, 5, 6, 8)
"""Sizes that are tried for a larger one; 0 and 1 are constants to torch."""

_DEEP = 4
"""Levels of nested statements that are cut."""

Change = Callable[[], ast.Module]


class Cuts:
    """Cuts a program from coarse to fine.

    Args:
        tree: the program.
        shows: whether a program shows the failure.
        over: whether time is up.
        progress: told of each step.
        given: what may stand for submodules.

    Attributes:
        tree: the smallest so far.
        minimal: whether no further statement can be left out.
    """

    def __init__(
        self, tree: ast.Module, shows: Callable[[ast.Module], bool], over: Callable[[], bool],
        progress: Callable[[str], None], given: Sequence[Stub] = (),
    ) -> None:  # fmt: skip
        self.tree, self.minimal, self._given = tree, False, given
        self._shows, self._over, self._progress = shows, over, progress
        self._tried = {text(tree)}

    def cut(self) -> None:
        """Cut all that can be cut."""
        before = ""
        self._calls()
        self.modules()
        while before != (before := text(self.tree)) and not self._over():
            self._calls()
            self._items()
            self._suffix()
            self._items()
            for depth in range(_DEEP):
                self.minimal = self._statements(depth)
            self._each(edits.unwrapped)
            self._each(edits.simpler_expressions)
            self._each(readable.without_aliases)
            self._each(readable.without_handed_on)
            self._adopts(readable.without_rest(self.tree))
            self._each(edits.without_parameters)
            self._calls()
            self._sizes()
        self.minimal = self.minimal and not self._over()
        for change in (readable.with_drawn_weights, readable.with_drawn_inputs, readable.with_plain_numbers):
            self._adopts(change(self.tree))
        self._each(readable.with_returned_values)
        self._adopts(readable.with_one_class(self.tree))
        self._adopts(readable.with_constructors(self.tree))

    def _adopts(self, tree: ast.Module | None) -> bool:
        """Whether a change shows the failure still; it is then the program."""
        if tree is None or self._over():
            return False
        tree = tidied(copy.deepcopy(tree))
        source = text(tree)
        if source in self._tried:
            return False
        self._tried.add(source)
        if not self._shows(tree):
            return False
        self.tree = tree
        self._progress(f"{statements(tree)} statements, {len(calls_of(tree).elts)} calls left")
        return True

    def _reduced(self, count: int, made: Callable[[ast.Module, Sequence[int]], ast.Module]) -> bool:
        """Leave out what can be of so many units of the program; whether each is needed."""
        whole = self.tree
        if count < 2:
            return True
        done = reduced([1.0] * count, lambda kept: self._adopts(made(whole, kept)), over=self._over)
        return done.minimal

    def modules(self) -> None:
        """Have submodules give what they gave: those that the model calls, then those within the ones that stay."""
        around = {"model"}
        while within := [stub for stub in self._given if stub.inside in around]:
            level = [stub for stub in within if stub.value]
            whole, left = self.tree, tuple(range(len(level)))
            if level and self._adopts(replaced(whole, level)):
                left = ()
            elif level:

                def shows(kept: Sequence[int], whole: ast.Module = whole, level: list[Stub] = level) -> bool:
                    return self._adopts(replaced(whole, [level[place] for place in {*range(len(level))} - {*kept}]))

                left = reduced([1.0] * len(level), shows, over=self._over).kept
            around = {stub.path for stub in within if not stub.value} | {level[place].path for place in left}
        for stub in self._given:  # what something else still holds
            self._adopts(replaced(self.tree, [stub]) if stub.value else None)

    def _calls(self) -> None:
        self._reduced(len(calls_of(self.tree).elts), edits.with_calls)

    def _items(self) -> None:
        self._reduced(len(edits.items(self.tree)), edits.with_items)

    def _suffix(self) -> None:
        """The shortest beginning of the forward that shows it, by a binary search."""
        function = edits.forward(self.tree)
        low, high, whole = 1, len(function.body) if function is not None else 0, self.tree
        while low < high:
            middle = (low + high) // 2
            if self._adopts(edits.cut_after(whole, middle)):
                high = middle
            else:
                low = middle + 1

    def _statements(self, depth: int) -> bool:
        count = len(edits.units(self.tree, depth))
        minimal = self._reduced(count, lambda tree, kept: edits.with_statements(tree, depth, kept))
        for function in range(len(list(functions(self.tree)))):  # those that a single statement is left of
            self._adopts(self._emptied(function) if depth == 0 else None)
        return minimal

    def _emptied(self, place: int) -> ast.Module | None:
        """A function, but the module's own forward, that gives its first argument."""
        tree = copy.deepcopy(self.tree)
        every = list(functions(tree))
        if place >= len(every) or every[place] is edits.forward(tree):
            return None
        given = [item.arg for item in every[place].args.args if item.arg != "self"]
        every[place].body = [ast.Return(ast.Name(given[0], ast.Load()))] if given else [ast.Pass()]
        return tree

    def _each(self, changes: Callable[[ast.Module], Iterator[Change]]) -> None:
        """Make each change that leaves the failure, until none does."""
        going = True
        while going and not self._over():
            going = any(self._adopts(change()) for change in changes(self.tree))

    def _sizes(self) -> None:
        for old in edits.numbers(self.tree):
            for new in (*SIZES, max(2, old // 2)):
                if new < old and any(self._adopts(edits.with_number(self.tree, old, new, within))
                                     for within in ("", "calls")):  # fmt: skip
                    break
