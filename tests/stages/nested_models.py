"""Small models that make, take and return nested and sparse tensors, and modules of ``torch.export``."""

from typing import Any

import torch

OFFSETS = torch.tensor([0, 3, 7, 10])


class Rows(torch.nn.Module):
    """A linear layer over rows of several lengths, which are made inside.

    Args:
        result: what of the nested tensor is returned: "values", "padded" or "nested".
    """

    def __init__(self, result: str = "values") -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.result = result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x if x.is_nested else torch.nested.nested_tensor_from_jagged(x, OFFSETS)
        rows = self.linear(rows).relu()
        if self.result == "nested":
            return rows
        return rows.values() if self.result == "values" else torch.nested.to_padded_tensor(rows, 0.0)


class Sparse(torch.nn.Module):
    """A sparse matrix, made inside or given, times a linear layer's result."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, matrix: torch.Tensor | None = None) -> torch.Tensor:
        if matrix is None:
            matrix = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 2]]), x[0, :2], (10, 10))
        return torch.sparse.mm(matrix, self.linear(x))


def inside(result: str = "values") -> tuple[torch.nn.Module, tuple[Any, ...]]:
    return Rows(result), (torch.randn(10, 8),)


def given(result: str = "values", layout: str = "jagged") -> tuple[torch.nn.Module, tuple[Any, ...]]:
    rows = [torch.randn(3, 8), torch.randn(4, 8)]
    return Rows(result), (torch.nested.nested_tensor(rows, layout=getattr(torch, layout)),)


def sparse(given: bool = False) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    return Sparse(), (torch.randn(10, 8), *([torch.eye(10).to_sparse()] if given else []))


def exported(
    training: bool = False, wrapped: bool = False, dropout: float = 0.1, unflattened: bool = False
) -> tuple[torch.nn.Module, Any]:
    """A module that ``torch.export`` made of a model in that mode; without dropout its graph has no mode."""
    layers = [torch.nn.Linear(8, 8), *([torch.nn.Dropout(dropout)] if dropout else [])]
    inputs = (torch.randn(10, 8),)
    program = torch.export.export(torch.nn.Sequential(*layers).train(training), inputs)
    module: torch.nn.Module = torch.export.unflatten(program) if unflattened else program.module()
    return (torch.nn.Sequential(module, torch.nn.Dropout(0.5)) if wrapped else module), inputs
