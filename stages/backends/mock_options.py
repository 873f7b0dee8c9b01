"""What may be asked of the mock backends besides the profile: how they execute, and what a violation leaves."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from inductor_debug.models.errors import ConfigurationError, invalid_choice

EXECUTE = ("eager", "inductor")


@dataclass(frozen=True)
class MockOptions:
    """Options of the mock backends.

    Attributes:
        execute: what runs behind the checks, eager or inductor; None: inductor where a mode is given, else eager.
        mode: a mode of ``torch.compile`` (``max-autotune``, …), in which TorchInductor then executes.
        repro_dir: where a strict violation leaves its reproductions, and what TorchInductor fails to compile the
            smallest program that shows it; None: MOCK_REPRO_DIR, else a fresh temporary directory, which is told. In
            the pipeline it is the run's directory, and can't be set.
        verified_repros: how many reproductions are run, each in a fresh process, before the error is raised.
        minify_s: seconds for which that smallest program is looked for before TorchInductor's error is raised; 0: not.
            In the pipeline the stage ``minify`` looks for it, and this can't be set.
    """

    execute: str | None = None
    mode: str | None = None
    repro_dir: str | None = None
    verified_repros: int = 2
    minify_s: float = 60.0

    @property
    def inductor(self) -> bool:
        """Whether TorchInductor executes."""
        return self.execute == "inductor" or (self.execute is None and self.mode is not None)


def split_options(given: Mapping[str, Any], *, key: str, mode: str | None = None) -> tuple[MockOptions, dict[str, Any]]:
    """The options among ``given``, validated, and the rest.

    Args:
        given: as the user wrote them.
        key: what they are called in a message, ``options`` or ``backend.options``.
        mode: ``mode=`` of torch.compile.

    Raises:
        ConfigurationError: a value that is not valid.
    """
    names = [item.name for item in fields(MockOptions)]
    rest = {name: value for name, value in given.items() if name not in names}
    mine = {name: value for name, value in given.items() if name in names}
    if mode is not None:
        mine["mode"] = mode
    options = MockOptions(**mine)
    if options.execute is not None and options.execute not in EXECUTE:
        raise invalid_choice(f"{key}.execute", options.execute, EXECUTE)
    if options.mode is not None:
        _check_mode(options, "mode" if mode is not None else f"{key}.mode", key)
    if options.repro_dir is not None and not (isinstance(options.repro_dir, str) and options.repro_dir):
        raise ConfigurationError(f"{key}.repro_dir: got {options.repro_dir!r}; valid: a folder's path. "
                                 f"Try: {key}.repro_dir=repros")  # fmt: skip
    count = options.verified_repros
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ConfigurationError(f"{key}.verified_repros: got {count!r}; valid: a whole number, 0 or more. "
                                 f"Try: {key}.verified_repros=2")  # fmt: skip
    seconds = options.minify_s
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ConfigurationError(f"{key}.minify_s: got {seconds!r}; valid: a number of seconds, 0 or more. "
                                 f"Try: {key}.minify_s=60")  # fmt: skip
    return options, rest


def _check_mode(options: MockOptions, name: str, key: str) -> None:
    from inductor_debug.stages.torch_internals.backends import inductor_modes

    modes = inductor_modes()
    if options.mode not in modes:
        raise invalid_choice(name, options.mode, modes)
    if options.execute == "eager":
        raise ConfigurationError(
            f"{name}: got {options.mode!r} with {key}.execute=eager, but a mode is TorchInductor's; valid: "
            f"{key}.execute=inductor, or no mode.\nTry: {key}.execute=inductor"
        )
