"""An accelerator's profile as a user may write it."""

from dataclasses import dataclass, field
from typing import Any

from inductor_debug.models.options import chosen, real, whole
from inductor_debug.stages.accelerators.rule_kinds import DIMS, DYNAMIC, LAYOUTS

MOST_DIMS = 64
"""Dimensions that a tensor of torch can have."""


@dataclass
class Waiver:
    """An accepted finding: shown as waived, does not fail. All given patterns (fnmatch) must match.

    Attributes:
        rule: of the finding, as in :class:`Rule`.
        source: where it is, as ``file:line``.
        target: the operation.
        reason: why it is accepted.
        expires: ISO date; on and after that day it fails again. None: never.
    """

    rule: str = "*"
    source: str = "*"
    target: str = "*"
    reason: str = "???"
    expires: str | None = None


@dataclass
class Rule:
    """One rule in full form; which fields mean something to which rule is in ``stages.accelerators.rule_kinds``.

    Attributes:
        rule: alignment, rank, size, tile, dtype, layout, memory_tensor, memory_peak, operation, dynamic_shape, custom.
        effect: reject, pad, cast, copy or fallback; None is the rule's usual one: of dtype cast
            for a mapping, reject for a list.
        dims: of alignment: last, last2, first, contraction, all. Of size: all, last, last2, first. Of tile: all, or
            free, which leaves out the dimension that an operand of a product contracts.
        roles: activation, parameter, index (integer and bool tensors). Of dtype, alignment and tile also compute: what
            matrix products, convolutions and attention multiply, of every dtype, without biases. Of dtype also storage:
            all but indices. Of alignment and tile also result: what such products give.
        unit: of alignment and layout: elements or bytes; of memory_tensor: bytes, or span_bytes (from the first to the
            last byte that its strides reach).
        operations: only what these operations read and make; ``!aten.add`` leaves one out.
        value: a limit, a list or a mapping, by rule. Alignment: 16. Rank: 4. Size: 65535 or {min: 1, max: 65535}. Tile:
            [32, 32], of the last dimensions. Dtype: [float16] (allowed) or {float64: float32} (what one becomes).
            Layout: contiguous, channels_last or {stride: 16, offset: 128}. Memory: bytes, or 16GiB. Operation:
            [aten.lu] (denied) or {allow: [aten.add]}. Dynamic_shape: static or bounded. Custom: {_target_:
            package.module.function, …}.
        source: where the number was published. version: of that source.
    """

    rule: str = "???"
    effect: str | None = None
    dims: str | None = None
    roles: list[str] | None = None
    unit: str | None = None
    operations: list[str] | None = None
    value: Any = None
    source: str | None = None
    version: str | None = None


@dataclass
class NumericsConfig:
    """How an accelerator's numbers differ from torch's, for ``backend=emulated``. Empty: they do not.

    A format is ``bfloat16``, ``float16``, ``float32``, ``tf32``, ``float8_e4m3fn`` or ``float8_e5m2``; or sign,
    exponent and mantissa bits, such as ``1-6-9``; or a block format ``bfpN`` (N bits an element, one exponent a block).
    :mod:`stages.accelerators.number_formats` says what each means.

    Attributes:
        storage: dtype of a tensor → format in which the accelerator keeps it. Every operation's floating outputs are
            rounded to it, inputs and weights too.
        operands: dtype of a tensor → format to which it is rounded where it is multiplied (matmul, convolution).
        accumulate: format of the partial sums of matmuls and convolutions; null: as torch accumulates.
        accumulate_block: terms that are added up wide between two roundings to ``accumulate``; null: all of them.
        block_size: elements that share an exponent in a block format.
        block_axis: dimension along which they lie.
        saturate: True: what is too large for a format becomes its largest number; False: infinity, or NaN in a format
            without infinity.
        casts: integer dtype → the integer dtype that stands for it, e.g. ``{int64: int32}``.
        tile: sizes to whose multiples the last dimensions are padded, in elements, e.g. ``[32, 32]``; the last one
            also in bytes, e.g. ``[128B]``, which is so many elements as a tensor's dtype fits in.
        poison: True: what lies in the padding is NaN, as memory that nobody wrote may be; False: zero.
        fallback: operations that run on the host, patterns as in ``denied``.
    """

    storage: dict[str, str] = field(default_factory=dict)
    operands: dict[str, str] = field(default_factory=dict)
    accumulate: str | None = None
    accumulate_block: int | None = whole(None, least=1, example=16)
    block_size: int = whole(16, least=1)
    block_axis: int = whole(-1, least=-MOST_DIMS, most=MOST_DIMS - 1, example=-1)
    saturate: bool = False
    casts: dict[str, str] = field(default_factory=dict)
    tile: list[int | str] = field(default_factory=list)
    poison: bool = True
    fallback: list[str] = field(default_factory=list)

    @property
    def stated(self) -> bool:
        """Whether there is anything to emulate."""
        return any((self.storage, self.operands, self.accumulate, self.casts, self.tile, self.fallback))


@dataclass
class PeaksConfig:
    """What an accelerator can do at best, for the stage ``profile``: achieved rates are told as shares of it.

    Attributes:
        bandwidth: of its memory, in bytes per second (``3.35e12`` is 3.35 TB/s); null: not stated.
        flops: dtype → floating-point operations per second (a multiply-add is two), e.g. ``{bfloat16: 9.89e14}``.
        source: where the numbers were published. version: of that source.
    """

    bandwidth: float | None = real(None, above=0, example="3.35e12")
    flops: dict[str, float] = field(default_factory=dict)
    source: str | None = None
    version: str | None = None

    @property
    def stated(self) -> bool:
        """Whether there is anything to compare with."""
        return self.bandwidth is not None or bool(self.flops)


@dataclass
class AccelConfig:
    """A profile. A scalar that is None gives no rule: no rule is not a default rule.

    Attributes:
        name: profile's name, used in the run directory's name.
        description: one line for a person.
        strict: True fails the constrain stage on a violation; False records it as a warning. None is the backend's
            own where its capabilities are what is checked (``accel=none``), else False.
        alignment: multiple, in elements, of the dimensions that ``alignment_dims`` names.
        alignment_dims: last, last2, first, contraction, all; None is the rule's own, else last. A dimension of size 1
            counts only under ``all``.
        alignment_roles: operand roles that alignment applies to (activation, parameter, index); ``index`` adds
            integer and bool tensors; None is the rule's own, else activation and parameter.
        max_rank: most dimensions of a tensor.
        max_size: largest size of a dimension.
        tile: sizes of a tile of the last dimensions, e.g. ``[32, 32]``.
        dtypes: allowed dtypes, e.g. ``[float32, int64]``.
        layout: contiguous or channels_last.
        max_tensor_bytes: largest tensor, in bytes: a number, with a unit where wanted (16GiB).
        max_peak_bytes: most bytes alive at once in one graph, written in the same way.
        denied: operations not supported: an overload (aten.add.Tensor), a packet (aten.add), a namespace pattern
            (``aten.linalg_*``) or a Python target (torch.nn.functional.relu). The same list serves Dynamo and aten
            graphs.
        allowed: the only operations supported, written as in ``denied``.
        dynamic_shapes: static (no symbolic size) or bounded (every symbolic size has a largest value).
        rules: rules in full form, added to those that the scalars give. A scalar edits the rule that it names: the one
            for all operations, with a value of the scalar's form.
        waivers: accepted findings.
        numerics: what ``backend=emulated`` emulates.
        peaks: what it can do at best, with which the stage ``profile`` compares.
    """

    name: str = "none"
    description: str = ""
    strict: bool | None = None
    alignment: int | None = whole(None, least=1, example=16)
    alignment_dims: str | None = chosen(None, DIMS)
    alignment_roles: list[str] | None = None
    max_rank: int | None = whole(None, least=1, example=4)
    max_size: int | None = whole(None, least=1, example=65535)
    tile: list[int] | None = None
    dtypes: list[str] | None = None
    layout: str | None = chosen(None, LAYOUTS)
    max_tensor_bytes: int | str | None = None
    max_peak_bytes: int | str | None = None
    denied: list[str] = field(default_factory=list)
    allowed: list[str] | None = None
    dynamic_shapes: str | None = chosen(None, DYNAMIC)
    rules: list[Rule] = field(default_factory=list)
    waivers: list[Waiver] = field(default_factory=list)
    numerics: NumericsConfig = field(default_factory=NumericsConfig)
    peaks: PeaksConfig = field(default_factory=PeaksConfig)
