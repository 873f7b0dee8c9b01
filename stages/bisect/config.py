"""Options of the bisect stage."""

from dataclasses import dataclass

from inductor_debug.models.options import real, whole

LONGEST_WAIT_S = 2e6
"""poll(2), with which an answer is waited for, takes its milliseconds as a C int."""


@dataclass
class BisectConfig:
    """Attributes:
    max_probes: compilations after which the search gives up, and says how far it came.
    options: look among TorchInductor's options, or the backend's own flags, too, for one that makes the fault go away.
    isolate: True runs the probes in a process of their own, which may crash or hang. False runs them in the worker.
        None chooses a process of their own where kerneldiff left no diagnosis: it may have been killed.
    timeout_s: seconds that one probe may take before it counts as a hang; only in a process of their own.
    """

    max_probes: int = whole(150, least=1)
    options: bool = True
    isolate: bool | None = None
    timeout_s: float = real(300.0, above=0, most=LONGEST_WAIT_S)
