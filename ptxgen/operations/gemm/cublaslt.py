"""cuBLASLt, called through ctypes: times the first algorithm of its heuristic for a GEMM and the fastest of all
candidates, and launches the fastest one in place of a kernel.

cuBLASLt is column-major. A row-major matrix is the transpose of the column-major one with the same leading dimension,
so C' = op(B)' op(A)': the first operand of cuBLASLt is B of the problem, and its m is N.
"""

from __future__ import annotations

import ctypes as ct
import functools
import math
import statistics
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.dtypes import FAST_ACCUM, dtype
from ptxgen.problem.epilogue_ops import arrays_of
from ptxgen.problem.operation import HEURISTIC, VendorTimes
from ptxgen.runtime import vendor_libraries
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.driver import Timing

CANDIDATES = 256  #: algorithms requested from the heuristic
WORKSPACE = 64 << 20  #: bytes of the workspace of cuBLASLt
ALIGNED = 256  #: a placeholder for the address of a bias, which cuBLASLt requires before a launch sets it
FINALISTS = 4  #: candidates timed with the full policy, besides the heuristic's first

# cublasComputeType_t
_COMPUTE = {"f16": 64, "f32": 68, "f32_bf16x6": 68, FAST_ACCUM: 68, "f64": 70, "s32": 72, "tf32": 77}
#: accumulator type -> conversion of alpha and beta
_SCALAR: dict[str, Callable[[int], Any]] = {
    "f16": lambda v: ct.c_uint16(0x3C00 * v),
    "f32": ct.c_float,
    "f64": ct.c_double,
    "s32": ct.c_int32,
    "c64": lambda v: (ct.c_float * 2)(v),
    "c128": lambda v: (ct.c_double * 2)(v),
}
#: letter of a layout -> cublasOperation_t
_OPERATIONS = {"N": 0, "T": 1, "C": 2, "R": 3}
# cublasLtMatrixLayoutAttribute_t
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
# cublasLtMatmulDescAttributes_t and cublasLtMatmulPreferenceAttributes_t
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER, _FAST_ACCUM = 3, 4, 7, 8, 25
#: epilogue operation -> bits of cublasLtEpilogue_t. A residual is C of cuBLASLt with beta = 1
_EPILOGUE_BITS = {"bias_column": 4, "relu": 2, "gelu": 32, "residual": 0}
_SPLITS = 2  #: CUBLASLT_ALGO_CONFIG_SPLITK_NUM
_REDUCTION_SCHEMES = 3
_SUMS_IN_COMPUTE_TYPE = 3  #: CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
_MAX_WORKSPACE, _ALIGNMENT_A, _ALIGNMENT_B, _ALIGNMENT_C, _ALIGNMENT_D = 1, 5, 6, 7, 8
_NOT_SUPPORTED = 15


class Algorithm(ct.Structure):
    """A candidate of the heuristic (cublasLtMatmulHeuristicResult_t)."""

    _fields_ = (
        ("algo", ct.c_uint64 * 8),
        ("workspace", ct.c_size_t),
        ("state", ct.c_int),
        ("waves", ct.c_float),
        ("reserved", ct.c_int * 4),
    )


def available() -> str | None:
    """``cuBLASLt`` and its version. None: the library cannot be loaded."""
    try:
        number = int(load_library().cublasLtGetVersion())
    except UnavailableError:
        return None
    return f"cuBLASLt {number // 10000}.{number // 100 % 100}.{number % 100}"


class CublasLt:
    """A problem computed by cuBLASLt with alpha = 1 and beta = 0. The object holds a workspace of 64 MiB until it is
    closed or deleted. ``addresses``: the addresses of the arrays of the first launch, by name. ``algorithm``: the only
    candidate, whose workspace the caller provides; None: the candidates of the heuristic. ``precise``: leaves out
    candidates that add sums of parts of K in the type of C, whose errors exceed those of the sums.

    ``algorithms``: the candidates in the order of the heuristic. ``failed``: the number of candidates that failed in
    ``best``. UnavailableError: cuBLASLt is missing. LaunchError: cuBLASLt has no algorithm for the problem, or does not
    support the epilogue. ShapeError: an extent is zero.
    """

    def __init__(
        self,
        driver: CudaDriver,
        problem: Gemm,
        addresses: Mapping[str, int] | None = None,
        algorithm: Algorithm | None = None,
        precise: bool = False,
    ) -> None:
        if not problem.results * problem.k:
            raise ShapeError(f"{problem.key()}: an extent is 0, which cuBLASLt does not support")
        if problem.scalings:
            raise LaunchError(f"{problem.key()}: scales of blocks are those of the baseline torch, not of cublas")
        fp8 = problem.output.fp8  # with an fp8 C, the epilogue operands of cuBLASLt are bf16, those of ptxgen are not
        if unsupported := [op for op in problem.epilogue_ops if op not in _EPILOGUE_BITS or (fp8 and arrays_of(op))]:
            raise LaunchError(f"cuBLASLt does not fuse {', '.join(unsupported)}{f' into {problem.out}' if fp8 else ''}")
        self.problem = problem
        self._bias = addresses["bias"] if addresses and "bias" in problem.epilogue_operands else ALIGNED
        self.failed = 0
        self._describing = threading.Lock()
        self._driver = driver
        self._library = load_library()
        self._open: list[tuple[str, ct.c_void_p]] = []
        self._space = 0
        try:
            with driver.context("cuBLASLt"):
                self._describe()
                self.algorithms = [algorithm] if algorithm is not None else self._heuristic(precise)
            if algorithm is None:
                self._space = driver.allocate(WORKSPACE)
        except BaseException:
            self.close()
            raise

    def run(self, index: int, addresses: Mapping[str, int], stream: int = 0) -> None:
        """Queues candidate ``index`` on A, B and C at these addresses; ``stream``: a raw handle, 0: the driver's own
        stream.

        The call may be captured into a graph. LaunchError: cuBLASLt returned an error.
        """
        with self._driver.context("cuBLASLt"):
            self._queue(index, addresses, stream)

    def launch(self, addresses: Mapping[str, int], workspace: int, stream: int) -> None:
        """Queues the first candidate, as ``VendorKernel.launch``. ``addresses``: those of A, B, C and the epilogue
        operands, by name."""
        if self._driver.is_current():
            self._queue(0, addresses, stream, workspace)
            return
        with self._driver.context("cuBLASLt"):
            self._queue(0, addresses, stream, workspace)

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The times of the fastest candidate and of the heuristic's first one: medians of the samples in microseconds.

        ``sets``: addresses by name of the array, used in rotation. LaunchError: no candidate runs.
        """
        times = self.times(sets, timing)
        best = min(times.values())
        return VendorTimes(best, times[min(times)], same_layout=best)

    def times(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> dict[int, float]:
        """The times in microseconds of the heuristic's first candidate that runs and of the fastest candidates, by
        index.

        Every candidate runs once. Slow candidates are dropped, the others are timed briefly, and the FINALISTS fastest
        are timed with the policy ``timing``. LaunchError: no candidate runs.
        """
        with self._driver.context("cuBLASLt"):
            brief = self._brief(sets, timing)
            finalists = sorted(brief, key=lambda i: brief[i])[:FINALISTS]
            return {i: self._time(i, sets, timing) for i in dict.fromkeys([min(brief), *finalists])}

    def splits(self, index: int) -> int:
        """The number of slices of K of a candidate."""
        value, written = ct.c_int32(), ct.c_size_t()
        read = self._library.cublasLtMatmulAlgoConfigGetAttribute
        algorithm = ct.byref(self.algorithms[index])
        _check(read(algorithm, _SPLITS, ct.byref(value), ct.c_size_t(ct.sizeof(value)), ct.byref(written)))
        return max(int(value.value), 1)

    def close(self) -> None:
        """Frees the handles of cuBLASLt and the workspace."""
        if self._open:
            with self._driver.context("cuBLASLt"):  # a garbage collection may close it while a stream is being captured
                while self._open:
                    object_type, handle = self._open.pop()
                    getattr(self._library, f"cublasLt{object_type}Destroy")(handle)
        if self._space:
            self._driver.release(self._space)
            self._space = 0

    def __del__(self) -> None:
        with suppress(Exception):  # at exit the driver may be closed first
            self.close()

    def __enter__(self) -> CublasLt:
        return self

    def __exit__(
        self, exception_class: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _describe(self) -> None:
        p, lib = self.problem, self._library
        scalar = (p.epilogue_dtype if p.accumulator.integer else p.accumulator).name
        self._one, self._zero = _SCALAR[scalar](1), _SCALAR[scalar](0)
        self._handle = self._make("")
        self._product = self._make("MatmulDesc", _COMPUTE[p.compute], dtype(scalar).cuda)
        # A row-major N×K (layout T) is a column-major K×N, which op() transposes.
        operations = [ct.c_int32(_OPERATIONS[letter]) for letter in reversed(p.layout)]
        for attribute, value in zip((_TRANSA, _TRANSB), operations, strict=True):
            _check(lib.cublasLtMatmulDescSetAttribute(self._product, attribute, ct.byref(value), ct.sizeof(value)))
        if p.compute == FAST_ACCUM:
            fast = ct.c_int8(1)
            _check(lib.cublasLtMatmulDescSetAttribute(self._product, _FAST_ACCUM, ct.byref(fast), ct.sizeof(fast)))
        self._fuse()
        a, b, c = p.strides
        self._b = self._matrix(p.types[1].name, p.columns_b, p.rows_b, p.ldb, b)
        self._a = self._matrix(p.dtype, p.columns_a, p.rows_a, p.lda, a)
        self._d = self._matrix(p.out, p.n, p.m, p.ldc, c)
        # with an fp8 D, C of cuBLASLt must be bf16, although beta is 0
        self._c = self._matrix("bf16", p.n, p.m, p.ldc, c) if p.output.fp8 else self._d

    def _heuristic(self, precise: bool) -> list[Algorithm]:
        """The candidates of cuBLASLt's heuristic. LaunchError: there is none."""
        lib = self._library
        preference = self._make("MatmulPreference")
        space = ct.c_uint64(WORKSPACE)
        _check(lib.cublasLtMatmulPreferenceSetAttribute(preference, _MAX_WORKSPACE, ct.byref(space), ct.sizeof(space)))
        if precise:
            mask = ct.c_uint32(_SUMS_IN_COMPUTE_TYPE)
            _check(
                lib.cublasLtMatmulPreferenceSetAttribute(
                    preference, _REDUCTION_SCHEMES, ct.byref(mask), ct.sizeof(mask)
                )
            )
        for attribute, aligned in (
            (_ALIGNMENT_A, self._start("b")),
            (_ALIGNMENT_B, self._start("a")),
            (_ALIGNMENT_C, self._start("c")),
            (_ALIGNMENT_D, self._start("c")),
        ):
            if aligned < 16:  # no algorithm requires more than 16; the default is 256
                bytes_ = ct.c_uint32(aligned)
                _check(
                    lib.cublasLtMatmulPreferenceSetAttribute(preference, attribute, ct.byref(bytes_), ct.sizeof(bytes_))
                )
        results, count = (Algorithm * CANDIDATES)(), ct.c_int()
        layouts = (self._b, self._a, self._c, self._d)
        status = lib.cublasLtMatmulAlgoGetHeuristic(
            self._handle, self._product, *layouts, preference, CANDIDATES, results, ct.byref(count)
        )
        if status != _NOT_SUPPORTED:
            _check(status)
        algorithms = [results[i] for i in range(count.value) if results[i].state == 0]
        if not algorithms:
            raise LaunchError(f"cuBLASLt has no algorithm for {self.problem.key()}")
        return algorithms

    def _fuse(self) -> None:
        """Sets the epilogue. The bias per column of C is the bias per row of the column-major C."""
        facts: list[tuple[int, Any]] = []
        if code := sum(_EPILOGUE_BITS[op] for op in self.problem.epilogue_ops):
            facts.append((_EPILOGUE, ct.c_int32(code)))
        if "bias" in self.problem.epilogue_operands:
            facts.append((_BIAS_POINTER, ct.c_void_p(self._bias)))
        for attribute, value in facts:
            self._set(attribute, value)

    def _set(self, attribute: int, value: Any) -> None:
        size = ct.sizeof(value)
        _check(self._library.cublasLtMatmulDescSetAttribute(self._product, attribute, ct.byref(value), size))

    def _make(self, object_type: str, *arguments: int) -> ct.c_void_p:
        handle = ct.c_void_p()
        _check(getattr(self._library, f"cublasLt{object_type}Create")(ct.byref(handle), *arguments))
        self._open.append((object_type, handle))
        return handle

    def _start(self, operand: str) -> int:
        """The alignment in bytes, at most 16, of the operand in all items."""
        offset = self.problem.offsets["abc".index(operand)] if self.problem.batch > 1 else 0
        return math.gcd(int(getattr(self.problem, f"aligned_{operand}")), offset)

    def _matrix(self, element_type: str, rows: int, columns: int, ld: int, stride: int) -> ct.c_void_p:
        sizes = (ct.c_uint64(rows), ct.c_uint64(columns), ct.c_int64(ld))
        made = self._make("MatrixLayout", dtype(element_type).cuda, *sizes)  # type: ignore[arg-type]
        if self.problem.batch > 1:
            facts = ((_BATCH_COUNT, ct.c_int32(self.problem.batch)), (_BATCH_STRIDE, ct.c_int64(stride)))
            for attribute, value in facts:
                size = ct.c_size_t(ct.sizeof(value))
                _check(self._library.cublasLtMatrixLayoutSetAttribute(made, attribute, ct.byref(value), size))
        return made

    def _queue(self, index: int, addresses: Mapping[str, int], stream: int = 0, space: int | None = None) -> None:
        """Queues a candidate. ``space``: the address of its workspace; None: the workspace of this object."""
        algorithm, operands = self.algorithms[index], self.problem.epilogue_operands
        out = ct.c_void_p(addresses["C"])
        residual = addresses["residual"] if "residual" in operands else None
        # with an fp8 D, C has a different type and must not alias D
        added = ct.c_void_p(residual) if residual else None if self.problem.output.fp8 else out
        with self._describing:  # the description has the address of the bias
            if "bias" in operands:
                self._set(_BIAS_POINTER, ct.c_void_p(addresses["bias"]))
            status = self._library.cublasLtMatmul(
                self._handle,
                self._product,
                ct.byref(self._one),
                ct.c_void_p(addresses["B"]),
                self._b,
                ct.c_void_p(addresses["A"]),
                self._a,
                ct.byref(self._one if residual else self._zero),
                added,
                self._c,
                out,
                self._d,
                ct.byref(algorithm),  # the first member is the cublasLtMatmulAlgo_t
                ct.c_void_p(self._space if space is None else space),
                ct.c_size_t(algorithm.workspace),
                ct.c_void_p(stream or self._driver.stream),
            )
        _check(status)

    def _time(self, index: int, sets: Sequence[Mapping[str, int]], timing: Timing) -> float:
        launches = [functools.partial(self._queue, index, addresses) for addresses in sets]
        return statistics.median(self._driver.time(launches, timing))

    def _brief(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> dict[int, float]:
        """Approximate microseconds of the candidates, without slow ones and those that fail (counted in ``failed``)."""
        quick = replace(timing, samples=1, target_ms=min(0.5, timing.target_ms))
        times: dict[int, float] = {}
        self.failed = 0
        for index in range(len(self.algorithms)):
            launch = functools.partial(self._queue, index, sets[0])
            try:
                launch()  # the first run of an algorithm loads its kernel
                first_us = self._driver.elapsed(launch)
                if times and first_us > 2 * min(times.values()) + 20:  # a single run may measure up to 10 us too much
                    continue
                # long runs need one set: their operands do not stay in the L2 cache until the next run
                times[index] = self._time(index, sets if first_us < 500 else sets[:1], quick)
            except LaunchError:
                self._driver.synchronize()  # raises if the context is lost
                self.failed += 1
        if not times:
            raise LaunchError(f"none of cuBLASLt's {len(self.algorithms)} algorithms runs for {self.problem.key()}")
        return times


class CublasLtKernel:
    """An algorithm that ``search`` found, or the heuristic's first one, as a ``VendorKernel``. LaunchError: ``text`` is
    not a text that ``search`` returned, or the heuristic has no algorithm."""

    allocates = False

    def __init__(self, driver: CudaDriver, problem: Gemm, text: str) -> None:
        if text == HEURISTIC:
            with CublasLt(driver, problem, precise=True) as library:
                text = _text(library.algorithms[0])
        code, _, size = text.partition(" ")
        try:
            algorithm, self.workspace = Algorithm(workspace=int(size)), int(size)
            algorithm.algo[:] = struct.unpack("8Q", bytes.fromhex(code))
        except (ValueError, struct.error) as error:
            raise LaunchError(f"algorithm is {text!r:.40}; it must be 64 bytes in hexadecimal and a size") from error
        self.launch = CublasLt(driver, problem, algorithm=algorithm).launch


def search(driver: CudaDriver, problem: Gemm, sets: Sequence[Mapping[str, int]], timing: Timing) -> str:
    """The text of the fastest algorithm for a problem, which is valid for one version of the library. LaunchError,
    ShapeError: cuBLASLt does not compute the problem."""
    with CublasLt(driver, problem, sets[0], precise=True) as library:
        times = library.times(sets, timing)
        return _text(library.algorithms[min(times, key=lambda i: times[i])])


def _text(algorithm: Algorithm) -> str:
    """The text of an algorithm: its 64 bytes in hexadecimal, and the size of its workspace in bytes."""
    return f"{struct.pack('8Q', *algorithm.algo).hex()} {algorithm.workspace}"


def _check(status: int) -> None:
    if status:
        raise LaunchError(f"cuBLASLt failed with status {status} ({_status_name(status)})")


def _status_name(status: int) -> str:
    text = load_library().cublasLtGetStatusName(status)
    return text.decode() if text else "unknown"


@functools.cache
def load_library() -> ct.CDLL:
    """The loaded library cuBLASLt. UnavailableError: it is not found."""
    library = vendor_libraries.load("cublasLt")
    library.cublasLtGetVersion.restype = ct.c_size_t
    library.cublasLtGetStatusName.restype = ct.c_char_p
    return library
