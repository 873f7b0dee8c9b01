"""The device string ``acme``: a simulated NPU whose memory is host memory. Real device tensors, no driver.

A tensor on ``acme`` has torch's PrivateUse1 dispatch key and a storage without bytes; the bytes are in a host storage
kept on it. An operation called in eager is computed by the CPU's kernel on that host memory (:func:`_on_host`), views
included: what aliases on the host aliases on the device. A vendor with a driver writes allocator, copies and kernels in
C++ instead (torch's ``open_registration_extension`` tests show it); nothing else of this package would change.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend  # private; torch 2.10 and newer

NAME = "acme"
_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> Any:
    """Without the sizes of the bias, which this form of the operation does not have: one element a channel."""
    *window, mask = rest
    return torch.ops.aten.convolution_backward(gradient, x, weight, [gradient.shape[1]], *window, mask)


_OVERRIDEABLE = {
    "convolution_overrideable": torch.ops.aten.convolution.default,
    "convolution_backward_overrideable": _convolution_backward,
}
"""Operations that torch gives to a device without a kernel of its own → what the host computes for them."""
_generator = torch.Generator()  # the device's own; torch.Generator(device="acme") would take C++
_registrations: list[torch.library.Library] = []  # a Library that is collected takes its kernels along


class AcmeModule:
    """``torch.acme``: what torch and its tools ask a device's module for."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def synchronize(self, device: object = None) -> None:
        """Nothing is in flight: a simulated kernel has ended when it returns."""

    def get_rng_state(self, device: object = None) -> Tensor:
        return _generator.get_state()

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        _generator.set_state(state)

    def manual_seed(self, seed: int) -> None:
        _generator.manual_seed(seed)

    manual_seed_all = manual_seed

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


def register() -> None:
    """Make ``torch.device("acme")`` known. Called by torch when it is imported: the entry point ``torch.backends``."""
    if _registrations:
        return
    _setup_privateuseone_for_python_backend(NAME, backend_module=AcmeModule())
    fallback, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    fallback.fallback(_on_host, "PrivateUse1")
    aten.impl("_copy_from", _copy_from, "PrivateUse1")
    aten.impl("set_.source_Storage_storage_offset", _set_storage, "PrivateUse1")
    for name, target in _OVERRIDEABLE.items():
        aten.impl(name, functools.partial(_on_host, target), "PrivateUse1")
    _registrations.extend((fallback, aten))


def to_host(tensor: Tensor) -> Tensor:
    """A CPU tensor on the same memory, with the same sizes, strides and offset. A CPU tensor is returned as it is."""
    if tensor.device.type != NAME:
        return tensor
    host = torch.empty(0, dtype=tensor.dtype)
    return host.set_(tensor.untyped_storage()._acme_memory, tensor.storage_offset(), tensor.size(), tensor.stride())


def to_device(host: Tensor) -> Tensor:
    """A tensor on ``acme`` whose memory is that of a CPU tensor."""
    return _strided(_empty(host.dtype, host.untyped_storage()), host)


def _empty(dtype: torch.dtype, memory: torch.UntypedStorage) -> Tensor:
    """A scalar tensor on a new device storage. torch keeps a storage's Python object, and what is set on it, alive."""
    if dtype in (torch.float64, torch.complex128):
        raise TypeError(f"the {NAME} chip has no {dtype}")  # as MPS and many NPUs: compare on the host
    tensor = torch._C._acc.create_empty_tensor((), dtype)
    storage = tensor.untyped_storage()
    storage._acme_memory = memory
    storage.__deepcopy__ = functools.partial(_copied, memory)
    return tensor


def _copied(memory: torch.UntypedStorage, memo: dict[Any, Any]) -> torch.UntypedStorage:
    """``copy.deepcopy`` of a device storage. Tensors that share a storage go on sharing its copy."""
    if memory._cdata not in memo:
        memo[memory._cdata] = _empty(torch.uint8, memory.clone()).untyped_storage()
    return memo[memory._cdata]


def _strided(base: Tensor, like: Tensor) -> Tensor:
    """A tensor on the storage of ``base`` with the sizes, strides and offset of ``like``."""
    return torch.ops.aten.as_strided.default.redispatch(_META, base, like.size(), like.stride(), like.storage_offset())


def _on_host(op: Any, *args: Any, **kwargs: Any) -> Any:
    """The fallback for every operation: the CPU's kernel on the device tensors' memory, on the device again."""
    given: list[tuple[Tensor, Tensor]] = []

    def lowered(value: Any) -> Any:
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == NAME else value
        if value.device.type != NAME:
            return value
        given.append((to_host(value), value))
        return given[-1][0]

    def raised(host: Tensor) -> Tensor:
        for before, tensor in given:
            if host is before:
                return tensor  # in place, or ``out=``
        for before, tensor in given:
            if host.untyped_storage()._cdata == before.untyped_storage()._cdata and host.dtype == tensor.dtype:
                return _strided(tensor, host)  # a view
        return to_device(host)

    args, kwargs = tree_map_only((Tensor, torch.device), lowered, (args, kwargs))
    with _devices_generator() if torch.Tag.nondeterministic_seeded in getattr(op, "tags", ()) else nullcontext():
        result = op(*args, **kwargs)
    for host, tensor in given:
        if host.size() != tensor.size() or host.stride() != tensor.stride():  # an ``out=`` that was empty
            _set_storage(tensor, tensor.untyped_storage(), host.storage_offset(), host.size(), host.stride())
    return tree_map_only(Tensor, raised, result)


@contextmanager
def _devices_generator() -> Iterator[None]:
    """Inside, the host draws what the device's generator would."""
    host = torch.get_rng_state()
    torch.set_rng_state(_generator.get_state())
    try:
        yield
    finally:
        _generator.set_state(torch.get_rng_state())
        torch.set_rng_state(host)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Copies to, from and within the device."""
    to_host(target).copy_(to_host(source))
    return target


def _set_storage(tensor: Tensor, storage: Any, offset: int, size: Any, stride: Any = ()) -> Tensor:
    return torch.ops.aten.set_.source_Storage_storage_offset.redispatch(_META, tensor, storage, offset, size, stride)
