"""The emulated backend behind the stages: what the lower stage stores, and the published profiles' numerics."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from inductor_debug.models.case import Case
from inductor_debug.models.config import ModelConfig
from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig, NumericsConfig
from inductor_debug.stages.accelerators.profile import load_config
from inductor_debug.stages.artifacts import files
from inductor_debug.stages.backends.adapter import AcceleratorAdapter
from inductor_debug.stages.backends.emulated import EmulatedAdapter
from inductor_debug.stages.contract import MemoryArtifacts, StageContext, StageResult
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.kerneldiff.config import KernelDiffConfig
from inductor_debug.stages.kerneldiff.stage import KernelDiffStage
from inductor_debug.stages.lower.config import LowerConfig
from inductor_debug.stages.lower.stage import LowerStage
from inductor_debug.stages.settings import BackendConfig, Settings

PROFILES = {
    # ACCELERATORS: torch-spyre's documentation. 64 elements of 16 bits a stick; one mantissa bit fewer than float16.
    "ibm_spyre": """
        storage: {float16: 1-6-9, bfloat16: 1-6-9}
        casts: {int64: int32}
        tile: [128B]
    """,
    # tt-metal's tiles page and blockfloat_common.cpp.
    "tenstorrent_wormhole_b0": """
        storage: {bfloat16: bfp8, float32: bfloat16}
        block_size: 16
        tile: [32, 32]
        poison: false
    """,
    # The Cloud TPU performance guide, and jax's pallas/tpu/details.rst.
    "google_tpu": """
        operands: {float32: bfloat16}
        accumulate: float32
        tile: [8, 128]
    """,
}


class Embedded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = torch.nn.Embedding(50, 24), torch.nn.LayerNorm(24)
        self.head = torch.nn.Linear(24, 12)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.head(self.norm(self.embedding(tokens * 2**27 // 2**27 % 50))), -1)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def profile(name: str, folder: Path) -> AccelConfig:
    file = folder / f"{name}.yaml"
    file.write_text(f"name: {name}\nnumerics:{PROFILES[name]}")
    return load_config(str(file))


def results(
    accel: AccelConfig, dtype: torch.dtype, mode: str = "inference", *, lower: bool = True
) -> dict[str, StageResult]:
    torch.manual_seed(0)
    module = Embedded().to(dtype).train(mode == "training")
    case = Case("net", module, (torch.randint(0, 50, (2, 9)),), {}, mode, dtype, torch.device("cpu"))
    settings = Settings(
        ModelConfig("net"), accel, BackendConfig("emulated", "emulated"), mode=mode,
        dtype=str(dtype).removeprefix("torch."),
    )  # fmt: skip
    artifacts = MemoryArtifacts()
    compares = KernelDiffStage(KernelDiffConfig(plots=False, store_baseline=False))
    stages = [LowerStage(LowerConfig()), compares] if lower else [compares]
    context = StageContext(settings, artifacts, {"case": case})
    for stage in stages:
        stage.check(context)
    found = {}
    for stage in stages:
        found[stage.name] = stage.run(context)
        artifacts.add(found[stage.name])
    return found


def found(result: StageResult) -> set[tuple[str, str]]:
    rows = result.artifacts["lower/emulation.csv"].to_dict("records")
    given = ("parameters", "tangents")  # of no line
    assert all(row["source"].startswith(__file__) or any(word in row["target"] for word in given) for row in rows)
    return {(row["target"].removeprefix("aten.").partition(".")[0], row["kind"]) for row in rows}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_ibm_spyre(dtype: torch.dtype, tmp_path: Path) -> None:
    run = results(profile("ibm_spyre", tmp_path), dtype)
    lower, compared = run["lower"], run["kerneldiff"]
    assert lower.status == "failed" and "float16 stored as 1-6-9" in lower.message
    leaks = {(name, "pad_leak") for name in ("native_layer_norm", "addmm", "_softmax")}
    assert found(lower) == leaks | {("mul", "int_overflow")}
    assert set(lower.artifacts["lower/emulation.csv"].columns) == set(files.EMULATION.checks())
    facts = lower.artifacts["lower/emulation.json"]
    assert facts["findings"] == {"int_overflow": 1, "pad_leak": 3}
    assert facts["numerics"]["storage"]["bfloat16"] == "1-6-9" and facts["weights"]["rounded"] > 0
    for name, content in lower.artifacts.items():
        assert encode(name, content)
    # the wrapped index picks another row of the embedding: a format question has a real answer
    assert compared.status == "failed" and compared.summary["numerics"].verdict == "defect"


def test_tenstorrent_wormhole_b0(tmp_path: Path) -> None:
    run = results(profile("tenstorrent_wormhole_b0", tmp_path), torch.bfloat16, "training")
    assert found(run["lower"]) >= {("native_layer_norm", "pad_leak"), ("_softmax", "pad_leak")}
    assert ("L_self_modules_embedding_parameters_weight_", "underflow") in found(run["lower"])
    assert ("addmm", "pad_leak") not in found(run["lower"])  # zeros in a matmul's padding add nothing
    assert run["kerneldiff"].status == "passed", run["kerneldiff"].message


def test_google_tpu(tmp_path: Path) -> None:
    run = results(profile("google_tpu", tmp_path), torch.float32)
    assert "float32 operands as bfloat16" in run["lower"].message
    assert run["kerneldiff"].status == "passed"
    assert "storage rounding alone raised the floor" in run["kerneldiff"].message


LEAKS = NumericsConfig(tile=[8])


@pytest.mark.parametrize(("strict", "status"), [(None, "failed"), (True, "failed"), (False, "passed")])
def test_a_leak_fails_the_run_unless_the_profile_only_warns(strict: bool | None, status: str) -> None:
    run = results(AccelConfig("chip", strict=strict, numerics=LEAKS), torch.float32)
    assert run["lower"].status == status and "pad_leak" in run["lower"].message
    assert run["kerneldiff"].status == "passed"  # the run goes on with the right result


def test_overflow_of_integers_fails_the_run_and_a_fallback_does_not() -> None:
    casts = NumericsConfig(casts={"int64": "int32"})
    assert results(AccelConfig("chip", numerics=casts), torch.float32)["lower"].status == "failed"
    host = NumericsConfig(fallback=["aten.native_layer_norm"])
    run = results(AccelConfig("chip", numerics=host), torch.float32)
    assert run["lower"].status == "passed" and "1 fallback" in run["lower"].message


@pytest.mark.parametrize(("strict", "status"), [(None, "failed"), (False, "passed")])
def test_without_the_lower_stage_the_comparison_tells_the_findings(strict: bool | None, status: str) -> None:
    run = results(AccelConfig("chip", strict=strict, numerics=LEAKS), torch.float32, lower=False)
    assert run["kerneldiff"].status == status and "pad_leak" in run["kerneldiff"].message
    assert "lower/emulation.csv" in run["kerneldiff"].artifacts


class Reads(torch.nn.Module):
    """Its index fits int64 alone."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[(index + 2**31) // 2**28 - 4]


def test_findings_outlive_a_run_that_they_end() -> None:
    case = Case("net", Reads(), (torch.randn(8), torch.zeros(2, dtype=torch.int64)), {}, "inference", torch.float32,
                torch.device("cpu"))  # fmt: skip
    numerics = NumericsConfig(casts={"int64": "int32"})
    settings = Settings(
        ModelConfig("net"), AccelConfig("chip", numerics=numerics), BackendConfig("emulated", "emulated")
    )
    context = StageContext(settings, MemoryArtifacts(), {"case": case})
    with pytest.raises(IndexError):
        LowerStage(LowerConfig()).run(context)
    (left,) = context.left
    assert set(left.artifacts["lower/emulation.csv"]["kind"]) == {"int_overflow"}


def test_the_lower_stage_refuses_a_profile_without_numerics() -> None:
    with pytest.raises(ConfigurationError, match="states no numerics"):
        results(AccelConfig(), torch.float32)


def test_numerics_are_typed_in_yaml(tmp_path: Path) -> None:
    file = tmp_path / "chip.yaml"
    file.write_text("name: chip\nnumerics: {storge: {float32: tf32}}")
    with pytest.raises(ConfigurationError, match=r"numerics\.storge"):
        load_config(str(file))


def test_any_adapter_that_states_numerics_can_be_emulated() -> None:
    class Chip(AcceleratorAdapter):
        def __init__(self, numerics: NumericsConfig) -> None:
            self.numerics = numerics

        def capabilities(self) -> Any:
            return AccelConfig("chip", numerics=self.numerics)

        def compile(self, gm: Any, example_inputs: Any) -> Any:
            raise RuntimeError("needs the chip")

    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.randn(4, 8)
    graph = make_fx(lambda value: (value + 1,), tracing_mode="fake")(x)
    (result,) = Chip(NumericsConfig(storage={"float32": "bfloat16"})).emulate(graph, [x])(x)
    assert torch.equal(result, (x.bfloat16().float() + 1).bfloat16().float())
    with pytest.raises(NotImplementedError, match="Chip states no numerics"):
        Chip(NumericsConfig()).emulate(graph, [x])


def test_formats_alone_keep_no_other_numerics() -> None:
    every = NumericsConfig(
        storage={"float32": "1-5-9"}, operands={"float32": "bfloat16"}, accumulate="bfloat16", accumulate_block=8,
        casts={"int64": "int32"}, tile=[32, 32], fallback=["aten.mm"], saturate=True,
    )  # fmt: skip
    alone = EmulatedAdapter(AccelConfig("chip", numerics=every)).storage_rounding()
    assert alone is not None
    assert alone.capabilities().numerics == NumericsConfig(
        storage={"float32": "1-5-9"}, operands={"float32": "bfloat16"}, saturate=True
    )
    assert EmulatedAdapter(AccelConfig("chip", numerics=NumericsConfig(tile=[8]))).storage_rounding() is None
