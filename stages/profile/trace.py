"""The Chrome trace, with what each range covers beside it. Opens in Perfetto and in chrome://tracing."""

import gzip
import json
from collections.abc import Mapping
from typing import Any

from inductor_debug.stages.profile.work import Work


def annotated(trace: bytes, work: Mapping[str, Work]) -> bytes:
    """The trace, compressed, its ranges with operations, modules and source lines among their arguments.

    Args:
        trace: JSON as the profiler exports it.
        work: name of a range → what it covers.
    """
    content: dict[str, Any] = json.loads(trace)
    for event in content["traceEvents"]:
        known = work.get(event.get("name", ""))
        if known is not None and event.get("ph") == "X":
            names = {"operations": "operation", "modules": "module", "sources": "source"}
            event.setdefault("args", {}).update({key: known.distinct(name) for key, name in names.items()})
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0)
