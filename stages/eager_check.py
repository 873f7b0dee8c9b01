"""One eager step before the first stage: a model that its own inputs don't fit can't be compiled, compared or timed."""

import inspect
import re
import traceback

import torch

from inductor_debug.models import build, huggingface
from inductor_debug.models.blame import fields_spoken_of, identifiers_in, missing_package
from inductor_debug.models.case import Case
from inductor_debug.models.errors import ConfigurationError, UserError, is_out_of_memory, root_cause
from inductor_debug.models.huggingface_input_maker import is_tensor
from inductor_debug.models.huggingface_inputs import shape_to_try
from inductor_debug.models.loss import training_loss
from inductor_debug.models.random_state import seed_everything
from inductor_debug.models.torch_text import DEVICE_ERRORS, is_about_dtype
from inductor_debug.stages.contract import StageContext
from inductor_debug.stages.graphs.records import SourceLine
from inductor_debug.stages.graphs.sources import SourceFinder
from inductor_debug.stages.settings import Settings
from inductor_debug.stages.torch_internals.fx_values import shape_of

SHOWN = 16
"""Names that a message lists."""
_JUDGED = ("cpu", "cuda")
"""Devices on which eager mode runs all that torch has; a vendor's may lack operators and be reached by compiling."""
_OURS = (__file__, *(str(inspect.getfile(item)) for item in (build, huggingface, Case, StageContext)))
ERROR_LENGTH = 400
"""Characters of an error that a message has."""


def check_eager(case: Case, settings: Settings) -> None:
    """Take one step of the case in eager mode, in training with loss and backward. The case is left as found.

    What runs out of memory, or is the device's own failure, is no mistake: the stages meet it again. Nor is anything
    judged where eager mode is not what the model is held against: ``reference.backend`` is another, or the device is
    not torch's own.

    Raises:
        ConfigurationError: the step raised: the inputs that were made, what forward takes besides, the model's line.
    """
    if case.device.type not in _JUDGED or not settings.reference.uncompiled:
        return
    with case.preserved():
        seed_everything(case.seed)
        try:
            case.step()
            case.synchronize()
        except UserError:
            raise
        except Exception as error:
            if _not_the_models(error):
                raise
            raise ConfigurationError(_message(case, settings, error)) from error


def built_case(context: StageContext) -> Case:
    """The context's case, built where it is not.

    Raises:
        ConfigurationError: the callable of ``model.build._target_`` raised; what it raised, and at which line. What
            runs out of memory is passed on.
    """
    try:
        return context.case
    except UserError:
        raise
    except Exception as error:
        if _not_the_models(error):
            raise
        model, package = context.settings.model, missing_package(error)
        line = _line(None, error)
        install = f"pip install {package}, or " if package else ""
        raise ConfigurationError(
            f"model={model.name}: {model.build.get('_target_')} raised {_raised(error, line)}\n"
            f"Nothing ran.\nTry: {install}call it in Python, with the arguments of model.build"
        ) from error


def _not_the_models(error: Exception) -> bool:
    """Memory, the device, and our own loss: the stages meet them again."""
    if is_out_of_memory(error) or type(root_cause(error)).__name__ in DEVICE_ERRORS:
        return True
    return any(frame.name == training_loss.__name__ for frame in traceback.extract_tb(error.__traceback__))


def _raised(error: Exception, line: SourceLine | None) -> str:
    """Type and words of an error, shortened, and the line that raised it."""
    said = " ".join(str(error).split()) or "nothing"
    said = said if len(said) <= ERROR_LENGTH else f"{said[:ERROR_LENGTH]}…"
    place = f"\n  at {line}{f': {line.code}' if line.code else ''}" if line is not None else ""
    return f"{type(error).__name__}: {said}{place}"


def _message(case: Case, settings: Settings, error: Exception) -> str:
    module = case.module
    told = _raised(error, _line(module, error))
    step = "forward" if case.mode == "inference" else "step (forward, loss and backward)"
    given = _given(case)
    lines = [
        f"model={settings.model.name}: {type(module).__name__}'s own eager {step} raised {told}",
        f"  inputs made: {', '.join(f'{name} {tensor}' for name, tensor in given.items()) or 'none'}",
    ]
    missing = _not_given(module, case, error)
    if missing:
        rest = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        lines.append(f"  not given, of what forward takes: {', '.join(missing[:SHOWN])}{rest}")
    lines.append(f"Nothing ran.\nTry: {_try(case, missing, settings, error)}")
    return "\n".join(lines)


def _line(module: torch.nn.Module | None, error: Exception) -> SourceLine | None:
    """The model's own innermost line that the error passed through."""
    frames = [
        SourceLine(frame.filename, frame.lineno or 0, (frame.line or "").strip(), frame.name)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in _OURS
    ]
    return SourceFinder(module).own_frame(frames)


def _given(case: Case) -> dict[str, str]:
    return {
        path: f"{str(tensor.dtype).removeprefix('torch.')} {shape_of(tensor)}"
        for path, tensor in case.named_inputs().items()
    }


def _not_given(module: torch.nn.Module, case: Case, error: Exception) -> list[str]:
    """What forward takes by name and was not given; what the error speaks of comes first."""
    parameters = inspect.signature(module.forward).parameters.values()
    bound = inspect.signature(module.forward).bind_partial(*case.args, **case.kwargs).arguments
    names = [item.name for item in parameters if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)]
    spoken = identifiers_in(error)
    return sorted((name for name in names if bound.get(name) is None), key=lambda name: name not in spoken)


def _try(case: Case, missing: list[str], settings: Settings, error: Exception) -> str:
    model, said = settings.model, str(error)
    tries = []
    if settings.dtype != "float32" and is_about_dtype(said):
        tries.append("dtype=float32")
    if "input_shapes" in model.build:
        parameters = inspect.signature(case.module.forward).parameters
        tensors = [name for name in missing if is_tensor(parameters[name])]
        named = identifiers_in(error) if "None" in said else re.findall(r"\w+", said)
        spoken = [name for name in tensors if name in named]
        config = getattr(case.module, "config", None)
        if spoken or (tensors and "None" in said and config is None):  # else a field may as well be None
            name = (spoken or tensors)[0]
            shape = shape_to_try(name, model.batch_size, model.sequence_length)
            tries.append(f"'+model.build.input_shapes.{name}={shape}'")
        made = case.named_inputs()
        if not tries and made:
            named = identifiers_in(error)
            name = next((name for name in made if name in named), next(iter(made)))
            shape = str(list(made[name].shape)).replace(" ", "")
            tries.append(f"'+model.build.input_shapes.{name}={shape}' with another shape")
        if hasattr(config, "to_dict"):
            fields = fields_spoken_of(config, error) or ["FIELD"]
            tries.append(f"'+model.build.overrides.{fields[0]}=VALUE' with another value than it has")
    else:
        tries.append(f"call the module on its inputs as {model.build.get('_target_')} returns them, in eager mode")
    tries.append(
        f"model.inputs=FILE.safetensors with tensors by forward's names{' (any of the above)' * bool(missing)}"
    )
    return ", or ".join(tries)
