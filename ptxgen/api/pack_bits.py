"""``pack_bits``: truth values as words of bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.api import call_lock, drivers, new_arrays, streams, task_call, task_launches, truth_arrays
from ptxgen.api.arrays import View, alignment_of, as_numpy, matrix_layout, require_disjoint, tensor
from ptxgen.codegen.pack_bits import PackBits
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.errors import DtypeError, ShapeError
from ptxgen.lowering.bit_products import BITS
from ptxgen.lowering.strided import strided
from ptxgen.problem.dtypes import dtype
from ptxgen.runtime.prepared_operands import load_once
from ptxgen.runtime.runner import Buffers


def pack_bits(a: Any, out: Any = None) -> Any:
    """The truth values of ``a`` (M×K) as bits: an array of uint32, M rows of ceil(K / 32) words, of the same library.

    Bit k % 32, from the lowest, of word k // 32 is 1 if a[i,k] is not 0; bits from K on are 0. The bytes of a row are
    those of ``numpy.packbits(a, axis=1, bitorder="little")``, padded with zeros to whole words.

    ``a``: bool, uint8 or int8; it is copied first unless its rows or its columns are contiguous. ``out``: the array of
    the result, with contiguous rows, or None. ShapeError, DtypeError, InputError: an argument breaks a rule.
    """
    v = truth_arrays.view_of(a, "a", task_launches.NOT_RECORDED)
    if len(v.shape) != 2:
        raise ShapeError(f"a has shape {v.shape}; it must have 2 dimensions")
    if v.dtype.bytes != 1 or not v.dtype.integer:
        raise DtypeError(f"a is {v.dtype}; it must be bool, u8 or s8: pass a != 0")
    (m, k), element = v.shape, dtype("u32")
    shape = (m, int(ceil_div(k, BITS)))
    stored = new_arrays.empty_array(v.origin, shape, element) if out is None else out
    vc = tensor(stored, "out")
    if vc.shape != shape:
        raise ShapeError(f"out has shape {vc.shape}; it must be {shape}, a word for 32 columns of a")
    if vc.dtype is not element:
        raise DtypeError(f"out is {vc.dtype}; it must be u32")
    if 0 not in shape and not task_call.is_packed(vc):
        raise ShapeError(f"out has strides {vc.strides}; its elements must be consecutive")
    require_disjoint(vc, a=v)
    if 0 not in shape:
        with call_lock.lock:
            _pack(v, vc)
    return new_arrays.result_of(stored, v.origin) if out is None else out


def _pack(v: View, out: View) -> None:
    """Packs an array that is not empty."""
    (m, k), on = v.shape, drivers.driver_of(v)
    if matrix_layout(v) is None:
        v = _contiguous(v)
    letter, ld = matrix_layout(v) or ("N", 0)
    kmajor = letter == "N"
    rows, columns = (m, k) if kmajor else (k, m)
    ld = columns if v.host or not ld else ld  # copies to the device have no gaps
    made = PackBits.of(strided(rows, columns, ld, 0, 16 if v.host else alignment_of(v.address), kmajor, 1))
    kernel, step = load_once(on, made), made.step(m, k, ld)
    if v.host:
        into = as_numpy(out)
        words = np.empty(into.shape, np.uint32)
        given = as_numpy(v) if kmajor else as_numpy(v).T
        with Buffers(on, {"X": given, "W": words}) as buffers:
            on.launch(kernel, step, step.pack(buffers.addresses))
            on.synchronize()
            on.download(buffers.addresses["W"], words)
        into[...] = words
        return
    drivers.require_device(on, a=v, out=out)
    stream = streams.current_stream(v.origin)
    with streams.ordered(on, stream, (v, out)):
        on.launch(kernel, step, step.pack({"X": v.address, "W": out.address}), stream)


def _contiguous(v: View) -> View:
    """A copy of ``v`` with contiguous rows. ShapeError: the library of the array makes no copies."""
    copy = getattr(v.origin, "contiguous", None) or getattr(v.origin, "copy", None)
    if copy is None:
        raise ShapeError(f"a has strides {v.strides}; its rows or its columns must be contiguous")
    return tensor(copy(), "a")
