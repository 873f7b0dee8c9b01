"""Leaves of a side as tensors for a safetensors file and records for JSON, and back. Nothing is pickled."""

import hashlib
from collections.abc import Callable
from typing import Any

import torch

from inductor_debug.stages.numerics.comparable import CannotCompare, dense
from inductor_debug.stages.sides.running import Leaves

SAFETENSORS_DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)
"""Dtypes that every release of safetensors holds. A complex tensor is stored as its real view (``stored: real``: one
more dimension of size 2), any other dtype as its bytes (``stored: bytes``: a flat uint8 tensor)."""

_EMPTY: dict[str, Callable[[], Any]] = {"list": list, "tuple": tuple, "dict": dict}
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


def pack(leaves: Leaves) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """Leaves as records, in order, and the tensors that they name, by ``kind/path``; nothing is copied here but views.

    A tensor's record has ``kind, path, type="tensor", dtype, shape, stored`` (plain, real or bytes); another leaf's has
    ``kind, path, type, value``: the value as text that gives exactly the same value back. A sparse tensor is stored
    dense, as it is compared.

    Raises:
        CannotStore: an object of another type, or a tensor without bytes of its own (meta, quantized, nested).
    """
    records: list[dict[str, Any]] = []
    tensors: dict[str, torch.Tensor] = {}
    for kind, part in leaves.items():
        for path, leaf in part.items():
            where = {"kind": kind, "path": path}
            if isinstance(leaf, torch.Tensor):
                record, tensors[f"{kind}/{path}"] = pack_tensor(leaf, f"{kind} {path}")
                records.append(where | record)
            else:
                records.append(where | _pack_value(leaf, f"{kind} {path}"))
    return records, tensors


def unpack(records: list[dict[str, Any]], tensors: dict[str, torch.Tensor]) -> Leaves:
    """The inverse of :func:`pack`, tensors on the device of ``tensors``; KeyError where one is missing."""
    leaves: Leaves = {}
    for record in records:
        kind, path = record["kind"], record["path"]
        is_tensor = record["type"] == "tensor"
        leaf = unpack_tensor(record, tensors[f"{kind}/{path}"]) if is_tensor else _unpack_value(record)
        leaves.setdefault(kind, {})[path] = leaf
    return leaves


def pack_tensor(tensor: torch.Tensor, name: str) -> tuple[dict[str, Any], torch.Tensor]:
    """A tensor's record and the tensor to store: of a dtype of safetensors, on its own device, of any stride."""
    if tensor.is_meta or tensor.is_quantized or tensor.is_nested:
        raise CannotStore(f"{name} is a {'meta' if tensor.is_meta else 'quantized or nested'} tensor")
    try:
        value = dense(tensor)
    except CannotCompare as error:
        raise CannotStore(f"{name} is {error}") from error
    record = {"type": "tensor", "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    if value.is_complex():
        return record | {"stored": "real"}, torch.view_as_real(value.resolve_conj().resolve_neg())
    if value.dtype not in SAFETENSORS_DTYPES:
        return record | {"stored": "bytes"}, _bytes(value)
    return record | {"stored": "plain"}, value.resolve_neg()


def unpack_tensor(record: dict[str, Any], stored: torch.Tensor) -> torch.Tensor:
    """The inverse of :func:`pack_tensor`; ValueError where what is stored does not fit its record."""
    dtype = getattr(torch, record["dtype"])
    if record["stored"] == "real":
        stored = torch.view_as_complex(stored)
    elif record["stored"] == "bytes":
        stored = stored.clone().view(dtype).reshape(record["shape"])
    if stored.dtype != dtype or list(stored.shape) != record["shape"]:
        raise ValueError(f"holds {stored.dtype} of shape {list(stored.shape)} for {dtype} of {record['shape']}")
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


def _pack_value(leaf: Any, name: str) -> dict[str, Any]:
    kind = type(leaf).__name__
    if leaf is None:
        return {"type": "NoneType", "value": ""}
    if type(leaf) is complex:
        return {"type": "complex", "value": [repr(leaf.real), repr(leaf.imag)]}
    if type(leaf) in (bool, int, float, str, bytes):
        return {"type": kind, "value": _TO_TEXT[kind](leaf)}
    if type(leaf) in (list, tuple, dict) and not leaf:
        return {"type": kind, "value": ""}
    raise CannotStore(f"{name} is an object of type {kind}")


def _unpack_value(record: dict[str, Any]) -> Any:
    kind, value = record["type"], record["value"]
    if kind == "NoneType":
        return None
    if kind == "complex":
        return complex(float(value[0]), float(value[1]))
    return _EMPTY[kind]() if kind in _EMPTY else _FROM_TEXT[kind](value)
