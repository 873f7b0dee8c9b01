"""A backend and the lower stage's options, as a user may write them. Free of torch."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class BackendConfig:
    """What executes the graph under test.

    Attributes:
        name: eager, aot_eager, inductor, mock, aot_mock; for ``adapter=dynamo`` any backend registered with torch.
        adapter: which adapter stands behind it: eager, aot_eager, inductor, mock, aot_mock, dynamo, or the dotted
            path of a callable that returns an AcceleratorAdapter.
        options: arguments of the adapter.
        inductor: TorchInductor configuration patched for this run alone; any of its keys.
    """

    name: str = "inductor"
    adapter: str = "inductor"
    options: dict[str, Any] = field(default_factory=dict)
    inductor: dict[str, Any] = field(default_factory=dict)


@dataclass
class LowerConfig:
    """Options of the lower stage."""
