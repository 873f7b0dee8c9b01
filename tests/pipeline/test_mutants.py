"""Mutants are changes of one place that leave a program."""

import ast
import sys
from pathlib import Path

import pytest

TRIALS = Path(__file__).parents[1] / "trials"
TEXT = '''
LIMIT = 4  # µ
def f(a: int | None, b=True):
    """1 < 2"""
    if a is not None and not a < LIMIT:
        return a + 2.5 if a not in (1,) else "a - b"
    return {"é": a}["é"] * 3
'''


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(TRIALS))
    monkeypatch.delitem(sys.modules, "mutants", raising=False)
    import mutants

    return mutants


def test_each_place_is_changed_alone_and_what_is_left_is_a_program(mutants, tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(TEXT, encoding="utf-8")
    found = list(mutants.Places(tmp_path, "f.py").mutants())
    told = {(mutant.line, mutant.old, mutant.new) for mutant in found}
    assert told == {
        (2, "4", "24"), (3, "True", "False"), (5, "and", "or"), (5, "is not", "is"), (5, "not ", ""), (5, "<", "<="),
        (6, "+", "-"), (6, "2.5", "15.0"), (6, "not in", "in"), (6, "1", "6"), (7, "*", "/"), (7, "3", "18"),
    }  # fmt: skip
    for mutant in found:
        (tmp_path / "f.py").write_text(TEXT, encoding="utf-8")
        mutant.plant(tmp_path)
        planted = (tmp_path / "f.py").read_text(encoding="utf-8")
        assert ast.dump(ast.parse(planted)) != ast.dump(ast.parse(TEXT))


def test_a_seed_draws_the_same_ones_from_every_folder(mutants) -> None:
    root, folders = TRIALS.parents[1], list(mutants.FOLDERS)
    found = mutants.drawn(root, folders, 20, 0)
    assert found == mutants.drawn(root, folders, 20, 0) != mutants.drawn(root, folders, 20, 1)
    assert [sum(mutant.file.startswith(tuple(folder.split("+"))) for mutant in found) for folder in folders] == [4] * 5
