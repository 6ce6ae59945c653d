"""Conversions to CSR of PyTorch's sparse tensors in other formats: each is made once, and made again only if the tensor
changes."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ptxgen.api import drivers, streams
from ptxgen.api.arrays import tensor

COO = "torch.sparse_coo"
#: formats -> the methods that return their index tensors
INDICES = {
    "torch.sparse_csr": ("crow_indices", "col_indices"),
    "torch.sparse_csc": ("ccol_indices", "row_indices"),
    "torch.sparse_bsr": ("crow_indices", "col_indices"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices"),
}
BLOCKED = ("torch.sparse_bsr", "torch.sparse_bsc")
Arrays = tuple[Any, Any, Any]


@dataclass(frozen=True)
class Converted:
    """A sparse tensor as a matrix in CSR, which later calls use again. ``matrix``: a weak reference to the sparse
    tensor; ``state``: versions and addresses of its parts when it was converted; ``arrays``: row pointers, columns and
    values in CSR."""

    matrix: weakref.ref[Any]
    state: tuple[Any, ...]
    arrays: Arrays


#: identity of a sparse tensor -> its conversion, which is forgotten with the tensor
_converted: dict[int, Converted] = {}


def versions_of(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The version counters of arrays, by which PyTorch counts changes in place; 0 for arrays of other libraries.
    Inference tensors have no counter: each gives an object that equals no other."""
    versions: list[Any] = []
    for x in arrays:
        try:
            versions.append(getattr(x, "_version", 0))
        except RuntimeError:
            versions.append(object())
    return tuple(versions)


def csr_arrays(a: Any) -> Arrays:
    """Row pointers, columns and values of a sparse tensor of PyTorch. A tensor in another format than CSR is converted;
    the conversion is kept as long as the tensor exists and does not change."""
    layout = str(a.layout)
    if layout == "torch.sparse_csr":
        return a.crow_indices(), a.col_indices(), a.values()
    parts = (a._indices(), a._values()) if layout == COO else (*(getattr(a, x)() for x in INDICES[layout]), a.values())
    state = (*versions_of(parts), *(x.data_ptr() for x in parts))
    known = _converted.get(id(a))
    if known is not None and known.matrix() is a and known.state == state:
        return known.arrays
    torch: Any = sys.modules["torch"]
    with torch.inference_mode(False), torch.no_grad():  # later calls may save the arrays for gradients
        b = a.to_sparse_coo().to_sparse_csr() if layout in BLOCKED else a.to_sparse_csr()
        arrays = b.crow_indices(), b.col_indices(), b.values()
    if _complete(arrays[2]):
        at = id(a)
        _converted[at] = Converted(weakref.ref(a, lambda _: _converted.pop(at, None)), state, arrays)
    return arrays


def _complete(values: Any) -> bool:
    """Waits for a conversion, so that calls on any stream may read its arrays, and returns True. False: the stream is
    being captured into a graph, whose launches will make the conversion."""
    v = tensor(values, "a.values")
    if v.host:
        return True
    on, stream = drivers.driver_of(v), streams.current_stream(values)
    if streams.is_captured(stream, on):
        return False
    on.wait(stream)
    return True
