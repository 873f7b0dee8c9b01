"""docs/reference/command-line.md: every command with its arguments and options, as they are declared."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from typer.models import ArgumentInfo, OptionInfo

from inductor_debug.pipeline.cli import app
from inductor_debug.pipeline.command_line.app import in_order
from inductor_debug.pipeline.config import docstrings
from inductor_debug.pipeline.config import help as run_help

PROGRAM = "inductor-debug"
HEADER = f"""# Command line

Which commands are there, and what does each take?

This page is made of the commands' declarations by `make docs`; `{PROGRAM} COMMAND --help` says the same. A RUN is a
run's folder, its id as the report prints it, or `latest`. [Exit codes](exit-codes.md) says what each command's exit
code means.
"""
TAKE_KEYS = {item.name for item in app.registered_commands if (item.context_settings or {}).get("allow_extra_args")}
"""Commands that take words of the configuration."""
VALUES = {int: "NUMBER", float: "NUMBER", str: "TEXT", Path: "PATH"}


@dataclass(frozen=True)
class Parameter:
    """An argument or an option.

    Attributes:
        names: as they are typed; empty for an argument.
        value: what stands for its value; "" for a flag.
        default: as it is typed; "" where it is not set, None where it has to be given.
        text: its help.
    """

    names: list[str]
    value: str
    default: str | None
    text: str

    @property
    def typed(self) -> str:
        """As the page shows it, names and value."""
        words = [" ".join(word for word in (name, self.value) if word) for name in self.names or [""]]
        return ", ".join(f"`{word}`" for word in words).replace("|", "\\|")


def commands() -> dict[str, tuple[Callable[..., Any], str]]:
    """Name → its function and its help, in the order of the help."""
    found = {item.name or "": item for item in app.registered_commands if not item.hidden}
    return {name: (_function(found[name]), found[name].help or "") for name in in_order(found)}


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """What a command's function takes from the command line; UndescribedError for what has no help."""
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        info = next(
            (item for item in getattr(hints[name], "__metadata__", ()) if isinstance(item, ArgumentInfo | OptionInfo)),
            None,
        )
        if info is None or info.hidden:
            continue
        if not info.help:
            raise docstrings.UndescribedError(f"{function.__name__}: {name} has no help")
        kind = _bare(hints[name].__origin__)
        words = [info.default, *(info.param_decls or ())]  # in Annotated the first name is where a default would be
        names = [word for word in words if isinstance(word, str) and word.startswith("-")]
        if isinstance(info, OptionInfo) and not names:
            names = [f"--{name.replace('_', '-')}"]
        default = None if parameter.default is inspect.Parameter.empty else _default(parameter.default)
        found.append(Parameter(names, info.metavar or _value(name, kind, bool(names)), default, info.help))
    return found


def page() -> str:
    """The whole page; UndescribedError for a command, an argument or an option without help."""
    parts = [HEADER]
    callback = app.registered_callback
    before = parameters(callback.callback) if callback is not None and callback.callback is not None else []
    if before:
        parts += ["## Before the command\n", _table("option", before)]
    for name, (function, text) in commands().items():
        if not text:
            raise docstrings.UndescribedError(f"{PROGRAM} {name} has no help")
        found = parameters(function)
        arguments, options = [one for one in found if not one.names], [one for one in found if one.names]
        usage = " ".join([PROGRAM, name, *(["[OPTIONS]"] if options else []), *map(_placed, arguments)])
        further = " [KEY=VALUE...]" if name in TAKE_KEYS else ""
        parts += [
            f"## {name}\n",
            docstrings.sentence(docstrings.markdown(text)) + "\n",
            f"```text\n{usage}{further}\n```\n",
            *([_run()] if name == "run" else []),
            *([_table("argument", arguments)] if arguments else []),
            *([_table("option", options)] if options else []),
        ]
    return "\n".join(parts)


def _table(kind: str, found: list[Parameter]) -> str:
    return docstrings.table((kind, "default", "what"), ([one.typed, _shown(one), _what(one)] for one in found))


def _what(parameter: Parameter) -> str:
    return docstrings.sentence(docstrings.cell(parameter.text))


def _shown(parameter: Parameter) -> str:
    if parameter.default is None:
        return "required"
    return f"`{parameter.default}`" if parameter.default else ""


def _placed(argument: Parameter) -> str:
    """An argument in the line that shows how a command is called."""
    optional = argument.default is not None and not argument.value.startswith("[")
    return f"[{argument.value}]" if optional else argument.value


def _function(item: Any) -> Callable[..., Any]:
    assert item.callback is not None, f"{item.name} has no function"
    found: Callable[..., Any] = item.callback
    return found


def _bare(annotation: Any) -> Any:
    """A type without None, and of a list that of its items."""
    inner = [one for one in typing.get_args(annotation) if one is not type(None)]
    return _bare(inner[0]) if inner else annotation


def _value(name: str, kind: Any, is_option: bool) -> str:
    if kind is bool:
        return ""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(item.value) for item in kind)
    return VALUES.get(kind, name.upper()) if is_option else name.upper()


def _default(value: Any) -> str:
    plain = value.value if isinstance(value, Enum) else value
    return "" if plain in (None, False, [], ()) else str(plain)


def _run() -> str:
    """The flags of a run, from the text that ``run --help`` prints."""
    text = Path(run_help.__file__).with_name("help.txt").read_text(encoding="utf-8")
    flags = text.partition("flags:\n")[2].partition("\nexit codes:")[0].rstrip()
    return (
        "Words are `KEY=VALUE` of the [configuration](configuration.md), groups among them (`model=bert`), and these "
        f"flags:\n\n```text\n{flags}\n```\n"
    )
