"""What the emulation does at each node of a graph, settled once, before it runs."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from inductor_debug.models.torch_private import OpOverload, pytree, schema_of
from inductor_debug.stages.accelerators.config import AccelConfig, NumericsConfig, Rule
from inductor_debug.stages.accelerators.number_formats import FloatFormat, Format, parse_format, tile_bytes
from inductor_debug.stages.accelerators.profile import Profile, validate_profile
from inductor_debug.stages.emulation.products import Accumulation
from inductor_debug.stages.graphs.records import GraphRecord, NodeRecord
from inductor_debug.stages.rules.engine import check


@dataclass(frozen=True)
class Numerics:
    """A profile's numerics with its names resolved.

    Attributes:
        storage: dtype → format, those that change nothing left out.
        operands: likewise, for the operands of products.
        accumulation: how partial sums are rounded; None: as torch adds up, which is in float32.
        casts: integer dtype → the one that stands for it.
        tile: sizes of the tiles, in elements; empty: none.
        tile_in_bytes: the last one of them is in bytes.
        fill: what lies in the padding.
        saturate: see ``NumericsConfig``.
        widened: dtypes whose tensors are held in float32 while the graph runs, because their storage format has
            numbers that they lack.
    """

    storage: dict[torch.dtype, Format] = field(default_factory=dict)
    operands: dict[torch.dtype, Format] = field(default_factory=dict)
    accumulation: Accumulation | None = None
    casts: dict[torch.dtype, torch.dtype] = field(default_factory=dict)
    tile: tuple[int, ...] = ()
    tile_in_bytes: bool = False
    fill: float = 0.0
    saturate: bool = False

    @classmethod
    def of(cls, config: NumericsConfig) -> "Numerics":
        """``config`` has been validated."""
        accumulation = None
        if config.accumulate is not None and (config.accumulate, config.accumulate_block) != ("float32", None):
            format = parse_format(config.accumulate, config)
            assert isinstance(format, FloatFormat)
            accumulation = Accumulation(format, config.accumulate_block, config.saturate)
        return cls(
            _formats(config.storage, config),
            _formats(config.operands, config),
            accumulation,
            {getattr(torch, wide): getattr(torch, narrow) for wide, narrow in config.casts.items()},
            tuple(tile_bytes(size) or int(size) for size in config.tile),
            any(tile_bytes(size) for size in config.tile),
            float("nan") if config.poison else 0.0,
            config.saturate,
        )

    @property
    def widened(self) -> frozenset[torch.dtype]:
        return frozenset(dtype for dtype in self.storage if dtype in (torch.float16, torch.bfloat16))

    def tile_of(self, dtypes: Iterable[torch.dtype | None]) -> tuple[int, ...]:
        """Sizes, in elements, of the tiles of an operation's operands; where their dtypes differ, those of the largest.

        Args:
            dtypes: as the graph has them: a float16 row takes two bytes an element, whatever holds it meanwhile.
        """
        if not self.tile_in_bytes:
            return self.tile
        *sizes, wide = self.tile
        floating = [dtype.itemsize for dtype in dtypes if dtype is not None and dtype.is_floating_point]
        return (*sizes, max((wide // math.gcd(wide, item) for item in floating), default=1))

    def container(self, dtype: torch.dtype) -> torch.dtype:
        """What holds a tensor of ``dtype`` while the graph runs."""
        return torch.float32 if dtype in self.widened else dtype


def _formats(names: dict[str, str], config: NumericsConfig) -> dict[torch.dtype, Format]:
    return {getattr(torch, dtype): parse_format(name, config) for dtype, name in names.items() if dtype != name}


@dataclass(frozen=True)
class NodePlan:
    """One node.

    Attributes:
        record: its record.
        dtypes: dtype of each leaf of its value; None for what is no tensor.
        strides: strides of each leaf, where they are known.
        fallback: why it runs on the host; empty where it does not.
        mutated: positions of the arguments that it writes to.
    """

    record: NodeRecord
    dtypes: tuple[torch.dtype | None, ...]
    strides: tuple[tuple[int, ...] | None, ...]
    fallback: str
    mutated: tuple[int, ...]


def plan(gm: fx.GraphModule, record: GraphRecord, profile: Profile) -> dict[str, NodePlan]:
    """What to do at each node, by its name.

    Args:
        gm: an AOT graph.
        record: its record.
        profile: whose rules with the effect ``fallback``, and whose ``numerics.fallback``, send nodes to the host.
    """
    hosted = host_nodes(record, profile)
    plans = {}
    for node in gm.graph.nodes:
        leaves = pytree.tree_leaves(node.meta.get("val"))
        plans[node.name] = NodePlan(
            record.by_name[node.name],
            tuple(item.dtype if isinstance(item, Tensor) else None for item in leaves),
            tuple(_strides(item) for item in leaves),
            hosted.get(node.name, "") if node.op == "call_function" else "",
            _mutated(node),
        )
    return plans


def host_nodes(record: GraphRecord, profile: Profile) -> dict[str, str]:
    """Node → why it runs on the host."""
    rules = [rule for rule in profile.rules if rule.effect == "fallback"]
    rules += [_denied(profile.numerics.fallback)] if profile.numerics.fallback else []
    if not rules:
        return {}
    found = check(record, Profile(profile.name, rules=tuple(rules)))
    return {row.node: row.message for row in found if row.effect == "fallback" and row.severity != "undecided"}


def _denied(patterns: list[str]) -> Rule:
    (rule,) = validate_profile(AccelConfig(rules=[Rule("operation", "fallback", value=list(patterns))]), {}).rules
    return rule


def _strides(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return None
    sizes = [*value.shape, *value.stride()]
    return tuple(map(int, value.stride())) if all(isinstance(size, int) for size in sizes) else None


def _mutated(node: fx.Node) -> tuple[int, ...]:
    if not isinstance(node.target, OpOverload) or not schema_of(node.target).is_mutable:
        return ()
    arguments = schema_of(node.target).arguments
    return tuple(
        index for index, item in enumerate(arguments) if item.alias_info is not None and item.alias_info.is_write
    )
