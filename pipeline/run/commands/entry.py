"""The one entry behind ``python -m pipeline`` and ``inductor-debug run``: compose, check everything, then run.

Hydra is imported once it is needed: the answer to ``--help`` needs it not.
"""

import sys
from collections.abc import Sequence

from inductor_debug.models.errors import ConfigurationError, UserError
from inductor_debug.pipeline.config import arguments
from inductor_debug.pipeline.config.help import help_text
from inductor_debug.pipeline.directory.summary import EXIT_CONFIGURATION
from inductor_debug.pipeline.loudness import ask_for, of_one_command
from inductor_debug.pipeline.run.interruption import Interruption
from inductor_debug.pipeline.terminal import print_help, tell_error

EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None, *, refuse: bool = False) -> int:
    """Run the command line and return its exit code (0, 1, 2 or 3; 130 where it was interrupted).

    Args:
        argv: arguments after the program's name; by default this process's.
        refuse: a stored run is made again only by what compiled it; else what differs is told.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with Interruption(at_once=True), of_one_command():
            return _main(arguments, refuse)
    except UserError as error:
        tell_error(str(error))
        return EXIT_CONFIGURATION
    except KeyboardInterrupt as error:
        tell_error("\n".join(["interrupted", *getattr(error, "__notes__", ())]))
        return EXIT_INTERRUPTED


def _main(argv: list[str], refuse: bool) -> int:
    if any(word in ("--help", "-h") for word in argv):
        print_help(help_text(arguments.config_dir_of(argv)))
        return 0
    from inductor_debug.pipeline.config.strict_types import strict_types
    from inductor_debug.pipeline.run.commands import jobs
    from inductor_debug.pipeline.run.commands.composition import hydra_session

    args = arguments.parse(argv)
    ask_for(args.quiet, args.verbose)
    if args.shell_completion:
        raise ConfigurationError(
            "--shell-completion: Hydra's script completes neither this command nor inductor-debug; valid: the script "
            'that inductor-debug prints.\nTry: eval "$(inductor-debug completion bash)"'
        )
    if args.format == "json" and (args.cfg or args.info):
        raise ConfigurationError("command line: got --format json with --cfg or --info, which print what Hydra prints; "
                                 "valid: either.\nTry: python -m pipeline --cfg job")  # fmt: skip
    args.overrides = arguments.normalise(args.overrides)
    with strict_types(), hydra_session(args, refuse) as session:
        if args.hydra_help:
            session.hydra.hydra_help(config_name=session.name, args_parser=None, args=args)
            return 0
        if args.cfg or args.info:
            return jobs.show(session, args)
        return jobs.sweep(session) if jobs.is_sweep(session, args) else jobs.single(session)
