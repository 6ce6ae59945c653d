"""The baseline cuBLAS for grouped products, called through ctypes: its grouped call, and a loop with one call per item.

The grouped call is ``cublasSgemmGroupedBatched``, ``cublasDgemmGroupedBatched`` or ``cublasGemmGroupedBatchedEx``. It
takes groups of items with equal extents, leading dimensions and transpositions. Arrays on the host describe the groups;
arrays on the device have the addresses of the matrices.

cuBLAS is column-major. A row-major matrix is the transpose of the column-major one with the same leading dimension,
so C' = op(B)' op(A)': the first operand of cuBLAS is B of the problem, and its m is N.
"""

from __future__ import annotations

import ctypes as ct
import functools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np

from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.install_advice import install_extra
from ptxgen.operations.gemm.strided_arrays import A, B, C
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime import vendor_libraries
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.driver import Timing

WORKSPACE = 64 << 20  #: bytes of the workspace of cuBLAS
#: (dtype, compute) -> cublasComputeType_t, for the combinations that the grouped call supports; C has the type of A and
#: B
_COMPUTE = {
    ("f16", "f32"): 68,
    ("bf16", "f32"): 68,
    ("f32", "f32"): 68,
    ("f32", "tf32"): 77,
    ("f64", "f64"): 70,
}
_DEFAULT_ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT
_LETTERS = {("f32", "f32"): "S", ("f64", "f64"): "D"}  #: letters of the calls for one type
GROUPED, LOOP = "grouped", "loop"

#: addresses of the arrays that hold A, B and C of all items
Addresses = tuple[int, int, int]


def available() -> str | None:
    """``cuBLAS`` and its version. None: the library cannot be loaded."""
    try:
        library = load_library()
    except UnavailableError:
        return None
    parts = []
    for property_ in range(3):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
        value = ct.c_int()
        _check(library, library.cublasGetProperty(property_, ct.byref(value)))
        parts.append(str(value.value))
    return "cuBLAS " + ".".join(parts)


class CublasGrouped:
    """A grouped product that cuBLAS computes with alpha = 1 and beta = 0. The object holds a workspace of 64 MiB and
    the arrays of addresses until it is closed or deleted. ``addresses`` is not used: ``problem`` has the sizes of
    jagged items.

    Items without elements are left out. UnavailableError: cuBLAS is missing, or older than 12.5. ShapeError: all items
    are empty. LaunchError: cuBLAS does not support the types, the epilogue or the alignment.
    """

    def __init__(self, driver: CudaDriver, problem: GroupedGemm, addresses: Mapping[str, int] | None = None) -> None:
        self.problem, self._driver, self._library = problem, driver, load_library()
        types = problem.dtype, problem.compute
        if problem.epilogue_ops:
            raise LaunchError(f"epilogue is {problem.epilogue!r}; cuBLAS fuses none into grouped products")
        if types not in _COMPUTE or problem.out != problem.dtype:
            raise LaunchError(
                f"cuBLAS does not group products of {problem.dtype} summed in {problem.compute} with C of {problem.out}"
            )
        self._compute, self._letter = _COMPUTE[types], _LETTERS.get(types, "")
        self._scalar = ct.c_double if problem.dtype == "f64" else ct.c_float
        self.groups = _groups(problem)
        if not self.groups:
            raise ShapeError(f"{problem.key()}: all items are empty, which cuBLAS does not support")
        self._check_alignment()
        self._describe()
        self._memory: list[int] = []
        self._pointers: dict[Addresses, tuple[int, int, int]] = {}
        self._handle = ct.c_void_p()
        try:
            with driver.context("cuBLAS"):
                self._call("Create_v2", ct.byref(self._handle))
            self._space = self._allocate(WORKSPACE)
        except BaseException:
            self.close()
            raise

    def run(self, which: str, addresses: Mapping[str, int], stream: int = 0) -> None:
        """Queues the product on arrays at these addresses. ``which``: ``grouped`` or ``loop``; ``stream``: a raw
        handle, 0: the driver's own stream.

        The first ``grouped`` run with these addresses copies the addresses of the items to the device; later runs may
        be captured into a graph. LaunchError: cuBLAS returned an error.
        """
        at = addresses["A"], addresses["B"], addresses["C"]
        pointers = self._pointers_of(at) if which == GROUPED else None
        with self._driver.context("cuBLAS"):
            self._queue(pointers, at, stream)

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The time of the grouped call or of the loop, whichever is faster, and the time of the grouped call: medians
        of the samples in microseconds.

        ``sets``: addresses by name of the array, used in rotation. The grouped call and the loop are captured into
        graphs. LaunchError: cuBLAS returned an error.
        """
        grouped, loop = self.times(sets, timing).values()
        best = min(grouped, loop)
        return VendorTimes(best, grouped, same_layout=best)

    def times(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> dict[str, float]:
        """The times in microseconds of the grouped call, ``grouped``, and of one call per item, ``loop``."""
        times: dict[str, float] = {}
        for which in (GROUPED, LOOP):
            launches = [functools.partial(self.run, which, addresses) for addresses in sets]
            for launch in launches:  # loads the kernels, and copies the addresses of the items
                launch()
            times[which] = statistics.median(self._driver.time(launches, timing))
        return times

    def close(self) -> None:
        """Frees the handle of cuBLAS, its workspace and the arrays of addresses."""
        if self._handle:
            with self._driver.context("cuBLAS"):  # a garbage collection may close it while a stream is being captured
                self._library.cublasDestroy_v2(self._handle)
            self._handle = ct.c_void_p()
        while self._memory:
            self._driver.release(self._memory.pop())
        self._pointers.clear()

    def __del__(self) -> None:
        with suppress(Exception):  # at exit the driver may be closed first
            self.close()

    def __enter__(self) -> CublasGrouped:
        return self

    def __exit__(
        self, exception_class: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    # ---- arguments of the calls

    def _check_alignment(self) -> None:
        """Raises LaunchError if a matrix breaks cuBLAS's rule for 16-bit types and tf32: if K elements take a multiple
        of 16 bytes, the address of each matrix must be such a multiple, too; the same holds for 4 bytes."""
        p = self.problem
        if p.element.bytes > 2 and p.compute != "tf32":
            return
        for i in (i for indices in self.groups for i in indices):
            k_bytes = p.items[i][2] * p.element.bytes
            unit = next((unit for unit in (16, 4) if k_bytes % unit == 0), 1)
            for x, aligned in enumerate((p.aligned_a, p.aligned_b, p.aligned_c)):
                if math.gcd(aligned, self._offset(i, x)) % unit:
                    raise LaunchError(
                        f"{'ABC'[x]} of item {i} is not aligned to {unit} bytes; with K={p.items[i][2]} of {p.dtype},"
                        " the grouped call of cuBLAS requires it"
                    )

    def _offset(self, item: int, operand: int) -> int:
        """The bytes from the start of the array to operand A, B or C of an item."""
        p = self.problem
        return int(p.starts[item, operand]) * (p.output if operand == C else p.element).bytes

    def _describe(self) -> None:
        """Makes the host arrays of the grouped call, which have one element per group."""
        p, first = self.problem, [indices[0] for indices in self.groups]
        extents, lds = p.extents[first], p.lds[first]
        count = len(first)
        self._m, self._n, self._k = (_ints(extents[:, x]) for x in (1, 0, 2))
        self._lda, self._ldb, self._ldc = (_ints(lds[:, x]) for x in (B, A, C))
        # A row-major N×K (layout T) is a column-major K×N, which op() transposes.
        self._trans_a, self._trans_b = (_ints([int(p.layout[x] == "T")] * count) for x in (1, 0))
        self._sizes = _ints([len(indices) for indices in self.groups])
        self._ones, self._zeros = (self._scalar * count)(*[1] * count), (self._scalar * count)()

    def _pointers_of(self, addresses: Addresses) -> tuple[int, int, int]:
        """The device arrays of addresses of A, B and C, group by group."""
        if addresses not in self._pointers:
            order = [i for indices in self.groups for i in indices]
            table = np.array(
                [[at + self._offset(i, x) for i in order] for x, at in enumerate(addresses)], dtype=np.uint64
            )
            at = self._allocate(table.nbytes)
            self._driver.upload(at, table)
            row = table.nbytes // 3
            self._pointers[addresses] = at, at + row, at + 2 * row
        return self._pointers[addresses]

    def _queue(self, pointers: tuple[int, int, int] | None, addresses: Addresses, stream: int) -> None:
        """Queues the grouped call. ``pointers``: the device arrays of addresses; None: the loop is queued instead."""
        self._call("SetStream_v2", self._handle, ct.c_void_p(stream or self._driver.stream))
        # a new stream resets the workspace to one that graphs cannot share
        self._call("SetWorkspace_v2", self._handle, ct.c_void_p(self._space), ct.c_size_t(WORKSPACE))
        if pointers is not None:
            self._call_grouped(pointers)
            return
        for g, indices in enumerate(self.groups):
            for i in indices:
                self._call_item(g, i, addresses)

    def _call_grouped(self, pointers: tuple[int, int, int]) -> None:
        a, b, c = (ct.c_void_p(p) for p in pointers)
        count = ct.c_int(len(self.groups))
        shapes = self._handle, self._trans_a, self._trans_b, self._m, self._n, self._k, self._ones
        if self._letter:
            self._call(
                f"{self._letter}gemmGroupedBatched",
                *(*shapes, b, self._lda, a, self._ldb, self._zeros, c, self._ldc, count, self._sizes),
            )
            return
        type_code = ct.c_int(self.problem.element.cuda)
        self._call(
            "GemmGroupedBatchedEx",
            *(
                *shapes,
                b,
                type_code,
                self._lda,
                a,
                type_code,
                self._ldb,
                self._zeros,
                c,
                type_code,
                self._ldc,
                count,
                self._sizes,
            ),
            ct.c_int(self._compute),
        )

    def _call_item(self, group: int, item: int, addresses: Addresses) -> None:
        """Queues the product of one item, which has the extents of its group."""
        p, g = self.problem, group
        a, b, c = (ct.c_void_p(at + self._offset(item, x)) for x, at in enumerate(addresses))
        one, zero = ct.byref(self._scalar(1)), ct.byref(self._scalar(0))
        lda, ldb, ldc = (ct.c_int(x[g]) for x in (self._lda, self._ldb, self._ldc))
        shape = (ct.c_int(x[g]) for x in (self._trans_a, self._trans_b, self._m, self._n, self._k))
        if self._letter:
            self._call(f"{self._letter}gemm_v2", self._handle, *shape, one, b, lda, a, ldb, zero, c, ldc)
            return
        type_code, rest = ct.c_int(p.element.cuda), (ct.c_int(self._compute), ct.c_int(_DEFAULT_ALGORITHM))
        self._call(
            "GemmEx", self._handle, *shape, one, b, type_code, lda, a, type_code, ldb, zero, c, type_code, ldc, *rest
        )

    def _call(self, name: str, *arguments: Any) -> None:
        """Calls a function of cuBLAS. LaunchError: it returned an error."""
        function: Callable[..., int] = getattr(self._library, f"cublas{name}")
        _check(self._library, function(*arguments))

    def _allocate(self, size: int) -> int:
        self._memory.append(self._driver.allocate(size))
        return self._memory[-1]


def _groups(p: GroupedGemm) -> list[list[int]]:
    """The groups of items with equal extents and leading dimensions, as indices in ascending order. Empty items are in
    no group."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, (m, n, k) in enumerate(p.items):
        if m and n:
            groups.setdefault((m, n, k, *(int(v) for v in p.lds[i])), []).append(i)
    return list(groups.values())


def _ints(values: Iterable[int]) -> Any:
    """A C array of int."""
    ints = [int(v) for v in values]
    return (ct.c_int * len(ints))(*ints)


def _check(library: Any, status: int) -> None:
    if status:
        text = library.cublasGetStatusName(status)
        raise LaunchError(f"cuBLAS failed with status {status} ({text.decode() if text else 'unknown'})")


@functools.cache
def load_library() -> ct.CDLL:
    """The loaded library cuBLAS. UnavailableError: it is not found, or has no grouped calls."""
    library = vendor_libraries.load("cublas")
    if not hasattr(library, "cublasGemmGroupedBatchedEx"):
        raise UnavailableError(f"cuBLAS has no grouped calls; version 12.5 has them: {install_extra('baseline')}")
    library.cublasGetStatusName.restype = ct.c_char_p
    return library
