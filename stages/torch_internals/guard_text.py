"""The text of guards, and of the reason for a recompilation, read.

Relies on Dynamo's names for what a guard is on: ``L['x']``, ``G['name']``, numbered globals. Relies on its words for a
failure: ``0/0: tensor 'x' size mismatch at index 1. expected 8, actual 6``, or the condition itself with a comment that
names its line. ``check_tensor(…)`` is ours: :mod:`stages.torch_internals.dynamo` writes it.
"""

import enum
import re
from dataclasses import dataclass

_COUNTERS = ((re.compile(r"(__builtins_dict__)_\d+"), r"\1"), (re.compile(r"(G\['\w*?_)\d{6,}_c\d+"), r"\1…"))
"""What differs between two compilations of one frame: numbers, addresses and Dynamo's count of compilations (``_c10``)
in the names of globals."""
_REASON = re.compile(r"^(?P<id>[\d!]*\d+/\d+(?:_\d+)?): (?P<guard>.*)", re.DOTALL)
_COMMENT = re.compile(r"\s{2,}# .*", re.DOTALL)
_PLACE = re.compile(r"# (?P<file>\S+):(?P<line>\d+) in ")
_TENSOR = re.compile(r"^tensor '(?P<name>.+?)' \w")
_SCOPED = re.compile(r"L\['(.*?)'\]")
_SIZE = re.compile(
    r"tensor '(?P<name>.+?)' size mismatch at index (?P<dim>\d+)\. expected (?P<old>\d+), actual (?P<new>\d+)"
)
_CHECK = "check_tensor("
_TRACED_SIZE = re.compile(r", traced_size=.*\)$")
_LAYOUT = re.compile(r", size=.*")


class FailureKind(enum.Enum):
    """What a guard that failed holds its object to; the value is a pattern. The first that matches is meant."""

    STRIDE = r"stride mismatch"
    DTYPE = r"dtype mismatch"
    GRADIENT = r"requires_grad mismatch"
    RANK = r"rank mismatch"
    GLOBAL_STATE = r"dispatch key set mismatch|GLOBAL_STATE|grad_mode"
    MARKS = r"_dynamo_\w*indices"
    ALIASING = r"check_no_aliasing|Duplicate tensor|check_overlapping| is (?=[LGa-z])"
    SYMBOLIC_SIZE = r"\.(size|stride)\(\)|storage_offset"
    VALUE = r"==|len\("


@dataclass(frozen=True)
class Reason:
    """Why a frame was compiled again.

    Attributes:
        failed: id of the compilation whose guard failed, ``0/0``; "" where it is not told.
        guard: what failed, without torch's comment.
        place: (end of a file's path, line) in that comment; None where it has none.
    """

    failed: str
    guard: str
    place: tuple[str, int] | None


@dataclass(frozen=True)
class SizeMismatch:
    """A tensor's size that is another than a guard holds it to."""

    name: str
    dim: int
    old: int
    new: int


def parse_reason(text: str) -> Reason:
    """torch's reason for a recompilation in its parts."""
    match = _REASON.match(text)
    failed, guard = (match["id"], match["guard"]) if match else ("", text)
    places = list(_PLACE.finditer(text))
    return Reason(
        failed,
        _COMMENT.sub("", guard.partition("\nUser stack trace:")[0]).strip(),
        (places[-1]["file"], int(places[-1]["line"])) if places else None,
    )


def tensor_named(failure: str) -> str | None:
    """The tensor that a failure is about, without its scope: ``x``; None where it is about none."""
    match = _TENSOR.match(failure)
    return match["name"] if match else None


def size_mismatch(failure: str) -> SizeMismatch | None:
    """The size that a failure is about; None where it is about something else."""
    found = _SIZE.search(failure)
    return SizeMismatch(found["name"], *(int(found[key]) for key in ("dim", "old", "new"))) if found else None


def failure_kind(failure: str) -> FailureKind | None:
    """What a guard that failed holds its object to; None where that is none of the known kinds."""
    return next((kind for kind in FailureKind if re.search(kind.value, failure)), None)


def without_counters(text: str) -> str:
    """A guard's name or condition as it is in every compilation of the frame."""
    for pattern, plain in _COUNTERS:
        text = pattern.sub(plain, text)
    return text


def unscoped(text: str) -> str:
    """Without the scope, as torch words a failure: ``L['x']`` → ``x``."""
    return _SCOPED.sub(r"\1", text)


def is_tensor_check(condition: str) -> bool:
    """Whether a condition is what a guard holds a tensor to as a whole, ``check_tensor(…)``."""
    return condition.startswith(_CHECK)


def with_layout(condition: str, size: object, stride: object) -> str:
    """``check_tensor(…)`` with the sizes and strides that the guard holds, in place of the traced size."""
    return _TRACED_SIZE.sub(lambda _: f", size={size}, stride={stride})", condition)


def without_layout(condition: str) -> str:
    """``check_tensor(…)`` up to its sizes."""
    return _LAYOUT.sub("", condition)


def is_about(condition: str, name: str, *, tensor: bool) -> bool:
    """Whether a condition on symbolic sizes is about the tensor of that name, or about the number of that name."""
    after = r"\.(size|stride|storage_offset)\(\)" if tensor else r"(?![\w.\[(])"
    return re.search(re.escape(name) + after, condition) is not None
