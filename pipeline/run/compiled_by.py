"""What compiled a run: found, and compared with what compiled another."""

import dataclasses
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inductor_debug.models.visible import is_secret, visible
from inductor_debug.pipeline.cache.key import WHICH_DEVICES
from inductor_debug.pipeline.directory.records import RunDescription, TorchFound
from inductor_debug.stages.artifacts.compiled_by import Commit, CompiledBy, CompiledFor, ModelCode
from inductor_debug.stages.encoding import jsonable
from inductor_debug.stages.settings import Settings

if TYPE_CHECKING:
    from inductor_debug.stages.torch_internals.compiler_options import CompilationOptions

PREFIXES = (
    "TORCH", "PYTORCH_", "TRITON_", "INDUCTOR_", "AOT_", "AOTI", "CUBLAS", "CUDNN_", "CUDA_", "CUTE", "CUTLASS_",
    "NVIDIA_TF32_", "PARTITIONER_", "OMP_", "MKL_", "KMP_", "GOMP_", "OPENBLAS_", "ATEN_", "DNNL_", "ONEDNN_",
    "MOCK_", "HIP_", "HSA_", "ROC_", "ROCBLAS_", "HIPBLASLT_", "MIOPEN_", "SYCL_", "ONEAPI_", "ZE_", "IGC_", "XLA_",
    "PJRT_", "LIBTPU_", "NEURON_", "PT_", "HABANA_", "ASCEND_", "TT_METAL_", "QNN_",
)  # fmt: skip
"""torch's, its libraries', and those of accelerators' compilers and runtimes, as their makers document them."""
NAMES = (
    "CC", "CXX", "CI", "ENABLE_PERSISTENT_TMA_MATMUL", "ENABLE_TEMPLATE_TMA_STORE", "FAKE_ALLOW_META",
    "ENABLE_TMA_LOAD_FOR_TEMPLATE_EPILOGUE", "UNSAFE_SKIP_FSDP_MODULE_GUARDS",
)  # fmt: skip
"""The compilers, and what else the defaults of torch's own options are read from."""
_ELSEWHERE = re.compile(
    r"CACHE_(DIR|PATH)|(?<!PRO)(?<!EPI)LOG(?!ICAL)|TRACE|_HOME$|(REPRO|DEBUG|PARETO)_DIR|^INDUCTOR_DEBUG_"
    f"|{WHICH_DEVICES.pattern}"
)
"""Where files lie, what is logged, and which device is the first: neither changes what is compiled."""
_NEVER_RESTORED = re.compile(
    r"PATH|DIR|FILE|LIB|TOOL|PLUGIN|IMPORT|MODULE|BACKEND|HOOK|CMD|COMMAND|PTXAS|FLAGS|ARGS"
    "|^CC$|^CXX$"
)
"""What such a variable names is executed, imported or opened, or a compiler's options may name it: it is never taken
over from a stored run."""
_SETTING = re.compile(r"(?!.*\.[A-Za-z_])[\w:,.+=% -]{0,200}", re.ASCII)
"""A number, a word or a list of them: no path, no dotted name."""

VERSIONS = ("python", "torch", "triton", "inductor-debug", "numpy")
TOLD_ONLY = ("commit.", "set_by_run.", "device.threads")
"""What may differ without making a rerun another compilation, or is seen in what else differs."""
BY_CONFIGURATION = ("model.", "device.", "options.")
"""What an override may change."""
NOT_KNOWN = "not established"
"""Stands for the values of a part that a record does not know."""


def matters(name: str) -> bool:
    """Whether a variable changes what is compiled, or how fast it runs."""
    return (name.startswith(PREFIXES) or name in NAMES) and not _ELSEWHERE.search(name) and not is_secret(name)


def restorable(name: str, value: str) -> bool:
    """Whether a variable may be taken over from a stored run, which may be a stranger's: a switch, never a path."""
    return matters(name) and not _NEVER_RESTORED.search(name) and _SETTING.fullmatch(value) is not None


def described(
    run: RunDescription, given: Mapping[str, str], environment: Mapping[str, str], adapters: Iterable[str] = ()
) -> CompiledBy:
    """The part of the record that is known before the worker starts.

    Args:
        run: its versions and repositories.
        given: the variables that the user's process has.
        environment: those that the worker gets.
        adapters: distributions that add a backend.
    """
    changed = {name for name in environment if environment[name] != given.get(name)}
    return CompiledBy(
        versions={name: run.versions.get(name) for name in dict.fromkeys((*VERSIONS, *adapters))},
        commit={
            place: None if found is None else Commit(found.commit, found.dirty) for place, found in run.git.items()
        },
        variables={name: given[name] for name in sorted(given) if matters(name) and name not in changed},
        set_by_run={name: environment[name] for name in sorted(changed) if matters(name)},
    )


def made_with_missing(record: CompiledBy | None) -> str:
    """Of packages beyond torch's and ours: ``made with chip 1.2, which is not installed here``; empty for none."""
    versions = {} if record is None else record.versions
    added = {name: version for name, version in versions.items() if name not in VERSIONS and version is not None}
    gone = ", ".join(visible(f"{name} {added[name]}") for name in added if _version(name) is None)
    return f"made with {gone}, which is not installed here" if gone else ""


def of_process(record: CompiledBy, settings: Settings, module: Any, devices: TorchFound | None) -> CompiledBy:
    """A record with what only the worker can tell, once the case and the adapter are built: nothing is compiled yet.

    Args:
        record: what :func:`described` gave.
        settings: the run's.
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
    device = device_of(settings.device, devices)
    model = model_code(module, str(target or ""))
    return dataclasses.replace(
        record, model=model, device=device, settings=not_default(), options=options, options_before={}
    )


def before_compiling(record: CompiledBy) -> dict[str, dict[str, Any]]:
    """A record's options as they were once the model was built, by compiler."""
    before = dict(record.options or {})
    for name, part in (record.options_before or {}).items():
        values = before.get(name, {}) | part
        before[name] = {key: value for key, value in values.items() if value is not None}
    return before


def where_compiled(record: CompiledBy, seen: "CompilationOptions") -> CompiledBy:
    """A record with ``options`` and ``options_before`` as its case was compiled."""
    before = before_compiling(record)
    options = seen.over(before)
    changed = {}
    for name, part in options.items():
        known = before.get(name, {})
        changed[name] = {key: known.get(key) for key in sorted({*part, *known}) if part.get(key) != known.get(key)}
    before_it = {name: part for name, part in changed.items() if part}
    return dataclasses.replace(record, options=options, options_before=before_it)


def device_of(device: str, found: TorchFound | None) -> CompiledFor:
    """What code is generated for: the GPU that the run is on, or the processor's vector instructions; and threads.

    Args:
        device: as configured.
        found: what torch found; None where nothing imported it.
    """
    kind, _, index = device.partition(":")
    if found is None:
        return CompiledFor(kind)
    if kind != "cuda":
        return CompiledFor(kind, found.threads, cpu_capability=found.cpu_capability)
    name = found.cuda[int(index or 0)].name if int(index or 0) < len(found.cuda) else kind
    return CompiledFor(name, found.threads, cuda_version=found.cuda_version)


def model_code(module: Any, target: str) -> ModelCode:
    """Whose code a model is.

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
    return ModelCode(libraries, files)


def differences(then: CompiledBy, now: CompiledBy, *, changed: bool) -> tuple[list[str], list[str]]:
    """What differs between what compiled a stored run and what would compile now, a line each.

    Nothing is compiled yet: options are compared as they were before the model, or the backend, set any.

    Args:
        then, now: two records.
        changed: the run is made again with overrides, so that model, device and options may be others by intent.

    Returns:
        Lines of what makes it another compilation, and of what may.
    """
    known = [record if record.options is None else dataclasses.replace(record, options=before_compiling(record))
             for record in (then, now)]  # fmt: skip
    earlier = [dataclasses.replace(record, options_before=None) for record in known]
    refused: list[str] = []
    told: list[str] = []
    for key, (before, after) in side_by_side(earlier).items():
        if not differ((before, after)):
            continue
        line = _line(key, before, after)
        mild = key.startswith(TOLD_ONLY) or (changed and key.startswith(BY_CONFIGURATION))
        (told if mild else refused).append(line)
    return refused, told


def set_otherwise(then: CompiledBy, now: CompiledBy) -> list[str]:
    """What differs in the options that the model, or the backend, set since it was built, a line each.

    Args:
        then, now: two records, of which both have an ``options_before``; else nothing can be said.
    """
    if then.options_before is None or now.options_before is None:
        return []
    sides = [record.options or {} for record in (then, now)]
    parts = [*then.options_before.items(), *now.options_before.items()]
    recorded = {(name, key) for name, part in parts for key in part}
    values = [(name, key, *(side.get(name, {}).get(key) for side in sides)) for name, key in sorted(recorded)]
    return [_line(f"options.{name}.{key}", before, after) for name, key, before, after in values if before != after]


def side_by_side(records: Sequence[CompiledBy | None]) -> dict[str, list[Any]]:
    """Dotted key → what each record has there: None for nothing, NOT_KNOWN where it does not know that part.

    A run that took a result from the cache may know of no options, for its own backend compiled nothing yet.
    """
    contents = [{} if record is None else jsonable(record) for record in records]
    values = [dict(flat(content)) for content in contents]
    return {
        key: [NOT_KNOWN if content.get(key.partition(".")[0]) is None else value.get(key)
              for content, value in zip(contents, values, strict=True)]
        for key in dict.fromkeys(key for value in values for key in value)
    }  # fmt: skip


def differ(values: Iterable[Any]) -> bool:
    """Whether those of :func:`side_by_side` that are known are not the same."""
    first, *others = [value for value in values if value != NOT_KNOWN] or [None]
    return any(other != first for other in others)


def flat(record: Mapping[str, Any], prefix: str = "", depth: int = 2) -> Iterator[tuple[str, Any]]:
    """The values of a record's JSON by dotted key: ``versions.torch``, ``options.inductor.freezing``.

    A part that is not known, or empty, has none.
    """
    for name, content in record.items():
        if isinstance(content, Mapping) and depth:
            yield from flat(content, f"{prefix}{name}.", depth - 1)
        elif prefix:
            yield f"{prefix}{name}", content


def _line(key: str, before: Any, after: Any) -> str:
    then, now = ("none" if value is None else ascii(value)[:200] for value in (before, after))
    return f"{ascii(key)[1:-1]}: {then} then, {now} now"


def _version(top: str) -> str | None:
    try:
        return metadata.version(top)
    except metadata.PackageNotFoundError:
        version = getattr(sys.modules.get(top), "__version__", None)
        return None if version is None else str(version)
