"""The baseline cuSPARSE: the fastest of its three algorithms for CSR times a row-major matrix, each after its
preprocessing."""

from __future__ import annotations

import ctypes as ct
import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Any, ClassVar

from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.operations.spmm.block_diagonal import BlockDiagonal
from ptxgen.operations.spmm.checked_baseline import BaselineCheck
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.transposition import gather_values, transpose
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime import vendor_libraries
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.device_tables import Allocation
from ptxgen.runtime.driver import Timing

#: cusparseSpMMAlg_t: CUSPARSE_SPMM_CSR_ALG1, _ALG2, _ALG3
ALGORITHMS = {"ALG1": 4, "ALG2": 6, "ALG3": 12}
_NOT_TRANSPOSED, _TRANSPOSED = 0, 1  # cusparseOperation_t
_ROW_MAJOR = 2  # cusparseOrder_t
_INDEX_32 = 2  # cusparseIndexType_t
_BASE_ZERO = 0  # cusparseIndexBase_t
_VERSION = (0, 1, 2)  # libraryPropertyType: major, minor, patch
#: type of sums -> the C type of alpha and beta
_SCALAR: dict[str, Callable[[int], Any]] = {"f32": ct.c_float, "f64": ct.c_double}

_PRODUCT = (
    ct.c_void_p,  # handle
    ct.c_int,  # opA
    ct.c_int,  # opB
    ct.c_void_p,  # alpha
    ct.c_void_p,  # A
    ct.c_void_p,  # B
    ct.c_void_p,  # beta
    ct.c_void_p,  # C
    ct.c_int,  # type of sums
    ct.c_int,  # algorithm
)
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cusparseCreate": (ct.c_void_p,),
    "cusparseDestroy": (ct.c_void_p,),
    "cusparseSetStream": (ct.c_void_p, ct.c_void_p),
    "cusparseGetProperty": (ct.c_int, ct.c_void_p),
    "cusparseGetErrorName": (ct.c_int,),
    # descriptor, rows, columns, nonzeros, row pointers, columns, values, types of both indices, base, type of values
    "cusparseCreateCsr": (
        ct.c_void_p,
        *(ct.c_int64,) * 3,
        *(ct.c_void_p,) * 3,
        *(ct.c_int,) * 4,
    ),
    # descriptor, rows, columns, leading dimension, values, type, order
    "cusparseCreateDnMat": (ct.c_void_p, *(ct.c_int64,) * 3, ct.c_void_p, ct.c_int, ct.c_int),
    "cusparseDestroySpMat": (ct.c_void_p,),
    "cusparseDestroyDnMat": (ct.c_void_p,),
    "cusparseSpMM_bufferSize": (*_PRODUCT, ct.c_void_p),
    "cusparseSpMM_preprocess": (*_PRODUCT, ct.c_void_p),
    "cusparseSpMM": (*_PRODUCT, ct.c_void_p),
}


def available() -> str | None:
    """``cuSPARSE`` and its version. None: the library cannot be loaded."""
    try:
        library = load_library()
    except UnavailableError:
        return None
    numbers = []
    for part in _VERSION:
        number = ct.c_int()
        library.cusparseGetProperty(part, ct.byref(number))
        numbers.append(str(number.value))
    return f"cuSPARSE {'.'.join(numbers)}"


class Product:
    """A product by one algorithm on the arrays of one operand set, with its descriptors, workspace and preprocessing.

    Each product has its own descriptor of A, because the descriptor keeps the results of preprocessing. ``operation``:
    the operation on A; _TRANSPOSED: the arrays are those of the transpose of A. LaunchError: cuSPARSE does not support
    the product.
    """

    def __init__(
        self,
        library: Any,
        handle: ct.c_void_p,
        driver: CudaDriver,
        p: Spmm,
        arrays: Mapping[str, int],
        operation: int = _NOT_TRANSPOSED,
    ) -> None:
        self._library, self._handle, self._driver = library, handle, driver
        type_code = p.element.cuda
        self._sums = p.accumulator.cuda
        self._one, self._zero = (_SCALAR[p.accumulator.name](value) for value in (1, 0))
        self._open: list[tuple[str, ct.c_void_p]] = []
        self._space, self._operation = 0, operation
        shape = (p.k, p.m) if operation == _TRANSPOSED else (p.m, p.k)
        try:
            pattern = (arrays["indptr"], arrays["indices"], arrays["values"], _INDEX_32, _INDEX_32, _BASE_ZERO)
            self._a = self._described("Csr", "SpMat", *shape, p.nnz, *pattern, type_code)
            self._b = self._described("DnMat", "DnMat", p.k, p.n, p.ldb, arrays["B"], type_code, _ROW_MAJOR)
            self._c = self._described("DnMat", "DnMat", p.m, p.n, p.ldc, arrays["C"], type_code, _ROW_MAJOR)
        except BaseException:
            self.close()
            raise

    def prepare(self, algorithm: int) -> None:
        """Allocates the workspace, and preprocesses A for an algorithm."""
        size = ct.c_size_t()
        self._algorithm = algorithm
        self._call("cusparseSpMM_bufferSize", ct.byref(size))
        self._space = self._driver.allocate(max(size.value, 16))
        with suppress(LaunchError) if self._operation == _TRANSPOSED else nullcontext():  # there it may be unsupported
            self._call("cusparseSpMM_preprocess", self._space)

    def run(self) -> None:
        """Queues the product on the stream of the handle. The call may be captured into a graph."""
        self._call("cusparseSpMM", self._space)

    def close(self) -> None:
        """Frees the descriptors and the workspace."""
        while self._open:
            name, descriptor = self._open.pop()
            getattr(self._library, f"cusparseDestroy{name}")(descriptor)
        if self._space:
            self._driver.release(self._space)
            self._space = 0

    def _described(self, made: str, freed: str, *arguments: int) -> ct.c_void_p:
        descriptor = ct.c_void_p()
        _check(getattr(self._library, f"cusparseCreate{made}")(ct.byref(descriptor), *arguments))
        self._open.append((freed, descriptor))
        return descriptor

    def _call(self, name: str, last: Any) -> None:
        _check(
            getattr(self._library, name)(
                self._handle,
                self._operation,
                _NOT_TRANSPOSED,
                ct.byref(self._one),
                self._a,
                self._b,
                ct.byref(self._zero),
                self._c,
                self._sums,
                self._algorithm,
                last,
            )
        )


class Cusparse:
    """A problem computed by cuSPARSE with alpha = 1 and beta = 0. Products of f32 are summed in f32, also where the
    problem permits tf32.

    UnavailableError: cuSPARSE is missing. ShapeError: there is nothing to multiply.
    """

    operation: ClassVar[int] = _NOT_TRANSPOSED
    algorithms: ClassVar[Mapping[str, int]] = ALGORITHMS

    def __init__(self, driver: CudaDriver, problem: Spmm, addresses: Mapping[str, int] | None = None) -> None:
        if not problem.flops:
            raise ShapeError(f"{problem.key()}: an extent or the number of nonzeros is 0, which is not timed")
        self.problem, self._driver, self._library = problem, driver, load_library()
        self._handle = ct.c_void_p()
        with driver.context("cuSPARSE"):
            _check(self._library.cusparseCreate(ct.byref(self._handle)))
            _check(self._library.cusparseSetStream(self._handle, driver.stream))

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The time of the fastest algorithm without its preprocessing: the median of the samples in microseconds. An
        algorithm counts only after its result was compared with the reference.

        ``sets``: addresses by name of the array, used in rotation. LaunchError: no algorithm computes the problem.
        """
        return self._best(sets, timing, sets[0])

    def _best(self, sets: Sequence[Mapping[str, int]], timing: Timing, checked: Mapping[str, int]) -> VendorTimes:
        """As ``best``, on arrays of A or of its transpose, as the operation requires. ``checked``: the first operand
        set of the problem."""
        times: dict[str, float] = {}
        failures = []
        with self._driver.context("cuSPARSE"):
            check = BaselineCheck(self._driver, self.problem, checked)
            blocks = BlockDiagonal(self._driver, self.problem, check.arrays, sets)
            for name, algorithm in self.algorithms.items():
                try:
                    least = min(times.values(), default=float("inf"))
                    times[name] = self._time(algorithm, blocks.sets, timing, check, least)
                except LaunchError as error:
                    failures.append(f"{name}: {error}")
                    self._driver.synchronize()  # raises if the context is lost
        if not times:
            raise LaunchError(f"cuSPARSE does not compute {self.problem.key()}: {'; '.join(failures)}")
        best = min(times.values())
        return VendorTimes(best, same_layout=best)

    def close(self) -> None:
        """Frees the handle of cuSPARSE."""
        if self._handle:
            with self._driver.context("cuSPARSE"):
                self._library.cusparseDestroy(self._handle)
            self._handle = ct.c_void_p()

    def __del__(self) -> None:
        with suppress(Exception):  # at exit the driver may be closed first
            self.close()

    def __enter__(self) -> Cusparse:
        return self

    def __exit__(
        self, exception_class: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _time(
        self, algorithm: int, sets: Sequence[Mapping[str, int]], timing: Timing, check: BaselineCheck, least: float
    ) -> float:
        """The time of an algorithm in microseconds. ``least``: the time of the fastest algorithm so far; an algorithm
        that is much slower is run only once."""
        products: list[Product] = []
        try:
            for addresses in sets:
                arguments = self._library, self._handle, self._driver, self.problem, addresses
                products.append(Product(*arguments, self.operation))
                products[-1].prepare(algorithm)
            check.require(products[0].run)
            us = self._driver.elapsed(products[0].run)
            if us > 2 * least + 20:  # a single run may measure up to 10 us too much
                return us
            return statistics.median(self._driver.time([x.run for x in products], timing))
        finally:
            self._driver.synchronize()
            for x in products:
                x.close()


class CusparseTransposed(Cusparse):
    """cuSPARSE's product with a transposed operand, from the arrays of the transpose of A. The transpose is made before
    the timing."""

    operation = _TRANSPOSED
    algorithms: ClassVar[Mapping[str, int]] = {"DEFAULT": 0, **ALGORITHMS}

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        p, driver = self.problem, self._driver
        if p.index != "i32":
            raise LaunchError("its transpose is made for int32 indices alone")
        pattern = transpose(driver, sets[0], p.m, p.k, p.nnz)
        size, places, held, given = p.element.bytes, pattern["places"].address, [], []
        for addresses in sets:
            held.append(Allocation(driver, p.nnz * size))
            gather_values(driver, size, addresses["values"], places, held[-1].address, p.nnz)
            arrays = {name: pattern[name].address for name in ("indptr", "indices")} | {"values": held[-1].address}
            given.append({**addresses, **arrays})
        driver.synchronize()
        return self._best(given, timing, sets[0])


def _check(status: int) -> None:
    if status:
        raise LaunchError(f"cuSPARSE failed with status {status} ({_status_name(status)})")


def _status_name(status: int) -> str:
    text = load_library().cusparseGetErrorName(status)
    return text.decode() if text else "unknown"


@functools.cache
def load_library() -> ct.CDLL:
    """The loaded library cuSPARSE. UnavailableError: it is not found."""
    with suppress(UnavailableError):
        vendor_libraries.load("nvJitLink")  # cuSPARSE needs it, and wheels may have it in another folder
    library = vendor_libraries.load("cusparse")
    for name, arguments in _SIGNATURES.items():
        getattr(library, name).argtypes = arguments
    library.cusparseGetErrorName.restype = ct.c_char_p
    return library
