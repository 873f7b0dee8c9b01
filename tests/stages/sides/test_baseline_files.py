"""The files of a baseline run: what is stored, what is not, and a damaged one is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from baseline_runs import altered, context_of, run, stored
from safetensors.torch import load, load_file, save_file
from torch import nn

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.models.shapes import reader
from inductor_debug.stages.artifacts.baseline import AnyLeaf
from inductor_debug.stages.contract import StageContext, StageResult
from inductor_debug.stages.encoding import encode
from inductor_debug.stages.sides import baseline as baseline
from inductor_debug.stages.sides import baseline_store as baseline_store
from inductor_debug.stages.sides import packing


def damage(folder: Path, name: str, how: str) -> None:
    file = folder / baseline_store.FOLDER / name
    content = bytearray(file.read_bytes())
    if how == "missing":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(content[:-3])
    else:
        content[-4] ^= 1
        file.write_bytes(content)


@pytest.mark.parametrize("how", ["missing", "truncated", "one bit"])
@pytest.mark.parametrize("name", ["reference.safetensors", "gold.safetensors", "inputs.safetensors", "baseline.json"])
def test_a_damaged_baseline_is_a_configuration_error(
    name: str, how: str, tmp_path: Path, whole: tuple[str, StageResult]
) -> None:
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    damage(tmp_path, name, how)
    with pytest.raises(ConfigurationError, match=r"stages\.kerneldiff\.baseline") as raised:
        baseline.open_baseline(str(tmp_path))
    assert name in str(raised.value) and "Try:" in str(raised.value)


def test_a_baseline_by_its_former_name_is_read_and_damage_of_it_is_told(
    tmp_path: Path, whole: tuple[str, StageResult]
) -> None:
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    former = tmp_path.joinpath(*baseline_store.FORMER)
    (tmp_path / baseline_store.FOLDER).rename(former.parent)
    (former.parent / baseline_store.FILE).rename(former)
    assert baseline.open_baseline(str(tmp_path)).about.files.keys() >= {"reference.safetensors", "gold.safetensors"}
    former.write_text("{")
    with pytest.raises(ConfigurationError, match=r"golden\.json can't be read"):
        baseline.open_baseline(str(tmp_path))


def test_files_that_do_not_fit_baseline_json_are_a_configuration_error(
    tmp_path: Path, whole: tuple[str, StageResult]
) -> None:
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    save_file({"output/logits": torch.zeros(1)}, tmp_path / baseline_store.FOLDER / "reference.safetensors")
    source = altered(tmp_path, lambda about: None)
    with pytest.raises(ConfigurationError, match="does not hold what"):
        run(context_of(), baseline=source)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, StageResult]:
    return stored(tmp_path_factory.mktemp("whole"))


def test_what_is_stored_can_be_read_without_this_program(whole: tuple[str, StageResult]) -> None:
    folder = Path(whole[0]) / baseline_store.FOLDER
    assert set(load_file(folder / "inputs.safetensors")) == {"x", "cache"}
    reference, gold = load_file(folder / "reference.safetensors"), load_file(folder / "gold.safetensors")
    assert set(reference) == set(gold)
    assert {"output/logits", "loss/loss", "gradient/first.weight", "input/cache"} <= set(reference)
    assert "buffer/norm.running_mean" in reference and "buffer/untouched" not in reference
    assert gold["output/logits"].dtype == torch.float64
    about = json.loads((folder / "baseline.json").read_bytes())
    others = {leaf["path"]: leaf["type"] for leaf in about["leaves"]["reference"] if leaf["type"] != "tensor"}
    assert others == {"states[1]": "NoneType", "steps": "int", "name": "str", "none": "list"}
    assert about["seed"] == 0 and len(about["weights"]["sha256"]) == len(about["inputs"]["sha256"]) == 64


def test_a_baseline_with_the_former_training_loss_is_told(tmp_path: Path, whole: tuple[str, StageResult]) -> None:
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    source = altered(tmp_path, lambda about: about["settings"].pop("loss"))
    with pytest.raises(
        ConfigurationError, match=r"another training loss \(mean square\)[\s\S]*Try: inductor-debug rerun"
    ):
        run(context_of(), baseline=source)


def test_too_large_a_reference_is_stored_only_if_forced(tmp_path: Path) -> None:
    def large() -> StageContext:
        rows = baseline_store.LIMIT // (6 * (4 + 8 + 4)) + 1  # an output, its gold and an input
        return context_of("eager", module=lambda: nn.Linear(6, 6), inputs=(torch.ones(rows, 6),), mode="inference")

    source, result = stored(tmp_path, large())
    assert not (tmp_path / baseline_store.FOLDER).exists()
    note = result.artifacts["kerneldiff/diagnosis.json"].baseline
    assert "not stored: it takes" in note and "store_baseline=true" in note
    with pytest.raises(ConfigurationError, match="not stored: it takes"):
        baseline.open_baseline(source)
    assert f"{baseline_store.FOLDER}/baseline.json" in run(large(), store_baseline=True).artifacts


def test_nothing_is_stored_where_the_user_says_so_and_both_options_are_an_error(
    tmp_path: Path, whole: tuple[str, StageResult]
) -> None:
    source, _ = stored(tmp_path, store_baseline=False)
    assert not (tmp_path / baseline_store.FOLDER).exists()
    with pytest.raises(ConfigurationError, match="store_baseline=false"):
        baseline.open_baseline(source)
    with pytest.raises(ConfigurationError, match="one of the two"):
        run(context_of(), baseline=whole[0], store_baseline=True)


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
    stored = reader(list[AnyLeaf])(json.loads(encode("a.json", records)))
    loaded = packing.unpack(stored, load(packing.serialise(packed)))
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
    note = result.artifacts["kerneldiff/diagnosis.json"].baseline
    assert note == "not stored: output output[1] is an object of type set, which can't be stored"
