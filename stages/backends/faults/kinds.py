"""The kinds of faults, by the name that ``backend.options.fault`` takes."""

from inductor_debug.stages.backends.faults import operands, reductions, stateful, values
from inductor_debug.stages.backends.faults.site import Fault

FAULTS = {
    "none": Fault("the right value: the control, the same path without a fault", lambda site: site.value),
    # of any value
    "scale": Fault("1 + s times the right value", values.scale, 0.05, whole=False),
    "dropped_tail": Fault("zero in the last s elements of the last dimension: a tile or a stick", values.dropped_tail),
    "nan_at_edge": Fault("NaN in the last s elements", values.nan_at_edge),
    "uninitialized_buffer": Fault("meaningless numbers in the last s elements", values.uninitialized_buffer, 16),
    "transposed_stride": Fault("the strides of two dimensions swapped (s is not used)", values.transposed_stride),
    "rounded_to_zero": Fault("cut to its format, not rounded to nearest (s is not used)", values.rounded_to_zero),
    "gradient_sign": Fault("the other sign (s is not used)", values.gradient_sign),
    # of what runs along a dimension
    "wrong_axis": Fault("reduced or normalized along another dimension (s is not used)", reductions.wrong_axis),
    "narrow_accumulation": Fault("accumulated in bfloat16, rounded after every s terms",
                                 reductions.narrow_accumulation, 8),
    "wrong_extent": Fault("reduced over s elements too few", reductions.wrong_extent),
    "padding_as_data": Fault("reduced over s elements of padding too", reductions.padding_as_data),
    "swapped_reduction": Fault("a maximum for a sum, or a sum for a maximum (s is not used)",
                               reductions.swapped_reduction),
    # of what is read
    "mask_ignored": Fault("as if nothing were masked (s is not used)", operands.mask_ignored),
    "wrong_broadcast": Fault("an operand expanded along the wrong dimension (s is not used)", operands.wrong_broadcast),
    "index_off_by_one": Fault("an index, or else the place of each element, s too far", operands.index_off_by_one),
    "missing_accumulation": Fault("one of two summands alone: a gradient overwritten, not added to (s is not used)",
                                  operands.missing_accumulation),
    # of what was before
    "stale_buffer": Fault("the value of the call before (s is not used)", stateful.stale_buffer),
    "nondeterministic": Fault("times 1 to 1 + s, drawn anew for each element in each call",
                              stateful.nondeterministic, 0.01, whole=False),
    "from_nth_call": Fault("5 % more, from the s-th call on", stateful.from_nth_call, 2),
}  # fmt: skip
