"""What a stored run names that would be executed, told before anything of it is."""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inductor_debug.models.errors import UserError
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.config.arguments import overridden_groups
from inductor_debug.pipeline.terminal import tell_error
from inductor_debug.stages.settings import BUILT_IN

GROUPS = ("model", "accel", "backend", "stages")


def callables_in(config: Mapping[str, Any], overrides: Sequence[str] = ()) -> list[str]:
    """``KEY=TARGET`` of every callable and program that a stored configuration names.

    Args:
        config: as it was read.
        overrides: words of the command line; what they replace is not the run's.
    """
    replaced = {word.lstrip("+").partition("=")[0] for word in overrides} | overridden_groups(overrides, GROUPS)
    found = [*_targets(config, ""), *_adapter(config.get("backend")), *_command(config.get("stages"))]
    told = [(key, target) for key, target in found if not any(_holds(other, key) for other in replaced)]
    return [f"{key}={visible(target)}" for key, target in dict(told).items()]


def confirm(run: str, named: Sequence[str], yes: bool, command: str, words: Sequence[str] = ()) -> None:
    """Say what running a stored run again executes, and ask; UserError where the answer is no, or nobody is there.

    Args:
        run: its folder, as it is shown.
        named: from :func:`callables_in`.
        yes: True where the command line has ``--yes``.
        command: of ``inductor-debug``, as it was typed, without ``--yes``.
        words: that it was given after ``--``.
    """
    what = f"executes what its configuration names: {', '.join(named)}" if named else "names no callable"
    ask(f"{run}: {what}.", "Run it again?", command, yes, words)


def ask(
    told: str, question: str, command: str, yes: bool, words: Sequence[str] = (), sure: str = "you trust this run"
) -> None:
    """Say what is about to be done, and ask; UserError where the answer is no, or nobody is there.

    Args:
        told: what is done.
        question: what is asked.
        command: of ``inductor-debug``, without ``--yes``.
        yes: True where the command line has ``--yes``.
        words: of the command line after ``--``.
        sure: when one may say yes unasked.
    """
    tell_error(told)  # with --quiet too
    if yes:
        return
    after = f" -- {visible(shlex.join(words))}" if words else ""
    name, again = command.partition(" ")[0], f"Try: inductor-debug {command} --yes{after}"
    if sys.stdin is None or not sys.stdin.isatty():
        raise UserError(f"{name}: got no answer, for this is no terminal; valid: --yes, if {sure}.\n{again}")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError(f"{name}: nothing was done; valid: the answer yes.\n{again}")


def _targets(node: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, Mapping):
        for name, value in node.items():
            place = f"{key}.{name}" if key else str(name)
            if name == "_target_" and value is not None:
                yield place, str(value)
            else:
                yield from _targets(value, place)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _targets(value, f"{key}[{index}]")


def _adapter(backend: Any) -> Iterator[tuple[str, str]]:
    """An adapter by its dotted path or an installed package's name, and a backend that is registered with torch."""
    if isinstance(backend, Mapping):
        adapter = backend.get("adapter")
        if adapter is not None and adapter not in BUILT_IN:
            yield "backend.adapter", str(adapter)
        elif adapter == "dynamo":
            yield "backend.name", str(backend.get("name"))


def _command(stages: Any) -> Iterator[tuple[str, str]]:
    """The program that minify asks of each script."""
    minify = stages.get("minify") if isinstance(stages, Mapping) else None
    words = minify.get("command") if isinstance(minify, Mapping) else None
    if words:
        yield "stages.minify.command", shlex.join(map(str, words)) if isinstance(words, list) else str(words)


def _holds(outer: str, key: str) -> bool:
    return key == outer or key.startswith((f"{outer}.", f"{outer}["))
