"""A program made simpler while it shows the same: what it is given, how large that is, how it lies in memory."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import fx

from inductor_debug.models.torch_private import OpOverload, schema_of
from inductor_debug.stages.minify.candidate import Candidate, Given, Normal, NumberGiven, Stored, TensorGiven
from inductor_debug.stages.minify.sizes import dense, inferred, resized, smaller
from inductor_debug.stages.minify.trials import Shows


def simplified(candidate: Candidate, shows: Shows, over: Callable[[], bool]) -> Candidate:
    """The simplest program that was found.

    Args:
        candidate: one that shows the failure.
        shows: executes a program.
        over: whether time is up; nothing more is executed then.
    """

    def in_time(other: Candidate) -> bool:
        return not over() and shows(other)

    for step in (_times, _inference, _static, _numbers, _results, _arguments, _sizes, _layouts):
        for simpler in step(candidate, in_time):
            candidate = simpler
    return candidate


def _times(candidate: Candidate, shows: Shows) -> Iterator[Candidate]:
    """Fewer calls."""
    fewer = (replace(candidate, times=times) for times in range(1, candidate.times))
    yield from itertools.islice(filter(shows, fewer), 1)


def _inference(candidate: Candidate, shows: Shows) -> Iterator[Candidate]:
    """No gradients; else with respect to fewer inputs."""
    asking = [item.name for item in candidate.given if isinstance(item, TensorGiven) and item.requires_grad]
    for group in (asking, *([name] for name in asking)) if asking else ():
        items: dict[str, Given] = {
            item.name: replace(item, requires_grad=False)
            for item in candidate.given
            if isinstance(item, TensorGiven) and item.name in group
        }
        simpler = candidate.giving(items)
        if shows(simpler):
            candidate = simpler
            yield candidate
            if group == asking:
                return


def _static(candidate: Candidate, shows: Shows) -> Iterator[Candidate]:
    """Sizes that are no symbols, written where they are used."""
    numbers = {item.name: item.number for item in candidate.given if isinstance(item, NumberGiven)}
    shapes = {item.name: item.shape for item in candidate.given if isinstance(item, TensorGiven)}
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in candidate.graph.nodes:
        if node.op == "placeholder" and node.name in numbers:
            continue
        if node.op == "call_method" and node.target == "size":
            numbers[node.name] = shapes[node.args[0].name][node.args[1]]
            continue
        copies[node] = graph.node_copy(node, lambda source: copies.get(source, numbers.get(source.name)))
    given = tuple(item for item in candidate.given if item.name not in numbers)
    static = replace(candidate, graph=graph, given=given, dynamic=False)
    if (numbers or candidate.dynamic) and shows(static):
        yield static


def _numbers(candidate: Candidate, shows: Shows) -> Iterator[Candidate]:
    """Numbers that are drawn, plain ones if that will do; of all inputs at once, else of one after the other."""
    tensors = [item.name for item in candidate.given if isinstance(item, TensorGiven)]
    for group in (tensors, *([name] for name in tensors)):
        for made in (_plain, _alike):
            items: dict[str, Given] = {
                item.name: made(item)
                for item in candidate.given
                if isinstance(item, TensorGiven) and item.name in group
            }
            simpler = candidate.giving(items)
            if simpler.given != candidate.given and shows(simpler):
                candidate = simpler
                yield candidate
                break
        if not any(isinstance(item, TensorGiven) and isinstance(item.values, Stored) for item in candidate.given):
            return


def _alike(item: TensorGiven) -> TensorGiven:
    return replace(item, values=item.drawn)


def _plain(item: TensorGiven) -> TensorGiven:
    return replace(item, values=Normal() if isinstance(item.drawn, Normal) else item.drawn)


def _results(candidate: Candidate, shows: Shows) -> Iterator[Candidate]:
    """Fewer results."""
    for place in reversed(range(len(_results_of(candidate)))):
        results = _results_of(candidate)
        if len(results) == 1:
            return
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in candidate.graph.nodes:
            if node.op != "output":
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for number, node in enumerate(results) if number != place))
        simpler = replace(candidate, graph=graph)
        if shows(simpler):
            candidate = simpler
            yield candidate


def _results_of(candidate: Candidate) -> list[fx.Node]:
    (output,) = (node for node in candidate.graph.nodes if node.op == "output")
    return list(output.args[0])


def _arguments(candidate: Candidate, shows: Shows) -> Iterator[Candidate]:
    """Arguments that have a default or may be None left out; what is then given to nothing is gone."""
    for number in range(len(candidate.calls)):
        target = candidate.calls[number].target
        for place, argument in enumerate(schema_of(target).arguments if isinstance(target, OpOverload) else ()):
            simpler = _without(candidate, number, place, argument)
            if simpler is not None and inferred(simpler) is not None and shows(simpler):
                candidate = simpler
                yield candidate


def _without(candidate: Candidate, number: int, place: int, argument: torch.Argument) -> Candidate | None:
    """The program whose call of this number has another argument; None where it has no other."""
    node = candidate.calls[number]
    value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
    other = argument.default_value if argument.has_default_value() else None
    may = argument.has_default_value() or isinstance(argument.type, torch.OptionalType)
    if not may or value is None or value == other:
        return None
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for old in candidate.graph.nodes:
        copies[old] = graph.node_copy(old, copies.__getitem__)
    if place < len(node.args) - 1:
        copies[node].update_arg(place, other)
    elif place < len(node.args):
        copies[node].args = copies[node].args[:-1] if argument.has_default_value() else (*copies[node].args[:-1], other)
    else:
        copies[node].kwargs = {key: item for key, item in copies[node].kwargs.items() if key != argument.name}
    given = []
    placeholders = [item for item in graph.nodes if item.op == "placeholder"]
    for placeholder, item in zip(placeholders, candidate.given, strict=True):
        if placeholder.users:
            given.append(item)
        else:
            graph.erase_node(placeholder)
    return replace(candidate, graph=graph, given=tuple(given))


def _sizes(candidate: Candidate, shows: Shows) -> Iterator[Candidate]:
    """Smaller sizes, until none is."""
    done: set[int] = set()
    while left := [(old, others) for old, others in smaller(candidate) if old not in done]:
        old, others = left[0]
        tried = (simpler for new in others if (simpler := resized(candidate, old, new)) is not None)
        found = next(filter(shows, tried), None)
        if found is None:
            done.add(old)
        else:
            candidate = found
            yield candidate


def _layouts(candidate: Candidate, shows: Shows) -> Iterator[Candidate]:
    """Tensors that begin where their memory does, and have no gaps; then in the order of their dimensions."""
    for name in [item.name for item in candidate.given]:
        for made in (_from_the_start, _without_gaps, _contiguous):
            item = next(item for item in candidate.given if item.name == name)
            if isinstance(item, TensorGiven) and not isinstance(item.values, Stored) and made(item) != item:
                simpler = candidate.giving({name: made(item)})
                if shows(simpler):
                    candidate = simpler
                    yield candidate


def _from_the_start(item: TensorGiven) -> TensorGiven:
    return replace(item, offset=0)


def _without_gaps(item: TensorGiven) -> TensorGiven:
    return replace(item, stride=dense(item.shape, item.stride))


def _contiguous(item: TensorGiven) -> TensorGiven:
    return replace(item, stride=dense(item.shape, tuple(range(len(item.shape), 0, -1))))
