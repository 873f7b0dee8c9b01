"""What compiled a run: versions, commit, variables, device, model's code and compiler options.

``compiled_by`` of ``summary.json``::

    versions    python, torch, triton, this package, packages that add a backend
    commit      of this package and of the working directory: commit, dirty
    variables   those of the user's that change what is compiled, or how fast it runs
    set_by_run  such variables that the run set itself
    model       versions of the libraries, and SHA-256 of the model's own files, that its modules are from
    device      name, processor's instructions, threads
    settings    of the process that are not torch's own, as the model's code left them: the precision of float32
                products, deterministic algorithms, cuDNN's, attention's kernels
    options     by compiler (TorchInductor, TorchDynamo, AOTAutograd), those of its options that differed from their
                defaults when it compiled the case
    options_before   of options that changed between building and compiling the model, the earlier value (None: the
                default); the model, the backend or torch changed them

The last five are told by the worker, once the model is built and again once it is compiled; None where no stage needed
torch.
"""

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inductor_debug.stages.settings import Settings

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.compiler_options import CompilationOptions

PREFIXES = (
    "TORCH", "PYTORCH_", "TRITON_", "INDUCTOR_", "AOT_", "AOTI", "CUBLAS", "CUDNN_", "CUDA_", "CUTE", "CUTLASS_",
    "NVIDIA_TF32_", "PARTITIONER_", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "ATEN_", "DNNL_", "ONEDNN_",
    "MOCK_",
)  # fmt: skip
NAMES = (
    "CC", "CXX", "CI", "ENABLE_PERSISTENT_TMA_MATMUL", "ENABLE_TEMPLATE_TMA_STORE", "FAKE_ALLOW_META",
    "ENABLE_TMA_LOAD_FOR_TEMPLATE_EPILOGUE", "UNSAFE_SKIP_FSDP_MODULE_GUARDS",
)  # fmt: skip
"""The compilers, and what else the defaults of torch's own options are read from."""
_ELSEWHERE = re.compile(
    r"CACHE_(DIR|PATH)|(?<!PRO)(?<!EPI)LOG|TRACE|_HOME$|(REPRO|DEBUG|PARETO)_DIR|VISIBLE_DEVICES|^INDUCTOR_DEBUG_"
)
"""Where files lie, what is logged, and which device is the first: neither changes what is compiled."""
_NEVER_RESTORED = re.compile(r"PATH|DIR|FILE|LIB|TOOL|PLUGIN|IMPORT|MODULE|BACKEND|HOOK|CMD|COMMAND|PTXAS|^CC$|^CXX$")
"""What such a variable names is executed, imported or opened: it is never taken over from a stored run."""
_SETTING = re.compile(r"(?!.*\.[A-Za-z_])[\w:,.+=% -]{0,200}", re.ASCII)
"""A number, a word or a list of them: no path, no dotted name."""

VERSIONS = ("python", "torch", "triton", "inductor-debug", "numpy")
TOLD_ONLY = ("commit.", "set_by_run.", "device.threads")
"""What may differ without making a rerun another compilation, or is seen in what else differs."""
BY_CONFIGURATION = ("model.", "device.", "options.")
"""What an override may change."""


def matters(name: str) -> bool:
    """Whether a variable changes what is compiled, or how fast it runs."""
    return (name.startswith(PREFIXES) or name in NAMES) and not _ELSEWHERE.search(name)


def restorable(name: str, value: str) -> bool:
    """Whether a variable may be taken over from a stored run, which may be a stranger's: a switch, never a path."""
    return matters(name) and not _NEVER_RESTORED.search(name) and _SETTING.fullmatch(value) is not None


def described(
    manifest: Mapping[str, Any], given: Mapping[str, str], environment: Mapping[str, str], adapters: Iterable[str] = ()
) -> dict[str, Any]:
    """The part of the record that is known before the worker starts.

    Args:
        manifest: ``versions`` and ``git`` as :func:`pipeline.directory.manifest.describe_run` gives them.
        given: the variables that the user's process has.
        environment: those that the worker gets.
        adapters: distributions that add a backend.
    """
    changed = {name for name in environment if environment[name] != given.get(name)}
    git = manifest["git"]
    return {
        "versions": {name: manifest["versions"].get(name) for name in dict.fromkeys((*VERSIONS, *adapters))},
        "commit": {place: git[place] and {key: git[place][key] for key in ("commit", "dirty")} for place in git},
        "variables": {name: given[name] for name in sorted(given) if matters(name) and name not in changed},
        "set_by_run": {name: environment[name] for name in sorted(changed) if matters(name)},
        "model": None,
        "device": None,
        "settings": None,
        "options": None,
        "options_before": None,
    }


def of_process(settings: Settings, module: Any, devices: Mapping[str, Any] | None) -> dict[str, Any]:
    """What only the worker can tell, once the case and the adapter are built: nothing is compiled yet.

    Args:
        module: the case's, None where it could not be built.
        devices: what torch found.
    """
    from inductor_debug.stages.backends.registry import build_adapter
    from inductor_debug.stages.sides.global_settings import not_default
    from inductor_debug.stages.torch_internals.compiler_options import differing, primitive

    adapter = build_adapter(settings)
    options = differing()
    own = adapter.inductor_options() or {}
    options["inductor"] |= {key: primitive(value) for key, value in sorted(own.items())}
    target = settings.model.build.get("_target_")
    device = device_of(settings.device, devices or {})
    model = model_code(module, str(target or ""))
    return {
        "model": model, "device": device, "settings": not_default(), "options": options, "options_before": {},
    }  # fmt: skip


def before_compiling(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A record's options as they were once the model was built, by compiler."""
    before = _by_compiler(record, "options")
    for name, part in _by_compiler(record, "options_before").items():
        values = before.get(name, {}) | part
        before[name] = {key: value for key, value in values.items() if value is not None}
    return before


def where_compiled(record: Mapping[str, Any], seen: "CompilationOptions") -> dict[str, Any]:
    """A record's ``options`` and ``options_before`` once its case was compiled."""
    before = before_compiling(record)
    options = seen.over(before)
    changed = {}
    for name, part in options.items():
        known = before.get(name, {})
        changed[name] = {key: known.get(key) for key in sorted({*part, *known}) if part.get(key) != known.get(key)}
    return {"options": options, "options_before": {name: part for name, part in changed.items() if part}}


def device_of(device: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """What code is generated for: the GPU that the run is on, or the processor's vector instructions; and threads.

    Args:
        device: as configured.
        found: what torch found, see :func:`pipeline.run.process.describe_devices`.
    """
    kind, _, index = device.partition(":")
    gpus = [item["name"] for item in found.get("cuda") or []] if kind == "cuda" else []
    name = gpus[int(index or 0)] if int(index or 0) < len(gpus) else None
    facts = {"name": name or kind, "threads": found.get("threads")}
    own = "cuda_version" if kind == "cuda" else "cpu_capability"
    return facts | {own: found.get(own)}


def model_code(module: Any, target: str) -> dict[str, Any]:
    """Whose code a model is: ``libraries`` (name → version) and ``files`` of its own (module's name → SHA-256).

    Args:
        module: a ``torch.nn.Module``, or None.
        target: the dotted path of what built it.
    """
    kinds = {type(item) for item in module.modules()} if module is not None else set()
    names = {kind.__module__ for kind in kinds} | {target.replace(":", ".").rpartition(".")[0]}
    libraries, files = {}, {}
    for name in sorted(names & sys.modules.keys()):
        top = name.partition(".")[0]
        file = getattr(sys.modules[name], "__file__", None)
        if top == "torch" or file is None:
            continue
        if not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts):
            libraries[top] = _version(top)
        else:
            files[name] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return {"libraries": libraries, "files": files}


def differences(then: Mapping[str, Any], now: Mapping[str, Any], *, changed: bool) -> tuple[list[str], list[str]]:
    """What differs between what compiled a stored run and what would compile now, a line each.

    Nothing is compiled yet: options are compared as they were before the model, or the backend, set any.

    Args:
        then, now: two records.
        changed: the run is made again with overrides, so that model, device and options may be others by intent.

    Returns:
        Lines of what makes it another compilation, and of what may.
    """
    before, after = (
        dict(flat({**record, "options": before_compiling(record), "options_before": None})) for record in (then, now)
    )
    refused: list[str] = []
    told: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        part = key.partition(".")[0]
        if before.get(key) == after.get(key) or then.get(part) is None or now.get(part) is None:
            continue
        line = _line(key, before.get(key), after.get(key))
        mild = key.startswith(TOLD_ONLY) or (changed and key.startswith(BY_CONFIGURATION))
        (told if mild else refused).append(line)
    return refused, told


def set_otherwise(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs in the options that the model, or the backend, set since it was built, a line each.

    Args:
        then, now: two records, of which both have an ``options_before``; else nothing can be said.
    """
    if then.get("options_before") is None or now.get("options_before") is None:
        return []
    sides = [_by_compiler(record, "options") for record in (then, now)]
    recorded = {
        (name, key)
        for record in (then, now)
        for name, part in _by_compiler(record, "options_before").items()
        for key in part
    }
    values = [(name, key, *(side.get(name, {}).get(key) for side in sides)) for name, key in sorted(recorded)]
    return [_line(f"options.{name}.{key}", before, after) for name, key, before, after in values if before != after]


def flat(record: object, prefix: str = "", depth: int = 2) -> Iterator[tuple[str, Any]]:
    """The record's values by dotted key: ``versions.torch``, ``options.inductor.freezing``.

    A part that is not known, or empty, has none; nor has what a damaged run has in a record's place.
    """
    for name, content in record.items() if isinstance(record, Mapping) else ():
        if isinstance(content, Mapping) and depth:
            yield from flat(content, f"{prefix}{name}.", depth - 1)
        elif prefix:
            yield f"{prefix}{name}", content


def _by_compiler(record: Mapping[str, Any], part: str) -> dict[str, dict[str, Any]]:
    """A part's options by compiler; of a damaged run, what is none is left out."""
    found = record.get(part)
    items = found.items() if isinstance(found, Mapping) else ()
    return {name: dict(options) for name, options in items if isinstance(options, Mapping)}


def _line(key: str, before: Any, after: Any) -> str:
    then, now = ("none" if value is None else ascii(value)[:200] for value in (before, after))
    return f"{ascii(key)[1:-1]}: {then} then, {now} now"


def _version(top: str) -> str | None:
    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        version = getattr(sys.modules.get(top), "__version__", None)
        return None if version is None else str(version)
