"""The kinds of faults, by the name that ``backend.options.fault`` takes."""

from inductor_debug.stages.backends.faults.reductions import narrow_accumulation, wrong_axis
from inductor_debug.stages.backends.faults.site import Fault
from inductor_debug.stages.backends.faults.stateful import stale_buffer
from inductor_debug.stages.backends.faults.values import dropped_tail, nan_at_edge, scale

FAULTS = {
    "none": Fault("the right value: the control, the same path without a fault", lambda site: site.value),
    "scale": Fault("1 + s times the right value", scale, 0.05, whole=False),
    "dropped_tail": Fault("zero in the last s elements of the last dimension", dropped_tail, 1),
    "wrong_axis": Fault("reduced or normalized along another dimension (s is not used)", wrong_axis),
    "narrow_accumulation": Fault("accumulated in bfloat16, rounded after every s terms", narrow_accumulation, 8),
    "nan_at_edge": Fault("NaN in the last s elements", nan_at_edge, 1),
    "stale_buffer": Fault("the value of the call before (s is not used)", stale_buffer),
}
