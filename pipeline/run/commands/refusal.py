"""Whether a command line would be refused before anything runs: ``python -P -m …commands.refusal WORD…``.

Exit code 2 and the message where it would, else 0. Nothing runs, and nothing is written.
"""

import sys
from collections.abc import Sequence

from hydra.types import RunMode

from inductor_debug.models.errors import UserError
from inductor_debug.pipeline.config import arguments
from inductor_debug.pipeline.config.strict_types import strict_types
from inductor_debug.pipeline.directory.summary import EXIT_CONFIGURATION
from inductor_debug.pipeline.run.commands import jobs
from inductor_debug.pipeline.run.commands.composition import hydra_session
from inductor_debug.pipeline.terminal import tell_error


def refuse(words: Sequence[str]) -> None:
    """Compose and validate every job of a command line.

    Args:
        words: after ``inductor-debug run``.

    Raises:
        UserError: it would be refused.
    """
    args = arguments.parse(list(words))
    args.overrides = arguments.normalise(args.overrides)
    with strict_types(), hydra_session(args) as session:
        if jobs.is_sweep(session, args):
            jobs.plan(session)
        else:
            jobs.check(session, session.compose(RunMode.RUN))


def main(words: Sequence[str]) -> int:
    try:
        refuse(words)
    except UserError as error:
        tell_error(str(error))
        return EXIT_CONFIGURATION
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
