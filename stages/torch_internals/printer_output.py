"""The text of AOTInductor's printer of intermediate values, read; and what it puts into the generated code."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

When = Literal["input", "before", "after"]

_EVENT = re.compile(
    r"\[  (?P<label>[^\n\]]+)  \]:$"
    r"|\[  (?P<scalar>[^\n\]]+): (?P<value>-?\d+)  \]"
    r"|\[ (?P<when>before|after)_launch: (?P<kernel>[^\n]+?) \]$"
    r"|aoti_torch_save_tensor_handle: Saved tensor to (?P<path>[^\n]+\.pt)$",
    re.MULTILINE,
)
_FIELD = re.compile(
    r"^(?P<name>Number of elements|Dtype|Mean value|Min value|Max value|Device|Size|Stride): (?P<text>.*)$",
    re.MULTILINE,
)
_CALL = re.compile(r"^\s*(?:aoti_torch_(?:print|save)_tensor_handle|printf)\(.*\n", re.MULTILINE)
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short int": "int16",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}


@dataclass(frozen=True)
class PrintedValue:
    """One line or block of the printer's.

    Attributes:
        when: ``input`` (of the graph), ``before`` or ``after`` a launch.
        kernel: what is launched; "" for an input.
        buffer: as in the generated code; "" where only the kernel is named, and where ``path`` says it.
        shape, stride: as printed, ``[4, 8]``.
        mean, minimum, maximum: computed by torch in float32; None where it printed none (no elements, complex numbers).
        value: of an integer argument, as printed.
        path: the file that the tensor was saved in (level 1, which says nothing else).
    """

    when: When
    kernel: str = ""
    buffer: str = ""
    elements: int | None = None
    dtype: str = ""
    shape: str = ""
    stride: str = ""
    device: str = ""
    mean: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    value: str = ""
    path: str = ""

    @property
    def state(self) -> str:
        """``nan`` where a NaN is among the values, else ``inf`` or ``finite``; "" where that was not printed."""
        return state_of(self.minimum, self.maximum)


def state_of(minimum: float | None, maximum: float | None) -> str:
    """See :attr:`PrintedValue.state`: torch's minimum and maximum are NaN where any value is."""
    if minimum is None or maximum is None:
        return ""
    if math.isnan(minimum) or math.isnan(maximum):
        return "nan"
    return "inf" if math.isinf(minimum) or math.isinf(maximum) else "finite"


def parse_printer_output(text: str) -> list[PrintedValue]:
    """What the printer wrote, in order; what others wrote between its lines is passed over."""
    events = list(_EVENT.finditer(text))
    ends = [event.start() for event in events[1:]] + [len(text)]
    found = []
    for event, end in zip(events, ends, strict=False):
        if event["path"]:
            when: When = "before" if "before_launch_" in event["path"].rpartition("/")[2] else "after"
            found.append(PrintedValue(when, path=event["path"]))
        elif event["when"]:
            found.append(PrintedValue("before" if event["when"] == "before" else "after", event["kernel"]))
        else:
            item = _labelled(event["label"] or event["scalar"], text[event.end() : end], event["value"])
            found += [item] if item is not None else []
    return found


def named_by_path(item: PrintedValue, buffers: Collection[str]) -> PrintedValue:
    """A saved tensor with the kernel and the buffer that its file is named after.

    Args:
        item: its ``path`` ends in ``WHEN_launch_KERNEL_BUFFER_DEVICE.pt``.
        buffers: names that the graph knows; any other is taken for a part of the kernel's.
    """
    names = "|".join(map(re.escape, buffers))
    pattern = rf"(?:before|after)_launch_(?P<kernel>.+)_(?P<buffer>{names})_(?P<device>[a-z]+\d*)\.pt$"
    found = re.search(pattern, item.path)
    if found is None:
        return replace(item, buffer=Path(item.path).stem)
    return replace(item, kernel=found["kernel"], buffer=found["buffer"], device=found["device"])


def without_printing(source_code: str) -> str:
    """Generated C++ without the printer's own statements."""
    return _CALL.sub("", source_code)


def _labelled(label: str, body: str, value: str | None) -> PrintedValue | None:
    """One printed tensor or number; None where the label is none of the printer's."""
    head, *names = label.split(" - ")
    if head == "aoti_model_inputs" and len(names) == 1:
        when: When = "input"
    elif head in ("before_launch", "after_launch") and len(names) == 2:
        when = "before" if head == "before_launch" else "after"
    else:
        return None
    kernel = "" if when == "input" else names[0]
    if value is not None:
        return PrintedValue(when, kernel, names[-1], value=value)
    fields = {match["name"]: match["text"] for match in _FIELD.finditer(body)}
    elements, dtype = fields.get("Number of elements"), fields.get("Dtype", "")
    return PrintedValue(
        when,
        kernel,
        names[-1],
        elements=None if elements is None else int(elements),
        dtype=_DTYPES.get(dtype, dtype.removeprefix("c10::").lower()),
        shape=fields.get("Size", ""),
        stride=fields.get("Stride", ""),
        device=fields.get("Device", ""),
        mean=_number(fields.get("Mean value")),
        minimum=_number(fields.get("Min value")),
        maximum=_number(fields.get("Max value")),
    )


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:  # a complex number
        return None
