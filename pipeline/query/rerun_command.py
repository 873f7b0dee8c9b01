"""A stored run made again, in a new directory: as it was, or to look for its failure's smallest script."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inductor_debug.models.errors import DamagedError, UserError
from inductor_debug.models.visible import visible
from inductor_debug.pipeline.config.arguments import quoted
from inductor_debug.pipeline.directory import store
from inductor_debug.pipeline.directory.folder import StoredFolder
from inductor_debug.pipeline.query import trust
from inductor_debug.pipeline.run import restoring
from inductor_debug.pipeline.run.commands import entry
from inductor_debug.pipeline.run.compiled_by import made_with_missing
from inductor_debug.pipeline.terminal import tell, tell_error
from inductor_debug.stages.artifacts.files import SUMMARY

STAGES = "stages=[minify,report]"


def rerun(
    run: Path, overrides: Sequence[str], *, yes: bool, anyway: bool, command: str = "rerun",
    own: Sequence[str] = (), words: Sequence[str] = (), as_json: bool = False,
) -> int:  # fmt: skip
    """Run a stored run again with the variables that it had.

    Args:
        run: its folder.
        overrides: ``KEY=VALUE`` words that change its configuration.
        yes: don't ask before what the run names is executed.
        anyway: also where versions, device or code are others: what differs is told.
        command: of ``inductor-debug``, for messages.
        own: further overrides, which the command itself stands for.
        words: that it was given after ``--``, for messages.
        as_json: print the new run's result as JSON.

    Returns:
        the exit code of the new run.

    Raises:
        UserError: it can't be run again, or must not be.
    """
    run = store.locate(run)
    shown = visible(str(run))
    try:
        config = StoredFolder(run).read_yaml(store.HYDRA, dict[str, Any])
    except FileNotFoundError:
        store.read_summary(run)  # says that it is no run, where it is none
        raise UserError(
            f"{shown}: holds no {store.HYDRA}, so it can't be run again.\nTry: inductor-debug list"
        ) from None
    given = ["--format", "json"] if as_json else []
    typed = shlex.join([command, shown, *map(visible, overrides), *given])
    after = f" -- {visible(shlex.join(words))}" if words else ""
    trust.confirm(shown, trust.callables_in(config, [*overrides, *own]), yes, typed + " --anyway" * anyway, words)
    arguments = ["--config-path", str(run / ".hydra"), "--config-name", "config", *overrides, *own, *given]
    if not anyway:
        _readable(run, f"inductor-debug {typed} --anyway{after}")
    record = restoring.recorded(run)
    gone = made_with_missing(record)
    if gone and not anyway:
        raise UserError(
            f"{command}: {shown} was {gone}; valid: an environment that has it.\n"
            f"Try: inductor-debug {typed} --anyway{after}"
        )
    if gone:
        tell_error(f"{shown} was {gone}")
    with restoring.restored(record) as told:
        if told:
            tell(f"as in {run}: {', '.join(told)}")
        return entry.main(arguments, refuse=not anyway)


def _readable(run: Path, hint: str) -> None:
    """DamagedError where the result, which says what compiled the run, was edited or can't be read."""
    try:
        SUMMARY.read(StoredFolder(run))
    except DamagedError as error:
        raise error.with_parts(hint=hint) from error


def minify_overrides(command: Sequence[str] | None) -> list[str]:
    """The words with which a run looks for a smallest script: of any failure, or of what a command says yes of."""
    words = ",".join(map(quoted, command or ()))
    return [STAGES, f"stages.minify.command=[{words}]"] if words else [STAGES]
