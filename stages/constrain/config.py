"""An accelerator's profile and the constrain stage's options, as a user may write them. Free of torch."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Waiver:
    """An accepted finding: shown as waived, does not fail. All given patterns (fnmatch) must match."""

    rule: str = "*"
    source: str = "*"
    target: str = "*"
    reason: str = "???"
    expires: str | None = None  # ISO date; on and after the day it fails again


@dataclass
class Rule:
    """One rule in full form. ``rule`` is the rule's name; see ``stages.constrain.profile``."""

    rule: str = "???"
    effect: str | None = None  # reject, pad, cast, copy, fallback; None is the rule's usual one
    dims: str | None = None  # last, last2, contraction, all
    roles: list[str] | None = None  # activation, parameter, index, …
    unit: str | None = None  # elements, bytes
    value: Any = None
    source: str | None = None
    version: str | None = None


@dataclass
class AccelConfig:
    """A profile. A scalar that is None gives no rule: no rule is not a default rule.

    Attributes:
        name: profile's name, used in the run directory's name.
        strict: True fails the constrain stage on a violation; False records it as a warning.
        alignment: multiple, in elements, of the dimensions that ``alignment_dims`` names.
        alignment_dims: last, last2, contraction, all; None is the rule's own, else last. A dimension of size 1
            counts only under ``all``.
        alignment_roles: operand roles that alignment applies to (activation, parameter, index); ``index`` adds
            integer and bool tensors; None is the rule's own, else activation and parameter.
        dtypes: allowed dtypes, e.g. ``[float32, int64]``.
        layout: contiguous or channels_last.
        max_tensor_bytes: largest tensor, in bytes.
        denied: operations not supported: an overload (aten.add.Tensor), a packet (aten.add), a namespace
            pattern (``aten.*lu*``) or a Python target (torch.nn.functional.relu); the same list serves Dynamo
            and aten graphs.
        rules: rules in full form, added to those that the scalars give; a scalar edits the rule that it names.
        waivers: accepted findings.
    """

    name: str = "none"
    description: str = ""
    strict: bool = False
    alignment: int | None = None
    alignment_dims: str | None = None
    alignment_roles: list[str] | None = None
    dtypes: list[str] | None = None
    layout: str | None = None
    max_tensor_bytes: int | None = None
    denied: list[str] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    waivers: list[Waiver] = field(default_factory=list)


@dataclass
class ConstrainConfig:
    """Options of the constrain stage.

    Attributes:
        repros: reproductions written at most where a strict profile is broken; 0 for none.
        verified_repros: how many of them are run, each in a fresh process, which costs an import of torch.
    """

    repros: int = 20
    verified_repros: int = 4
