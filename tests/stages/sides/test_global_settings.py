"""Settings of the whole process: put back, and told where they are not torch's own."""

import pytest
import torch

from inductor_debug.stages.sides.global_settings import SETTINGS, not_default, settings_put_back

OTHERS = {
    "torch.set_default_dtype": torch.float64,
    "torch.set_grad_enabled": False,
    "torch.set_num_threads": 3,
    "torch.set_float32_matmul_precision": "medium",
    "torch.use_deterministic_algorithms": (True, True),
    "torch.backends.cudnn.benchmark": True,
    "torch.backends.cudnn.deterministic": True,
    "torch.backends.cuda.enable_flash_sdp": False,
    "torch.backends.cuda.enable_mem_efficient_sdp": False,
    "torch.backends.cuda.enable_math_sdp": False,
    "torch.backends.cuda.enable_cudnn_sdp": False,
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_changed_setting_is_told_and_put_back(name: str) -> None:
    setting = SETTINGS[name]
    before, others = setting.read(), not_default()
    assert name not in others
    with settings_put_back() as changed:
        setting.write(OTHERS[name])
        threads = name == "torch.set_num_threads"  # the machine decides
        assert not_default() == others | ({} if threads else {name: str(OTHERS[name])})
    assert changed == [f"{name} ({before} before, {OTHERS[name]} after)"]
    assert setting.read() == before


def test_settings_are_put_back_where_torchs_own_tests_froze_them() -> None:
    """Which importing them does, for the whole process."""
    import torch.testing._internal.common_utils  # noqa: F401

    test_a_changed_setting_is_told_and_put_back("torch.backends.cudnn.benchmark")
