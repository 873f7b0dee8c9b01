"""TorchInductor made wrong where its developer would be: lowerings, operators in C++ or Triton, generated text.

Inside each context what is compiled is wrong, and no cache of compiled code is used. torch's own planted bugs are
``bisect_faults.injected_bug``. Of :data:`REAL` nothing has to be patched: this torch may miscompile them as they are.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

aten = torch.ops.aten

LEFT_OUT = (
    *("aten.full", "aten.reshape", "aten.expand"),
    *("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm", "aten.convolution", "aten._scaled_dot_product"),
)
"""No arithmetic, and a library's calls: what is added to a lowering of these is another buffer than theirs."""


def scaled(value: Any, by: float) -> Any:
    from torch._inductor.lowering import lowerings

    return lowerings[aten.mul.Tensor](value, 1 + by)


def shifted(value: Any, by: float) -> Any:
    from torch._inductor.lowering import lowerings

    return lowerings[aten.add.Tensor](value, by)


def negated(value: Any, by: float) -> Any:
    from torch._inductor.lowering import lowerings

    return lowerings[aten.neg.default](value)


LOWERINGS = {"scaled": (scaled, 0.01), "shifted": (shifted, 0.1), "negated": (negated, 0.0)}
"""Kind → what is done to the result of a lowering, and by how much."""


@contextlib.contextmanager
def wrong_lowering_at(site: str, kind: str) -> Iterator[list[str]]:
    """The lowering of each graph's node of that name is wrong; yields the names of nodes that were lowered."""
    from torch._inductor import graph as inductor_graph
    from torch._inductor.virtualized import V

    original = inductor_graph.GraphLowering.call_function
    wrong, by = LOWERINGS[kind]
    noted: list[str] = []

    def call_function(self: Any, target: Any, args: Any, kwargs: Any) -> Any:
        result = original(self, target, args, kwargs)
        node = V.graph.current_node
        value = node.meta.get("val")
        fits = isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 1
        computed = isinstance(target, torch._ops.OpOverload) and not target.is_view and "copy_" not in str(target)
        if not fits or not computed or str(target).startswith(LEFT_OUT):
            return result
        if node.name not in noted:
            noted.append(node.name)
        return wrong(result, by) if node.name == site else result

    with mock.patch.object(inductor_graph.GraphLowering, "call_function", call_function), _without_caches():
        yield noted


@contextlib.contextmanager
def wrong_operator(name: str, by: float = 1.01) -> Iterator[list[str]]:
    """An operator of TorchInductor's IR (``exp``, ``rsqrt``, …) is generated as ``by`` times the right expression.

    In scalar and vectorized C++, and in Triton. Yields the expressions that were generated.
    """
    from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides
    from torch._inductor.codegen.triton import TritonKernelOverrides, TritonOverrides

    generated: list[str] = []

    def wrong(right: Callable[..., Any], factor: str) -> Any:
        def generate(*args: Any) -> str:
            code = str(right(*args))
            generated.append(f"({code}) * {factor.format(*args)}")
            return generated[-1]

        return staticmethod(generate)

    with contextlib.ExitStack() as stack:
        for owner in (CppOverrides, CppVecOverrides, TritonOverrides, TritonKernelOverrides):
            if name in vars(owner):
                factor = f"decltype({{0}})({by})" if owner in (CppOverrides, CppVecOverrides) else str(by)
                stack.enter_context(mock.patch.object(owner, name, wrong(getattr(owner, name), factor)))
        stack.enter_context(_without_caches())
        yield generated


@dataclass(frozen=True)
class Rewriting:
    """A change of generated text: what is looked for, and what stands in its place."""

    pattern: str
    put: Callable[[re.Match[str]], str]


SOURCES = {
    "short_loop": Rewriting(  # C++: the loop ends before its last vector, or its last row
        r"(?P<start>for\(int64_t (?P<name>x\d+)=.*?; (?P=name)<static_cast<int64_t>\()(?P<end>\d+)(?P<rest>L\); "
        r"(?P=name)\+=static_cast<int64_t>\()(?P<step>\d+)",
        lambda found: f"{found['start']}{int(found['end']) - int(found['step'])}{found['rest']}{found['step']}",
    ),
    "short_mask": Rewriting(  # Triton: the mask leaves out the last element
        r"(?P<name>[xyr]\d?_?mask) = (?P<index>\w+) < (?P<size>\w*numel)",
        lambda found: f"{found['name']} = {found['index']} < {found['size']} - 1",
    ),
    "wrong_literal": Rewriting(  # C++: a constant has another value
        r"static_cast<float>\((?P<value>\d+\.\d+)\)",
        lambda found: f"static_cast<float>({float(found['value']) * 1.01!r})",
    ),
}
"""Kind → a change of the text that TorchInductor generates."""


@contextlib.contextmanager
def wrong_source(kind: str, number: int = 0) -> Iterator[list[str]]:
    """One place of each generated module's text is another; yields what was found there.

    Args:
        kind: of :data:`SOURCES`.
        number: which of the places that match.
    """
    from torch._inductor.graph import GraphLowering

    right, change, found = GraphLowering.codegen, SOURCES[kind], []  # type: ignore[var-annotated]

    def codegen(self: Any) -> Any:
        wrapper, kernels = right(self)
        places = list(re.finditer(change.pattern, wrapper.value))
        if len(places) <= number:
            return wrapper, kernels
        place = places[number]
        found.append(place[0])
        text = wrapper.value[: place.start()] + change.put(place) + wrapper.value[place.end() :]
        return replace(wrapper, value=text), kernels

    with mock.patch.object(GraphLowering, "codegen", codegen), _without_caches():
        yield found


def _without_caches() -> Any:
    import torch._inductor.config as config

    return config.patch(force_disable_caches=True)


class Argmin(nn.Module):
    """torch 2.11 to 2.14 give the index in the memory's order: pytorch/pytorch#197739."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.t() + 0.5).argmin()


class RepeatInterleave(nn.Module):
    """torch 2.13 reads before the start where the sizes are dynamic: pytorch/pytorch#190765, #187027.

    The index of a flipped and repeated value loses a multiple of the size that kept it from being negative
    (``ModularIndexing.eval``; pull request 190966). Flipped alone or repeated alone it is right.
    """

    def forward(self, x: Tensor) -> Tensor:
        repeated = torch.repeat_interleave((x + 1).flatten(), 2)
        return repeated.flip(0)


def drawn() -> Tensor:
    return torch.randn(8, 8, generator=torch.Generator().manual_seed(0))


def of_any_size() -> Tensor:
    x = drawn()
    for dim in range(x.dim()):
        torch._dynamo.mark_dynamic(x, dim)
    return x


REAL: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "argmin": (Argmin, drawn),
    "repeat_interleave": (RepeatInterleave, of_any_size),
}
"""Name → a module that a released torch miscompiles on the CPU, and its input."""
