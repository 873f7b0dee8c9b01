"""Faults in front of the backend, in Dynamo and in AOTAutograd: which of the two is named, and the option."""

import pytest
import torch
from bisect_faults import (
    Plant,
    Scales,
    after_tracing,
    careless_cse,
    double_constants,
    refuse_products,
    wrong_partition,
)

from inductor_debug.stages.bisect.api import bisect
from inductor_debug.stages.bisect.records import Bisection

ALL = ("eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow))
BEHIND_AOT = ALL[1:]


def found(plant: Plant, backend: str, mode: str = "training") -> Bisection:
    torch.manual_seed(0)
    x = torch.randn(4, 8, requires_grad=mode == "training")
    with plant():
        return bisect(Scales().train(mode == "training"), (x,), backend=backend, mode=mode)


def faults(result: Bisection) -> dict[str, str]:
    """Link of the chain, everything in it on → whether the fault was there."""
    return {probe.setting.link: probe.fault for probe in result.probes if not probe.setting.words}


@pytest.mark.parametrize("backend", ALL)
def test_a_graph_that_dynamo_made_wrong_is_dynamos(backend: str) -> None:
    """No option of Dynamo's undoes it, and no operation of a backend behind it is blamed for it."""
    result = found(lambda: after_tracing(double_constants), backend, "inference")
    assert (result.verdict, result.subsystem, result.group) == ("subsystem", "dynamo", None), result.answer
    assert faults(result) == {"backend": "present", "uncompiled": "gone", "dynamo": "present"}
    told = "The fault comes in with Dynamo, but no single switch in it explains the fault."
    assert result.answer.startswith(f"{told}\nIt took "), result.answer


@pytest.mark.parametrize("backend", ALL)
def test_a_crash_of_dynamo_is_dynamos_and_suppressing_errors_helps(backend: str) -> None:
    result = found(lambda: after_tracing(refuse_products), backend, "inference")
    assert (result.verdict, result.subsystem, result.group) == ("found", "dynamo", "dynamo_options"), result.answer
    assert result.fault is not None and result.fault.kind == "raised"
    assert result.names == ["suppress_errors=true"] and result.remedy is not None
    assert result.remedy.text == "import torch._dynamo.config; torch._dynamo.config.suppress_errors = True"
    told = (
        "The fault comes in with Dynamo: it goes away with suppress_errors=true. To be rid of it, "
        f"run in Python first: {result.remedy.text}\n"
        "What makes a fault go away hides it. The fault need not lie there.\nIt took "
    )
    assert result.answer.startswith(told), result.answer


@pytest.mark.parametrize("backend", BEHIND_AOT)
def test_a_wrong_cse_is_aotautograds_and_its_option_is_named(backend: str) -> None:
    result = found(careless_cse, backend)
    assert (result.verdict, result.subsystem, result.group) == ("found", "aot_autograd", "aot_options"), result.answer
    assert faults(result) == {"backend": "present", "uncompiled": "gone", "dynamo": "gone", "aot_autograd": "present"}
    assert result.names == ["cse=false"] and result.remedy is not None
    assert result.remedy.text == "import torch._functorch.config; torch._functorch.config.cse = False"
    told = "The fault comes in with AOTAutograd: it goes away with cse=false. To be rid of it, "
    assert result.answer.startswith(f"{told}run in Python first: {result.remedy.text}\n"), result.answer
    off, on = (result.probes[result.confirmed[key] - 1] for key in ("off", "on"))
    assert {str(switch) for switch in off.setting.off} == {"aot_options: cse=false"} and off.fault == "gone"
    assert not on.setting.off and on.fault == "present"


@pytest.mark.parametrize("backend", BEHIND_AOT)
def test_a_wrong_partition_is_aotautograds_without_an_option(backend: str) -> None:
    result = found(wrong_partition, backend)
    assert (result.verdict, result.subsystem, result.group) == ("subsystem", "aot_autograd", None), result.answer
    told = "The fault comes in with AOTAutograd, but no single switch in it explains the fault."
    assert result.answer.startswith(f"{told}\nIt took "), result.answer
