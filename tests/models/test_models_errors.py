"""What an error came from, through what torch and Python wrap around it."""

import pickle
import subprocess

import pytest
from torch._inductor.codecache import CppCodeCache

from inductor_debug.models.errors import (
    ConfigurationError,
    UserError,
    invalid_choice,
    is_out_of_memory,
    root_cause,
    wrapped,
)
from inductor_debug.pipeline.run.error_words import headline
from inductor_debug.stages.backends.strict_error import ProfileViolated, violation_in
from inductor_debug.stages.sides.running import describe


class Failed(RuntimeError):
    """As Dynamo's: what was raised is an attribute, and not its cause."""

    def __init__(self, inner: BaseException) -> None:
        super().__init__("backend='chip' raised")
        self.inner_exception = inner


def chain() -> tuple[BaseException, ...]:
    """Raised first to last: a cause, what it caused, what a backend's error was wrapped in."""
    first, second = KeyError("first"), ValueError("second")
    second.__cause__ = first
    return first, second, Failed(second)


def test_every_error_once_and_the_outermost_first() -> None:
    first, second, outer = chain()
    assert list(wrapped(outer)) == [outer, second, first]
    assert root_cause(outer) is first and root_cause(first) is first
    first.__cause__ = outer  # a circle
    assert list(wrapped(outer)) == [outer, second, first]


def test_what_was_being_handled_counts_where_it_is_asked_for() -> None:
    try:
        try:
            raise MemoryError("no more")
        except MemoryError:
            raise RuntimeError("clean-up failed")  # noqa: B904 - the point
    except RuntimeError as error:
        assert [type(item) for item in wrapped(error)] == [RuntimeError]
        assert [type(item) for item in wrapped(error, contexts=True)] == [RuntimeError, MemoryError]
        assert is_out_of_memory(error)


def test_the_log_and_the_diagnosis_name_the_same_error() -> None:
    outer = chain()[-1]
    assert headline(outer).startswith("KeyError: 'first' (within Failed")
    assert describe(outer)["type"] == "KeyError"


def test_a_violation_is_found_below_its_wrapping() -> None:
    violated = ProfileViolated.__new__(ProfileViolated)
    assert violation_in(Failed(violated)) is violated
    assert violation_in(chain()[-1]) is None
    with pytest.raises(Failed):
        raise Failed(violated)


def test_a_users_mistake_is_told_by_its_parts() -> None:
    mistake = invalid_choice("dtype", "float33", ("float16", "float32"))
    assert (mistake.key, mistake.place, mistake.hint) == ("dtype", "", "dtype=float32")
    placed = mistake.with_parts(place="my.yaml", hint="dtype=float16")
    told = "dtype: got 'float33' (in my.yaml); valid: float32, float16.\nTry: dtype=float16"
    assert type(placed) is ConfigurationError and str(placed) == told == str(pickle.loads(pickle.dumps(placed)))
    assert str(UserError("nothing ran")) == "nothing ran" and str(UserError("no run", hint="ls")) == "no run.\nTry: ls"


def test_what_a_cpp_compiler_said_is_told_before_its_command_line() -> None:
    with pytest.raises(Exception, match="C\\+\\+ compile error") as raised:
        CppCodeCache.load("int twice = 1; float twice = 2;")
    described = describe(raised.value)
    first = described["message"].splitlines()[0]
    assert described["type"] == "CppCompileError"
    assert first.startswith("C++ compile error: conflicting declaration") and "twice" in first
    assert headline(raised.value) == f"CppCompileError: {first}"


def test_an_exit_status_with_nothing_raised_from_it_is_the_cause() -> None:
    alone = subprocess.CalledProcessError(2, ["tool"])
    assert root_cause(Failed(alone)) is alone and root_cause(alone) is alone
