"""``inductor-debug``: ``run`` is ``python -m pipeline`` from any directory; the rest reads stored runs."""

import os
import shlex
import sys
from collections.abc import Sequence

from inductor_debug.models.errors import UserError
from inductor_debug.pipeline import completion
from inductor_debug.pipeline.command_line import checking, keeping, reading, running, serving
from inductor_debug.pipeline.command_line.app import app, in_order, own_flags
from inductor_debug.pipeline.loudness import QUIET_FLAGS, VERBOSE_FLAGS, of_one_command
from inductor_debug.pipeline.run.commands import entry
from inductor_debug.pipeline.streams import steady_streams
from inductor_debug.pipeline.terminal import tell_error

__all__ = ["app", "main"]
MODULES = (running, reading, checking, keeping, serving)
"""Each registers its commands."""


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. ``run`` and its overrides go to the entry untouched, typer never sees them."""
    with steady_streams(), of_one_command():
        return _main(list(sys.argv[1:] if argv is None else argv))


def _main(arguments: list[str]) -> int:
    flags = own_flags(arguments)
    command = arguments[len(flags) : len(flags) + 1]
    if command == ["run"]:
        return entry.main([*flags, *arguments[len(flags) + 1 :]])
    if arguments[:1] == ["complete"]:  # what the scripts of ``completion`` call
        return completion.main(arguments[1:], app)
    blank = next((place for place, word in enumerate(arguments) if not word.strip()), None)
    if blank is not None:
        after = f" after {arguments[blank - 1]}" if blank else ""
        tell_error(f"command line: got {arguments[blank]!r}{after}; valid: no blank word.\nTry: inductor-debug --help")
        return entry.EXIT_CONFIGURATION
    asked = arguments.index("--") if command == ["minify"] and "--" in arguments else len(arguments)
    try:
        code = app(arguments[:asked], prog_name="inductor-debug", standalone_mode=False, obj=arguments[asked + 1 :])
    except UserError as error:
        tell_error(str(error))
        return entry.EXIT_CONFIGURATION
    except OSError as error:
        if error.filename is None:
            raise
        named = os.fsdecode(error.filename2 or error.filename)
        tell_error(
            f"{named}: {error.strerror}; valid: files that can be read and folders that can be written.\n"
            "Try: another folder, or free what the system says is in the way"
        )
        return entry.EXIT_CONFIGURATION
    except Exception as error:
        if not hasattr(error, "exit_code") or not hasattr(error, "format_message"):
            raise  # not one of the command line parser's own
        said = " ".join(error.format_message().split()).replace(" Value error,", "").rstrip(".")
        commands = in_order(each.name or "" for each in app.registered_commands)
        ours = (*QUIET_FLAGS, *VERBOSE_FLAGS)
        behind = next((word for word in said.split() if word in ours), None)
        if command and behind is not None:
            rest = shlex.join(word for word in arguments if word not in ours)
            tell_error(f"command line: got {behind} behind the command; valid: before it.\n"
                       f"Try: inductor-debug {behind} {rest}")  # fmt: skip
        elif command and command[0] in commands:
            tell_error(f"{command[0]}: {said}.\nTry: inductor-debug {command[0]} --help")
        else:
            tell_error(f"command line: {said}; valid commands: {', '.join(commands)}.\nTry: inductor-debug --help")
        return entry.EXIT_CONFIGURATION
    return int(code or 0)


if __name__ == "__main__":
    sys.exit(main())
