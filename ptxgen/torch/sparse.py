"""Products with sparse matrices, and sampled products. The gradients of both are computed by the same operators.

The operators take the three arrays of a CSR matrix, because fake tensors can represent arrays but not sparse tensors.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.multiprocessing.reductions import StorageWeakRef

from ptxgen.api import call_lock
from ptxgen.api.converted_matrices import csr_arrays, versions_of
from ptxgen.api.prepared_spmm import PreparedSpmm, handle_of_arrays
from ptxgen.api.sparse_matrix import INDEX_LIMIT, SparseMatrix, read_csr
from ptxgen.errors import DeviceError, DtypeError, InputError, ShapeError
from ptxgen.torch import launching
from ptxgen.torch.launching import check_operands
from ptxgen.torch.operator import Operator, in_transform, loop_over_batch

MAX_MATRICES = 64  #: matrices whose handles are kept, besides those that captured graphs read
MANY = 3  #: after so many changes of its values, a matrix has formats that do not contain values

Arrays = tuple[Tensor, Tensor, Tensor]  # indptr, indices, values


def spmm(a: Tensor | SparseMatrix, b: Tensor) -> Tensor:
    """The product A·B of a sparse matrix A and a dense matrix or vector B, as ``torch.sparse.mm``. A and B have
    gradients.

    ``a``: a tensor in CSR or CSC, or a ``ptxgen.SparseMatrix`` of tensors, M×K; ``b``: K×N, or K elements. Sparse
    tensors in other formats are converted, again only after they change, and have no gradient. A batch of CSR matrices
    multiplies a batch of B, or one B, as one block-diagonal matrix. ``torch.compile``, and second derivatives with
    respect to the values, require a ``SparseMatrix``.

    A pattern is checked and prepared at its first product, and again when its index tensors change; the transpose for
    gradients is made once. Dtypes and TF32: as for ``matmul``. The same inputs give the same bits. A captured CUDA
    graph reads values that require gradients in each run; other values stay as they were at the capture. ``backward``
    cannot give a leaf in CSC its gradient, because PyTorch cannot; ``torch.autograd.grad`` returns it.

    ShapeError, DtypeError, DeviceError, InputError: an argument breaks a rule.
    """
    if not is_dynamo_compiling():
        launching.check_dense("b", b)
    if isinstance(a, Tensor) and a.dim() == 3 and a.layout is not torch.strided:
        (indptr, indices, values), columns, below = _batch(a, b=b)
        _require_rows("b", b, a.shape[2], "columns")
        batch: Tensor = SPMM(values, below["b"], indptr, indices, columns, False)
        return batch.reshape(*a.shape[:2], b.shape[-1])
    (indptr, indices, values), (m, k), swapped = _arrays(a)
    if not is_dynamo_compiling() and not values.requires_grad and torch.is_autocast_enabled(b.device.type):
        values = _cast(values)
    right = b if b.dim() > 1 else b.unsqueeze(1)
    result: Tensor = SPMM(values, right, indptr, indices, m if swapped else k, swapped)
    return result if b.dim() > 1 else result.squeeze(1)


def sddmm(a: Tensor | SparseMatrix, x: Tensor, y: Tensor, *, scaled: bool = False) -> Tensor:
    """The sampled product: the elements of x·yᵀ at the nonzeros of a sparse matrix A, in the order of the nonzeros. x
    and y have gradients.

    ``a``: a tensor in CSR, a batch of them, or a ``ptxgen.SparseMatrix`` of tensors, M×K; ``x``: M×N; ``y``: K×N; with
    a batch of A, ``x`` and ``y`` are batches, too, or one matrix for all. ``scaled``: the elements are multiplied by
    the values of A, which then have a gradient, too. ``SparseMatrix(a.indptr, a.indices, sddmm(a, x, y), a.shape)`` is
    a matrix for ``spmm``. Errors: as for ``spmm``.
    """
    if not is_dynamo_compiling():
        launching.check_dense("x", x)
        launching.check_dense("y", y)
    if isinstance(a, Tensor) and a.dim() == 3 and a.layout is not torch.strided:
        (indptr, indices, values), _, below = _batch(a, x=x, y=y)
        _require_rows("x", x, a.shape[1], "rows")
        _require_rows("y", y, a.shape[2], "columns")
        batch: Tensor = SDDMM(below["x"], below["y"], indptr, indices)
        return (batch * values.to(batch.dtype) if scaled else batch).reshape(len(a), -1)
    (indptr, indices, values), (m, k), swapped = _arrays(a)
    for name, each, rows, of in (("x", x, m, "rows"), ("y", y, k, "columns")):
        if each.dim() == 2:
            _require_rows(name, each, rows, of)
    result: Tensor = SDDMM(y, x, indptr, indices) if swapped else SDDMM(x, y, indptr, indices)
    return result * values.to(result.dtype) if scaled else result


def _arrays(a: Any) -> tuple[Arrays, tuple[int, int], bool]:
    """The row pointers, columns and values of a matrix or of its transpose; the shape of the matrix; and True if the
    arrays are those of the transpose."""
    if isinstance(a, SparseMatrix):
        for name, each in (("indptr", a.indptr), ("indices", a.indices), ("values", a.values)):
            if not isinstance(each, Tensor):
                launching.check_dense(f"a.{name}", each)
        if len(a.shape) != 2:
            raise ShapeError(f"a has shape {tuple(a.shape)}; it must have 2 dimensions")
        if a.indptr.dim() == 1 and a.indptr.shape[0] != a.shape[0] + 1:
            raise ShapeError(
                f"a.indptr has {a.indptr.shape[0]} elements; it must have {a.shape[0] + 1}, one more than a has rows"
            )
        return (a.indptr, a.indices, a.values), (a.shape[0], a.shape[1]), False
    if not isinstance(a, Tensor) or a.layout is torch.strided or a.dim() != 2:
        raise InputError(
            f"a is {_described(a)}; it must be a sparse matrix of PyTorch, or a ptxgen.SparseMatrix of tensors"
        )
    _require_no_dense_dimensions(a)
    m, k = a.shape
    if a.layout is torch.sparse_csr:
        return (a.crow_indices(), a.col_indices(), a.values()), (m, k), False
    if a.layout is torch.sparse_csc:
        return (a.ccol_indices(), a.row_indices(), a.values()), (m, k), True
    if a.requires_grad:
        raise InputError(f"a has layout {a.layout} and requires a gradient; it must be in CSR: a.to_sparse_csr()")
    indptr, indices, values = csr_arrays(a)
    return (indptr, indices, values), (m, k), False


def _require_rows(name: str, x: Tensor, rows: int, of: str) -> None:
    """Raises ShapeError if the matrices of ``x`` do not have ``rows`` rows."""
    if x.shape[-2] != rows:
        raise ShapeError(f"{name} has {x.shape[-2]} rows; it must have {rows}, the {of} of a")


def _require_no_dense_dimensions(a: Tensor) -> None:
    """Raises InputError if the nonzeros of a sparse tensor are arrays instead of numbers."""
    if a.dense_dim():
        raise InputError(f"a has {a.dense_dim()} dense dimensions; it must have none")


def _described(a: Any) -> str:
    if not isinstance(a, Tensor):
        return f"of type {type(a).__name__}"
    return f"a {'dense' if a.layout is torch.strided else str(a.layout)} tensor of shape {tuple(a.shape)}"


def _batch(a: Tensor, **operands: Tensor) -> tuple[Arrays, int, dict[str, Tensor]]:
    """The block-diagonal matrix of a batch of CSR matrices: its row pointers, columns and values; its number of
    columns; and the dense operands with their matrices one below the other. An operand is a batch, too, or one matrix
    for all."""
    _require_no_dense_dimensions(a)
    if a.layout is not torch.sparse_csr:
        raise InputError(f"a is a batch in {a.layout}; it must be in CSR")
    count, _, k = a.shape
    for name, x in operands.items():
        if x.dim() not in (2, 3):
            raise ShapeError(f"{name} has {x.dim()} dimensions; it must have 2 or 3, as a is a batch")
        if x.dim() == 3 and len(x) != count:
            raise ShapeError(f"a has {count} matrices and {name} has {len(x)}; they must have as many")
    below = {name: x.expand(count, *x.shape[-2:]).reshape(-1, x.shape[-1]) for name, x in operands.items()}
    indptr, indices = _once("batch", (a.crow_indices(), a.col_indices()), lambda: _block_diagonal(a))
    return (indptr, indices, a.values().reshape(-1)), count * k, below


def _block_diagonal(a: Tensor) -> tuple[Tensor, Tensor]:
    """The row pointers and columns of the block-diagonal matrix of a batch."""
    indptr, indices, (count, _, k) = a.crow_indices(), a.col_indices(), a.shape
    nnz = indices.shape[1]
    if count * max(nnz, k) >= INDEX_LIMIT:
        indptr, indices = indptr.long(), indices.long()
    each = torch.arange(count + 1, device=indptr.device, dtype=indptr.dtype)
    starts = (indptr[:, :-1] + each[:-1, None] * nnz).reshape(-1)
    return torch.cat([starts, each[-1:] * nnz]), (indices + each[:-1, None] * k).reshape(-1)


def _cast(values: Tensor) -> Tensor:
    """The values, which require no gradient, in the dtype of autocast. They are cast once, so that the handle of the
    matrix gets the same tensor in each call."""
    autocast_dtype = torch.get_autocast_dtype(values.device.type)
    plain = values.__class__ is Tensor and not in_transform() and not torch._C._len_torch_dispatch_stack()
    if not plain or values.dtype in (autocast_dtype, torch.float64):
        return values
    cast: Tensor = _once(autocast_dtype, (values,), lambda: values.to(autocast_dtype))
    return cast


def _once(what: Any, sources: tuple[Tensor, ...], make: Callable[[], Any]) -> Any:
    """The result of ``make``, which is kept while the tensors ``sources`` exist and do not change. The current stream
    waits for the stream that made the result."""
    key = (what, *((x.data_ptr(), tuple(x.shape), x.stride(), x.dtype, x.get_device()) for x in sources))
    entry, versions = _made_once.get(key), versions_of(sources)
    if entry is not None and entry.versions == versions and entry.current and entry.ready(_is_captured(sources[0])):
        return entry.made
    with torch.inference_mode(False), torch.no_grad():  # later calls may save it for gradients
        made = make()
    if _is_captured(sources[0]):  # the memory of a graph is not for other calls
        return made
    for other, kept in list(_made_once.items()):  # other threads may change it
        if not kept.current:
            _made_once.pop(other, None)
    storages = tuple(StorageWeakRef(x.untyped_storage()) for x in sources)
    stream = torch.cuda.current_stream(sources[0].device) if sources[0].is_cuda else None
    _made_once[key] = _Made(storages, versions, made, stream, stream.record_event() if stream else None)
    return made


@dataclass(frozen=True)
class _Made:
    """A result that ``_once`` keeps. ``storages``, ``versions``: those of the tensors it was made from; ``made``: a
    tensor or several; ``stream``: the stream of a GPU on which it was made; ``event``: the end of that work."""

    storages: tuple[StorageWeakRef, ...]
    versions: tuple[Any, ...]
    made: Any
    stream: torch.cuda.Stream | None
    event: torch.cuda.Event | None

    @property
    def current(self) -> bool:
        return not any(x.expired() for x in self.storages)

    def ready(self, captured: bool) -> bool:
        """Makes the current stream wait for the work that made the result, and keeps the memory for that stream. False:
        the stream is being captured, and cannot wait."""
        if self.stream is None or self.event is None:
            return True
        here = torch.cuda.current_stream(self.stream.device)
        if here == self.stream:
            return True
        if captured:
            return False
        here.wait_event(self.event)
        for each in self.made if isinstance(self.made, tuple) else (self.made,):
            each.record_stream(here)
        return True


def _is_captured(x: Tensor) -> bool:
    """True if work on the tensor is being captured into a CUDA graph."""
    return bool(x.is_cuda and torch.cuda.is_current_stream_capturing())


#: (what was made, addresses and shapes of the tensors) -> the kept result
_made_once: dict[Any, _Made] = {}


# ---- handles of matrices


@dataclass
class _Known:
    """A handle that is kept for a matrix. ``storages``, ``versions``: those of the index tensors; ``changes``: how
    often the handle got other values; ``exact``: its formats do not contain values; ``in_graph``: captured graphs read
    the handle; ``updated_in_graph``: launches of captured graphs give it other values."""

    handle: PreparedSpmm
    storages: tuple[StorageWeakRef, StorageWeakRef]
    versions: tuple[Any, ...]
    changes: int
    exact: bool
    in_graph: bool = False
    updated_in_graph: bool = False

    @property
    def current(self) -> bool:
        return not any(x.expired() for x in self.storages)


#: addresses and sizes of index tensors, dtype and arithmetic -> the handle
_matrices: OrderedDict[Any, _Known] = OrderedDict()


def _handle(values: Tensor, indptr: Tensor, indices: Tensor, columns: int, compute: str) -> PreparedSpmm:
    """The handle of a matrix, updated to ``values``. It does not keep the index tensors alive."""
    key = (*_pattern_key(values, indptr, indices, columns), compute)
    versions = versions_of((indptr, indices))
    matrix = _matrices.get(key)
    if matrix is None or not matrix.current or matrix.versions != versions:
        for other in [other for other, known in _matrices.items() if not known.current]:
            del _matrices[other]
        exact = values.requires_grad
        storages = StorageWeakRef(indptr.untyped_storage()), StorageWeakRef(indices.untyped_storage())
        matrix = _Known(_made(values, indptr, indices, columns, compute, exact), storages, versions, 0, exact)
        _matrices[key] = matrix
        for other in [other for other, known in _matrices.items() if not known.in_graph][:-MAX_MATRICES]:
            del _matrices[other]
        return matrix.handle
    _matrices.move_to_end(key)
    captured = _is_captured(values)
    matrix.in_graph = matrix.in_graph or captured
    # values that require gradients may change without a count: by their ``data``, or in each run of a captured graph
    if values.requires_grad or matrix.updated_in_graph or not matrix.handle.has(values):
        matrix.changes += 1
        matrix.updated_in_graph = matrix.updated_in_graph or captured
        if matrix.changes >= MANY and not matrix.exact and not matrix.in_graph:
            matrix.handle, matrix.exact = _made(values, indptr, indices, columns, compute, True), True
        else:
            matrix.handle.update(values.detach())
    return matrix.handle


def _pattern_key(x: Tensor, indptr: Tensor, indices: Tensor, columns: int) -> tuple[Any, ...]:
    """The key of a pattern with values of the dtype and device of ``x``; keys of ``_matrices`` add the arithmetic."""
    at = indptr.data_ptr(), indices.data_ptr(), indptr.stride(), indices.stride()
    return (*at, indptr.numel(), columns, indices.numel(), indices.dtype, x.dtype, x.get_device())


def _made(values: Tensor, indptr: Tensor, indices: Tensor, columns: int, compute: str, changes: bool) -> PreparedSpmm:
    """A new handle. ``changes``: the values change often, so that formats must not contain them."""
    csr = read_csr(SparseMatrix(indptr.detach(), indices.detach(), values.detach(), (indptr.numel() - 1, columns)))
    return handle_of_arrays(csr, compute, exact_nonfinite=changes)


# ---- kernels


def _compute(x: Tensor) -> str:
    return launching.compute(x, launching.settings(x, "matmul")[0])


def _spmm(values: Tensor, b: Tensor, indptr: Tensor, indices: Tensor, columns: int, transpose: bool) -> Tensor:
    compute = _compute(b)
    if not _fits(values, b, indptr, indices, columns, transpose, compute):
        _spmm_shape(values, b, indptr, indices, columns, transpose)
    out = b.new_empty(columns if transpose else indptr.numel() - 1, b.shape[1])
    if 0 in out.shape:
        return out
    values, b = values.resolve_neg().contiguous(), b.resolve_neg()
    with call_lock.lock:
        handle = _handle(values, indptr, indices, columns, compute)
        (handle.t if transpose else handle)(b.detach(), out)
    return out


def _fits(
    values: Tensor, b: Tensor, indptr: Tensor, indices: Tensor, columns: int, transpose: bool, compute: str
) -> bool:
    """True if a handle of the matrix is kept and ``b`` matches it; False: the operands must be checked."""
    if values.dim() != 1 or b.dim() != 2 or b.dtype is not values.dtype or b.get_device() != values.get_device():
        return False
    rows = indptr.numel() - 1 if transpose else columns
    return b.shape[0] == rows and (*_pattern_key(values, indptr, indices, columns), compute) in _matrices


def _sddmm(x: Tensor, y: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    nnz = _sddmm_shape(x, y, indptr, indices)
    if nnz == 0:
        return x.new_empty(nnz)
    x, y = x.resolve_neg().detach(), y.resolve_neg().detach()
    with call_lock.lock:
        out: Tensor = _pattern(x, y, indptr, indices).sddmm(x, y)
    return out


def _pattern(x: Tensor, y: Tensor, indptr: Tensor, indices: Tensor) -> PreparedSpmm:
    """A handle of the pattern with any values."""
    wanted, versions = _pattern_key(x, indptr, indices, y.shape[0]), versions_of((indptr, indices))
    for key, known in reversed(_matrices.items()):
        if key[:-1] == wanted and known.current and known.versions == versions:
            known.in_graph = known.in_graph or _is_captured(x)
            return known.handle
    return _handle(x.new_ones(indices.numel()), indptr, indices, y.shape[0], _compute(x))


# ---- shapes


def _check_pattern(indptr: Tensor, indices: Tensor, x: Tensor) -> None:
    """Checks the index arrays of a matrix. DtypeError, ShapeError: they are not int32 or int64 vectors; DeviceError:
    they are not on the device of ``x``."""
    for name, each in (("indptr", indptr), ("indices", indices)):
        launching.check_dense(f"a.{name}", each)
        if each.dtype not in (torch.int32, torch.int64):
            raise DtypeError(f"a.{name} is {each.dtype}; it must be int32 or int64")
        if each.dim() != 1:
            raise ShapeError(f"a.{name} has shape {tuple(each.shape)}; it must have 1 dimension")
        if each.device != x.device:
            raise DeviceError(f"a.{name} is on {each.device}; it must be on {x.device}, as the other tensors")
    if indptr.dtype is not indices.dtype:
        raise DtypeError(f"a.indptr is {indptr.dtype} and a.indices is {indices.dtype}; they must be the same")
    if indptr.shape[0] == 0:
        raise ShapeError("a.indptr has 0 elements; it must have one more than a has rows")


def _spmm_shape(
    values: Tensor, b: Tensor, indptr: Tensor, indices: Tensor, columns: int, transpose: bool
) -> tuple[int, int]:
    check_operands(values=values, b=b)
    _check_pattern(indptr, indices, b)
    if values.dim() != 1 or values.shape[0] != indices.shape[0]:
        raise ShapeError(f"a.values has shape {tuple(values.shape)}; it must be ({indices.shape[0]},), as a.indices")
    if b.dim() != 2:
        raise ShapeError(f"b has {b.dim()} dimensions; it must have 1 or 2")
    m = indptr.shape[0] - 1
    rows, out = (m, columns) if transpose else (columns, m)
    if b.shape[0] != rows:
        raise ShapeError(f"a has {rows} columns and b has {b.shape[0]} rows; they must be as many")
    return out, b.shape[1]


def _sddmm_shape(x: Tensor, y: Tensor, indptr: Tensor, indices: Tensor) -> int:
    check_operands(x=x, y=y)
    _check_pattern(indptr, indices, x)
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1]:
        raise ShapeError(f"x has shape {tuple(x.shape)} and y {tuple(y.shape)}; they must be M×N and K×N")
    if x.shape[0] != indptr.shape[0] - 1:
        raise ShapeError(f"x has {x.shape[0]} rows; it must have {indptr.shape[0] - 1}, the rows of a")
    count: int = indices.shape[0]
    return count


def _fake_spmm(values: Tensor, b: Tensor, indptr: Tensor, indices: Tensor, columns: int, transpose: bool) -> Tensor:
    return b.new_empty(_spmm_shape(values, b, indptr, indices, columns, transpose))


def _fake_sddmm(x: Tensor, y: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    return x.new_empty(_sddmm_shape(x, y, indptr, indices))


# ---- gradients


def _save_spmm(ctx: Any, inputs: Any, output: Any) -> None:
    values, b, *pattern = inputs[:4]
    # each is for the gradient of the other
    ctx.save_for_backward(values if ctx.needs_input_grad[1] else None, b if ctx.needs_input_grad[0] else None, *pattern)
    ctx.columns, ctx.transpose = inputs[4:]


def _spmm_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (values, b, indptr, indices), needs = ctx.saved_tensors, ctx.needs_input_grad
    left, right = (b, grad) if ctx.transpose else (grad, b)
    return (
        SDDMM(left, right, indptr, indices) if needs[0] else None,
        SPMM(values, grad, indptr, indices, ctx.columns, not ctx.transpose) if needs[1] else None,
        None,
        None,
        None,
        None,
    )


def _save_sddmm(ctx: Any, inputs: Any, output: Any) -> None:
    x, y, *pattern = inputs
    ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, y if ctx.needs_input_grad[0] else None, *pattern)
    ctx.columns = y.shape[0]


def _sddmm_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (x, y, indptr, indices), needs = ctx.saved_tensors, ctx.needs_input_grad
    return (
        SPMM(grad, y, indptr, indices, ctx.columns, False) if needs[0] else None,
        SPMM(grad, x, indptr, indices, ctx.columns, True) if needs[1] else None,
        None,
        None,
    )


# ---- batches


def _batch_spmm(info: Any, dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
    """The rule of ``torch.vmap``. If only B has a batch, it is one product with more columns."""
    values, b, indptr, indices, columns, transpose = args
    if any(dims[i] is not None for i in (0, 2, 3)):
        result: tuple[Tensor, int] = _loop_spmm(info, dims, *args)
        return result
    b = b.movedim(dims[1], -1)
    wide = SPMM(values, b.reshape(b.shape[0], -1), indptr, indices, columns, transpose)
    return wide.reshape(wide.shape[0], *b.shape[1:]), 2


def _call_spmm(*args: Any) -> Tensor:
    result: Tensor = SPMM(*args)
    return result


def _call_sddmm(*args: Any) -> Tensor:
    result: Tensor = SDDMM(*args)
    return result


_loop_spmm = loop_over_batch(_call_spmm)

SPMM = Operator(
    "spmm(Tensor values, Tensor b, Tensor indptr, Tensor indices, SymInt columns, bool transpose) -> Tensor",
    4,
    _spmm,
    _fake_spmm,
    _save_spmm,
    _spmm_backward,
    _batch_spmm,
)
SDDMM = Operator(
    "sddmm(Tensor x, Tensor y, Tensor indptr, Tensor indices) -> Tensor",
    4,
    _sddmm,
    _fake_sddmm,
    _save_sddmm,
    _sddmm_backward,
    loop_over_batch(_call_sddmm),
)
