"""Metrics: figures of a tensor against the reference, one class in one file of this folder each, or of a package.

A metric is a column of ``kerneldiff/outputs.csv`` and an entry of ``TensorComparison.metrics``. A package names its own
in the entry-point group ``inductor_debug.metrics``: ``NAME = "package.module:Class"``. None changes a verdict.
"""

import functools
import importlib
import logging
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points
from typing import Any, ClassVar

import torch

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.numerics.accumulator import Figures
from inductor_debug.stages.numerics.records import COLUMNS

log = logging.getLogger(__name__)

Value = float | int | None

GROUP = "inductor_debug.metrics"


class Metric(ABC):
    """One figure of one tensor, begun anew for each.

    Attributes:
        name: the column's.
        passes: :meth:`add` wants the elements. Without it the metric follows from the figures of the one pass.
    """

    name: ClassVar[str]
    passes: ClassVar[bool] = False

    def add(self, reference: torch.Tensor, test: torch.Tensor, gold: torch.Tensor | None) -> None:  # noqa: B027
        """Take in some elements, in order: 1-D float64 tensors (complex128 of complex ones) of equal length."""

    @abstractmethod
    def value(self, figures: Figures) -> float | int | None:
        """The figure, once all elements were added; None where it is not defined."""


@functools.cache
def metrics() -> tuple[type[Metric], ...]:
    """Every metric there is: those of this folder by file, then those of installed packages by name.

    A package's that can't be taken is left out, with a warning.

    Raises:
        ConfigurationError: one of this folder can't be taken.
    """
    found: list[type[Metric]] = []
    for item in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{item.name}")
        classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Metric)]
        for metric in classes:
            if metric.__module__ == module.__name__:
                found.append(_checked(metric, found))
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found.append(_checked(point.load(), found))
        except Exception as error:  # noqa: BLE001 - a package may raise anything; no comparison suffers for it
            package = point.dist.name if point.dist is not None else "an unnamed package"
            offer = f"the metric {point.name} = {point.value} of {package}"
            log.warning("%s is left out: %s: %s", offer, type(error).__name__, error)
    return tuple(found)


def _checked(offered: Any, known: Sequence[type[Metric]]) -> type[Metric]:
    """What is offered, where it is a metric with a name of its own; ConfigurationError otherwise."""
    if not (isinstance(offered, type) and issubclass(offered, Metric)):
        raise ConfigurationError("it is no subclass of inductor_debug.Metric")
    name = getattr(offered, "name", None)
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{offered.__name__}.name is {name!r}, and not the name of a column")
    if name in COLUMNS or name in [metric.name for metric in known]:
        raise ConfigurationError(f"there is another column of the name {name}")
    return offered


def value_of(metric: type[Metric], figures: Figures, pieces: Callable[[], Iterable[Sequence[torch.Tensor]]]) -> Value:
    """The value of a metric of one tensor; None, with a warning, where it raises: metrics change no verdict.

    Args:
        metric: begun anew here.
        figures: of the one pass.
        pieces: gives the elements, where the metric asks for them: 1-D float64 (complex128 of complex ones) tensors of
            the reference, the test and, where there is one, gold.
    """
    try:
        begun = metric()
        for reference, test, *gold in pieces() if metric.passes else ():
            begun.add(reference, test, gold[0] if gold else None)
        return begun.value(figures)
    except Exception as error:  # noqa: BLE001 - a package may raise anything; no comparison suffers for it
        _warn(f"{metric.name} ({metric.__module__}:{metric.__qualname__})", f"{type(error).__name__}: {error}")
        return None


@functools.cache
def _warn(metric: str, error: str) -> None:
    """Once for each error, however many tensors raise it."""
    log.warning("the metric %s raised, and has no value where it does: %s", metric, error)
