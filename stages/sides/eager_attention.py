"""Does a difference come from the fast path that torch's attention modules take in eager's inference alone?

``nn.TransformerEncoder`` packs padded sequences into nested tensors where nothing compiles it, and leaves zeros at
padded places; compiled it computes those places too. Both are torch's own results, and they differ.
"""

import torch
from torch import nn

from inductor_debug.models.case import Case
from inductor_debug.stages.numerics.comparison import compare_tensors
from inductor_debug.stages.numerics.records import TensorComparison
from inductor_debug.stages.sides import running as sides

EXPLAINED = 0.1
"""Share of the difference, by RMS, that may remain against the model without its fast path."""


def explain(base: Case, test: sides.Leaves, rows: list[TensorComparison]) -> str:
    """What the message of a run adds where its differing outputs are those of the model without the fast path.

    Args:
        base: the reference's case, which runs in eager; left as found.
        test: the test side's results.
    """
    apart = [row for row in rows if row.verdict == "defect" and row.kind == "output" and row.rmse and row.run == 1]
    modules = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)
    attends = any(isinstance(module, modules) for module in base.module.modules())
    if not apart or not attends or not torch.backends.mha.get_fastpath_enabled():
        return ""
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        slow = sides.run_side("reference without fast path", base, lambda: base.module).leaves.get("output", {})
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    for row in apart:
        mine, other = slow.get(row.path), test.get("output", {}).get(row.path)
        if not isinstance(mine, torch.Tensor) or not isinstance(other, torch.Tensor):
            return ""
        remains = compare_tensors(mine, other, atol=0.0, rtol=0.0).rmse
        if remains is None or not remains <= EXPLAINED * (row.rmse or 0.0):
            return ""
    return (
        "; the test side agrees with eager without the fast path of nn.TransformerEncoder and nn.MultiheadAttention "
        "(torch.backends.mha.set_fastpath_enabled(False)), which eager takes in inference and which can give "
        "other numbers at padded places"
    )
