"""The aot_inductor backend: AOT graphs compiled ahead of time into shared libraries, with torch's value printer."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, fx

from inductor_debug.models.errors import ConfigurationError, invalid_choice, wrong_value
from inductor_debug.stages.accelerators.config import AccelConfig
from inductor_debug.stages.backends.adapter import ValuePrinter
from inductor_debug.stages.backends.inductor import InductorAdapter
from inductor_debug.stages.settings import BackendConfig

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.aot_inductor import AotInductorCompiler, Around

LEVELS = {0: "nothing", 1: "save tensors", 2: "print values", 3: "print kernel names"}
OWN = {
    "aot_inductor.debug_intermediate_value_printer": "backend.options.print_values=2",
    "aot_inductor.filtered_kernel_names": "backend.options.kernels=[NAME]",
    "aot_inductor.output_path": "",
    "aot_inductor.package": "",
    "aot_inductor.package_cpp_only": "",
    "fx_wrapper": "",
}
"""Options of TorchInductor that this backend sets, and what to type in their place."""


class AotInductorAdapter(InductorAdapter):
    """AOTInductor, recorded: each AOT graph a shared library, parameters among its inputs.

    Args:
        inductor: as of :class:`InductorAdapter`.
        print_values: level of AOTInductor's printer of intermediate values: 1 saves tensors, 2 prints values, 3 prints
            the names of kernels; 0 is off. For the lower stage, which compiles once more for it: the printer speaks at
            every call, and the other stages call often.
        kernels: those of which values are told; all by default.
    """

    name = "aot_inductor"

    def __init__(
        self, inductor: Mapping[str, Any] | None = None, print_values: int = 0, kernels: Sequence[str] = ()
    ) -> None:
        super().__init__(inductor)
        self.print_values = _level(print_values)
        self.kernels = _names(kernels)
        self._around: Around | None = None
        self._compiler: AotInductorCompiler | None = None
        if self.kernels and not self.print_values:
            raise ConfigurationError(
                f"backend.options.kernels: got {', '.join(self.kernels)} without backend.options.print_values, so that "
                "nothing is told of them; valid: print_values 1, 2 or 3.\nTry: backend.options.print_values=2"
            )

    @functools.cached_property
    def options(self) -> dict[str, Any]:
        """The flat patch in force; ConfigurationError for a wrong key or type, or one that this backend sets."""
        options = super().options
        if options.get("freezing"):
            raise ConfigurationError(
                "backend.inductor.freezing: got True with backend=aot_inductor, whose graphs take the weights: nothing "
                "can be frozen; valid: false.\nTry: backend=inductor_freezing"
            )
        for key in options:
            if key in OWN:
                instead = OWN[key]
                told = instead.partition("=")[0] if instead else f"any option but {', '.join(OWN)}"
                raise ConfigurationError(
                    f"backend.inductor.{key}: backend=aot_inductor sets it; valid: {told}.\n"
                    f"Try: {instead or 'without backend.inductor.' + key}"
                )
        return options

    def printing(self, around: "Around") -> "AotInductorAdapter":
        """The same, compiling with the printer; every run of a graph goes through ``around``."""
        adapter = AotInductorAdapter(self.inductor, self.print_values, self.kernels)
        adapter._around = around
        return adapter

    def value_printer(self) -> ValuePrinter | None:
        return ValuePrinter(self.print_values, self.kernels, self.printing) if self.print_values else None

    def rewriting_backend(self, rewrite: Callable[[str, str], str]) -> None:
        """None: it is libraries that run."""

    def switched(self, values: Mapping[str, Any]) -> "AotInductorAdapter":
        return AotInductorAdapter(self.inductor | dict(values), self.print_values, self.kernels)

    def validate_compiled(self) -> None:
        """ConfigurationError for a kernel that no graph launches."""
        if self._compiler is None:
            return
        known = list(dict.fromkeys(name for names in self._compiler.launched.values() for name in names))
        for kernel in self.kernels:
            if kernel.lower() not in {name.lower() for name in known}:
                raise invalid_choice("backend.options.kernels", kernel, known, example="backend.options.kernels=[{}]")

    def compile(self, gm: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
        """One AOT graph as a shared library, without the printer."""
        from inductor_debug.stages.torch_internals.aot_inductor import AotInductorCompiler
        from inductor_debug.stages.torch_internals.inductor import LoweredGraph

        return AotInductorCompiler(self.options).compile_graph(LoweredGraph("g0"), "forward", gm, example_inputs)

    def dynamo_backend(self) -> Callable[..., Any]:
        """A fresh ``AotInductorCompiler``: its ``graphs`` hold what each compilation made."""
        from inductor_debug.stages.torch_internals.aot_inductor import AotInductorCompiler

        printer: dict[str, Any] = {}
        if self._around is not None:
            printer = {"print_values": self.print_values, "kernels": self.kernels, "around": self._around}
        self._compiler = AotInductorCompiler(self.options, **printer)
        return self._compiler


def _level(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in LEVELS:
        levels = ", ".join(f"{level} ({what})" for level, what in LEVELS.items())
        raise wrong_value("backend.options.print_values", value, levels, "2")
    return value


def _names(value: Any) -> list[str]:
    listed = not isinstance(value, str) and isinstance(value, Sequence)
    if not listed or not all(isinstance(name, str) and name and "," not in name for name in value):
        shown = value if isinstance(value, str) and value else "NAME"
        valid = "a list of kernel names, as in lower/GRAPH/kernels.csv"
        raise wrong_value("backend.options.kernels", value, valid, f"[{shown}]")
    return list(value)


def configured(config: BackendConfig, accel: AccelConfig | None) -> AotInductorAdapter:
    """The adapter of a configuration; ConfigurationError for an option that it does not take, or a wrong value."""
    for key in config.options:
        if key not in ("print_values", "kernels"):
            raise invalid_choice("backend.options", key, ["print_values", "kernels"])
    return AotInductorAdapter(config.inductor, **config.options)
