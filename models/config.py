"""What a user may say of a model. Imports neither torch nor Hydra."""

from dataclasses import dataclass, field
from typing import Any

from inductor_debug.models.options import whole

DTYPES = ("float64", "float32", "float16", "bfloat16")
MODES = ("inference", "training")
PRECISIONS = ("cast", "autocast")
TF32 = ("none", "convolutions", "all")


@dataclass
class ModelConfig:
    """One model and its inputs.

    Attributes:
        name: name of the configuration, used in the run directory's name.
        build: ``{"_target_": "package.module.callable", **arguments}``. The callable gets the arguments, plus
            ``batch_size``, ``sequence_length`` and ``image_size`` where its signature names them. It returns ``module,
            args`` or ``module, args, kwargs`` (args a tuple, kwargs a dict).
        batch_size: leading dimension of the inputs.
        sequence_length: tokens in a sequence, for models that read sequences.
        image_size: height and width in pixels, for models that read images.
        inputs: a ``.safetensors`` file of real inputs that replace the made ones, by argument name; what forward takes
            and was not made is given too.
        exercise: draw weights that an initialization leaves constant, and make masks ragged (:mod:`models.exercise`);
            never those of a checkpoint, or inputs that are not made here.
    """

    name: str = "???"
    build: dict[str, Any] = field(default_factory=dict)
    batch_size: int = whole(1, least=1)
    sequence_length: int = whole(128, least=1)
    image_size: int = whole(224, least=1)
    inputs: str | None = None
    exercise: bool = True
