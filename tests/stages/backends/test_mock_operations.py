"""Which operations the mock backends see behind the calls of a model, and which they deny."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from mock_models import STRICT16, Net, clean, inner, refused

from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.backends.mock import MockAdapter
from inductor_debug.stages.backends.strict_error import ProfileViolated
from inductor_debug.stages.mock_backends import aot_mock_backend, mock_backend
from inductor_debug.stages.torch_internals.dispatch import dispatched_calls

__all__ = ["clean"]  # an autouse fixture


class Indexed(torch.nn.Module):
    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> Any:
        written = x.clone()
        written[rows, rows] = 0.5
        written[0] = 1.0
        return x[1:, None], written, x.T + 1, torch.ones(16).expand_as(x) + 1


INDEXED = ("aten.slice", "aten.unsqueeze", "aten.index_put", "aten.select_scatter", "aten.permute", "aten.expand")


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
@pytest.mark.parametrize("operation", INDEXED)
@pytest.mark.parametrize("grad", [True, False])
def test_indexing_attributes_and_methods_are_the_operations_that_they_come_to(
    operation: str, backend: Any, grad: bool
) -> None:
    x, rows = torch.randn(4, 16, requires_grad=grad), torch.tensor([2, 3])
    options = {"profile": "none", "strict": True, "verified_repros": 0, "denied": [operation]}
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(Indexed(), backend=backend, options=options)(x, rows)
    error = inner(caught)
    assert isinstance(error, ProfileViolated)
    assert operation in {row.limit for row in error.violations}
    assert {row.severity for row in error.violations} == {"error"}
    others = options | {"denied": ["aten.lu_solve", "aten.add.Scalar"]}
    torch._dynamo.reset()
    torch.compile(Indexed(), backend=backend, options=others)(x, rows)


def test_looking_leaves_the_graph_as_it_was() -> None:
    """What is run to see what it comes to works in place, changes shapes and switches autocast."""

    class Writes(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            x.mul_(2)
            y.unsqueeze_(0)
            with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
                z = y @ y.mT
            return x[0], y, z, y.sum() * x

    given = torch.randn(4, 4), torch.randn(4, 4)
    copies = tuple(item.clone() for item in given)
    options = {"profile": "none", "denied": ["aten.lu_solve"]}
    results = torch.compile(Writes(), backend=mock_backend, options=options)(*given)
    for got, want in zip([*results, *given], [*Writes()(*copies), *copies], strict=True):
        assert got.dtype == want.dtype and torch.equal(got, want)
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def test_a_call_that_cant_be_looked_at_is_undecided() -> None:
    def mapped(x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda item: item.exp())(x)

    options = {"profile": "none", "strict": True, "denied": ["aten.lu_solve"], "verified_repros": 0}
    error = refused(mock_backend, options, mapped, torch.randn(3, 4))
    assert {row.severity for row in error.violations} == {"undecided"}
    assert "exp" in {row.target for row in error.violations}


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_operations_of_symbolic_and_data_dependent_shapes_are_seen() -> None:
    seen: list[Any] = []

    def chosen(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].reshape(-1) * x.shape[0]

    adapter = MockAdapter(AccelConfig(denied=["aten.lu_solve", "aten.view.default"]))
    original = adapter.enforce
    adapter.enforce = lambda graphs, *rest: (seen.extend(graphs.values()), original(graphs, *rest))[1]  # type: ignore[method-assign]
    compiled = torch.compile(chosen, backend=adapter.dynamo_backend(), dynamic=True, fullgraph=True)
    for size in (3, 5):
        x = torch.randn(size, 4)
        assert torch.equal(compiled(x), chosen(x))
    assert len(seen) == 1
    calls = dispatched_calls(seen[0])
    assert None not in calls.values() and ["aten.index.Tensor"] in calls.values()


def test_an_allow_list_is_the_same_for_both_and_leaves_repros() -> None:
    allowed = ["aten.clone", "aten.add", "aten.lift_fresh_copy", "aten.slice", "aten.unsqueeze", "aten.permute"]
    rule = [{"rule": "operation", "value": {"allow": allowed}}]
    options = {"profile": "none", "strict": True, "verified_repros": 1, "rules": rule}
    found = {}
    for backend in (mock_backend, aot_mock_backend):
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught, torch.no_grad():
            torch.compile(Indexed(), backend=backend, options=options)(torch.randn(4, 16), torch.tensor([2, 3]))
        error = inner(caught)
        assert isinstance(error, ProfileViolated) and error.repros is not None
        assert error.repros.scripts[0].verification.verified, str(error)
        found[backend] = {row.source for row in error.violations}
    assert found[mock_backend] == found[aot_mock_backend]


@pytest.mark.parametrize(
    ("denied", "seen_by"),
    [("aten.add", {"mock", "aot_mock"}), ("aten.add_", {"mock", "aot_mock"}), ("aten.add_.Tensor", {"mock"})],
)
def test_an_in_place_call_is_the_functional_one_for_both(denied: str, seen_by: set[str]) -> None:
    """As docs/reference/backends.md says; AOTAutograd's graph has no in-place call left."""

    def written(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, :3].add_(1.0)
        return y

    options = {"profile": "none", "strict": True, "verified_repros": 0, "denied": [denied]}
    refusing = set()
    for backend in (mock_backend, aot_mock_backend):
        torch._dynamo.reset()
        try:
            torch.compile(written, backend=backend, options=options)(torch.ones(4, 4))
        except torch._dynamo.exc.BackendCompilerFailed as error:
            assert isinstance(error.inner_exception, ProfileViolated)
            refusing.add(backend.__name__.removesuffix("_backend"))
    assert refusing == seen_by


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
@pytest.mark.parametrize("activation", [F.relu6, F.rrelu])
def test_an_activation_in_place_that_torch_takes_apart_is_refused(backend: Any, activation: Any) -> None:
    """No overload of that name is dispatched: ``relu6`` in place is ``hardtanh_``."""
    error = refused(backend, {"verified_repros": 0}, lambda x: activation(x * 2, inplace=True), torch.ones(4, 4))
    assert {row.limit for row in error.violations} == {f"aten.{activation.__name__}_"}
    torch._dynamo.reset()
    torch.compile(lambda x: activation(x * 2), backend=backend)(torch.ones(4, 4))


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
@pytest.mark.parametrize("training", [False, True])
def test_a_checkpoint_hides_no_activation_in_place(backend: Any, training: bool) -> None:
    def stored(x: torch.Tensor, inplace: bool = True) -> torch.Tensor:
        def within(y: torch.Tensor) -> torch.Tensor:
            return F.relu6(torch.utils.checkpoint.checkpoint(lambda z: F.silu(z * 2, inplace=inplace), y,
                                                             use_reentrant=False) * 2, inplace=inplace)  # fmt: skip

        return torch.utils.checkpoint.checkpoint(within, x, use_reentrant=False)

    x = torch.ones(4, 4, requires_grad=training)
    options = {"profile": "none", "strict": True, "denied": ["aten.silu_", "aten.relu6_"], "verified_repros": 0}
    error = refused(backend, options, stored, x)
    found = {row.limit: row.source.rpartition(":")[2] for row in error.violations if row.severity == "error"}
    first = stored.__code__.co_firstlineno
    assert found == {"aten.silu_": str(first + 2), "aten.relu6_": str(first + 2)}
    if backend is aot_mock_backend:
        torch._dynamo.reset()
        torch.compile(stored, backend=backend, options=options)(x, False)


@pytest.mark.parametrize("denied", ["torch.nn.functional.linear", "aten.linear", "torch.relu"])
@pytest.mark.parametrize("training", [False, True])
def test_a_call_that_no_aten_graph_shows_is_refused_by_both(denied: str, training: bool) -> None:
    options = {"profile": "none", "strict": True, "verified_repros": 0, "denied": [denied]}
    for backend in (mock_backend, aot_mock_backend):
        torch._dynamo.reset()
        layer = torch.nn.Linear(8, 8)
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught, torch.set_grad_enabled(training):
            torch.compile(lambda x, layer=layer: layer(x).relu(), backend=backend, options=options)(torch.ones(4, 8))
        (row,) = [row for row in inner(caught).violations if row.graph == "g0.dynamo"]
        assert row.limit == denied


def test_roles_come_from_dynamo_in_its_own_graph() -> None:
    error = refused(mock_backend, STRICT16 | {"alignment_roles": ["parameter"]}, Net(), torch.randn(3, 16))
    assert [(row.operand, row.target) for row in error.violations] == [
        ("parameter", "self._modules['projection']._parameters['bias']")
    ]


LU = {
    "solve": lambda x: torch.linalg.solve(x, x),
    "solve_ex": lambda x: torch.linalg.solve_ex(x, x)[0],
    "tensorsolve": lambda x: torch.linalg.tensorsolve(x, x[0]),
    "inv": torch.linalg.inv,
    "inv_ex": lambda x: torch.linalg.inv_ex(x)[0],
    "inverse": torch.inverse,
    "method": lambda x: x.inverse() + x.det(),
    "tensorinv": lambda x: torch.linalg.tensorinv(x, ind=1),
    "matrix_power": lambda x: torch.linalg.matrix_power(x, -1),
    "det": torch.linalg.det,
    "slogdet": lambda x: torch.linalg.slogdet(x)[1],
    "logdet": torch.logdet,
    "lu": torch.linalg.lu,
    "lu_factor": torch.linalg.lu_factor,
}


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
@pytest.mark.parametrize("name", LU)
def test_the_mock_has_no_lu_under_any_name(backend: Any, name: str) -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(LU[name], backend=backend, options={"verified_repros": 0})(torch.eye(4))
    error = inner(caught)
    assert isinstance(error, ProfileViolated) and {row.rule for row in error.violations} == {"operation"}


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
def test_the_mock_has_the_other_factorizations(backend: Any) -> None:
    def qr_and_cholesky(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.qr(x)[0] + torch.linalg.cholesky(x) + torch.linalg.solve_triangular(x, x, upper=True)

    torch.compile(qr_and_cholesky, backend=backend)(torch.eye(4))
