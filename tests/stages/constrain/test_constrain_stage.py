"""The stage: stored graphs in, a table and a verdict out."""

import io
from dataclasses import replace

import pandas
import pytest
from constrain_context import GRAPH, context

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig, Waiver
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.constrain.config import ConstrainConfig
from inductor_debug.stages.constrain.stage import ConstrainStage
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.rules.violations import COLUMNS

TABLE, SUMMARY = files.VIOLATIONS.path, files.BY_RULE.path
FITS = "The model fits the profile none: no rule is broken."
EIGHT = "The last dimension of activations and parameters must be a multiple of 8 elements, or 1."
BROKEN = f"The model does not fit the profile none: 2 violations of the rule alignment. {EIGHT}"
STOPPED = ("The profile is strict, so stages that compile are left out. "
           "To run them anyway, add to the command: accel.strict=false")  # fmt: skip


def run(accel, **more):
    return ConstrainStage(ConstrainConfig(verified_repros=0)).run(context(accel, **more))


def test_strict_fails_with_every_violation_and_warning_passes():
    strict, warning = run({"alignment": 8, "strict": True}), run({"alignment": 8})
    assert (strict.status, warning.status) == ("failed", "passed")
    assert len(strict.artifacts[TABLE]) == len(warning.artifacts[TABLE]) == 2
    assert strict.message == (
        f"{BROKEN} {STOPPED}\n"
        "Checked: 1 graph (seen as forward).\n"
        "2 reproductions in repros/, 0 run and seen to show it."
    )
    assert "repros" not in warning.summary and list(warning.artifacts) == [TABLE, SUMMARY]
    assert strict.summary["violations"].strict is True and warning.summary["violations"].strict is False
    assert set(strict.artifacts[TABLE]["severity"]) == {"error"}


def test_the_table_survives_csv_with_the_contracts_columns():
    content = encode(TABLE, run({"alignment": 8, "denied": ["aten.relu"]}).artifacts[TABLE])
    table = pandas.read_csv(io.BytesIO(content))
    assert list(table.columns) == COLUMNS
    assert table["cost_bytes"].tolist() == [96, 96, 160]
    assert b".0," not in content.split(b"\n")[1]


def test_digest_columns_are_columns():
    result = run({"alignment": 8})
    assert set(result.digest[TABLE]) < set(COLUMNS) and {"node", "rule", "measured"} < set(result.digest[TABLE])


def test_no_graph_is_not_established():
    for accel in ({}, {"alignment": 8}):
        result = run(accel, graphs=())
        said = "Whether the model fits the profile none is not established: no graph was captured."
        assert (result.status, result.message) == ("failed", said)
        assert result.artifacts == {}


def test_no_rules_and_a_fit_are_told_apart():
    assert run({}).message == "Nothing was checked: the profile none has no rules."
    assert run({}).summary["violations"].total is None
    assert run({"alignment": 2}).summary["violations"].total == 0
    rule = f"The profile's rule alignment: {EIGHT.replace('8', '2')}"
    assert run({"alignment": 2}).message == f"{FITS}\n{rule}\nChecked: 1 graph (seen as forward)."
    both = (replace(GRAPH, id="g0.dynamo", kind="dynamo"), GRAPH)
    assert run({"alignment": 2}, graphs=both).message == f"{FITS}\n{rule}\nChecked: 1 graph (seen as dynamo, forward)."
    two = (*both, replace(GRAPH, id="g1.forward"))
    assert run({"alignment": 2}, graphs=two).message == f"{FITS}\n{rule}\nChecked: 2 graphs (seen as dynamo, forward)."
    assert list(run({}).artifacts[TABLE].columns) == COLUMNS


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (["break"], "1 graph break"),
        (["break", "skipped_frame", "break"], "3 graph breaks, 1 of them a skipped frame"),
        (["skipped_frame", "skipped_frame"], "2 skipped frames"),
    ],
)
@pytest.mark.parametrize(
    ("accel", "fit", "further"),
    [
        ({"alignment": 2}, FITS, ""),
        ({"alignment": 8, "strict": True}, BROKEN, f" {STOPPED}"),
    ],
)
def test_what_runs_outside_the_graphs_was_not_checked(accel, fit, further, kinds, told):
    given = context(accel)
    given.artifacts.content["capture/breaks.json"] = [{"kind": kind, "reason": "print"} for kind in kinds]
    message = ConstrainStage(ConstrainConfig(repros=0)).run(given).message
    said = f"{fit} What runs outside the graphs was not checked ({told}).{further}"
    assert message.partition("\n")[0] == said
    given.artifacts.content["capture/breaks.json"] = []
    assert "not checked" not in ConstrainStage(ConstrainConfig(repros=0)).run(given).message


@pytest.mark.parametrize(
    ("accel", "status"),
    [({"alignment": 1, "strict": True}, "failed"), ({"alignment": 1, "strict": False}, "passed"), ({}, "passed")],
)
def test_a_strict_profile_is_not_established_for_a_model_with_graph_breaks(accel, status):
    given = context(accel)
    assert ConstrainStage(ConstrainConfig()).run(given).status == "passed"
    given.artifacts.content["capture/breaks.json"] = [{"kind": "break", "reason": "print"}]
    result = ConstrainStage(ConstrainConfig()).run(given)
    assert result.status == status
    outside = "What runs outside the graphs was not checked (1 graph break)."
    said = f"Whether the model fits the profile none is not established. {outside} {STOPPED}"
    assert (result.message.partition("\n")[0] == said) == ("not established" in result.message) == (status == "failed")
    assert not [name for name in result.artifacts if name.startswith("repros/")]


def test_check_refuses_what_torch_lacks_before_anything_runs():
    stage = ConstrainStage(ConstrainConfig())
    with pytest.raises(ConfigurationError, match=r"aten\.relu"):
        stage.check(context({"denied": ["aten.rellu"]}))
    with pytest.raises(ConfigurationError, match=r"accel\.alignment"):
        stage.check(context({"alignment": 0}))
    with pytest.raises(ConfigurationError, match=r"stages\.constrain\.repros: got -1"):
        ConstrainStage(ConstrainConfig(repros=-1)).check(context({}))
    stage.check(context({"denied": ["aten.relu", "torch.*", "torch.nn.functional.gelu"], "dtypes": ["float32"]}))


def test_waivers_tell_when_they_end_and_that_they_did_nothing():
    waivers = [Waiver("alignment", reason="r", expires="2999-01-31"), Waiver("dtype", reason="no such thing")]
    result = run({"alignment": 16, "waivers": waivers})
    messages = result.artifacts[TABLE]["message"]
    assert len(messages) and messages.str.endswith(" (waived until 2999-01-31: r)").all()
    told, *figures = result.message.splitlines()
    assert told == "The model fits the profile none: every violation is waived."
    assert f"{len(messages)} findings waived." in figures
    assert "No finding is waived by dtype (no such thing)." in figures


def test_a_waiver_that_expired_is_told_with_its_day():
    result = run({"alignment": 16, "waivers": [Waiver("alignment", reason="r", expires="2020-01-31")]})
    assert set(result.artifacts[TABLE]["severity"]) == {"warning"}
    assert result.message.splitlines()[-1] == (
        "A waiver that would accept findings has expired: alignment (r; on 2020-01-31)."
    )
    kept = run({"alignment": 1, "waivers": [Waiver("alignment", reason="r", expires="2020-01-31")]})
    assert "has expired" not in kept.message  # it would accept nothing


def test_what_is_waived_is_no_violation_by_rule():
    result = run({"alignment": 8, "waivers": [Waiver("alignment", target="aten.relu*", reason="r")]})
    said = f"The model does not fit the profile none: 1 violation of the rule alignment. {EIGHT} "
    assert result.message.startswith(said)
    assert "1 finding waived." in result.message.splitlines()


def test_bytes_that_int64_can_not_hold_are_kept_as_they_are():
    """A limit near int64's own asks for more of them: in the table, in its CSV, in the sum and over a grid."""
    from inductor_debug.stages.constrain.grid import check_grid

    largest = 2**63 - 1
    result = run({"alignment": largest, "alignment_dims": "all"})
    costs = [int(cost) for cost in result.artifacts[TABLE]["cost_bytes"]]
    assert costs[0] == 4 * (largest * 10 - 40) and max(costs) > largest
    assert str(costs[0]) in encode(TABLE, result.artifacts[TABLE]).decode()
    assert list(result.artifacts[SUMMARY]["cost_bytes"]) == [sum(costs)]
    table = check_grid([GRAPH], AccelConfig(alignment_dims="all"), {"alignment": [8, largest]})
    assert list(table["cost_bytes"])[1] == sum(costs)
