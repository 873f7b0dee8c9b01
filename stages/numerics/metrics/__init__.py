"""Metrics: figures of a tensor against the reference, one class in one file of this folder each, or of a package.

A metric is a column of ``kerneldiff/outputs.csv`` and an entry of ``TensorComparison.metrics``. A package names its own
in the entry-point group ``inductor_debug.metrics``: ``NAME = "package.module:Class"``. None changes a verdict.
"""

import functools
import importlib
import pkgutil
from abc import ABC, abstractmethod
from importlib.metadata import entry_points
from typing import ClassVar

import torch

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.numerics.accumulator import Figures

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

    Raises:
        ConfigurationError: what a package names is no metric, or two metrics have one name.
    """
    found: list[type[Metric]] = []
    for item in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{item.name}")
        classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Metric)]
        found += [value for value in classes if value.__module__ == module.__name__]
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        package = point.dist.name if point.dist is not None else "the package that offers it"
        offered = point.load()
        if not (isinstance(offered, type) and issubclass(offered, Metric)):
            raise ConfigurationError(
                f"{GROUP}: got {point.name} = {point.value!r}, which names no metric; valid: a subclass of "
                f"inductor_debug.Metric.\nTry: pip uninstall {package}"
            )
        if offered.name in [metric.name for metric in found]:
            raise ConfigurationError(
                f"{GROUP}: got {point.name} = {point.value!r}, whose column {offered.name!r} another metric has; "
                f"valid: a name of its own.\nTry: pip uninstall {package}"
            )
        found.append(offered)
    return tuple(found)
