"""Tab completion of ``inductor-debug`` and of ``python -m pipeline`` for bash, zsh and fish.

``inductor-debug completion SHELL`` prints a script. The shell's function in it asks ``inductor-debug complete``, or
``python -m inductor_debug complete``, for the words that may stand at the cursor.
"""

import itertools
import re
import shlex
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from inductor_debug.models.errors import UserError
from inductor_debug.models.options import choices_of, items_of
from inductor_debug.pipeline.config.arguments import FORMATS, config_dir_of, flags
from inductor_debug.pipeline.config.help import GROUPS, options
from inductor_debug.pipeline.config.keys import selected_stages
from inductor_debug.pipeline.config.schema_fields import field_of, leaves
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.summary import EXIT_CODES
from inductor_debug.pipeline.loudness import QUIET_FLAGS, VERBOSE_FLAGS
from inductor_debug.pipeline.query.list_command import FILTERS
from inductor_debug.stages.artifacts.files import REPRO
from inductor_debug.stages.backends.plugins import installed_adapters
from inductor_debug.stages.registry import declared
from inductor_debug.stages.settings import BUILT_IN
from inductor_debug.stages.torch_internals.registered_names import registered_names

if TYPE_CHECKING:
    from typer import Typer

_MAKE_A_RUN = ("rerun", "minify")
"""Commands that take a run, and the words of a run's command line."""
MODULES = ("pipeline", "inductor_debug.pipeline")
_OWN_FLAGS = (*QUIET_FLAGS, *VERBOSE_FLAGS)
_RUNS = ("run", "runs", "arguments")
"""Arguments of commands that name stored runs."""
_TAKE_A_VALUE = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--package", "-p")


def script(shell: str) -> str:
    """What a shell evaluates to complete both commands; bash, zsh or fish."""
    return Path(__file__).with_suffix(f".{shell}").read_text(encoding="utf-8")


def candidates(line: str, app: "Typer") -> list[str]:
    """Whole words that may stand in the place of the last one of ``line``, which ends at the cursor.

    One that ends in ``=``, ``.``, ``[``, ``,`` or ``/`` goes on; any other is finished.
    """
    words, _ = _split(line)
    current = words.pop()
    arguments = _after_module(words)
    if arguments is not None:
        found = overrides(arguments, current)
    elif Path(words[0] if words else "").name == "inductor-debug":
        found = _commands(words[1:], current, app)
    else:
        found = []
    return sorted({word for word in found if word.startswith(current)})


def _split(line: str) -> tuple[list[str], bool]:
    """The words of a command line, the last one as far as it is typed (empty behind a blank); is a quote open?"""
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(line + closing)
        except ValueError:  # a quote is open
            continue
        behind = not words or (line[-1:].isspace() and not closing)
        return ([*words, ""] if behind else words), bool(closing)
    return [*line.split(), ""], False


def _after_module(words: Sequence[str]) -> list[str] | None:
    """The arguments of ``python -m pipeline``; None for another command."""
    for index, word in enumerate(words[:-1]):
        if word == "-m":
            return list(words[index + 2 :]) if words[index + 1] in MODULES else None
    return None


@dataclass(frozen=True)
class Parameter:
    """What a command of ``inductor-debug`` takes.

    Attributes:
        options: its spellings; empty for an argument.
        takes_value: False for a flag.
        choices: its closed set, empty where it has none.
        runs: True for an argument that is a stored run.
    """

    options: tuple[str, ...]
    takes_value: bool
    choices: tuple[str, ...]
    runs: bool


def command_parameters(app: "Typer") -> dict[str, list[Parameter]]:
    """Command → its parameters, of the annotations from which typer makes them."""
    from typer.models import OptionInfo

    from inductor_debug.pipeline import query as analysis

    found: dict[str, list[Parameter]] = {}
    for command in app.registered_commands:
        assert command.callback is not None and command.name is not None
        found[command.name] = []
        for name, hint in typing.get_type_hints(command.callback, include_extras=True).items():
            kind, *told = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint, None)
            if told[0] is None:  # no parameter of the command line: the context, or what is returned
                continue
            spelt = (told[0].default, *(told[0].param_decls or ()))  # in Annotated the first one is taken for a default
            options = tuple(word for word in spelt if isinstance(word, str) and isinstance(told[0], OptionInfo))
            members = [member.value for member in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []
            choices = tuple(analysis.questions()) if "--type" in options else tuple(members)
            found[command.name].append(Parameter(options, kind is not bool, choices, name in _RUNS))
    return found


def _commands(words: Sequence[str], current: str, app: "Typer") -> list[str]:
    """Completions of ``inductor-debug``: a command, then what it takes."""
    words = words[sum(1 for _ in itertools.takewhile(_OWN_FLAGS.__contains__, words)) :]
    if words[:1] == ["run"]:
        return overrides(words[1:], current)
    commands = command_parameters(app)
    if not words:
        return [*commands, "--help", *_OWN_FLAGS]
    command, given = words[0], words[1:]
    parameters = commands.get(command, [])
    for parameter in parameters:
        if given and given[-1] in parameter.options and parameter.takes_value:
            return _profile_fields() if "--grid" in parameter.options else list(parameter.choices)
        option, equals, _ = current.partition("=")
        if equals and option in parameter.options:
            return [f"{option}={choice}" for choice in parameter.choices]
    if current.startswith("-"):
        own = _OWN_FLAGS if command in _MAKE_A_RUN else ()
        return ["--help", *own, *(name for parameter in parameters for name in parameter.options)]
    if command in _MAKE_A_RUN and given:
        return overrides(given[1:], current)
    if command in ("list", "clean"):
        return _columns(current)
    if command == "repro" and given:
        return _scripts(given[0])
    found = [choice for parameter in parameters if not parameter.options for choice in parameter.choices]
    if any(parameter.runs for parameter in parameters):
        found += _runs(given)
    if command == "check":
        found += [word for word in overrides(given, current) if word.startswith(("accel=", "accel."))]
    return found


def _profile_fields() -> list[str]:
    """What a grid may vary."""
    return [f"{leaf.removeprefix('accel.')}=" for leaf in leaves() if leaf.startswith("accel.")]


def _columns(current: str) -> list[str]:
    """``KEY=PATTERN`` of the table of runs; a pattern may be one of several, parted by commas."""
    key, equals, value = current.partition("=")
    if not equals:
        return [f"{name}=" for name in FILTERS]
    known = [*EXIT_CODES, store.NO_RESULT, store.DAMAGED] if key == "verdict" else _choices(key, ())
    before = value[: value.rfind(",") + 1]
    return [f"{key}={before}{choice}" for choice in known if " " not in choice and choice not in before.split(",")]


def _scripts(run: str) -> list[str]:
    """The file names of a run's reproductions."""
    return [path.name for path in (store.locate(Path(run)) / REPRO.folder).glob("*.py")]


def _runs(given: Sequence[str]) -> list[str]:
    try:
        found = [str(run) for run in store.find_runs(store.OUTPUTS)]
        return [run for run in (*found, *([str(store.LATEST)] if found else ())) if run not in given]
    except UserError:  # no run has been made here
        return []


def overrides(given: Sequence[str], current: str) -> list[str]:
    """Completions of a run's arguments.

    Args:
        given: those before the word at the cursor.
        current: that word, as far as it is typed.
    """
    if given and given[-1] in _TAKE_A_VALUE:
        return []  # a path, or a name in a folder that is not ours
    if given and given[-1] == "--format":
        return list(FORMATS)
    if current.startswith("-"):
        return flags()
    signs = re.match(r"[+~]*", current)
    prefix = signs[0] if signs else ""
    key, equals, value = current[len(prefix) :].partition("=")
    if equals:
        return [f"{prefix}{key}={word}" for word in _values(key, value, given)]
    keys = [*(f"{group}=" for group in (*GROUPS, "stages")), *(f"{leaf}=" for leaf in leaves(selected_stages(given)))]
    if prefix.startswith("~"):
        keys = [f"stages.{name}" for name in selected_stages(given)]
    return [prefix + word for word in _up_to_a_dot(keys, key)]


def _up_to_a_dot(keys: Iterable[str], typed: str) -> list[str]:
    """Keys as far as the next dot behind what is typed: a level of the tree at a time."""
    found = []
    for key in keys:
        if key.startswith(typed):
            dot = key.find(".", len(typed))
            found.append(key if dot < 0 else key[: dot + 1])
    return found


def _values(key: str, typed: str, given: Sequence[str]) -> list[str]:
    """Whole values, with the ones before the last comma or bracket as they were typed."""
    choices = _choices(key, given)
    found = field_of(key)
    kinds = () if found is None else (found[1], *typing.get_args(found[1]))
    if not typed and (key == "stages" or any(typing.get_origin(kind) is list for kind in kinds)):
        return [f"[{choice}" for choice in choices]
    before = typed[: max(typed.rfind(","), typed.rfind("[")) + 1]
    used = re.split(r"[\[,]", before)
    ends = ("", "]") if before.rpartition("[")[1] else ("",)
    return [f"{before}{choice}{end}" for choice in choices if choice not in used for end in ends]


def _choices(key: str, given: Sequence[str]) -> list[str]:
    """What a key takes, where that is a closed set."""
    if key in GROUPS:
        return options(key, config_dir_of(given))
    special: dict[str, Callable[[], list[str]]] = {
        "stages": lambda: list(declared()),
        "device": lambda: ["cpu", "cuda"],
        "reference.device": lambda: ["cpu", "cuda"],
        "reference.backend": lambda: [*(name for name in BUILT_IN if name != "dynamo"), *_registered()],
        "backend.name": lambda: _registered() if "backend=dynamo" in given else [],
        "backend.adapter": lambda: [*BUILT_IN, *installed_adapters()],
    }
    if key in special:
        return special[key]()
    found = field_of(key)
    if found is None:
        return []
    field, annotation = found
    kinds = typing.get_args(annotation) or (annotation,)
    booleans = ["true", "false"] if bool in kinds else []
    null = ["null"] if type(None) in kinds and (booleans or choices_of(field)) else []
    return [*choices_of(field), *items_of(field), *booleans, *null]


def _registered() -> list[str]:
    return [*installed_adapters(), *registered_names()]


def main(arguments: Sequence[str], app: "Typer") -> int:
    """``SHELL LINE [POINT [BREAKS]]``: print the candidates, one a line, as that shell takes them.

    Args:
        arguments: the shell; the command line; characters of it before the cursor; the characters at which the shell
            divides words. The shell keeps what stands before the last of those.
        app: the commands.
    """
    shell, line, *rest = [*arguments, "", ""][: max(len(arguments), 2)]
    typed = line[: int(rest[0])] if rest and rest[0].isdecimal() else line
    found = candidates(typed, app)
    if shell == "bash":
        (*_, last), quoted = _split(typed)
        breaks = "" if quoted else rest[1] if len(rest) > 1 else ""
        kept = max((last.rfind(character) + 1 for character in breaks), default=0)
        found = [word[kept:] for word in found]
    spaced = shell in ("bash", "zsh")
    for word in found:
        sys.stdout.write(f"{word} \n" if spaced and word[-1:] not in tuple("=.[,/") else f"{word}\n")
    return 0
