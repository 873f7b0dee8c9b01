"""Options of the guards stage."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from inductor_debug.models.errors import ConfigurationError, invalid_choice
from inductor_debug.models.options import chosen, items

VARIATIONS = ("batch", "length", "dtype", "contiguity")
SIZED = ("batch", "length")
"""Variations that change a size."""
COMPILERS = ("aot_eager", "backend")


@dataclass
class GuardsConfig:
    """Attributes:
    vary: what is varied, of ``batch``, ``length``, ``dtype`` and ``contiguity``.
    dims: which dimension of which input is the batch or the length, where building the case with other sizes does not
        tell. Inputs are named as in ``kerneldiff/outputs.csv``: ``{batch: {x: 0}, length: {x: 1}}``.
    compiler: ``aot_eager`` runs AOTAutograd's graphs by torch, which is quick; ``backend`` compiles with the run's
        own backend, whose code generator may add guards and refuse inputs.
    """

    vary: list[str] = field(default_factory=lambda: list(VARIATIONS), metadata=items(VARIATIONS))
    dims: dict[str, Any] = field(default_factory=dict)
    compiler: str = chosen("aot_eager", COMPILERS)

    def check(self) -> None:
        """ConfigurationError for dimensions of what is no size, or that are no numbers."""
        check_options(self.vary, self.dims, self.compiler)


def check_options(vary: Iterable[str], dims: Mapping[str, Any], compiler: str) -> None:
    """ConfigurationError for an option outside its closed set, as far as the configuration alone can tell."""
    for kind in vary:
        if kind not in VARIATIONS:
            raise invalid_choice("stages.guards.vary", kind, VARIATIONS, example="stages.guards.vary=[{}]")
    if compiler not in COMPILERS:
        raise invalid_choice("stages.guards.compiler", compiler, COMPILERS)
    for kind, named in dims.items():
        if kind not in SIZED:
            raise invalid_choice("stages.guards.dims", kind, SIZED, example="stages.guards.dims.{}.INPUT=0")
        numbers = named_dims(named).values() if isinstance(named, Mapping) else [None]
        if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
            raise ConfigurationError(
                f"got {named!r}",
                key=f"stages.guards.dims.{kind}",
                valid="input names, each with the number of a dimension",
                hint=f"stages.guards.dims.{kind}.INPUT=0",
            )


def named_dims(named: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Input name → dimension. The command line makes of ``cache.0=1``, an input in a container, a nested mapping."""
    found: dict[str, Any] = {}
    for name, value in named.items():
        found |= named_dims(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
