"""Graph breaks, guards and recompilations belong to the right graph."""

import pytest
import torch
from capture_models import Broken, EarlyBreak, SkippedFrame, case_of, line_of
from torch import nn

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.capture.breaks import helping_settings, setting_in
from inductor_debug.stages.capture.compilation import capture
from inductor_debug.stages.torch_internals.dynamo_options import check_options, in_force


def test_breaks_have_reason_frame_and_graph() -> None:
    module = Broken()
    found = capture(case_of(module, torch.randn(5, 4), scale=torch.ones(8)))
    assert [(item.graph, item.line, item.function) for item in found.breaks] == [
        ("g0.dynamo", line_of(module, "print"), "forward"),
        ("g1.dynamo", line_of(module, "branch"), "forward"),
    ]
    assert "print" in str(found.breaks[0].detail)
    assert str(found.breaks[0].code).startswith('print("a break")')
    assert "branch" in found.breaks[1].reason.lower()


def test_guards_belong_to_the_graph_that_needs_them() -> None:
    found = capture(case_of(Broken(), torch.randn(5, 4), scale=torch.ones(8)))
    owners: dict[str, set[str | None]] = {}
    for guard in found.guards:
        if guard.type == "TENSOR_MATCH":
            owners.setdefault(guard.name, set()).add(guard.graph)
    assert {name: graphs for name, graphs in owners.items() if "scale" in name or name == "L['x']"} == {
        "L['x']": {"g0.dynamo"},
        "L['scale']": {"g0.dynamo"},
    }
    weights = {name.split("'")[3] if "_modules" in name else name: graphs for name, graphs in owners.items()}
    assert (weights["first"], weights["batch"], weights["last"]) == ({"g0.dynamo"}, {"g1.dynamo"}, {"g2.dynamo"})


def test_guards_say_what_they_check_and_no_address() -> None:
    found = capture(case_of(Broken(), torch.randn(5, 4), scale=torch.ones(8)))
    guard = next(item for item in found.guards if item.name == "L['x']")
    assert guard.code[0].startswith("check_tensor(L['x'], Tensor, torch.float32, device='cpu'")
    assert "traced_size=[5, 4]" in guard.code[0]
    identities = [code for item in found.guards for code in item.code if "___check_obj_id" in code]
    assert identities
    assert all("…" in code for code in identities)


def test_a_break_before_the_first_operation_is_recorded_without_a_graph() -> None:
    module = EarlyBreak()
    found = capture(case_of(module, torch.randn(3)))
    assert [(item.graph, item.line) for item in found.breaks] == [(None, line_of(module, "early"))]
    assert [graph.id for graph in found.graphs] == ["g0.dynamo", "g0.forward"]


def test_a_frame_left_to_python_is_recorded() -> None:
    module = SkippedFrame()
    found = capture(case_of(module, torch.randn(3)))
    assert [(item.kind, item.line, item.graph) for item in found.breaks] == [
        ("skipped_frame", line_of(module, "block"), None)
    ]
    assert "print" in str(found.breaks[0].detail)
    assert found.count("dynamo") == 1


def test_a_second_shape_is_a_second_graph_and_a_recompilation() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._dynamo.graph_break()
            first = self.inner(x)
            torch._dynamo.graph_break()
            return first + self.inner(x[:2]).sum()

    found = capture(case_of(Twice(), torch.randn(5)))
    guarded = {guard.graph for guard in found.guards}
    assert guarded == {graph.id for graph in found.graphs if graph.kind == "dynamo"}
    assert len(found.breaks) == 2


def test_nothing_is_left_patched() -> None:
    from torch._dynamo import convert_frame, symbolic_convert

    method = symbolic_convert.InstructionTranslatorBase.log_graph_break
    logger = convert_frame.graph_break_log
    state = (logger.level, logger.propagate, list(logger.handlers))
    capture(case_of(EarlyBreak(), torch.randn(3)))
    assert symbolic_convert.InstructionTranslatorBase.log_graph_break is method
    assert (logger.level, logger.propagate, list(logger.handlers)) == state


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(x)[0]


def test_the_setting_that_dynamo_names_gives_a_graph() -> None:
    case = case_of(Recurrent(), torch.randn(3, 2, 4))
    found = capture(case)
    assert not found.graphs and [item.setting for item in found.breaks] == ["backend.dynamo.allow_rnn=true"]
    assert (
        helping_settings(item.detail for item in found.breaks)
        == "Dynamo has a setting for it. Try: backend.dynamo.allow_rnn=true"
    )
    before = torch._dynamo.config.allow_rnn
    with in_force({"allow_rnn": True}):
        assert capture(case).graphs
    assert torch._dynamo.config.allow_rnn is before


@pytest.mark.parametrize(
    ("detail", "setting"),
    [
        (
            "Hint: Set `torch._dynamo.config.capture_scalar_outputs = True` or `export X=1`",
            "capture_scalar_outputs=true",
        ),
        ("Change `torch._dynamo.config.trace_numpy` to `True`.", "trace_numpy=true"),
        ("Set `torch._dynamo.config.use_numpy_random_stream` to False.", "use_numpy_random_stream=false"),
        ("increasing torch._dynamo.config.recompile_limit to an appropriate value.", None),
        ("add it to `torch._dynamo.config.reorderable_logging_functions`.", None),
    ],
)
def test_settings_are_read_off_the_message(detail: str, setting: str | None) -> None:
    assert setting_in(detail) == (setting and f"backend.dynamo.{setting}")
    if setting is not None:
        check_options({setting.partition("=")[0]: setting.endswith("true")})


@pytest.mark.parametrize(("key", "value"), [("alow_rnn", True), ("allow_rnn", 3), ("allow_rnn", {"a": 1})])
def test_a_wrong_setting_is_a_mistake_of_the_users(key: str, value: object) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"backend\.dynamo\.{key}.*valid: .*\nTry: backend\.dynamo\.allow_rnn="
    ):
        check_options({key: value})
