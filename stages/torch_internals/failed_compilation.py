"""What TorchInductor had made of a graph when its compilation failed.

Relies on ``torch._inductor.debug.dump_inductor_provenance_info``, whose tables are filled as code is generated, before
any of it is compiled, and on ``torch._dynamo.exc.BackendCompilerFailed.inner_exception``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from torch._inductor import debug as inductor_debug

_MARK = "_inductor_debug_lowered"


def mark(error: Exception, lowered: Any, generated: Sequence[str]) -> None:
    """Note on an error which graph it was that did not compile.

    Args:
        error: that left the compilation.
        lowered: a :class:`~stages.torch_internals.inductor.LoweredGraph` with what was recorded of it; its generated
            code, and what that computes, are filled in.
        generated: texts of the modules that were generated and loaded.
    """
    lowered.source_code = next((text for text in reversed(generated) if "async_compile" in text), "")
    tables = inductor_debug.dump_inductor_provenance_info()
    lowered.kernel_nodes = {name: list(found) for name, found in tables.get("cppCodeToPost", {}).items()}
    setattr(error, _MARK, lowered)


def failed_graph(error: BaseException) -> Any:
    """What :func:`mark` was given; None where an error ended no compilation, or nothing noted it."""
    return next((getattr(item, _MARK) for item in _chain(error) if hasattr(item, _MARK)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        item = waiting.pop()
        if item is None or id(item) in seen:
            continue
        seen.add(id(item))
        yield item
        waiting += [item.__cause__, item.__context__, getattr(item, "inner_exception", None)]
