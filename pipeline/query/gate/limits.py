"""How much worse a result may be: the limits, and the YAML file that changes them."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import ConfigurationError, closest_first, invalid_choice, shown, wrong_value
from inductor_debug.models.options import choices_of, chosen, range_of, real, whole
from inductor_debug.models.stored import read_own_yaml
from inductor_debug.models.visible import visible
from inductor_debug.models.yaml_limits import loader

OPTION = "--limits"
VERDICTS = ("exact", "within_floor", "within_tolerance", "not_exercised", "not_established", "defect")
"""From best to worst."""
_NULL = "or null: it is not judged"
IN_WORDS = {
    "case": "at most {} settings of the case may differ (model, mode, dtype, precision, seed, device, reference)",
    "stages": "at most {} stages may end worse, the run's verdict counted as one",
    "findings": "at most {} findings of constrain may be new, or of a worse severity",
    "cost_bytes": "the findings of a rule and effect may cost {} times as many bytes",
    "verdict": "a tensor's verdict, or the run's on numbers, may be as bad as A's, or as {}",
    "error": "a tensor's error, in noise floors, may be {} times as large; below one floor it is noise",
    "local_error": "an operation's error may be {} times as large, and not one operation more may be wrong",
    "breaks": "at most {} more graph breaks",
    "guards": "at most {} more guards",
    "nodes": "at most {} more nodes of AOTAutograd's graphs",
    "kernels": "at most {} more launches of kernels in a step",
    "mapped": "a share of {} of the launches may lose its source line",
    "compile_s": "compilation may take {} times as many seconds, which each run measures once",
    "latency": "a step may take {} times as long: the 95 % interval of the ratio must be beyond it",
    "peak_memory": "a step may need {} times as many bytes at its highest point",
}
"""Key of a limit → what its value allows."""


@dataclass(frozen=True)
class Limits:
    """What B may be worse by than A, each as :data:`IN_WORDS` says. None (``null``): it is not judged."""

    case: int | None = whole(0)
    stages: int | None = whole(0)
    findings: int | None = whole(0)
    cost_bytes: float | None = real(1.0, least=1.0)
    verdict: str | None = chosen("within_floor", VERDICTS)
    error: float | None = real(2.0, least=1.0)
    local_error: float | None = real(2.0, least=1.0)
    breaks: int | None = whole(0)
    guards: int | None = whole(0)
    nodes: int | None = whole(0)
    kernels: int | None = whole(0)
    mapped: float | None = real(0.0, most=1.0)
    compile_s: float | None = real(1.5, least=1.0)
    latency: float | None = real(1.05, least=1.0)
    peak_memory: float | None = real(1.05, least=1.0)

    @property
    def left_out(self) -> list[str]:
        """The keys that are not judged."""
        return [key for key, value in vars(self).items() if value is None]


def read_limits(path: Path) -> Limits:
    """The limits of a YAML file, a key a line; a key that it does not have is at its default.

    Raises:
        ConfigurationError: there is no such file, it is no mapping, or a key or a value is not valid.
    """
    import yaml

    file = visible(str(path))
    try:
        found = yaml.load(read_own_yaml(path), loader())
    except FileNotFoundError:
        raise _no_limits(f"no file {file!r}") from None
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise _no_limits(f"{file}, which is not YAML ({visible(' '.join(str(error).split()))})") from error
    found = {} if found is None else found
    if not isinstance(found, dict):
        raise _no_limits(f"{shown(found)} in {file}, which is no mapping")
    for key, value in found.items():
        _check(key, value, file)
    return Limits(**found)


def _check(key: Any, value: Any, file: str) -> None:
    """ConfigurationError where there is no such key, or it takes no such value."""
    fields = {item.name: item for item in dataclasses.fields(Limits)}
    if key not in fields:
        near = closest_first(str(key), fields)
        raise ConfigurationError(
            "no such limit", key=visible(str(key)), place=file, valid=", ".join(near), hint=_line(fields[near[0]])
        )
    item = fields[key]
    declared, choices = range_of(item), choices_of(item)
    if value is None or (value in choices if declared is None else declared.holds(value)):
        return
    if declared is None:
        wrong = invalid_choice(key, value, choices, where=file, example=f"{key}: {{}}")
        raise wrong.with_parts(valid=f"{wrong.valid}, {_NULL}")
    raise wrong_value(key, value, f"{declared.valid(value)}, {_NULL}", "", where=file).with_parts(hint=_line(item))


def _line(item: "dataclasses.Field[Any]") -> str:
    """What to type into the file for a key."""
    return f"{item.name}: {item.default}"


def _no_limits(got: str) -> ConfigurationError:
    keys = ", ".join(item.name for item in dataclasses.fields(Limits))
    valid = f"a YAML file with limits, a line each: {keys}"
    return ConfigurationError(f"got {got}", key=OPTION, valid=valid, hint=f"{OPTION} limits.yaml, with latency: 1.1")
