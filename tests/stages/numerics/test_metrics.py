"""Metrics beside the figures of the one pass: ours, and a package's."""

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint

import numpy
import pytest
import torch

from inductor_debug import compare, compare_tensors
from inductor_debug.stages.kerneldiff.tables import table
from inductor_debug.stages.numerics import metrics as room
from inductor_debug.stages.numerics.accumulator import Figures
from inductor_debug.stages.numerics.metrics import Metric
from inductor_debug.stages.numerics.one_pass import CHUNK


class SignFlips(Metric):
    """Elements whose sign is another one."""

    name = "sign_flips"
    passes = True

    def __init__(self) -> None:
        self.count, self.golds = 0, 0

    def add(self, reference: torch.Tensor, test: torch.Tensor, gold: torch.Tensor | None) -> None:
        assert reference.dtype == torch.float64 and reference.dim() == 1
        self.count += int((reference.sign() != test.sign()).sum())
        self.golds += 0 if gold is None else gold.numel()

    def value(self, figures: Figures) -> int:
        assert self.golds in (0, figures.elements)
        return self.count


class Taken(SignFlips):
    name = "scale"


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def offer(name: str) -> None:
        points = [EntryPoint("any", f"{__name__}:{name}", room.GROUP)]
        monkeypatch.setattr(room, "entry_points", lambda group: points if group == room.GROUP else [])
        room.metrics.cache_clear()

    yield offer
    room.metrics.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_the_scale_is_the_nearest_factor_by_least_squares(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    reference = (100 * torch.randn(3, 50, 7)).to(dtype)
    test = (reference.double() * 1.1 + 0.5 * torch.randn(3, 50, 7)).to(dtype)
    x, y = (tensor.double().numpy().ravel() for tensor in (reference, test))
    (by_numpy,), *_ = numpy.linalg.lstsq(x[:, None], y, rcond=None)
    assert compare_tensors(reference, test).metrics["scale"] == pytest.approx(by_numpy, rel=1e-9)


@pytest.mark.parametrize(("reference", "scale"), [([0.0, 0.0], None), ([1.0, -2.0], 1.0), ([1.0, float("nan")], 1.0)])
def test_the_scale_of_zeros_is_not_defined(reference: list[float], scale: float | None) -> None:
    assert compare_tensors(torch.tensor(reference), torch.tensor(reference)).metrics["scale"] == (
        scale if scale is None else pytest.approx(scale)
    )


@pytest.mark.parametrize("with_gold", [False, True])
def test_a_packages_metric_is_a_column_and_is_given_every_element_once(
    with_gold: bool, offered: Callable[[str], None]
) -> None:
    offered("SignFlips")
    reference = torch.arange(1.0, 2 * CHUNK + 10).reshape(-1, 1).expand(-1, 2).clone()
    test = reference.clone()
    test[::1000] *= -1
    found = compare({"x": reference}, {"x": test}, {"x": reference.double()} if with_gold else None)
    assert found.rows[0].metrics["sign_flips"] == 2 * len(test[::1000])
    frame = table(found.rows)
    assert (
        frame.columns[-1] == "sign_flips"
        and "scale" in frame.columns
        and frame["sign_flips"][0] == 2 * len(test[::1000])
    )


class Column(SignFlips):
    name = "max_abs"


class Nameless(Metric):
    def value(self, figures: Figures) -> None:
        return None


class Raising(SignFlips):
    name = "raising"

    def value(self, figures: Figures) -> int:
        raise RuntimeError("bad metric")


class RaisingInPieces(SignFlips):
    name = "in_pieces"

    def add(self, reference: torch.Tensor, test: torch.Tensor, gold: torch.Tensor | None) -> None:
        raise RuntimeError("bad pieces")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("compare", "no subclass of inductor_debug.Metric"),
        ("Taken", "another column of the name scale"),
        ("Column", "another column of the name max_abs"),
        ("Nameless", "Nameless.name is None"),
        ("nothing_such", "AttributeError"),
    ],
)
def test_what_can_t_be_taken_is_left_out_with_its_package(
    name: str, words: str, offered: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    offered(name)
    found = compare_tensors(torch.ones(2), torch.ones(2))
    assert found.verdict == "exact" and list(found.metrics) == ["scale"]
    assert list(table([found]).columns).count("max_abs") == 1
    (record,) = caplog.records
    assert f"any = {__name__}:{name} of an unnamed package is left out" in record.message and words in record.message


@pytest.mark.parametrize(
    ("name", "column", "words"), [("Raising", "raising", "bad metric"), ("RaisingInPieces", "in_pieces", "bad pieces")]
)
def test_one_that_raises_has_no_value_and_changes_nothing(
    name: str, column: str, words: str, offered: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    offered(name)
    found = compare({"x": torch.ones(2), "y": torch.ones(3)}, {"x": torch.ones(2), "y": torch.ones(3)}, None)
    assert found.verdict == "exact" and len(found.rows) == 2
    for row in found.rows:
        assert row.metrics == {"scale": pytest.approx(1.0), column: None}
    (record,) = caplog.records
    assert f"{__name__}:{name}" in record.message and words in record.message
