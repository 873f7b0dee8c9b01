"""The mock backends through torch.compile: what is executed, what is refused, and what a violation leaves."""

import csv
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import mock_models
import pytest
import torch
from mock_models import STRICT16, Net, clean, inner, refused

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.accelerators.loading import load_profile
from inductor_debug.stages.backends.mock import MockAdapter
from inductor_debug.stages.backends.mock_options import MockOptions
from inductor_debug.stages.backends.registry import build_adapter
from inductor_debug.stages.backends.strict_error import SHOWN, ProfileViolated
from inductor_debug.stages.mock_backends import aot_mock_backend, mock_backend
from inductor_debug.stages.settings import BackendConfig

__all__ = ["clean"]  # an autouse fixture


@pytest.mark.parametrize("text", ["1", "true", "TRUE", "yes", "on"])
def test_mock_strict_true_means_strict(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_STRICT", text)
    monkeypatch.setenv("MOCK_ALIGNMENT", "16")
    error = refused(mock_backend, {"verified_repros": 0}, Net(), torch.randn(3, 16))
    assert len(error.violations) > 1  # not the first alone


@pytest.mark.parametrize("text", ["0", "false", "No", "off"])
def test_mock_strict_false_means_warning(text: str, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setenv("MOCK_STRICT", text)
    monkeypatch.setenv("MOCK_ALIGNMENT", "16")
    module, x = Net(), torch.randn(3, 16)
    with caplog.at_level(logging.WARNING, logger="inductor_debug.stages.backends.mock"):
        assert torch.equal(torch.compile(module, backend=mock_backend)(x), module(x))
    line = Net.forward.__code__.co_firstlineno + 1
    assert any(f"{mock_models.__file__}:{line}" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        *(("MOCK_STRICT", text) for text in ("maybe", "", "2")),
        *(("MOCK_ALIGNMENT", text) for text in ("0", "-16", "1.5", "sixteen", "")),
        *(("MOCK_MAX_MEMORY", text) for text in ("0", "16GB of it", "-1", "")),
    ],
)
def test_an_unreadable_variable_is_an_error_and_not_a_default(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(Net(), backend=mock_backend)(torch.randn(3, 16))
    assert isinstance(inner(caught), ConfigurationError) and variable in str(inner(caught))


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [("MOCK_ALIGMENT", "MOCK_ALIGNMENT"), ("MOCK_STRIC", "MOCK_STRICT"), ("MOCK_MEMORY", "MOCK_MAX_MEMORY"),
     ("MOCK_REPRO_DIRECTORY", "MOCK_REPRO_DIR")],
)  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"profile": "warn8"}])
def test_a_misspelt_variable_is_an_error_that_names_the_nearest(
    variable: str, nearest: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "16")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(Net(), backend=mock_backend, options=options)(torch.randn(3, 16))
    error = inner(caught)
    assert isinstance(error, ConfigurationError)
    assert str(error).startswith(f"{variable}: got '16'") and f"valid: {nearest}, " in str(error)
    with pytest.raises(ConfigurationError, match=variable):
        load_profile("mock")


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"denied": ["aten.convolutoin"]}, r"got 'aten.convolutoin', which torch .* nearest of .*: aten.convolution"),
        ({"denied": ["aten.add.Tenser"]}, r"got 'aten.add.Tenser'; valid: aten.add.Tensor"),
        ({"rules": [{"rule": "operation", "value": {"allow": ["aten.rellu"]}}]}, "got 'aten.rellu'"),
        ({"dtypes": ["float33"]}, "float33"),
    ],
)
def test_an_operation_that_torch_lacks_is_an_error(backend: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(Net(), backend=backend, options=options)(torch.randn(3, 16))
    error = inner(caught)
    assert isinstance(error, ConfigurationError)
    with pytest.raises(ConfigurationError, match=message):
        raise error


def test_mock_max_memory_reads_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_MAX_MEMORY", "1KiB")
    error = refused(mock_backend, {"verified_repros": 0, "strict": True}, Net(), torch.randn(100, 16))
    assert {(row.rule, row.limit) for row in error.violations} == {("memory_tensor", "1024")}


def test_every_violation_of_forward_and_backward_apart() -> None:
    error = refused(aot_mock_backend, STRICT16, Net(), torch.randn(3, 16))
    forward = {row.target for row in error.violations if row.graph == "g0.forward"}
    backward = {row.target for row in error.violations if row.graph == "g0.backward"}
    assert {"aten.addmm.default", "aten.relu.default"} <= forward
    assert "aten.threshold_backward.default" in backward and "aten.threshold_backward.default" not in forward
    parameter = next(row for row in error.violations if row.operand == "parameter")
    assert parameter.graph == "g0.forward"  # its role is Dynamo's knowledge, which the AOT graph lacks


class Broken(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
def test_a_graph_break_hides_code_from_the_profile(backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    line = Broken.forward.__code__.co_firstlineno + 2
    error = refused(backend, {"profile": "strict8"}, Broken(), torch.randn(3, 8))
    assert str(error).startswith("not established that the model keeps the profile 'strict8'")
    assert f"{__file__}:{line}" in str(error) and "Try: " in str(error) and not error.rows
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, logger="inductor_debug.stages.backends.mock"):
        torch.compile(Broken(), backend=backend, options={"profile": "warn8"})(torch.randn(3, 8))
    assert "graph break" in caplog.text
    torch._dynamo.reset()
    torch.compile(Broken(), backend=backend, options={"profile": "none", "strict": True})(torch.randn(3, 8))


def test_graphs_of_one_model_have_numbers_of_their_own() -> None:
    seen: list[str] = []
    adapter = MockAdapter(AccelConfig(alignment=16))
    original = adapter.enforce
    adapter.enforce = lambda graphs, *rest: (seen.extend(graphs), original(graphs, *rest))[1]  # type: ignore[method-assign]
    torch.compile(Broken(), backend=adapter.dynamo_backend())(torch.randn(3, 8))
    assert seen == ["g0.dynamo", "g1.dynamo"]


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
def test_symbolic_sizes_are_checked_by_what_is_certain(backend: Any) -> None:
    class Shift(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.repeat_interleave(16, dim=1) + 1

    fits = torch.compile(Shift(), backend=backend, dynamic=True, options={**STRICT16, "alignment": 4})
    x = torch.randn(3, 8)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        fits(x)
    error = inner(caught)
    assert isinstance(error, ProfileViolated)
    # the input's size is 8 here, which fits, but it need not be; its multiple by 16 is certain
    assert {row.severity for row in error.violations} == {"undecided"}
    aligned = [row for row in error.violations if row.rule == "alignment"]
    assert aligned and all(row.measured.startswith("s") and "*" not in row.measured for row in aligned)
    # without a largest size no limit on a tensor's bytes can be shown to be kept
    assert {row.rule for row in error.violations} == {"alignment", "memory_tensor"}
    assert error.repros is not None and not error.repros.scripts and error.repros.undecided == len(error.violations)


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
def test_dynamic_graphs_execute_at_every_size(backend: Any) -> None:
    module = Net()
    compiled = torch.compile(module, backend=backend, dynamic=True, options={"profile": "warn8"})
    counts = torch._dynamo.utils.counters["stats"]
    for rows in (3, 5, 9):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(compiled(x), module(x))
    assert counts["unique_graphs"] <= 2  # 2 is torch's special case of sizes 0 and 1


def test_a_mode_is_torchs_for_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import compile_fx

    seen: list[dict[str, Any]] = []

    def compile_(gm: Any, inputs: Any, config_patches: Any = None, **rest: Any) -> Any:
        seen.append(config_patches)
        return gm.forward

    monkeypatch.setattr(compile_fx, "compile_fx", compile_)
    module, x = Net(), torch.randn(3, 16)
    for options in ({"mode": "max-autotune-no-cudagraphs"}, {"options": {"execute": "inductor"}}, {}):
        torch._dynamo.reset()
        torch.compile(module, backend=mock_backend, **options)(x)
    assert seen == [torch._inductor.list_mode_options("max-autotune-no-cudagraphs"), {}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "max-autotun"}, r"mode: got 'max-autotun'; valid: max-autotune"),
        ({"options": {"execute": "eagr"}}, r"options\.execute: got 'eagr'; valid: eager, inductor"),
        ({"options": {"execute": "eager", "mode": "lite"}}, r"options\.mode: got 'lite' with options\.execute=eager"),
        ({"options": {"verified_repros": -1}}, r"options\.verified_repros: got -1; valid: a whole number"),
        ({"options": {"repro_dir": 3}}, r"options\.repro_dir: got 3; valid: a folder's path"),
        ({"options": {"alignmen": 8}}, r"accel override: got 'alignmen'; valid: alignment"),
        ({"options": {"denied": ["aten.rellu"]}}, r"accel.denied: got 'aten.rellu', which torch"),
    ],
)
def test_wrong_options_are_one_message(given: dict[str, Any], message: str) -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(Net(), backend=mock_backend, **given)(torch.randn(3, 16))
    error = inner(caught)
    assert isinstance(error, ConfigurationError)
    with pytest.raises(ConfigurationError, match=message):
        raise error


def test_the_pipelines_options_of_the_mock() -> None:
    adapter = build_adapter(BackendConfig("mock", "mock", {"execute": "inductor"}))
    assert isinstance(adapter, MockAdapter) and adapter.options.inductor
    for options in ({"repro_dir": "x"}, {"alignment": 8}):
        with pytest.raises(ConfigurationError, match=r"backend\.options: got .*; valid: .*execute"):
            build_adapter(BackendConfig("aot_mock", "aot_mock", options))


@pytest.mark.parametrize("backend", [mock_backend, aot_mock_backend])
def test_inductor_behind_the_checks_trains_as_eager_does(backend: Any) -> None:
    module, x = Net(), torch.randn(3, 16)
    compiled = torch.compile(module, backend=backend, options={"execute": "inductor", "profile": "warn16"})
    compiled(x).sum().backward()
    got = {name: parameter.grad.clone() for name, parameter in module.named_parameters()}
    module.zero_grad()
    module(x).sum().backward()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(got[name], parameter.grad)
    assert torch._dynamo.utils.counters["inductor"]  # it was Inductor that ran


def test_the_error_names_a_repro_that_shows_the_violation(tmp_path: Path) -> None:
    options = STRICT16 | {"repro_dir": str(tmp_path / "mine"), "verified_repros": 1, "alignment": 1,
                          "denied": ["aten.relu"]}  # fmt: skip
    error = refused(mock_backend, options, Net(), torch.randn(3, 16))
    (repro,) = error.repros.scripts
    path = tmp_path / "mine" / repro.name
    assert f"{path}  verified in a fresh process" in str(error)
    assert f"1 reproduction in {tmp_path}/mine/, 1 run and seen to show it" in str(error)
    done = subprocess.run([sys.executable, "-P", path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == "VIOLATION operation measured=torch.nn.functional.relu limit=aten.relu\n"


def test_without_a_folder_a_fresh_temporary_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOCK_REPRO_DIR")
    error = refused(mock_backend, STRICT16, Net(), torch.randn(3, 16))
    assert Path(error.folder).is_dir() and error.folder in str(error)
    assert {path.name for path in Path(error.folder).iterdir()} == set(error.files)
    for path in Path(error.folder).iterdir():
        path.unlink()
    Path(error.folder).rmdir()


def test_a_folder_that_cant_be_written_hides_no_violation(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = STRICT16 | {"repro_dir": str(tmp_path / "file" / "below")}
    error = refused(mock_backend, options, Net(), torch.randn(3, 16))
    assert "could not be written" in str(error)
    assert all(row.message in str(error) for row in error.violations)


def test_a_long_list_is_cut_in_the_message_and_whole_in_the_file(tmp_path: Path) -> None:
    class Long(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(SHOWN + 5):
                x = x + 1
            return x

    error = refused(mock_backend, STRICT16, Long(), torch.randn(3, 8))
    total = SHOWN + 6  # the input too
    assert len(error.violations) == total
    assert str(error).count("[alignment]") == SHOWN
    assert f"… and 6 more: all rows are in {tmp_path}/repros/violations.csv" in str(error)
    with open(tmp_path / "repros" / "violations.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == total
    assert error.repros.left_out == () and len(error.repros.scripts) == 2  # the input's reader, and x + 1


def test_bare_records_decide_as_full_ones_do() -> None:
    """The check that a healthy first call waits for may leave out nothing that a finding rests on."""
    from inductor_debug.stages.backends.graph_records import graph_records
    from inductor_debug.stages.rules.engine import check

    profile = AccelConfig("p", strict=True, alignment=16, layout="contiguous", dtypes=["float32"],
                          max_tensor_bytes=64, denied=["aten.relu", "aten.addmm"])  # fmt: skip
    found = []

    def backend(gm: Any, inputs: Any) -> Any:
        for details in (False, True):
            found.append(check(graph_records({"g0.dynamo": gm}, details=details), profile))
        return gm.forward

    torch.compile(Net(), backend=backend)(torch.randn(16, 3).t().repeat(1, 1)[:, :16].new_ones(3, 16))
    bare, full = ([(row.node, row.rule, row.operand, row.measured) for row in rows] for rows in found)
    assert bare == full and bare


def test_a_waiver_by_source_holds_in_the_first_call(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from inductor_debug.stages.accelerators.config import Waiver

    def told(*waivers: Waiver) -> ProfileViolated | None:
        torch._dynamo.reset()
        adapter = MockAdapter(AccelConfig("p", strict=True, alignment=16, waivers=[*waivers]), MockOptions(None, None))
        try:
            torch.compile(Net(), backend=adapter.dynamo_backend())(torch.randn(3, 16))
        except torch._dynamo.exc.BackendCompilerFailed as error:
            return error.inner_exception
        return None

    monkeypatch.setattr("inductor_debug.stages.rules.repros.verify", lambda scripts: [])
    assert isinstance(told(), ProfileViolated)
    assert isinstance(told(Waiver(source="elsewhere.py:*", reason="known")), ProfileViolated)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="inductor_debug.stages.rules.violations"):
        assert told(Waiver(source=f"{mock_models.__file__}:*", reason="known")) is None
    assert "matches no finding" not in caplog.text  # as a check without source lines would say


def test_what_is_not_established_is_told_so_with_what_to_do() -> None:
    torch._dynamo.reset()
    options = {"profile": "none", "strict": True, "verified_repros": 0, "max_tensor_bytes": 1 << 20}
    model = torch.nn.Sequential(torch.nn.Linear(8, 8))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught, torch.no_grad():
        torch.compile(model, backend="mock", dynamic=True, options=options)(torch.randn(6, 8))
    told = str(caught.value.inner_exception)
    assert told.startswith("not established that the model keeps the profile 'none':"), told
    assert "[memory_tensor, not established]" in told and "violation of" not in told
    assert (
        "Try: bound each symbolic size, before the first call: torch._dynamo.mark_dynamic(x, DIMENSION, min=1," in told
    )
    x = torch.randn(6, 8)
    for dimension in range(2):  # as it says
        torch._dynamo.mark_dynamic(x, dimension, min=1, max=64)
    torch._dynamo.reset()
    torch.compile(lambda x: x * 2, backend="mock", dynamic=True, options=options)(x)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught, torch.no_grad():
        both = options | {"denied": ["torch.nn.functional.linear"]}
        torch.compile(model, backend="mock", dynamic=True, options=both)(torch.randn(6, 8))
    assert re.match(r"1 violation of the profile 'none', and \d+ not established:", str(caught.value.inner_exception))
