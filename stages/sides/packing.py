"""Leaves of a side as tensors for a safetensors file and records for JSON, and back. Nothing is pickled."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from inductor_debug.stages.artifacts.baseline import AnyLeaf, StoredTensor, TensorLeaf, ValueLeaf
from inductor_debug.stages.numerics.comparable import CannotCompare, dense
from inductor_debug.stages.sides.running import Leaves

SAFETENSORS_DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)
"""Dtypes that every release of safetensors holds. A complex tensor is stored as its real view (``stored: real``: one
more dimension of size 2), any other dtype as its bytes (``stored: bytes``: a flat uint8 tensor)."""

_EMPTY: dict[str, Callable[[], Any]] = {"NoneType": lambda: None, "list": list, "tuple": tuple, "dict": dict}
_TO_TEXT: dict[str, Callable[[Any], str]] = {"bool": repr, "int": repr, "float": repr, "str": str, "bytes": bytes.hex}
_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "bool": "True".__eq__,
    "int": int,
    "float": float,
    "str": str,
    "bytes": bytes.fromhex,
}


class CannotStore(Exception):
    """A leaf that neither safetensors nor JSON can hold; the message names it."""


def pack(leaves: Leaves) -> tuple[list[AnyLeaf], dict[str, torch.Tensor]]:
    """Leaves as records, in order, and the tensors that they name, by ``kind/path``; nothing is copied here but views.

    A sparse tensor is stored dense, as it is compared.

    Raises:
        CannotStore: an object of another type, or a tensor without bytes of its own (meta, quantized, nested).
    """
    records: list[AnyLeaf] = []
    tensors: dict[str, torch.Tensor] = {}
    for kind, part in leaves.items():
        for path, leaf in part.items():
            if isinstance(leaf, torch.Tensor):
                record, tensors[f"{kind}/{path}"] = pack_tensor(leaf, f"{kind} {path}")
                records.append(TensorLeaf(kind, path, **vars(record)))
            else:
                records.append(_pack_value(leaf, kind, path))
    return records, tensors


def unpack(records: Sequence[AnyLeaf], tensors: dict[str, torch.Tensor]) -> Leaves:
    """The inverse of :func:`pack`, tensors on the device of ``tensors``; KeyError where one is missing."""
    leaves: Leaves = {}
    for record in records:
        part = leaves.setdefault(record.kind, {})
        if isinstance(record, TensorLeaf):
            part[record.path] = unpack_tensor(record, tensors[f"{record.kind}/{record.path}"])
        else:
            part[record.path] = _unpack_value(record)
    return leaves


def pack_tensor(tensor: torch.Tensor, name: str) -> tuple[StoredTensor, torch.Tensor]:
    """A tensor's record and the tensor to store: of a dtype of safetensors, on its own device, of any stride."""
    if tensor.is_meta or tensor.is_quantized or tensor.is_nested:
        raise CannotStore(f"{name} is a {'meta' if tensor.is_meta else 'quantized or nested'} tensor")
    try:
        value = dense(tensor)
    except CannotCompare as error:
        raise CannotStore(f"{name} is {error}") from error
    if value.is_complex():
        stored, content = "real", torch.view_as_real(value.resolve_conj().resolve_neg())
    elif value.dtype not in SAFETENSORS_DTYPES:
        stored, content = "bytes", _bytes(value)
    else:
        stored, content = "plain", value.resolve_neg()
    return StoredTensor("tensor", dtype_name(value), list(value.shape), stored), content


def unpack_tensor(record: StoredTensor, stored: torch.Tensor) -> torch.Tensor:
    """The inverse of :func:`pack_tensor`; ValueError where what is stored does not fit its record."""
    dtype = getattr(torch, record.dtype)
    if record.stored == "real":
        stored = torch.view_as_complex(stored)
    elif record.stored == "bytes":
        stored = stored.clone().view(dtype).reshape(record.shape)
    if stored.dtype != dtype or list(stored.shape) != record.shape:
        raise ValueError(f"holds {stored.dtype} of shape {list(stored.shape)} for {dtype} of {record.shape}")
    return stored


def size(tensors: dict[str, torch.Tensor]) -> int:
    """Bytes of the tensors' content."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def serialise(tensors: dict[str, torch.Tensor]) -> bytes:
    """A safetensors file's content. What is not contiguous, or shares memory with another tensor, is copied first."""
    from safetensors.torch import save

    storages: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        piece = tensor.cpu().contiguous()
        storage = piece.untyped_storage().data_ptr()
        separate[name] = piece.clone() if storage in storages else piece
        storages.add(storage)
    return save(separate)


def tensor_digest(tensor: torch.Tensor) -> str:
    """SHA-256 of a tensor's dtype, shape and bytes, whatever its device and strides."""
    digest = hashlib.sha256(f"{tensor.dtype} {list(tensor.shape)}\n".encode())
    digest.update(_bytes(dense(tensor).resolve_conj().resolve_neg()).cpu().numpy().data)
    return digest.hexdigest()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def dtype_name(tensor: torch.Tensor) -> str:
    """``float32``."""
    return str(tensor.dtype).removeprefix("torch.")


def _pack_value(leaf: Any, kind: str, path: str) -> ValueLeaf:
    name = type(leaf).__name__
    if type(leaf) is complex:
        return ValueLeaf(kind, path, name, [repr(leaf.real), repr(leaf.imag)])
    if type(leaf) in (bool, int, float, str, bytes):
        return ValueLeaf(kind, path, name, _TO_TEXT[name](leaf))
    if leaf is None or (type(leaf) in (list, tuple, dict) and not leaf):
        return ValueLeaf(kind, path, name, "")
    raise CannotStore(f"{kind} {path} is an object of type {name}")


def _unpack_value(record: ValueLeaf) -> Any:
    if record.type in _EMPTY:
        return _EMPTY[record.type]()
    if isinstance(record.value, str):
        return _FROM_TEXT[record.type](record.value)
    real, imaginary = map(float, record.value)
    return complex(real, imaginary)
