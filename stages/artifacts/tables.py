"""Rows of the stored tables: what a stage makes, and what a reader gets back. Further columns may hold anything.

A column whose field has a default may be missing.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ViolationRow:
    """constrain/violations.csv: see :class:`stages.rules.violation.Violation`."""

    graph: str
    node: str
    module: str
    source: str
    rule: str
    effect: str
    severity: str
    suggestion: str
    cost_bytes: int | None
    cost_share: float | None
    message: str = ""
    finding: str = ""


@dataclass(frozen=True)
class RuleRow:
    """constrain/summary.csv: one row a rule and effect with findings, the most findings first.

    All are of AOTAutograd's graphs where there are any. No share but that of padding's and copies' bytes is above 1.

    Attributes:
        rule, effect: as in the profile.
        findings: how many, without the waived ones.
        waived: findings that a waiver accepts; they count here alone.
        undecided: findings of which the check could not tell.
        nodes: operations that such a finding concerns (:class:`stages.rules.affected.AffectedOperations`); None, as
            ``cost_bytes`` and ``flops``, where it can't be told which of them a finding in Dynamo's graphs concerns.
        nodes_share: their share of all operations.
        cost_bytes: bytes that the findings cost together.
        bytes_share: that over the bytes of all tensors of the graphs: each once, with inputs and parameters, without
            views.
        flops: floating-point operations of the ``nodes``.
        flops_share: that over all FLOPs that are known.
    """

    rule: str
    effect: str
    findings: int
    waived: int
    undecided: int
    nodes: int | None
    nodes_share: float | None
    cost_bytes: int | None
    bytes_share: float | None
    flops: int | None
    flops_share: float | None


@dataclass(frozen=True)
class OutputRow:
    """kerneldiff/outputs.csv: see :class:`stages.numerics.records.TensorComparison`."""

    kind: str
    path: str
    verdict: str
    bound: str = ""
    ratio: float | None = None


@dataclass
class JitterRow:
    """kerneldiff/jitter.csv: how later runs of the test side differ from its first.

    Attributes:
        kind, path: of the compared tensor, as in ``kerneldiff/outputs.csv``.
        runs: how many there were; ``differing``: in how many of the later ones any bit was another.
        max_abs, rmse: of the run that differed most.
    """

    kind: str
    path: str
    runs: int
    differing: int = 0
    max_abs: float = 0.0
    rmse: float = 0.0


@dataclass(frozen=True)
class DriftRow:
    """kerneldiff/drift.csv: the sides after an optimizer step. None where a side did not train.

    Attributes:
        step: from 1.
        loss_reference, loss_test, loss_gold: the loss of that step on each side, and in float64.
        floor_rms: RMS over all parameters together of reference less gold.
        error_rms: of test less gold, or less reference where there is no gold. ``ratio``: that over ``floor_rms``.
        worst_parameter: the one of the largest ratio.
        worst_ratio: that ratio.
    """

    step: int
    loss_reference: float | None
    loss_test: float | None
    loss_gold: float | None
    floor_rms: float | None
    error_rms: float | None
    ratio: float | None
    worst_parameter: str | None
    worst_ratio: float | None


@dataclass(frozen=True)
class SensitivityRow:
    """kerneldiff/sensitivity.csv: a fault at one place, as one compared tensor shows it.

    Attributes:
        fault: weight, activation or gradient: what is multiplied by 1 + the error.
        site: the parameter, or the module whose operation it is.
        operation: whose result it is; "" for a weight.
        source: the operation's line, FILE:LINE; "" where that is not known.
        kind, path: of the compared tensor; ``any`` where any of them counts, as for the verdict of the run.
        found: defect; passes: no error was one, up to the largest; no_effect: nor did one change the tensor, or what
            float64 gives.
        relative_error: the smallest one planted that was a defect; None where none was.
        passed: the largest one below that was none.
        ratio: error over floor at ``relative_error``, or at the largest error; None where no floor decided.
        confirmed: ``relative_error`` is at most twice ``passed``, or no error was a defect.
    """

    fault: str
    site: str
    operation: str
    source: str
    kind: str
    path: str
    found: str
    relative_error: float | None
    passed: float | None
    ratio: float | None
    confirmed: bool


@dataclass(frozen=True)
class ProbeRow:
    """bisect/probes.csv: one row a compilation.

    Attributes:
        probe: its number.
        purpose: what it was to tell.
        compiler: how much of the compiler took part.
        setting: what was turned off, in words; "" where nothing was.
        fault: present, gone, or other (another failure).
        verdict: of the comparison, or ``raised``.
        failure: class of what was raised; "" otherwise.
        graphs: Dynamo graphs that were compiled.
        seconds: wall time.
        message: of the comparison, or of what was raised.
    """

    probe: int
    purpose: str
    compiler: str
    setting: str
    fault: str
    verdict: str
    failure: str
    graphs: int
    seconds: float
    message: str
