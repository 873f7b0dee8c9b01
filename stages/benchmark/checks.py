"""Options that the device or the backend does not have."""

from inductor_debug.models.errors import ConfigurationError
from inductor_debug.stages.benchmark.config import BenchmarkConfig
from inductor_debug.stages.settings import Settings


def check_cuda_options(options: BenchmarkConfig, settings: Settings) -> None:
    """Refuse what can't be had.

    Raises:
        ConfigurationError: ``flush_l2`` or ``cuda_graphs`` on another device, or CUDA graphs of another backend.
    """
    for name in ("flush_l2", "cuda_graphs"):
        if getattr(options, name) and settings.device.partition(":")[0] != "cuda":
            raise ConfigurationError(
                f"got true with device={settings.device}",
                key=f"stages.benchmark.{name}",
                valid="true with device=cuda",
                hint=f"device=cuda, or stages.benchmark.{name}=false",
            )
    if options.cuda_graphs and settings.backend.adapter != "inductor":
        raise ConfigurationError(
            f"got true with backend={settings.backend.shown}",
            key="stages.benchmark.cuda_graphs",
            valid="true with backend=inductor, whose option it is",
            hint="backend=inductor, or stages.benchmark.cuda_graphs=false",
        )
