"""A model whose own eager forward raises: exit code 2, one message, and nothing left behind; unless memory ran out."""

from pathlib import Path

import torch
from command_line import command
from safetensors.torch import save_file

STAGES = "stages=[capture,constrain,report]"


def test_a_forward_that_lacks_an_input_runs_once_it_is_given(tmp_path: Path) -> None:
    model = ("model=custom", "model.build._target_=small_models.masked", STAGES)
    rejected = command(*model, cwd=tmp_path)
    assert rejected.returncode == 2, rejected.stderr
    assert "model=custom: Masked's own eager forward raised AttributeError: 'NoneType'" in rejected.stderr
    assert "small_models.py:" in rejected.stderr and "not given, of what forward takes: mask" in rejected.stderr
    assert "Traceback" not in rejected.stderr and not list(tmp_path.glob("outputs/*/*"))
    save_file({"mask": torch.ones(2)}, tmp_path / "mask.safetensors")
    passed = command(*model, "model.inputs=mask.safetensors", cwd=tmp_path)
    assert passed.returncode == 0, passed.stderr


def test_a_guess_that_does_not_fit_says_what_to_type(tmp_path: Path) -> None:
    fields = {"hidden_size": 32, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 64}
    fields |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    small = str(fields).replace("'", "")
    rejected = command("model=huggingface", "model.build.config=SpeechT5Config", f"+model.build.overrides={small}",
                       STAGES, cwd=tmp_path)  # fmt: skip
    assert rejected.returncode == 2, rejected.stderr
    assert "SpeechT5Model's own eager forward raised" in rejected.stderr and "inputs made: input_" in rejected.stderr
    assert "Try: '+model.build.input_shapes." in rejected.stderr and "Traceback" not in rejected.stderr


def test_memory_that_runs_out_is_the_stages_result(tmp_path: Path) -> None:
    finished = command("model=custom", "model.build._target_=small_models.huge", STAGES, cwd=tmp_path)
    assert finished.returncode == 3 and "ran out of memory" in finished.stdout
