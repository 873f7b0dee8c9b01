"""What TorchDynamo holds each compiled frame to, beyond the guards that it exports, and the limits that it hits.

Relies on ``torch._dynamo.guards.guard_manager_testing_hook_fn``, called with a compilation's guards as soon as they are
built. Its builder has ``f_code``, ``no_tensor_aliasing_names`` and ``check_fn_manager.output_graph`` with
``input_source_to_sizes_strides`` and ``aotautograd_guards``. Relies on ``convert_frame.exceeds_recompile_limit``, which
tells the limit by its name in ``torch._dynamo.config``, and on ``SymNode.maybe_as_int`` for a symbol's value.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch._dynamo
from torch._dynamo import convert_frame
from torch._dynamo import guards as dynamo_guards

from inductor_debug.models.torch_text import function_name
from inductor_debug.stages.torch_internals.dynamo import CompileKey, current_compile_key

Layout = tuple[list[int | None], list[int | None]]
"""Sizes and strides that a guard holds a tensor to; None where it leaves one free."""


@dataclass
class FrameEvent:
    """One compilation of one frame, whether or not a graph came of it.

    Attributes:
        key: see :data:`~stages.torch_internals.dynamo.CompileKey`.
        code: name of the code object; a function that goes on after a graph break has one of its own.
        function: the user's name of the function.
        file, line: where that code begins.
        layouts: what the guards hold each tensor to, by its name in guards.
        relations: (kind, condition) of guards between several tensors, which Dynamo exports no record of.
    """

    key: CompileKey
    code: str
    function: str
    file: str
    line: int
    layouts: dict[str, Layout]
    relations: list[tuple[str, str]]


@dataclass
class LimitEvent:
    """A frame that was not compiled again, because a limit of ``torch._dynamo.config`` was reached."""

    key: CompileKey
    limit: str
    value: int


@dataclass
class FrameLog:
    """What the hooks saw, in order."""

    frames: list[FrameEvent] = field(default_factory=list)
    limits: list[LimitEvent] = field(default_factory=list)


@contextlib.contextmanager
def recorded_frames(log: FrameLog) -> Iterator[None]:
    """While open, every compilation of this process and every limit that it hits is written to ``log``."""
    asked, exceeds = dynamo_guards.guard_manager_testing_hook_fn, convert_frame.exceeds_recompile_limit

    def built(manager: Any, scope: Any, builder: Any) -> None:
        log.frames.append(_frame(builder))
        if asked is not None:
            asked(manager, scope, builder)

    def exceeded(cache_size: Any, compile_id: Any) -> tuple[bool, str]:
        found, limit = exceeds(cache_size, compile_id)
        if found:
            log.limits.append(LimitEvent(current_compile_key(), limit, int(getattr(torch._dynamo.config, limit))))
        return found, limit

    with (
        mock.patch.object(dynamo_guards, "guard_manager_testing_hook_fn", built),
        mock.patch.object(convert_frame, "exceeds_recompile_limit", exceeded),
    ):
        yield


def _frame(builder: Any) -> FrameEvent:
    code, graph, names = builder.f_code, builder.check_fn_manager.output_graph, builder.no_tensor_aliasing_names
    distinct = [("NO_TENSOR_ALIASING", f"check_no_aliasing({', '.join(names)})")] if len(names) > 1 else []
    return FrameEvent(
        key=current_compile_key(),
        code=code.co_name,
        function=function_name(code.co_name),
        file=code.co_filename,
        line=code.co_firstlineno,
        layouts={
            _name(source): (_concrete(found["size"]), _concrete(found["stride"]))
            for source, found in graph.input_source_to_sizes_strides.items()
        },
        relations=[*distinct, *map(_relation, graph.aotautograd_guards)],
    )


def _relation(guard: Any) -> tuple[str, str]:
    """A guard of AOTAutograd's on how inputs share memory."""
    if hasattr(guard, "input_source_a"):
        return "DUPLICATE_INPUT", f"{_name(guard.input_source_a)} is {_name(guard.input_source_b)}"
    if hasattr(guard, "overlapping_sources"):
        sides = [", ".join(map(_name, side)) for side in (guard.overlapping_sources, guard.non_overlapping_sources)]
        return "STORAGE_OVERLAP", f"check_overlapping(overlapping=[{sides[0]}], non_overlapping=[{sides[1]}])"
    return type(guard).__name__, str(guard)


def _name(source: Any) -> str:
    return str(source.name() if callable(source.name) else source.name)


def _concrete(values: Any) -> list[int | None]:
    """Numbers, None for what is still symbolic: a symbol may have been given its value while the code was traced."""
    return [value if isinstance(value, int) else value.node.maybe_as_int() for value in values]
