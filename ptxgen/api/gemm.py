"""``gemm``: matrix products of arrays of NumPy, PyTorch and CuPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ptxgen.api import (
    batch_views,
    call_lock,
    caller_workspace,
    drivers,
    epilogue_calls,
    launch_function,
    launches,
    new_arrays,
    on_host,
    quantized_calls,
    runners,
    streams,
    vendor_calls,
)
from ptxgen.api.arrays import (
    View,
    alignment_of,
    as_numpy,
    emptied,
    is_torch,
    matrix_layout,
    records_gradient,
    require_disjoint,
    require_no_gradient,
    require_same_memory,
    view,
)
from ptxgen.api.drivers import driver
from ptxgen.api.epilogue_args import (
    Activation,
    EpilogueArgs,
    activation_name,
    alignment_like_c,
    columns_of_c,
    epilogue_arguments,
    text_of,
)
from ptxgen.api.quantized_weight import QuantizedWeight
from ptxgen.arguments import flag, shown, word
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.operations.gemm.problem import CONJUGATED, CONTIGUOUS, Gemm
from ptxgen.problem.base import OUT_DTYPES
from ptxgen.problem.dtypes import ALLOWED, FLOATS_8, dtype

NO_KEY = (None, 0, 0, 0)
Array = TypeVar("Array")


def gemm(
    a: Array,
    b: Any,
    *,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    out: Any = None,
    compute: str | None = None,
    deterministic: bool = False,
    bias: Any = None,
    residual: Any = None,
    activation: Activation | None = None,
    aux: Any = None,
    sums: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    workspace: Any = None,
    vendor: str | None = None,
) -> Array:
    """C = activation(scale_a·scale_b·alpha·A·B + beta·out + bias + residual), as an array of the same library as ``a``.

    ``a`` is M×K, ``b`` is K×N, ``out`` is M×N (allocated if None). They are arrays of NumPy, PyTorch, CuPy, JAX or
    another library with DLPack, in host memory or on one GPU. A and B have one dtype: float16, bfloat16, float32,
    float64, complex64, complex128, float8_e4m3fn, float8_e5m2 or int8. C has the same dtype by default, except bfloat16
    for 8-bit floats and int32 for int8; ``out`` selects another supported dtype. An 8-bit C saturates to its finite
    range. int8 sums wrap modulo 2³² in an int32 C; in another C a sum outside int32 is undefined. Transposes are read
    from strides (``a.T`` costs nothing), conjugates by PyTorch's bit (``a.H``); an operand that is contiguous along
    neither axis is copied first. ``beta`` other than 0 requires ``out`` and reads it. Complex products take complex
    ``alpha`` and ``beta``, and no other argument of the epilogue. If ``alpha`` is 0, A and B are not read, and the
    product is 0, as in BLAS.

    ``b`` may be a ``QuantizedWeight`` W of N rows of K integers: C is then A·Wᵀ with the same epilogue, ``a`` has dtype
    float16 or bfloat16, and sums are float32.

    ``compute``: f16 accumulates in f16; tf32 and f32_bf16x6 multiply float32 on tensor cores; f32_fast_accum leaves
    sums of 8-bit floats to the accumulators of tensor cores, which lose bits (f32 does not). ``deterministic``: the
    same inputs give the same bits.

    Batched: B×M×K times B×K×N gives B×M×N. A matrix, a batch of one, or a view whose batch stride is 0 is broadcast.

    The kernel's epilogue applies the other arguments before it stores C. ``bias``: N elements (one per column) or M×1
    (one per row), of C's dtype, float32 for an 8-bit C. ``residual``: shape and dtype of ``out``. ``activation``: a
    name, as relu, gelu (the tanh form), gelu_erf, silu, sigmoid, tanh or clamp(-1,1); an expression of the sum x in the
    language of tasks, ``"x * sigmoid(2 * x)"``; or a Python function of x. An expression or a function may also read
    ``aux``, an array like the residual. relu_grad, the gradient of ReLU, reads ``aux``: it gives 0 where ``aux`` is at
    most 0, and the sum elsewhere. A gated activation (swiglu, geglu, or an expression of ``x`` and ``up``) computes
    each element of C from two sums, those of an even column of ``b`` and of the next column: ``out`` is M×N/2, of
    float16, bfloat16 or float32, ``beta`` is 0, and ``bias`` and ``scale_b`` have N elements. ``scale_a``, ``scale_b``:
    float32 or float8_e8m0fnu (powers of two), one element each, or M and N elements. All items of a batch share these
    arrays, except the residual and ``aux``.
    8-bit floats also take scales along K: ``scale_a`` of M×⌈K/128⌉ or ⌈M/128⌉×⌈K/128⌉ elements, ``scale_b`` of
    ⌈K/128⌉×N or ⌈K/128⌉×⌈N/128⌉, in a batch for each item. Each sum of 128 of K is multiplied by the product of its two
    scales, and added to the total in float32. A call without an epilogue has the least overhead.

    ``sums``: an array of the dtype and strides of ``out`` to which the kernel also stores the sums, the argument of the
    activation, for its gradient (``gelu_grad`` with ``aux``). With a gated activation it is M×N, and its rows are twice
    as far from each other as those of ``out``, as are the items of a batch.

    ``out`` must not share memory with another argument. Results carry no gradient: while PyTorch records gradients,
    tensors that require one are rejected. Masked arrays are rejected.

    ``workspace``: a contiguous GPU array of at least ``workspace_size(gemm, a, b, …)`` bytes at an address that is a
    multiple of 256, with any contents. The kernels use it instead of memory that ptxgen allocates. No other call may
    use it until they end. With host arrays it must be None.

    ``vendor``: auto: cuBLASLt computes the product if it is measured or predicted to be faster; never: ptxgen does;
    None: as ``PTXGEN_VENDOR`` says. ptxgen always computes the product if ``deterministic`` is True, ``workspace`` is
    given, ``alpha`` is not 1 or ``beta`` is not 0.

    GPU arrays are multiplied on the current stream of the library of ``a``, and the call returns at once; if an array
    is shared through DLPack, it returns when the result is complete. ShapeError, DtypeError, OverlapError, InputError:
    an argument breaks a rule.
    """
    if type(alpha) is not float or type(beta) is not float:  # the cache key must contain the value, not the tensor
        alpha, beta = _factor(alpha, "alpha"), _factor(beta, "beta")
    if type(deterministic) is not bool:  # 1 equals True in a key
        deterministic = flag("deterministic", deterministic)
    plain = activation is aux is sums is bias is residual is scale_a is scale_b is None
    key, at_a, at_b, at_c = _key(a, b, out, alpha, beta, compute, deterministic, vendor) if plain else NO_KEY
    ready = launches.cached(key) if key is not None else None
    if ready is not None and workspace is not caller_workspace.QUERY_SIZE:
        launch, (shape, torch_dtype, size_a, size_b, size_c), runner = ready
        disjoint = out is None
        if disjoint:
            out = a.new_empty(shape, dtype=torch_dtype)  # type: ignore[attr-defined]
            at_c = out.data_ptr()
        else:
            end = at_c + size_c
            disjoint = (end <= at_a or at_a + size_a <= at_c) and (end <= at_b or at_b + size_b <= at_c)
        if disjoint and workspace is None:
            launch((at_a, at_b, at_c), streams.current_stream(a))
            return out  # type: ignore[no-any-return]
        if disjoint:
            own = caller_workspace.workspace_address(workspace, runner, a=a, b=b, out=out)
            launch((at_a, at_b, at_c), streams.current_stream(a), own)
            return out  # type: ignore[no-any-return]
    options, call = (alpha, beta, compute, deterministic), None
    if not plain and workspace is None:
        activation = text_of(activation)
        arrays = {"a": a, "b": b, "out": out, "bias": bias, "residual": residual, "aux": aux, "sums": sums}
        arrays |= {"scale_a": scale_a, "scale_b": scale_b}
        call = epilogue_calls.call_of(arrays, (*options, vendor, activation))
        if (made := epilogue_calls.launched(call, a)) is not None:
            return made.get("out", out)  # type: ignore[no-any-return]
    with call_lock.lock:
        epilogue_args = (scale_a, scale_b, bias, residual, activation, aux)
        result = launch_uncached(
            key, a, b, out, *options, epilogue_args, workspace, vendor=vendor, sums=sums, call=call
        )
    return new_arrays.result_of(result, a) if out is None else result  # type: ignore[no-any-return]


def number(value: Any, argument: str) -> float:
    require_no_gradient(value, argument)
    try:
        if not isinstance(value, str):
            return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor without a value
        pass
    raise InputError(f"{argument} is {shown(value)}; it must be a real number that fits a double")


def _factor(value: Any, argument: str) -> complex:
    """A number as a float if it is real, else as a complex number. InputError: ``value`` is no number."""
    if isinstance(value, complex | np.complexfloating) or getattr(value, "is_complex", bool)():
        require_no_gradient(value, argument)
        factor = complex(value)
        return factor if factor.imag else factor.real
    return number(value, argument)


def _key(a: Any, b: Any, out: Any, *rest: Any) -> tuple[Any, int, int, int]:
    """The tuple (launch cache key of a call on PyTorch tensors, addresses of a, b and out).

    The key is None for other arrays, and for tensors that need checks not covered by the key.
    """
    try:
        at_a, at_b, at_c, c = a.data_ptr(), b.data_ptr(), 0, None
        if not at_a or not at_b or a.is_neg() or b.is_neg():
            return NO_KEY
        if (a.requires_grad and records_gradient(a)) or (b.requires_grad and records_gradient(b)):
            return NO_KEY
        if out is not None:
            at_c = out.data_ptr()
            c = (type(out), out.shape, out.stride(), out.dtype, at_c & 15, out.get_device())
            if not at_c or out.is_neg() or out.is_conj() or (out.requires_grad and records_gradient(out)):
                return NO_KEY
        key = (
            type(a),
            a.shape,
            a.stride(),
            a.dtype,
            at_a & 15,
            a.get_device(),
            type(b),
            b.shape,
            b.stride(),
            b.dtype,
            at_b & 15,
            b.get_device(),
            a.is_conj(),
            b.is_conj(),
            rest,
            c,
        )
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: a sparse tensor
        return NO_KEY
    return key, at_a, at_b, at_c


def launch_uncached(
    key: Any,
    a: Any,
    b: Any,
    out: Any,
    alpha: complex,
    beta: complex,
    compute: str | None,
    deterministic: bool,
    epilogue_args: tuple[Any, ...],
    workspace: Any,
    allocation: Any = None,
    vendor: str | None = None,
    sums: Any = None,
    column_sums: Any = None,
    a_sums: Any = None,
    call: epilogue_calls.Call | None = None,
) -> Any:
    """Checks the arguments, selects, generates and launches; stores the launch under ``key`` if later calls can use it.
    ``allocation`` is stored with the launch: how a later call allocates the result (default: as ``gemm`` does).
    ``call``: the call under whose key the launch is stored, if it has an epilogue.
    ``column_sums``, ``a_sums``: the arrays to which the sums of the columns of C, and of the rows of A, are stored; C
    must be row-major, and A, B and C have elements. The caller holds ``call_lock.lock``."""
    if isinstance(b, QuantizedWeight):
        vendor_calls.require_mode(vendor)
        if sums is not None:
            raise InputError("sums is an array; with quantized weights it must be None")
        return quantized_calls.multiply(a, b, out, alpha, beta, compute, deterministic, epilogue_args, workspace)
    va, vb = view(a, "a", batched=True), view(b, "b", batched=True)
    compute = word("compute", "" if compute is None else compute)
    vendor_calls.require_mode(vendor)
    check_operands(va, vb)
    for name, value in (("alpha", alpha), ("beta", beta)):
        if isinstance(value, complex) and not va.dtype.part:
            raise InputError(f"{name} is {value:g}; with operands of {va.dtype.numpy} it must be a real number")
    *scales, activation, aux = epilogue_args
    activation = activation_name(activation)
    epilogue_args = (*scales, activation, aux)
    shape = (*batch_views.batch_shape(va, vb), va.shape[-2], columns_of_c(vb.shape[-1], activation))
    gated = shape[-1] != vb.shape[-1]
    if gated and beta != 0:
        raise InputError(f"beta is {beta:g}; with a gated activation it must be 0")
    on = drivers.driver_of(va)
    if out is None:
        if beta != 0:
            raise InputError(f"beta is {beta:g} and out is None; a beta other than 0 requires out")
        result = new_arrays.empty_array(a, shape, dtype(OUT_DTYPES[va.dtype.name][0]))
    else:
        result = out
    vc = view(result, "out", batched=True)
    check_out(va, vc, shape)
    if vc.conjugated:
        raise InputError("out is a view with the conjugate bit; pass out.resolve_conj()")
    epilogue = epilogue_arguments(
        shape, vc, *epilogue_args, operands=(va, vb), sums=sums, column_sums=column_sums, a_sums=a_sums
    )
    require_disjoint(vc, a=va, b=vb, **dict(epilogue.arrays))
    for name, v in epilogue.arrays:
        if name in ("sums", "column_sums", "a_sums"):
            others = {n: x for n, x in epilogue.arrays if n != name}
            require_disjoint(v, name, a=va, b=vb, **others)
    if va.host and (size := caller_workspace.refuse_host_workspace(workspace)) is not None:
        return size
    summed = (va, vb) if alpha != 0 else (emptied(va, -1), emptied(vb, -2))
    if va.host:
        _compute_on_host(*summed, vc, alpha, beta, compute, deterministic, epilogue, vendor)
        return result
    drivers.require_device(on, a=va, b=vb, out=vc, **dict(epilogue.arrays))
    if gated and (matrix_layout(vc) or "T")[0] == "T":
        raise ShapeError(f"out has strides {vc.strides}; with a gated activation its rows must be contiguous")
    by_item = epilogue.ops if not epilogue.blocks[0] else ("scale_rows",)
    folded = batch_views.fold_batch(*summed, vc, by_item)
    used = (va, vb, vc, *dict(epilogue.arrays).values())
    swapped, problem, operands = _problem(*folded, compute, deterministic, ",".join(epilogue.ops) if gated else "")
    if epilogue.arrays or epilogue.ops:
        epilogue = epilogue.transposed() if swapped else epilogue
        block_a, block_b = epilogue.blocks
        aligned_c = min(problem.aligned_c, alignment_like_c(epilogue.arrays))
        fused = ",".join(epilogue.ops)
        problem = replace(problem, epilogue=fused, block_a=block_a, block_b=block_b, aligned_c=aligned_c)
        epilogue.check_strides(vc)
    if 0 in vc.shape:
        return result if workspace is not caller_workspace.QUERY_SIZE else 0
    stream = streams.current_stream(a)
    runner = runners.runner_for(problem, stream, on)
    if workspace is caller_workspace.QUERY_SIZE:
        return runner.launch.workspace
    own = caller_workspace.workspace_address(workspace, runner, a=a, b=b, out=result)
    arrays = dict(zip("ABC", (*operands, vc), strict=True)) | dict(epilogue.arrays)
    names = ("B", "A", *problem.arrays[2:]) if swapped else problem.arrays
    launch = launch_function.make_launch(runner, alpha, beta, names, use=vendor)
    addresses = tuple(arrays[n].address for n in names)
    with streams.ordered(on, stream, used):
        launch(addresses, stream, own)
    if call is not None:
        epilogue_calls.store(call, launch, used, addresses, {"out": result} if out is None else {}, runner)
    elif key is not None and addresses[:2] == (va.address, vb.address):
        sizes = (v.span[1] - v.address for v in (va, vb, vc))  # strides of PyTorch are not negative
        launches.store(key, launch, allocation or (shape, result.dtype, *sizes), runner)
    return result


def check_same_dtype(a: View, b: View, names: tuple[str, str] = ("a", "b"), floats_8: bool = False) -> None:
    """DtypeError: a and b have different types. ``names``: the arguments in the message; ``floats_8``: True if
    both 8-bit floats are allowed."""
    if a.dtype is b.dtype or (floats_8 and a.dtype.fp8 and b.dtype.fp8):
        return
    allowed = f", or {' and '.join(FLOATS_8)}" if floats_8 else ""
    raise DtypeError(f"{names[0]} is {a.dtype} and {names[1]} is {b.dtype}; they must be the same{allowed}")


def check_operands(a: View, b: View) -> None:
    """DtypeError, ShapeError, InputError: a and b cannot be multiplied."""
    check_same_dtype(a, b, floats_8=True)
    if a.dtype.name not in OUT_DTYPES:
        raise DtypeError(f"a and b have dtype {a.dtype.numpy}; it must be one of {ALLOWED}")
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"a is {_shape_text(a.shape)} and b is {_shape_text(b.shape)}; the columns of a must be the rows of b"
        )
    require_same_memory("a", a, "b", b)


def _shape_text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def check_out(a: View, c: View, shape: tuple[int, ...]) -> None:
    """ShapeError, DtypeError, InputError: out cannot store a·b."""
    if c.shape != shape:
        raise ShapeError(f"out is {_shape_text(c.shape)}; it must be {_shape_text(shape)}, the shape of a·b")
    if c.dtype.name not in OUT_DTYPES[a.dtype.name]:
        raise DtypeError(
            f"out is {c.dtype}; with a and b of {a.dtype} it must be {' or '.join(OUT_DTYPES[a.dtype.name])}"
        )
    require_same_memory("out", c, "a", a)


def contiguous(v: View, argument: str) -> View:
    """A copy of the operand with contiguous rows."""
    x = v.origin
    if v.host and not is_torch(x):
        return view(np.ascontiguousarray(as_numpy(v)), argument, batched=True)
    copy = getattr(x, "contiguous", None) or getattr(x, "copy", None)
    copied = view(copy(), argument, batched=True) if copy is not None else v
    if matrix_layout(copied) is None:
        raise ShapeError(f"{argument} has strides {v.strides}; its rows or its columns must be contiguous")
    return copied


def letter_of(order: str, v: View) -> str:
    """The layout letter of an operand: ``order``, N or T, if its values are not conjugated, else the letter for
    conjugates."""
    return CONJUGATED[order] if v.conjugated else order


def _problem(
    a: View, b: View, c: View, compute: str, deterministic: bool, epilogue: str
) -> tuple[bool, Gemm, tuple[View, View]]:
    """The triple (swapped, problem, the two operands in its order). ``swapped``: the problem is Cᵀ = BᵀAᵀ, because
    kernels store a row-major C. ``epilogue``: the operations on which the shape of C depends. ShapeError: neither the
    rows nor the columns of C are contiguous."""
    c_layout = matrix_layout(c)
    if c_layout is None:
        raise ShapeError(f"out has strides {c.strides}; its rows or its columns must be contiguous")
    swapped = c_layout[0] == "T"
    a = a if matrix_layout(a) and batch_views.batch_stride(a) >= 0 else contiguous(a, "a")
    b = b if matrix_layout(b) and batch_views.batch_stride(b) >= 0 else contiguous(b, "b")
    first, second = (batch_views.transposed(b), batch_views.transposed(a)) if swapped else (a, b)
    (la, lda), (lb, ldb) = matrix_layout(first) or ("N", 0), matrix_layout(second) or ("N", 0)
    la, lb = (letter_of(x, v) for x, v in ((la, first), (lb, second)))
    problem = Gemm(
        first.shape[-2],
        second.shape[-1],
        first.shape[-1],
        la + lb,
        first.dtype.name,
        compute,
        lda,
        ldb,
        c_layout[1],
        alignment_of(first.address),
        alignment_of(second.address),
        alignment_of(c.address),
        deterministic,
        c.dtype.name,
        epilogue,
        dtype_b=second.dtype.name,
    )
    if len(c.shape) == 3 and c.shape[0] != 1:
        strides = [batch_views.batch_stride(v) for v in (first, second, c)]
        problem = replace(problem, batch=c.shape[0], stride_a=strides[0], stride_b=strides[1], stride_c=strides[2])
    return swapped, problem, (first, second)


def _compute_on_host(
    a: View,
    b: View,
    c: View,
    alpha: complex,
    beta: complex,
    compute: str,
    deterministic: bool,
    epilogue: EpilogueArgs,
    vendor: str | None,
) -> None:
    """Copies host arrays to contiguous memory of the device, computes there, and copies the result back."""
    into = as_numpy(c)
    if 0 in c.shape:
        return
    layout, arrays, strides = "", [], []
    for v in (a, b):
        order = (matrix_layout(v) or ("N", 0))[0]
        layout += letter_of(order, v)
        shared = not batch_views.batch_stride(v)
        x = as_numpy(v)[0] if shared and len(v.shape) == 3 else as_numpy(v)
        arrays.append(np.ascontiguousarray(x if order == "N" else np.swapaxes(x, -1, -2)))
        strides.append(0 if shared else CONTIGUOUS)
    problem = Gemm(
        a.shape[-2],
        b.shape[-1],
        a.shape[-1],
        layout,
        a.dtype.name,
        compute,
        deterministic=deterministic,
        out=c.dtype.name,
        epilogue=",".join(epilogue.ops),
        batch=c.shape[0] if len(c.shape) == 3 else 1,
        stride_a=strides[0],
        stride_b=strides[1],
        block_a=epilogue.blocks[0],
        block_b=epilogue.blocks[1],
        dtype_b=b.dtype.name,
    )
    before = np.ascontiguousarray(into) if beta != 0 else np.empty(c.shape, into.dtype)
    named = dict(zip("ABC", (*arrays, before), strict=True))
    named |= {name: np.ascontiguousarray(as_numpy(v)) for name, v in epilogue.arrays}
    results = on_host.compute_on_host(problem, named, alpha, beta, use=vendor)
    into[...] = results["C"]
    for name, v in epilogue.arrays:
        if name in results:
            as_numpy(v)[...] = results[name]


__all__ = ["driver", "gemm"]
