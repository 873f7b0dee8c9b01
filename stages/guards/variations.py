"""The case's inputs, varied in one way at a time: another batch, another length, another dtype, another layout.

Which dimension is the batch, and which the length, is not guessed. It is told by the user, or it shows when the case is
built again with another size, whose inputs are then the varied ones.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from inductor_debug.models.case import Case
from inductor_debug.models.errors import invalid_choice, root_cause, wrong_value
from inductor_debug.models.nested import is_strided, map_sharing, map_tensors, strided_parts
from inductor_debug.stages.formatting import in_one_line
from inductor_debug.stages.guards.layouts import channels_last, other_layout, relaid, resized
from inductor_debug.stages.guards.records import Variation

SIZE_FIELDS = {"batch": ("batch_size",), "length": ("sequence_length", "image_size")}
"""The fields of a model's configuration that a kind of variation may stand for, the first that shows in the inputs."""

_SHOWN = 4


@dataclass
class Rebuilder:
    """How the case's inputs are made in other sizes.

    Attributes:
        sizes: the case's own, by field: ``batch_size``, ``sequence_length``, ``image_size``.
        build: gives the case with other sizes of these fields.
    """

    sizes: Mapping[str, int]
    build: Callable[[Mapping[str, int]], Case]


@dataclass
class Planned:
    """A variation and the case that calls it; None where it could not be made.

    ``cast`` is the dtype that the module's weights take for the call.
    """

    record: Variation
    case: Case | None = None
    cast: torch.dtype | None = None


def plan(
    case: Case, kinds: Iterable[str], dims: Mapping[str, Mapping[str, int]], rebuilder: Rebuilder | None
) -> list[Planned]:
    """The variations of a case, kind by kind.

    Args:
        case: whose inputs are varied; it is left alone.
        kinds: of ``stages.guards.config.VARIATIONS``.
        dims: kind → input's name → dimension; takes the place of building anew.
        rebuilder: builds the case with other sizes; None where nothing can.

    Raises:
        ConfigurationError: ``dims`` names no input, or a dimension that it does not have.
    """
    planned: list[Planned] = []
    for kind in kinds:
        if kind == "dtype":
            planned += _dtypes(case)
        elif kind == "contiguity":
            planned += _layouts(case)
        elif kind in dims:
            planned += _named_sizes(case, kind, dims[kind])
        else:
            planned += _built_sizes(case, kind, rebuilder)
    return planned


def other_sizes(size: int) -> tuple[int, int]:
    """Two sizes that differ from the given one and from 0 and 1, which torch treats as constants; smaller if it can."""
    return (size // 2, size * 3 // 4) if size >= 4 else (size + 1, size + 2)


def _built_sizes(case: Case, kind: str, rebuilder: Rebuilder | None) -> list[Planned]:
    tried: list[str] = []
    for field in SIZE_FIELDS[kind] if rebuilder is not None else ():
        assert rebuilder is not None
        if field not in rebuilder.sizes:
            continue
        first, second = other_sizes(rebuilder.sizes[field])
        made = _built(case, kind, 1, field, first, rebuilder)
        if made.case is not None:
            return [made, _built(case, kind, 2, field, second, rebuilder)]
        tried.append(made.record.message)
    reason = "; ".join(tried) or f"nothing tells which dimension is the {kind}"
    return [_unknown(kind, f"{reason}. Try: stages.guards.dims.{kind}.INPUT=DIMENSION")]


def _built(case: Case, kind: str, step: int, field: str, size: int, rebuilder: Rebuilder) -> Planned:
    """The case's module with the inputs that it is built with in another size."""
    setting = f"model.{field}={size}"
    try:
        other = rebuilder.build({field: size})
    except Exception as error:  # noqa: BLE001 - the builder is the user's
        return _unknown(kind, f"building with {setting} raised {in_one_line(root_cause(error))}", step)
    varied = replace(case, args=other.args, kwargs=other.kwargs, draws=None)
    change = _size_change(case, varied)
    if not change:
        return _unknown(kind, f"the inputs that are built with {setting} have the same sizes", step)
    return Planned(Variation(kind, step, change, f"built with {setting}"), varied)


def _size_change(case: Case, varied: Case) -> str:
    before = {name: _sizes(tensor) for name, tensor in case.named_inputs().items()}
    after = {name: _sizes(tensor) for name, tensor in varied.named_inputs().items()}
    return _listed(
        f"{name} {before.get(name, 'missing')} → {after.get(name, 'missing')}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    )


def _sizes(tensor: torch.Tensor) -> list[Any]:
    """The shape; of a nested or a sparse tensor those of what it consists of."""
    return list(tensor.shape) if is_strided(tensor) else [list(part.shape) for part in strided_parts(tensor)]


def check_named(case: Case, kind: str, named: Mapping[str, int]) -> None:
    """ConfigurationError for an input that the case does not have, or a dimension that it does not have."""
    inputs = case.named_inputs()
    for name, dim in named.items():
        if name not in inputs:
            raise invalid_choice(f"stages.guards.dims.{kind}", name, inputs,
                                 example=f"stages.guards.dims.{kind}.{{}}={dim}")  # fmt: skip
        rank = inputs[name].dim()
        if not -rank <= dim < rank:
            valid = f"0 to {rank - 1}, for {name} has the shape {_sizes(inputs[name])}"
            raise wrong_value(f"stages.guards.dims.{kind}.{name}", dim, valid, "0")


def _named_sizes(case: Case, kind: str, named: Mapping[str, int]) -> list[Planned]:
    check_named(case, kind, named)
    inputs = case.named_inputs()
    steps = []
    for step in (1, 2):
        made: dict[int, torch.Tensor] = {}
        for name, dim in named.items():
            own = inputs[name]
            tensor = made.get(id(own), own)
            if tensor.shape[dim] == own.shape[dim]:  # else it has another name, under which it was resized
                made[id(own)] = resized(tensor, dim, other_sizes(own.shape[dim])[step - 1])
        varied = _with(case, made)
        steps.append(Planned(Variation(kind, step, _size_change(case, varied), "stages.guards.dims"), varied))
    return steps


def _dtypes(case: Case) -> list[Planned]:
    """The floating inputs in another dtype, then the weights with them; integers and masks stay."""
    floating = {name: tensor for name, tensor in case.named_inputs().items() if tensor.is_floating_point()}
    weights = [tensor for tensor in (*case.module.parameters(), *case.module.buffers()) if tensor.is_floating_point()]
    own = next(iter([*floating.values(), *weights]), torch.empty(())).dtype
    target = torch.bfloat16 if own == torch.float32 else torch.float32

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        return tensor.detach().to(target).requires_grad_(tensor.requires_grad)

    args, kwargs = map_sharing(cast, (case.args, case.kwargs))
    varied = replace(case, args=args, kwargs=kwargs, draws=None)
    name = str(target).removeprefix("torch.")
    planned: list[Planned] = []
    if any(tensor.dtype != target for tensor in floating.values()):
        before = {item: str(tensor.dtype).removeprefix("torch.") for item, tensor in floating.items()}
        inputs = _listed(f"{item} {dtype} → {name}" for item, dtype in before.items())
        planned.append(Planned(Variation("dtype", 1, inputs, "the inputs' dtypes"), varied))
    else:
        inputs = ""
        planned.append(_unknown("dtype", "no input has a floating dtype that could be another"))
    if any(tensor.dtype != target for tensor in weights):
        change = "; ".join(filter(None, [inputs, f"weights {str(weights[0].dtype).removeprefix('torch.')} → {name}"]))
        planned.append(Planned(Variation("dtype", 2, change, "the weights' dtypes"), varied, target))
    return planned


def _layouts(case: Case) -> list[Planned]:
    tensors = list(case.named_inputs().values())
    planned: list[Planned] = []
    for layout in (other_layout, channels_last):
        made = relaid(tensors, layout)
        if not made:
            continue
        change = _listed(
            f"{name} strides {list(tensor.stride())} → {list(made[id(tensor)].stride())}"
            for name, tensor in case.named_inputs().items()
            if id(tensor) in made
        )
        record = Variation("contiguity", len(planned) + 1, change, "the inputs' strides")
        planned.append(Planned(record, _with(case, made)))
    if not planned:
        return [_unknown("contiguity", "no input of more than one element has its memory for itself")]
    return planned


def _with(case: Case, made: Mapping[int, torch.Tensor]) -> Case:
    """The case with other tensors in the place of some, wherever those stand in its inputs."""
    args, kwargs = map_tensors(lambda tensor: made.get(id(tensor), tensor), (case.args, case.kwargs))
    return replace(case, args=args, kwargs=kwargs, draws=None)


def _unknown(kind: str, reason: str, step: int = 1) -> Planned:
    return Planned(Variation(kind, step, "", message=reason))


def _listed(items: Iterable[Any]) -> str:
    found = [str(item) for item in items]
    rest = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + rest
