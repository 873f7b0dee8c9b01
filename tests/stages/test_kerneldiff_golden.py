"""Golden runs: a stored reference judges as the reference itself does, and a foreign or damaged one is refused."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file, save_file
from torch import nn

from models.case import Case
from models.config import ModelConfig
from models.errors import ConfigurationError
from stages.contract import MemoryArtifacts, ReferenceConfig, Settings, StageContext, StageResult
from stages.encoding import encode
from stages.kerneldiff import golden, golden_store, packing
from stages.kerneldiff.config import KernelDiffConfig
from stages.kerneldiff.stage import KernelDiffStage
from stages.lower.adapter import AcceleratorAdapter
from stages.lower.config import BackendConfig

VERDICT_COLUMNS = [
    *("kind", "path", "shape", "dtype", "verdict", "bound", "message", "elements", "mismatched", "max_abs", "rmse"),
    *("floor_rms", "floor_max", "error_rms", "error_max", "ratio", "factor", "reference_rms"),
]


class Scaled(AcceleratorAdapter):
    """Its first floating output is wrong by a thousandth."""

    name = "scaled"

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            first, *rest = gm(*args)
            return (first * 1.001, *rest)

        return run


class Flipping(AcceleratorAdapter):
    """The second graph, which is the backward, gives 0 for the first element of a tensor of three."""

    name = "flipping"
    graphs = 0

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs += 1
        if self.graphs == 1:
            return gm.forward
        keep = torch.tensor([0.0, 1.0, 1.0])
        return lambda *args: tuple(out * keep if getattr(out, "shape", None) == (3,) else out for out in gm(*args))


class Gate(nn.Module):
    """A ReLU whose first element lies within rounding of its branch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1 + 0.5 * torch.relu(x * self.weight - 1)


class CountsEager(nn.Module):
    """A layer that notes every call of its Python code outside of a compiler."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            CALLS.append(x.dtype)
        return self.layer(x)


CALLS: list[torch.dtype] = []


class Net(nn.Module):
    """Batch statistics, dropout where asked for, an input that it writes into and leaves of many types."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 16), nn.BatchNorm1d(16)
        self.last, self.drop = nn.Linear(16, 4), nn.Dropout(drop)
        self.register_buffer("untouched", torch.arange(3.0))

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> dict[str, Any]:
        hidden = torch.relu(self.norm(self.first(x)))
        cache[0] = 7
        logits = self.last(self.drop(hidden))
        return {"logits": logits, "turned": logits.T, "states": [hidden, None], "steps": 3, "name": "net", "none": []}


def context_of(
    adapter: str = "aot_eager",
    *,
    module: Callable[[], nn.Module] | None = None,
    inputs: tuple[torch.Tensor, ...] | None = None,
    mode: str = "training",
    seed: int = 0,
    dtype: str = "float32",
    drop: float = 0.0,
) -> StageContext:
    """A fresh context, as another process would build it."""
    torch._dynamo.reset()
    torch.manual_seed(seed)
    kind = getattr(torch, dtype)
    built = (module() if module else Net(drop)).to(kind).train(mode == "training")
    inputs = inputs or (torch.randn(8, 6).to(kind).T, torch.zeros(2, dtype=torch.int64))
    case = Case("net", built, inputs, {}, mode, kind, torch.device("cpu"), seed=seed)
    backend = BackendConfig(adapter, f"{__name__}.{adapter}" if adapter[0].isupper() else adapter)
    settings = Settings(ModelConfig("net"), backend=backend, mode=mode, dtype=dtype, seed=seed)
    return StageContext(settings, MemoryArtifacts(), {"case": case})


def run(context: StageContext, **options: Any) -> StageResult:
    stage = KernelDiffStage(KernelDiffConfig(**options))
    stage.check(context)
    return stage.run(context)


def stored(folder: Path, context: StageContext | None = None, **options: Any) -> tuple[str, StageResult]:
    """Run, write what it gives to ``folder`` as the runner does, and return both."""
    result = run(context or context_of(), **options)
    for name, content in result.artifacts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encode(name, content))
    return str(folder), result


def judged(result: StageResult) -> bytes:
    return encode("a.csv", result.artifacts["kerneldiff/outputs.csv"][VERDICT_COLUMNS])


def altered(folder: Path, change: Callable[[dict[str, Any]], None]) -> str:
    """Change ``golden.json`` and make its digests fit, as another machine would have written it."""
    file = folder / golden_store.FOLDER / "golden.json"
    about = json.loads(file.read_bytes())
    del about["sha256"]
    change(about)
    for name, told in about["files"].items():
        content = (file.parent / name).read_bytes()
        told |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    file.write_text(json.dumps(about | {"sha256": golden_store.digest(about)}))
    return str(folder)


@pytest.mark.parametrize(
    ("adapter", "mode", "drop"),
    [("aot_eager", "training", 0.5), ("inductor", "training", 0.0), ("Scaled", "inference", 0.0)],
)
def test_a_golden_judges_as_the_reference_itself(adapter: str, mode: str, drop: float, tmp_path: Path) -> None:
    source, first = stored(tmp_path, context_of(adapter, mode=mode, drop=drop))
    second = run(context_of(adapter, mode=mode, drop=drop), golden=source)
    assert judged(first) == judged(second)
    assert first.summary == second.summary and first.status == second.status
    assert second.status == ("failed" if adapter == "Scaled" else "passed"), second.message
    kinds = set(second.artifacts["kerneldiff/outputs.csv"]["kind"])
    assert kinds == {"output", "input"} | ({"loss", "gradient", "buffer"} if mode == "training" else set())
    assert f"{source} (torch {torch.__version__}, cpu)" in second.message
    assert not [name for name in second.artifacts if name.startswith("kerneldiff/golden/")]


@pytest.mark.parametrize("reference", [ReferenceConfig(dtype="float64"), ReferenceConfig(backend="aot_eager")])
def test_another_reference_is_stored_as_it_was(reference: ReferenceConfig, tmp_path: Path) -> None:
    context = context_of(mode="inference")
    context.settings.reference = reference
    source, first = stored(tmp_path, context)
    assert judged(first) == judged(run(context_of(mode="inference"), golden=source))
    with pytest.raises(ConfigurationError, match=r"reference\.backend=inductor"):
        context.settings.reference = ReferenceConfig(backend="inductor")
        run(context, golden=source)


def test_neither_reference_nor_gold_is_executed(tmp_path: Path) -> None:
    CALLS.clear()
    source, _ = stored(tmp_path, context_of(module=CountsEager, inputs=(torch.ones(2, 6),)))
    assert [torch.float32, torch.float64] == CALLS
    assert run(context_of(module=CountsEager, inputs=(torch.ones(2, 6),)), golden=source).status == "passed"
    assert len(CALLS) == 2


def test_a_golden_that_a_tolerance_decided_has_no_gold_and_says_so(tmp_path: Path) -> None:
    source, first = stored(tmp_path, rtol=1e-5)
    assert judged(first) == judged(run(context_of(), golden=source, rtol=1e-5))
    assert "no gold is stored there" in run(context_of(), golden=source).message


def test_stored_inputs_take_the_place_of_the_cases_own(tmp_path: Path) -> None:
    source, first = stored(tmp_path)
    context = context_of()
    x = context.case.args[0]
    x.add_(1)
    before = x.clone()
    assert judged(first) == judged(run(context, golden=source))
    assert torch.equal(x, before) and context.case.args[0] is x


def gate_context() -> StageContext:
    return context_of("Flipping", module=Gate, inputs=(torch.tensor([1.0 + 2.0**-23, 1.0, 1.0]),))


def test_perturbed_references_judge_where_eager_gives_the_stored_bits(tmp_path: Path) -> None:
    source, first = stored(tmp_path, gate_context())
    second = run(gate_context(), golden=source)
    assert "conditioning" in set(first.artifacts["kerneldiff/outputs.csv"]["bound"])
    assert judged(first) == judged(second) and second.status == "passed"
    assert "perturbed references were run here" in second.message


def moved(folder: Path, file: str, factor: float) -> None:
    """Multiply a stored output, as another machine would have computed it."""
    path = folder / golden_store.FOLDER / file
    tensors = load_file(path)
    save_file(tensors | {"output/output": tensors["output/output"] * factor}, path)


@pytest.mark.parametrize("gold", [1.0, 1 + 1e-12])
def test_perturbed_references_judge_where_float64_gives_the_stored_gold(gold: float, tmp_path: Path) -> None:
    stored(tmp_path, gate_context())
    moved(tmp_path, "reference.safetensors", 1 + 2**-23)
    moved(tmp_path, "gold.safetensors", gold)
    result = run(gate_context(), golden=altered(tmp_path, lambda about: None))
    assert result.status == "passed", result.message
    assert "where eager on cpu gives the stored gold in float64" in result.message


def test_perturbed_references_do_not_judge_where_eager_gives_other_numbers(tmp_path: Path) -> None:
    stored(tmp_path, gate_context())
    moved(tmp_path, "reference.safetensors", 1 + 2**-23)
    moved(tmp_path, "gold.safetensors", 1 + 1e-7)
    result = run(gate_context(), golden=altered(tmp_path, lambda about: None))
    assert result.summary["numerics"]["verdict"] == "defect"
    assert "perturbed references were not run" in result.message
    assert "gives neither the stored reference nor, in float64, the stored gold" in result.message


def test_perturbed_references_do_not_judge_where_the_device_is_not_here(tmp_path: Path) -> None:
    stored(tmp_path, gate_context())
    result = run(gate_context(), golden=altered(tmp_path, lambda about: about["made_with"].update(device="cuda:99")))
    assert "the reference is of cuda:99, which is not here" in result.message


def test_eager_is_not_exercised_against_its_own_golden_and_exact_against_a_foreign_one(tmp_path: Path) -> None:
    source, first = stored(tmp_path, context_of("eager"))
    assert first.summary["numerics"]["verdict"] == "not_exercised"
    assert run(context_of("eager"), golden=source).summary["numerics"]["verdict"] == "not_exercised"
    altered(tmp_path, lambda about: about["made_with"].update(torch="2.11.0", device="cuda:0"))
    foreign = run(context_of("eager"), golden=source)
    assert foreign.summary["numerics"]["verdict"] == "exact"
    assert "(torch 2.11.0, cuda:0)" in foreign.message


def test_another_seeds_weights_establish_nothing(tmp_path: Path) -> None:
    source, _ = stored(tmp_path)
    result = run(context_of(seed=1), golden=source)
    assert (result.status, result.summary["numerics"]["verdict"]) == ("failed", "not_established")
    assert "4 of 10 parameters and buffers" in result.message and "first.weight" in result.message
    assert "Try: seed=0 (this run has seed=1)" in result.message


def test_one_changed_weight_establishes_nothing(tmp_path: Path) -> None:
    source, _ = stored(tmp_path)
    context = context_of()
    with torch.no_grad():
        context.case.module.last.bias[0] += 1
    assert "1 of 10 parameters and buffers" in (message := run(context, golden=source).message)
    assert "last.bias" in message and "Try: the weights of that run" in message
    altered(tmp_path, lambda about: about["made_with"].update(cpu_capability="NEON"))
    message = run(context, golden=source).message
    assert "Try: stages.kerneldiff.store_golden=true in that run, which stores its weights too" in message
    assert "the same seed may draw other weights under cpu_capability NEON than under" in message


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_stored_weights_take_the_place_of_other_ones(dtype: str, tmp_path: Path) -> None:
    source, first = stored(tmp_path, context_of(dtype=dtype), store_golden=True)
    assert "with the weights" in first.artifacts["kerneldiff/diagnosis.json"]["golden"]
    context = context_of(dtype=dtype, seed=1)
    mine = context.case.module
    before = {name: tensor.clone() for name, tensor in mine.state_dict().items()}
    result = run(context, golden=source)
    assert judged(result) == judged(first)
    assert "whose weights were taken for 4 parameters and buffers" in result.message
    assert context.case.module is not mine
    assert all(torch.equal(before[name], tensor) for name, tensor in mine.state_dict().items())


def test_stored_weights_that_are_the_cases_own_change_nothing(tmp_path: Path) -> None:
    source, _ = stored(tmp_path, store_golden=True)
    context = context_of()
    mine = context.case.module
    assert "taken" not in run(context, golden=source).message
    assert context.case.module is mine


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "inference"}, "mode=training; this run has mode=inference"),
        ({"dtype": "bfloat16"}, "dtype=float32; this run has dtype=bfloat16"),
        ({"module": CountsEager, "inputs": (torch.ones(2, 6),)}, "weights of which"),
        ({"inputs": (torch.randn(7, 8), torch.zeros(2, dtype=torch.int64))}, "inputs of which 1 differ"),
    ],
)
def test_a_golden_of_something_else_is_a_configuration_error(
    options: dict[str, Any], told: str, tmp_path: Path
) -> None:
    source, _ = stored(tmp_path)
    with pytest.raises(ConfigurationError, match="Try:") as raised:
        KernelDiffStage(KernelDiffConfig(golden=source)).check(context_of(**options))
    assert told in str(raised.value) and source in str(raised.value)


def test_another_model_option_is_a_configuration_error_but_another_folder_is_not(tmp_path: Path) -> None:
    source, _ = stored(tmp_path)
    context = context_of()
    context.settings.model = ModelConfig("net", {"checkpoint": str(tmp_path)})
    assert run(context, golden=source).status == "passed"
    context.settings.model = ModelConfig("net", {"heads": 8})
    with pytest.raises(ConfigurationError, match=r"model\.build\.heads=8"):
        run(context, golden=source)


def damage(folder: Path, name: str, how: str) -> None:
    file = folder / golden_store.FOLDER / name
    content = bytearray(file.read_bytes())
    if how == "missing":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(content[:-3])
    else:
        content[-4] ^= 1
        file.write_bytes(content)


@pytest.mark.parametrize("how", ["missing", "truncated", "one bit"])
@pytest.mark.parametrize("name", ["reference.safetensors", "gold.safetensors", "inputs.safetensors", "golden.json"])
def test_a_damaged_golden_is_a_configuration_error(
    name: str, how: str, tmp_path: Path, whole: tuple[str, StageResult]
) -> None:
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    damage(tmp_path, name, how)
    with pytest.raises(ConfigurationError, match=r"stages\.kerneldiff\.golden") as raised:
        golden.open_golden(str(tmp_path))
    assert name in str(raised.value) and "Try:" in str(raised.value)


def test_files_that_do_not_fit_golden_json_are_a_configuration_error(
    tmp_path: Path, whole: tuple[str, StageResult]
) -> None:
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    save_file({"output/logits": torch.zeros(1)}, tmp_path / golden_store.FOLDER / "reference.safetensors")
    source = altered(tmp_path, lambda about: None)
    with pytest.raises(ConfigurationError, match="does not hold what"):
        run(context_of(), golden=source)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, StageResult]:
    return stored(tmp_path_factory.mktemp("whole"))


def test_what_is_stored_can_be_read_without_this_program(whole: tuple[str, StageResult]) -> None:
    folder = Path(whole[0]) / golden_store.FOLDER
    assert set(load_file(folder / "inputs.safetensors")) == {"x", "cache"}
    reference, gold = load_file(folder / "reference.safetensors"), load_file(folder / "gold.safetensors")
    assert set(reference) == set(gold)
    assert {"output/logits", "loss/loss", "gradient/first.weight", "input/cache"} <= set(reference)
    assert "buffer/norm.running_mean" in reference and "buffer/untouched" not in reference
    assert gold["output/logits"].dtype == torch.float64
    about = json.loads((folder / "golden.json").read_bytes())
    others = {leaf["path"]: leaf["type"] for leaf in about["leaves"]["reference"] if leaf["type"] != "tensor"}
    assert others == {"states[1]": "NoneType", "steps": "int", "name": "str", "none": "list"}
    assert about["seed"] == 0 and len(about["weights"]["sha256"]) == len(about["inputs"]["sha256"]) == 64


def test_too_large_a_reference_is_stored_only_if_forced(tmp_path: Path) -> None:
    def large() -> StageContext:
        rows = golden_store.LIMIT // (6 * (4 + 8 + 4)) + 1  # an output, its gold and an input
        return context_of("eager", module=lambda: nn.Linear(6, 6), inputs=(torch.ones(rows, 6),), mode="inference")

    source, result = stored(tmp_path, large())
    assert not (tmp_path / golden_store.FOLDER).exists()
    note = result.artifacts["kerneldiff/diagnosis.json"]["golden"]
    assert "not stored: it takes" in note and "store_golden=true" in note
    with pytest.raises(ConfigurationError, match="not stored: it takes"):
        golden.open_golden(source)
    assert f"{golden_store.FOLDER}/golden.json" in run(large(), store_golden=True).artifacts


def test_nothing_is_stored_where_the_user_says_so_and_both_options_are_an_error(
    tmp_path: Path, whole: tuple[str, StageResult]
) -> None:
    source, _ = stored(tmp_path, store_golden=False)
    assert not (tmp_path / golden_store.FOLDER).exists()
    with pytest.raises(ConfigurationError, match="store_golden=false"):
        golden.open_golden(source)
    with pytest.raises(ConfigurationError, match="one of the two"):
        run(context_of(), golden=whole[0], store_golden=True)


def test_every_kind_of_leaf_comes_back_as_it_was() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    values = {
        "float": 0.1, "nan": float("nan"), "complex": complex(0.5, -0.0), "bool": True, "false": False, "big": 2**80,
        "bytes": b"\x00\xff", "text": "ä\n", "empty": {}, "tuple": (), "None": None,
    }  # fmt: skip
    tensors = {
        "base": whole, "view": whole[1], "transposed": whole.T, "expanded": torch.ones(1, 3).expand(4, 3),
        "scalar": torch.tensor(2.5), "nothing": torch.zeros(0, 3), "bool": torch.tensor([True]),
        "complex": torch.tensor([1 + 2j]).conj(), "wide": torch.tensor(1j, dtype=torch.complex128),
        "unsigned": torch.tensor([65535], dtype=torch.uint16), "unsigned scalar": torch.tensor(3, dtype=torch.uint32),
        "tiny": torch.tensor([1.5, 0.25]).to(torch.float8_e4m3fn), "sparse": torch.eye(3).to_sparse(),
        "brain": torch.tensor([1.5], dtype=torch.bfloat16),
    }  # fmt: skip
    records, packed = packing.pack({"output": values, "gradient": tensors})
    loaded = packing.unpack(json.loads(encode("a.json", records)), load(packing.serialise(packed)))
    assert list(loaded["output"]) == list(values) and list(loaded["gradient"]) == list(tensors)
    assert [repr(value) for value in loaded["output"].values()] == [repr(value) for value in values.values()]
    for name, tensor in tensors.items():
        back = loaded["gradient"][name]
        dense = tensor.to_dense() if tensor.is_sparse else tensor
        assert back.dtype == tensor.dtype and packing.tensor_digest(back) == packing.tensor_digest(dense), name


class GivesAnObject(nn.Module):
    def forward(self, x: torch.Tensor) -> list[Any]:
        return [x + 1, {1, 2}]


def test_what_can_not_be_stored_is_told() -> None:
    result = run(context_of("eager", module=GivesAnObject, inputs=(torch.ones(2),), mode="inference"))
    note = result.artifacts["kerneldiff/diagnosis.json"]["golden"]
    assert note == "not stored: output output[1] is an object of type set, which can't be stored"
