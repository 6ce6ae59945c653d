"""Handles of sparse matrices: they keep what is prepared once for a matrix and used by many products with it."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxgen.api import (
    call_lock,
    choice,
    driver_state,
    drivers,
    launch_function,
    launches,
    new_arrays,
    on_host,
    recording,
    runners,
    spmm_operands,
    stored_times,
    streams,
)
from ptxgen.api.arrays import (
    View,
    alignment_of,
    as_numpy,
    is_torch,
    records_gradient,
    require_disjoint,
    require_same_memory,
    tensor,
)
from ptxgen.api.converted_matrices import versions_of
from ptxgen.api.gemm import number
from ptxgen.api.sparse_matrix import INDEX_LIMIT, INDEX_TYPES, Csr, csc_arrays, read_csr
from ptxgen.arguments import flag, integer, word
from ptxgen.codegen.config.config import Config
from ptxgen.errors import DtypeError, InputError, ShapeError
from ptxgen.lowering.strided import aligned_access
from ptxgen.operations.spmm.device_statistics import PatternRecord, read_pattern
from ptxgen.operations.spmm.narrow_indices import narrow
from ptxgen.operations.spmm.problem import DENSE_DEFAULT, Spmm
from ptxgen.operations.spmm.sampled_products import Shape, sampled_products
from ptxgen.operations.spmm.transposition import gather_values, symmetric_places, transpose
from ptxgen.problem.base import EXTENT_LIMIT, MEMORY_LIMIT
from ptxgen.problem.dtypes import dtype
from ptxgen.runtime.device_tables import Allocation, Part, allocate_parts
from ptxgen.runtime.driver import Driver, Timing
from ptxgen.runtime.packed_step import pack
from ptxgen.runtime.prepared_operands import PreparedOperands, load_once
from ptxgen.runtime.runner import Runner
from ptxgen.tuning import selection
from ptxgen.tuning.store.measurement import Measurement

CALLS = 1000  #: products for which a handle is prepared by default
TUNED = 16  #: configurations that ``tune`` times
TIMING = Timing()  #: how ``tune`` times a configuration
MAX_LAUNCHES = 256  #: launches that a handle keeps, at most
NO_KEY = (None, 0, 0)
SPARSE = ("indptr", "indices", "values")  #: arrays of a matrix, in the order of launches


def spmm_prepare(
    a: Any,
    *,
    calls: int = CALLS,
    n: int | None = None,
    validate: bool = True,
    exact_nonfinite: bool = False,
    dense_bytes: int | None = None,
    compute: str | None = None,
    symmetric: bool = False,
) -> PreparedSpmm:
    """A handle of the sparse matrix ``a``, which multiplies it many times: ``p = spmm_prepare(a)``, then ``p(b)``.

    If an element of B in row k is infinite or NaN, kernels that also multiply padding zeros may give NaN in rows of C
    whose row of A has no nonzero in column k. ``exact_nonfinite=True`` excludes these kernels.

    ``a``: as for ``spmm``. The handle keeps its arrays, or a copy on the device of arrays in host memory. It makes the
    format that its kernel reads once, on the device. ``calls``: the number of products; the kernel is chosen that takes
    the least time for these products and for making its format; 0: no format is made. ``n``: columns of B for which the
    matrix is prepared now; by default it is prepared at the first product. ``dense_bytes``: the most bytes that a dense
    copy of A may take, which GEMM kernels read; 0: no dense copy; by default 12 times the bytes of CSR for 16-bit
    types, 16 times for others. ``compute``: tf32 is permitted for float32. ``symmetric``: A has a nonzero (j, i) for
    each nonzero (i, j), and columns increase in each row. Products with the transpose then read the same pattern. The
    values at (i, j) and (j, i) may differ.

    ``validate``: a kernel checks that row pointers begin at 0, do not decrease and end at the number of nonzeros, and
    that columns are in [0, K). Without it, a matrix that breaks these rules makes later products read outside B.

    Matrices with int64 indices are stored with int32 indices unless they have 2³¹ nonzeros or more. InputError,
    ShapeError, DtypeError: an argument breaks a rule. LaunchError: out of memory.
    """
    calls = integer("calls", calls, 0, EXTENT_LIMIT - 1)
    if dense_bytes is not None:
        dense_bytes = integer("dense_bytes", dense_bytes, 0, MEMORY_LIMIT)
    n = None if n is None else integer("n", n, 0, EXTENT_LIMIT - 1)
    validate, exact_nonfinite = flag("validate", validate), flag("exact_nonfinite", exact_nonfinite)
    symmetric = flag("symmetric", symmetric)
    csr = read_csr(a)
    spmm_operands.check_dtype(csr)
    m, k = csr.shape
    if symmetric and m != k:
        raise ShapeError(f"a has shape {csr.shape}; with symmetric=True it must have as many rows as columns")
    problem = Spmm(
        m,
        1,
        k,
        dtype=csr.values.dtype.name,
        compute=word("compute", "" if compute is None else compute),
        pattern="even:nnz=0",
        calls=calls,
        exact_nonfinite=exact_nonfinite,
        index=csr.index_type,
        dense_bytes=DENSE_DEFAULT if dense_bytes is None else dense_bytes,
    )
    with call_lock.lock:
        handle = PreparedSpmm(csr, problem, validate, symmetric=symmetric)
        handle.transposed_arrays = csc_arrays(a)
        if is_torch(a):
            _handles[_key_of(csr)] = handle
        if n:
            handle.prepare(n)
    return handle


@dataclass(eq=False)
class KnownPattern:
    """What handles know of a pattern. ``arrays``: row pointers and columns; ``record``: statistics, and the places
    where rules are broken; ``narrow``: 32-bit copies of 64-bit arrays; ``versions``: PyTorch's counts of changes to the
    arrays; ``transposed``: row pointers and columns of the transpose, and the place of each of its values in the
    matrix; ``of_transpose``: the ``KnownPattern`` of the transpose. The last two are None until they are made."""

    arrays: tuple[View, View]
    record: PatternRecord
    narrow: Mapping[str, Part]
    versions: tuple[Any, ...]
    transposed: Mapping[str, Part] | None = None
    of_transpose: KnownPattern | None = None


class PreparedSpmm:
    """A sparse matrix that is prepared for products: ``p(b)``. ``spmm_prepare`` makes it.

    ``shape``, ``nnz``: the extents and the number of nonzeros of the matrix. A call with PyTorch tensors like those of
    an earlier call has the least overhead. CUDA graphs can capture such calls: they allocate nothing but the result,
    and copy nothing to the host.
    """

    def __init__(
        self,
        csr: Csr,
        problem: Spmm,
        validate: bool,
        held: Mapping[str, Part] | None = None,
        pattern: KnownPattern | None = None,
        symmetric: bool = False,
        tracked: bool = True,
    ) -> None:
        """``held``: device arrays of a transpose, which another handle made; ``pattern``: what is known of the pattern;
        ``tracked``: the pattern is shared with handles of the same index tensors."""
        self.shape, self.nnz = csr.shape, csr.nnz
        self._csr, self._on = csr, drivers.driver_of(csr.values)
        drivers.require_device(self._on, **csr.named)
        self._versions = _versions(csr)
        self._shared = driver_state.state_of(self._on)
        self._stream = 0 if csr.host else streams.current_stream(csr.values.origin)
        if streams.is_captured(self._stream, self._on):
            raise InputError("the stream is being captured; spmm_prepare must be called before: it reads sizes")
        self._held: dict[str, Part] = dict(held or {})  # copies of the arrays on the device
        self._symmetric = symmetric
        #: the transpose in CSR, if the matrix was given in CSC: these arrays are the transpose
        self.transposed_arrays: Csr | None = None
        self._transposed: PreparedSpmm | None = None
        self._places: Part | None = None  # of the values of the transpose
        self._former: list[PreparedSpmm] = []  # handles of the transpose that captured graphs may use
        self._sources: tuple[Any, ...] = ()  # holders of arrays that belong to another handle
        self._derived, self._tracked = held is not None, tracked and held is None and _tracked(csr)
        self._runners: dict[Spmm, Runner] = {}
        self._tuned: dict[int, Config] = {}
        self._launches: dict[Any, Any] = {}
        self._sampled: dict[Any, Any] = {}  # launches of sampled products
        self._n = 0  # columns of B for which the matrix was prepared last
        self._config: Config | None = None
        self._at = self._addresses()
        if not csr.host:
            self._on.wait(self._stream)
        start = self._on.now_us()
        self._pattern = pattern or (_known_pattern(csr) if self._tracked else None) or self._read_pattern()
        self._us = self._on.now_us() - start
        if validate:
            self._require_pattern(self._pattern.record)
        if csr.nnz < INDEX_LIMIT:
            problem = replace(problem, index="i32")
        self._held |= self._pattern.narrow
        self._at |= {name: x.address for name, x in self._pattern.narrow.items()}
        self._problem = replace(problem, pattern=self._pattern.record.statistics.rounded().text())
        self._prepared = PreparedOperands(self._on, self._at)
        self._prefix = self._own_addresses()
        launches.holders.add(self)

    def __call__(self, b: Any, out: Any = None, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """C = alpha·A·B + beta·out, as an array of the library of ``b``, with the rules of ``spmm``.

        The first call with a new number of columns of B may prepare the matrix; that call must not be captured into a
        graph. ShapeError, DtypeError, OverlapError, InputError: an argument breaks a rule.
        """
        if type(alpha) is not float or type(beta) is not float:
            alpha, beta = number(alpha, "alpha"), number(beta, "beta")
        key, at_b, at_c = _key(b, out, alpha, beta)
        ready = self._launches.get(key) if key is not None else None
        if ready is not None:
            launch, shape, torch_dtype, size_b, size_c = ready
            disjoint = out is None
            if disjoint:
                out = b.new_empty(shape, dtype=torch_dtype)
                at_c = out.data_ptr()
            else:
                end = at_c + size_c
                disjoint = end <= at_b or at_b + size_b <= at_c
                for first, last in self._spans:
                    disjoint = disjoint and (end <= first or last <= at_c)
            if disjoint:
                launch((*self._prefix, at_b, at_c), streams.current_stream(b))
                return out
        with call_lock.lock:
            result = self._multiply(key, b, out, alpha, beta)
        return new_arrays.result_of(result, b) if out is None else result

    def t(self, b: Any, out: Any = None, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """C = alpha·Aᵀ·B + beta·out, computed by the handle ``transposed``. The same inputs give the same bits.

        The first call makes the transpose, so it must not be captured into a graph.
        """
        transposed = self._transposed
        if transposed is None:
            vb, _ = spmm_operands.dense(b, "b")
            transposed = self._transpose(0 if vb.host else streams.current_stream(b))
        return transposed(b, out, alpha, beta)

    def sddmm(self, x: Any, y: Any, out: Any = None, *, scaled: bool = False) -> Any:
        """The elements of x·yᵀ at the nonzeros of the matrix, in their order, as an array of the library of ``x``.

        ``x``: M×N, ``y``: K×N, of the dtype of the matrix; without N, vectors. ``out``: an array of as many elements as
        nonzeros, allocated if None. ``scaled``: results are multiplied by the values of the matrix. 16-bit types are
        summed in float32. The same inputs give the same bits. ShapeError, DtypeError, OverlapError, InputError: an
        argument breaks a rule.
        """
        scaled = flag("scaled", scaled)
        key, at_x, at_y = _key(x, y, 0.0, float(scaled)) if out is None and y is not None else NO_KEY
        ready = self._sampled.get(key) if key is not None else None
        if ready is not None:
            kernel, packed, torch_dtype = ready
            out = x.new_empty((self.nnz,), dtype=torch_dtype)
            addresses = (*self._prefix, at_x, at_y, out.data_ptr())
            self._on.launch(kernel, packed.step, packed.parameters(addresses), streams.current_stream(x))
            return out
        with call_lock.lock:
            result = self._sample(key, x, y, out, scaled)
        return new_arrays.result_of(result, x) if out is None else result

    @property
    def transposed(self) -> PreparedSpmm:
        """The handle of Aᵀ, which is made once. Its values are a copy, which ``update`` of this handle updates."""
        return self._transposed or self._transpose(self._stream)

    def update(self, values: Any) -> None:
        """Replaces the values of the matrix; the pattern stays the same. ``values``: one for each nonzero, in the order
        of the matrix in CSR, on the same device as the former values. Arrays on a GPU are not copied: the handle reads
        ``values`` from now on. Graphs captured before still read the former array, which must be kept for them; if
        ``values`` is that array, changed in place, they read the new values. Formats that contain values are made
        again.

        ShapeError, DtypeError, InputError: ``values`` breaks a rule.
        """
        if self._derived:
            raise InputError("the handle is the transpose of another one; values must be given to that one")
        v, former = tensor(values, "values"), self._csr.values
        if v.shape != former.shape:
            raise ShapeError(f"values has shape {v.shape}; it must be {former.shape}, the nonzeros of the matrix")
        if v.dtype is not former.dtype:
            raise DtypeError(f"values is {v.dtype}; it must be {former.dtype}, as the former values")
        require_same_memory("values", v, "the former values", former)
        if v.shape[0] > 1 and v.strides != (1,):
            raise ShapeError(f"values has strides {v.strides}; its elements must be contiguous")
        with call_lock.lock:
            if v.host:
                self._on.upload(self._at["values"], np.ascontiguousarray(as_numpy(v)))
                self._prepared.update()
                self._update_transposed(0)
            else:
                drivers.require_device(self._on, values=v)
                stream = streams.current_stream(values)
                self._at["values"] = v.address
                with streams.ordered(self._on, stream, (v,)):
                    self._prepared.update(self._at, stream)
                    self._update_transposed(stream)
            if v.address != former.address:
                _handles.pop(_key_of(self._csr), None)
            self._csr = self._csr._replace(values=v)
            self._prefix = self._own_addresses()
            for runner in self._runners.values():
                runner.holds = (self._csr, dict(self._held))
            self._versions = _versions(self._csr)

    def tune(self, n: int | None = None) -> Config:
        """Times configurations for products with ``n`` columns (default: the columns for which the matrix was prepared
        last) on the arrays of the handle. The handle then uses the configuration that takes the least time for
        ``calls`` products and for making its format; the method returns it. Formats that no kernel needs any more are
        freed. The times are stored in the tuning database, so that later handles of matrices with the same rounded
        statistics use the same configuration. InputError: ``n`` is None and the matrix was not prepared yet."""
        n = n or self._n
        if not n:
            raise InputError("n is None and no product was computed; it must be the columns of B")
        problem = self._for(integer("n", n, 1, EXTENT_LIMIT - 1))
        with call_lock.lock:
            if self._stream:
                self._on.wait(self._stream)
            times: dict[Measurement, float] = {}
            for candidate in selection.select(problem, self._on.device, choice.database(), k=TUNED):
                runner = runners.make_runner(problem, self._shared, candidate.config).on(self._prepared)
                timed = stored_times.measurement(runner, self._time(runner), TIMING, "search")
                share = sum(each.us for each in runner.prepared or ()) / max(problem.calls, 1)
                times[timed] = timed.us + share
            fastest = min(times, key=lambda m: times[m])
            stored_times.store([m for m in times if m is not fastest], replace(fastest, purpose="final"))
            best = self._tuned[n] = fastest.config
            self._runners = {p: r for p, r in self._runners.items() if p.n != n}
            self.forget_launches()
            self.prepare(n)
            self._prepared.keep({each.preparation for r in self._runners.values() for each in r.prepared or ()})
        return best

    @property
    def config(self) -> Config | None:
        """The configuration for the columns of B for which the matrix was prepared last; None: it was not prepared
        yet."""
        return self._config

    @property
    def bytes(self) -> int:
        """The number of bytes on the device that the handle holds besides the arrays of the caller."""
        own = sum(x.size for x in self._held.values()) + self._prepared.bytes
        places = self._places.size if self._places is not None else 0
        return own + places + (self._transposed.bytes if self._transposed is not None else 0)

    @property
    def prepare_us(self) -> float:
        """The time, in microseconds, of all that was done once for the matrix: checks, statistics, formats."""
        return self._us + self._prepared.us + (self._transposed.prepare_us if self._transposed is not None else 0)

    def prepare(self, n: int) -> None:
        """Prepares the matrix for products with contiguous matrices of ``n`` columns."""
        self._runner(self._for(n), self._stream)

    def _for(self, n: int) -> Spmm:
        """The problem of a product with a contiguous matrix of ``n`` columns."""
        return replace(self._problem, n=n, ldb=0, ldc=0)

    def forget_indices(self) -> None:
        """Releases the index arrays of the caller. Later calls find their stream by the array of values."""
        csr, origin = self._csr, self._csr.values.origin
        views = replace(csr.indptr, origin=origin), replace(csr.indices, origin=origin)
        self._csr = csr._replace(indptr=views[0], indices=views[1])
        self._pattern.arrays = views

    def forget_launches(self) -> None:
        """Removes the cached launches of the handle; later calls make them again."""
        self._launches.clear()
        self._sampled.clear()

    def has(self, values: Any) -> bool:
        """True if the handle reads this PyTorch tensor as its values, and the tensor did not change since the handle
        read it."""
        return self._csr.values.address == values.data_ptr() and self._versions[2:] == versions_of([values])

    def current(self, compute: str) -> bool:
        """True if the tensors of the matrix did not change since it was prepared, and the handle's products use
        ``compute`` (empty: the default)."""
        return self._versions == _versions(self._csr) and self._problem.compute == (
            compute or dtype(self._problem.dtype).compute[0]
        )

    def _addresses(self) -> dict[str, int]:
        """The device addresses of the arrays of the matrix: the caller's arrays, or copies of host arrays."""
        csr = self._csr
        named = {"indptr": csr.indptr, "indices": csr.indices, "values": csr.values}
        if self._held:
            return {name: x.address for name, x in self._held.items()}
        if not csr.host:
            return {name: v.address for name, v in named.items()}
        arrays = {name: np.ascontiguousarray(as_numpy(v)) for name, v in named.items()}
        self._held |= allocate_parts(self._on, {name: x.nbytes for name, x in arrays.items()})
        for name, x in arrays.items():
            if x.nbytes:
                self._on.upload(self._held[name].address, x)
        return {name: x.address for name, x in self._held.items()}

    def _transpose(self, stream: int) -> PreparedSpmm:
        """The handle of the transpose; it is made from the values once the work of ``stream`` is done. InputError: the
        stream is being captured, or the pattern is not symmetric as stated."""
        with call_lock.lock:
            if self._transposed is not None:
                return self._transposed
            if streams.is_captured(stream, self._on):
                raise InputError(
                    "the stream is being captured, and the transpose must be made; call p.t(b) once before"
                )
            if stream:
                self._on.wait(stream)
            m, k = self.shape
            problem = replace(self._problem, m=k, n=1, k=m, ldb=0, ldc=0)
            if self.transposed_arrays is not None:
                transposed = PreparedSpmm(self.transposed_arrays, problem, False)
            else:
                transposed = self._with_gathered_values(problem)
            self._transposed = transposed
            return transposed

    def _with_gathered_values(self, problem: Spmm) -> PreparedSpmm:
        """The handle of the transpose, whose values are gathered from those of the matrix."""
        start = self._on.now_us()
        csr, size, (m, k) = self._csr, self._csr.values.dtype.bytes, self.shape
        pattern = self._transposed_pattern()
        self._places = places = pattern["places"]
        values = allocate_parts(self._on, {"values": self.nnz * size})["values"]
        gather_values(self._on, size, self._at["values"], places.address, values.address, self.nnz)
        self._on.synchronize()
        us = self._on.now_us() - start
        held = {"indptr": pattern["indptr"], "indices": pattern["indices"], "values": values}
        views = [  # streams are those of the library of the matrix
            replace(csr.values, address=x.address, shape=(n,), strides=(1,), dtype=element)
            for x, n, element in (
                (pattern["indptr"], k + 1, INDEX_TYPES["i32"]),
                (pattern["indices"], self.nnz, INDEX_TYPES["i32"]),
                (values, self.nnz, csr.values.dtype),
            )
        ]
        known = self._pattern if self._symmetric else self._pattern.of_transpose
        transposed = PreparedSpmm(Csr(views[0], views[1], views[2], (k, m), "i32"), problem, False, held, known)
        transposed._sources = (csr, dict(self._held)) if self._symmetric else ()
        transposed._us += us
        self._pattern.of_transpose = transposed._pattern
        return transposed

    def _transposed_pattern(self) -> Mapping[str, Part]:
        """``indptr``, ``indices`` and ``places`` of the transpose; ``places`` has for each of its values the index in
        the matrix. They are kept with the pattern."""
        (m, k), at, known = self.shape, self._at, self._pattern
        if self.nnz >= INDEX_LIMIT:
            raise InputError(f"a has {self.nnz} nonzeros; to be transposed it must have fewer than {INDEX_LIMIT}")
        if known.transposed is None or self._symmetric:
            known.transposed = self._symmetric_pattern() if self._symmetric else transpose(self._on, at, m, k, self.nnz)
        return known.transposed

    def _symmetric_pattern(self) -> Mapping[str, Part]:
        """``indptr``, ``indices`` and ``places`` of the transpose of a symmetric pattern: its own row pointers and
        columns. InputError: the pattern is not symmetric, or columns do not increase."""
        if not self._pattern.record.statistics.distinct:
            raise InputError("a has rows whose columns do not increase; with symmetric=True they must")
        places, fault = symmetric_places(self._on, self._at, self.shape[0], self.nnz)
        if fault is not None:
            [column] = self._integers("indices", fault, 1)
            raise InputError(
                f"a.indices[{fault}] is {column}, and row {column} has no nonzero in the column of that row; with"
                " symmetric=True it must have one"
            )
        own = {name: Part(places.memory, self._at[name], 0) for name in ("indptr", "indices")}
        return {**own, "places": places}

    def _update_transposed(self, stream: int) -> None:
        """Gathers the values of the transpose again, on a stream, after the values of the matrix were replaced."""
        transposed = self._transposed
        self.transposed_arrays = None
        if transposed is None:
            return
        if self._places is None:  # its values are in an array of the caller
            self._former.append(transposed)
            self._transposed = None
            return
        size = self._csr.values.dtype.bytes
        gather_values(
            self._on, size, self._at["values"], self._places.address, transposed._at["values"], self.nnz, stream
        )
        transposed._prepared.update(transposed._at, stream)

    def _read_pattern(self) -> KnownPattern:
        """Reads the statistics of the pattern, and makes 32-bit copies of 64-bit indices if their values fit."""
        csr, copies = self._csr, dict[str, Part]()
        if csr.index_type == "i64" and csr.nnz < INDEX_LIMIT:
            counts = {"indptr": csr.shape[0] + 1, "indices": csr.nnz}
            copies = narrow(self._on, {name: (self._at[name], n) for name, n in counts.items()})
        record = read_pattern(self._on, self._at, *csr.shape, csr.nnz, csr.index_type)
        pattern = KnownPattern((csr.indptr, csr.indices), record, copies, _versions(csr)[:2])
        if self._tracked:
            _patterns[_pattern_key(csr)] = pattern
        return pattern

    def _own_addresses(self) -> tuple[int, int, int]:
        """The addresses of the arrays of the matrix, in the order of launches. Also notes the memory that the arrays
        cover."""
        self._spans = [] if self._csr.host else [v.span for v in self._csr.named.values()]
        return self._at["indptr"], self._at["indices"], self._at["values"]

    def _require_pattern(self, record: PatternRecord) -> None:
        """InputError: the arrays are no CSR pattern; the message names the first fault."""
        nnz, k = self.nnz, self.shape[1]
        if (record.first, record.last) != (0, nnz):
            raise InputError(
                f"a.indptr is from {record.first} to {record.last}; it must be from 0 to {nnz}, the nonzeros of a"
            )
        if (row := record.fall) is not None:
            low, high = self._integers("indptr", row, 2)
            raise InputError(f"a.indptr[{row + 1}] is {high}; it must be at least a.indptr[{row}], {low}")
        if (at := record.outside) is not None:
            [column] = self._integers("indices", at, 1)
            raise InputError(f"a.indices[{at}] is {column}; it must be at least 0 and less than {k}, the columns of a")

    def _integers(self, name: str, at: int, count: int) -> list[int]:
        """``count`` elements of an index array, from element ``at``, read back to the host."""
        words = np.empty(count, np.int64 if self._csr.index_type == "i64" else np.int32)
        self._on.download(self._at[name] + at * words.itemsize, words)
        return [int(n) for n in words]

    def _runner(self, problem: Spmm, stream: int) -> Runner:
        """The runner of a problem of this matrix, with its prepared arrays. InputError: arrays must be prepared, and
        the stream is being captured."""
        runner = self._runners.get(problem)
        if runner is None:
            made = runners.make_runner(problem, self._shared, self._tuned.get(problem.n))
            if not self._prepared.has(made.plan.preparations):
                if streams.is_captured(stream, self._on):
                    raise InputError(
                        f"the stream is being captured, and products with {problem.n} columns need a preparation; call"
                        f" once before, or spmm_prepare(a, n={problem.n})"
                    )
                if stream:
                    self._on.wait(stream)
            runner = self._runners[problem] = made.on(self._prepared)
            runner.holds = (self._csr, dict(self._held))
            self._n, self._config = problem.n, runner.plan.config
        return runner

    def _multiply(self, key: Any, b: Any, out: Any, alpha: float, beta: float) -> Any:
        """Computes a product that has no cached launch: checks the arguments, prepares and launches; stores the launch
        under ``key``."""
        vb, vector = spmm_operands.dense(b, "b")
        spmm_operands.check_b(self.shape, self._csr.values.dtype, vb, **self._csr.named)
        result, vc = spmm_operands.result_for(self.shape[0], vb, vector, out, beta)
        require_disjoint(vc, b=vb, **self._csr.named)
        if not vb.host:
            drivers.require_device(self._on, b=vb, out=vc)
        if 0 in vc.shape:
            return result
        if vb.host:
            self._multiply_on_host(vb, vc, alpha, beta)
            return result
        problem, packed = spmm_operands.with_b_and_c(self._problem, vb, vc)
        stream = streams.current_stream(b)
        launch = launch_function.make_launch(self._runner(problem, stream), alpha, beta)
        with streams.ordered(self._on, stream, (*self._csr.named.values(), vb, vc)):
            launch((*self._prefix, packed.address, vc.address), stream)
        if key is not None and packed.address == vb.address:
            if len(self._launches) >= MAX_LAUNCHES:
                self._launches.pop(next(iter(self._launches)))
            sizes = (v.span[1] - v.address for v in (vb, vc))
            shape = vc.shape[:1] if vector else vc.shape
            self._launches[key] = (launch, shape, result.dtype, *sizes)
        return result

    def _sample(self, key: Any, x: Any, y: Any, out: Any, scaled: bool) -> Any:
        """Computes a sampled product that has no cached launch: checks the arguments and launches; stores the launch
        under ``key``."""
        (m, k), element = self.shape, self._csr.values.dtype
        vx, vy = spmm_operands.sampled(x, y, (m, k), element, **self._csr.named)
        result, vo = spmm_operands.nonzeros_for(self.nnz, vx, out)
        require_disjoint(vo, x=vx, y=vy, **self._csr.named)
        if self.nnz >= INDEX_LIMIT:
            raise InputError(f"a has {self.nnz} nonzeros; for sampled products it must have fewer than {INDEX_LIMIT}")
        if not vx.host:
            drivers.require_device(self._on, x=vx, y=vy, out=vo)
        if self.nnz == 0:
            return result
        if vx.host:
            arrays = {"X": np.ascontiguousarray(as_numpy(vx)), "Y": np.ascontiguousarray(as_numpy(vy))}
            held = {name: Allocation(self._on, max(each.nbytes, 1)) for name, each in arrays.items()}
            for name, each in arrays.items():
                if each.nbytes:
                    self._on.upload(held[name].address, each)
            held["out"] = Allocation(self._on, self.nnz * element.bytes)
            at = {name: each.address for name, each in held.items()}
            vx, vy = (replace(v, strides=(v.shape[1], 1)) for v in (vx, vy))
        else:
            at = {"X": vx.address, "Y": vy.address, "out": vo.address}
        (ldx, ldy), n, size = (spmm_operands.leading_dimension(v) for v in (vx, vy)), vx.shape[1], element.bytes
        vec = min(aligned_access(alignment_of(at[v]), n, ld, 0, size) for v, ld in (("X", ldx), ("Y", ldy)))
        shape = Shape(m, k, self.nnz, self._pattern.record.statistics.longest)
        made, step = sampled_products(element.name, shape, n, ldx, ldy, vec, scaled, self._on.device)
        kernel = load_once(self._on, made)
        packed = pack(step, (*SPARSE, "X", "Y", "out"), {}, self._on.tensor_map)
        parameters = packed.parameters((*self._prefix, at["X"], at["Y"], at["out"]))
        if vx.host:
            self._on.launch(kernel, step, parameters)
            self._on.download(at["out"], values := np.empty(self.nnz, element.numpy))
            as_numpy(vo)[...] = values
            return result
        stream = streams.current_stream(x)
        with streams.ordered(self._on, stream, (*self._csr.named.values(), vx, vy, vo)):
            self._on.launch(kernel, step, parameters, stream)
        if key is not None and (vx.address, vy.address) == (x.data_ptr(), y.data_ptr()):
            if len(self._sampled) >= MAX_LAUNCHES:
                self._sampled.pop(next(iter(self._sampled)))
            self._sampled[key] = kernel, packed, result.dtype
        return result

    def _multiply_on_host(self, b: View, c: View, alpha: float, beta: float) -> None:
        """Copies B to the device, computes there, and copies the result back."""
        problem = self._for(c.shape[1])
        on_host.warn_if_slow(problem)
        arrays = spmm_operands.host_arrays(b, c, beta)
        computed = self._runner(problem, 0).compute(arrays, alpha, beta, self._at)
        spmm_operands.store_on_host(c, computed["C"])
        recording.notify(problem, self._on)

    def _time(self, runner: Runner) -> list[float]:
        """The times of a product, in microseconds, on matrices B and C that are together larger than the L2 cache."""
        p, timing = runner.problem, TIMING
        assert isinstance(p, Spmm)
        sizes = {"B": max(p.k * p.ldb, 1) * p.element.bytes, "C": p.m * p.ldc * p.output.bytes}
        count = 1
        if self._on.clock == "hardware":
            count = int(min(timing.most, max(2, -(-timing.l2_multiple * self._on.device.l2 // sum(sizes.values())))))
        held = [{name: Allocation(self._on, size) for name, size in sizes.items()} for _ in range(count)]
        for each in held:
            self._on.fill(each["B"].address, each["B"].size)
        bound = [runner.bind({**self._at, **{name: x.address for name, x in each.items()}}) for each in held]
        return self._on.time(bound, timing)


#: addresses of the tensors of a matrix -> its handle, as long as that is in use
_handles: weakref.WeakValueDictionary[Any, PreparedSpmm] = weakref.WeakValueDictionary()


#: addresses of index tensors -> what a handle has read of their pattern
_patterns: weakref.WeakValueDictionary[Any, KnownPattern] = weakref.WeakValueDictionary()


def _pattern_key(csr: Csr) -> Any:
    return csr.shape, csr.nnz, csr.index_type, csr.indptr.address, csr.indices.address


def _known_pattern(csr: Csr) -> KnownPattern | None:
    """What another handle has read of the pattern of the same index tensors, unchanged since; None: there is none."""
    pattern = _patterns.get(_pattern_key(csr))
    return pattern if pattern is not None and pattern.versions == _versions(csr)[:2] else None


def _tracked(csr: Csr) -> bool:
    """True if the index arrays are PyTorch tensors on a GPU, whose changes PyTorch counts."""
    return not csr.host and is_torch(csr.indptr.origin) and is_torch(csr.indices.origin)


def handle_of(csr: Csr, compute: str) -> PreparedSpmm | None:
    """The handle that exists for the same PyTorch tensors, unchanged since; None: there is none."""
    handle = _handles.get(_key_of(csr)) if _handles else None
    return handle if handle is not None and handle.current(compute) else None


def kept_handle(a: Any, csr: Csr, compute: str) -> PreparedSpmm:
    """A handle for a call of ``spmm`` or ``sddmm``; it makes no format. The handle of a PyTorch tensor is kept as long
    as the tensor exists and does not change."""
    handle = handle_of(csr, compute)
    if handle is not None:
        return handle
    known = _kept.get(id(a))
    if known is not None and known[0]() is a and known[1].current(compute) and _key_of(known[1]._csr) == _key_of(csr):
        return known[1]
    problem = _problem(csr, compute)
    if hasattr(csr.values.origin, "detach"):  # the values of a tensor refer to it
        csr = csr._replace(values=replace(csr.values, origin=csr.values.origin.detach()))
    with call_lock.lock:
        made = PreparedSpmm(csr, problem, csr.host)
        if is_torch(a):
            at = id(a)
            _kept[at] = weakref.ref(a, lambda _: _kept.pop(at, None)), made
        return made


def handle_of_arrays(csr: Csr, compute: str, exact_nonfinite: bool) -> PreparedSpmm:
    """A handle for ``CALLS`` products that does not keep the index tensors: its user must know that they have not
    changed."""
    problem = replace(_problem(csr, compute), calls=CALLS, exact_nonfinite=exact_nonfinite)
    with call_lock.lock:
        made = PreparedSpmm(csr, problem, True, tracked=False)
        made.forget_indices()
    return made


def _problem(csr: Csr, compute: str) -> Spmm:
    """The problem of products with a matrix, before its pattern is read."""
    m, k = csr.shape
    element_type = csr.values.dtype.name
    return Spmm(m, 1, k, dtype=element_type, compute=compute, pattern="even:nnz=0", index=csr.index_type)


#: identity of a PyTorch tensor -> (a weak reference to it, its handle)
_kept: dict[int, tuple[weakref.ref[Any], PreparedSpmm]] = {}


def _key_of(csr: Csr) -> Any:
    """The key that distinguishes the tensors of a matrix from those of any other matrix alive at the same time."""
    return csr.shape, csr.nnz, csr.index_type, csr.values.dtype, tuple(v.address for v in csr.named.values())


def _versions(csr: Csr) -> tuple[Any, ...]:
    """PyTorch's counts of changes to the arrays of a matrix."""
    return versions_of([v.origin for v in csr.named.values()])


def _key(b: Any, out: Any, alpha: float, beta: float) -> tuple[Any, int, int]:
    """The tuple (key of a call on PyTorch tensors, addresses of b and out). The key is None for other arrays, and for
    tensors that need checks not covered by the key."""
    try:
        at_b, at_c, c = b.data_ptr(), 0, None
        if not at_b or b.is_neg() or (b.requires_grad and records_gradient(b)):
            return NO_KEY
        if out is not None:
            at_c = out.data_ptr()
            if not at_c or out.is_neg() or (out.requires_grad and records_gradient(out)):
                return NO_KEY
            c = (type(out), out.shape, out.stride(), out.dtype, at_c & 15, out.get_device())
        return (type(b), b.shape, b.stride(), b.dtype, at_b & 15, b.get_device(), alpha, beta, c), at_b, at_c
    except (AttributeError, TypeError, RuntimeError):  # RuntimeError: a sparse tensor
        return NO_KEY


__all__ = ["Driver", "PreparedSpmm", "handle_of", "spmm_prepare"]
