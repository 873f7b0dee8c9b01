"""The words of a grid over a profile's fields."""

import pytest

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.accelerators.profile import validate_profile
from inductor_debug.stages.constrain.grid import parse_grid


def test_a_field_of_a_grid_may_come_twice_and_a_value_is_one_point() -> None:
    assert parse_grid(["alignment=1:4", "max_rank=2", "alignment=4,8"]) == {
        "alignment": [1, 2, 3, 4, 8],
        "max_rank": [2],
    }
    with pytest.raises(ConfigurationError, match="got 120,000 points"):
        parse_grid(["alignment=1:60000", "alignment=1:60000"])


@pytest.mark.parametrize("word", ["dtypes=float32,bfloat16", "tile=[8,128]", "max_ranks=2"])
def test_what_is_to_be_typed_for_a_grid_can_be(word: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_grid([word])
    told = str(caught.value).partition("Try: --grid ")[2]
    ((name, values),) = parse_grid([told]).items()
    assert values and validate_profile(AccelConfig(**{name: values[0]}), {})
