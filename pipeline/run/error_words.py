"""What a stage's record and message say of an exception."""

from inductor_debug.models.errors import is_out_of_memory, root_cause, wrapped
from inductor_debug.models.torch_text import is_about_dtype
from inductor_debug.models.units import format_bytes
from inductor_debug.pipeline.directory.rundir import FULL, is_no_space
from inductor_debug.stages.formatting import in_one_line

LESS_MEMORY = "To need less, add a smaller model.batch_size to the command"


def cause_of(error: BaseException) -> str:
    """``error TYPE…``: types of the error and of what it wraps, as :class:`StageRecord` has them."""
    return " ".join(["error", *(type(item).__name__ for item in wrapped(error))])


def is_no_resource(error: BaseException) -> bool:
    """Whether memory or the disk ran out."""
    return is_out_of_memory(error) or is_no_space(error)


def headline(error: BaseException) -> str:
    """``Type: message`` of the error, after that of what caused it where that is another one.

    torch wraps what a backend raises: ``RuntimeError: the compiler gave up (within BackendCompilerFailed:
    backend='compiler_fn' raised)``.
    """
    cause = root_cause(error)
    if cause is error:
        return in_one_line(error, 2)
    told, outer = in_one_line(cause, 2), in_one_line(error).removesuffix(":")
    return f"{told} (within {type(error).__name__ if told in outer else outer})"


def message_of(error: BaseException, limit: int | None, cast: str) -> str:
    """A crashed stage's message.

    Args:
        limit: bytes that the worker may have, or None.
        cast: what the run did to the model's dtype, for an error about dtypes.
    """
    if is_out_of_memory(error):
        told = f"runner.memory_limit is {format_bytes(limit)}" if limit else "no runner.memory_limit is set"
        return f"ran out of memory ({told}): {headline(error)}. {LESS_MEMORY}"
    if is_no_space(error):
        return f"{FULL}: {headline(error)}"
    return f"{headline(error)}; {cast}" if cast and is_about_dtype(str(error)) else headline(error)
