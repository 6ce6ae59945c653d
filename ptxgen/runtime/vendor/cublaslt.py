"""cuBLASLt through ctypes: the vendor's pick for a GEMM, and the best of all its candidate algorithms.

cuBLASLt is column-major, where a row-major matrix reads as its transpose: C' = op(B)' op(A)', with the same leading
dimensions. So its first operand is our B, and its m is our n.
"""

from __future__ import annotations

import ctypes as ct
import functools
import importlib.util
import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.problem.base import EPILOGUE_OPERANDS
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.gemm import Gemm
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.driver import Timing

CANDIDATES = 256
WORKSPACE = 64 << 20
#: how many candidates are timed properly after the quick pass, beside the heuristic's first
FINALISTS = 4

# cublasComputeType_t
_COMPUTE = {"f16": 64, "f32": 68, "f32_bf16x6": 68, "f64": 70, "s32": 72, "tf32": 77}
#: alpha and beta, by the type of sums
_SCALAR: dict[str, Callable[[int], Any]] = {
    "f16": lambda v: ct.c_uint16(0x3C00 * v),
    "f32": ct.c_float,
    "f64": ct.c_double,
    "s32": ct.c_int32,
}
# cublasLtMatrixLayoutAttribute_t
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
# cublasLtMatmulDescAttributes_t and cublasLtMatmulPreferenceAttributes_t
_TRANSA, _TRANSB, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
#: cublasLtEpilogue_t, bits of our stages: what it fuses. A residual is its C, with a beta of one
_STAGES = {"bias_column": 4, "relu": 2, "gelu": 32, "residual": 0}
_MAX_WORKSPACE, _ALIGNMENT_A, _ALIGNMENT_B, _ALIGNMENT_C, _ALIGNMENT_D = 1, 5, 6, 7, 8
_NOT_SUPPORTED = 15


class Algorithm(ct.Structure):
    """One candidate, as the heuristic returns it (cublasLtMatmulHeuristicResult_t)."""

    _fields_ = (
        ("algo", ct.c_uint64 * 8),
        ("workspace", ct.c_size_t),
        ("state", ct.c_int),
        ("waves", ct.c_float),
        ("reserved", ct.c_int * 4),
    )


def available() -> str | None:
    """``cuBLASLt`` and its version where the library can be loaded, else None."""
    try:
        number = int(_library().cublasLtGetVersion())
    except UnavailableError:
        return None
    return f"cuBLASLt {number // 10000}.{number // 100 % 100}.{number % 100}"


class CublasLt:
    """One problem as cuBLASLt computes it, with alpha 1 and beta 0. It holds 64 MiB until it is closed or dropped.
    ``more``: addresses of what the epilogue reads, as ``problem.epilogue_operands`` has them.

    ``algorithms``: its candidates, the heuristic's first choice first. ``failed``: how many of them ``best`` could not
    run. UnavailableError: there is no cuBLASLt; LaunchError: it has no algorithm, or no such epilogue;
    ShapeError: an extent is zero.
    """

    def __init__(self, driver: CudaDriver, problem: Gemm, more: tuple[int, ...] = ()) -> None:
        if not problem.results * problem.k:
            raise ShapeError(f"{problem.key()}: an extent is 0, and cuBLASLt takes none")
        tiny = problem.output.fp8  # beside such a C, its arrays have 16 bits, ours have not
        if foreign := [
            stage for stage in problem.epilogue_ops if stage not in _STAGES or (tiny and stage in EPILOGUE_OPERANDS)
        ]:
            raise LaunchError(f"cuBLASLt fuses no {', '.join(foreign)}{f' of ours into {problem.out}' if tiny else ''}")
        self.problem = problem
        self._more = dict(zip(problem.epilogue_operands, more, strict=True))
        self.failed = 0
        self._driver = driver
        self._library = _library()
        self._open: list[tuple[str, ct.c_void_p]] = []
        self._space = 0
        try:
            with driver.context("cuBLASLt"):
                self._describe()
            self._space = driver.allocate(WORKSPACE)
        except BaseException:
            self.close()
            raise

    def run(self, index: int, a: int, b: int, c: int, stream: int = 0) -> None:
        """Queues candidate ``index`` on the operands at these addresses; ``stream``: a raw handle, 0 the driver's own.

        It may be captured into a graph. LaunchError: cuBLASLt refused.
        """
        with self._driver.context("cuBLASLt"):
            self._queue(index, a, b, c, stream)

    def best(self, sets: Sequence[tuple[int, int, int]], timing: Timing) -> tuple[float, float]:
        """Microseconds of the best candidate and of the heuristic's first, each the median of the samples.

        ``sets``: addresses of A, B and C, used in turn. Every candidate is run; those that a rough look shows to be
        far behind are dropped, the others are timed briefly, and the best few as ``timing`` says. LaunchError: none
        of the candidates runs.
        """
        with self._driver.context("cuBLASLt"):
            brief = self._brief(sets, timing)
            first = min(brief)
            finalists = sorted(brief, key=lambda i: brief[i])[:FINALISTS]
            proper = {i: self._time(i, sets, timing) for i in dict.fromkeys([first, *finalists])}
        return min(proper.values()), proper[first]

    def close(self) -> None:
        """Frees what cuBLASLt and the workspace hold."""
        while self._open:
            kind, handle = self._open.pop()
            getattr(self._library, f"cublasLt{kind}Destroy")(handle)
        if self._space:
            self._driver.release(self._space)
            self._space = 0

    def __del__(self) -> None:
        with suppress(Exception):  # at the end of the process the driver may be gone before
            self.close()

    def __enter__(self) -> CublasLt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _describe(self) -> None:
        p, lib = self.problem, self._library
        scalar = (p.epilogue_dtype if p.accumulator.integer else p.accumulator).name
        self._one, self._zero = _SCALAR[scalar](1), _SCALAR[scalar](0)
        self._handle = self._make("")
        self._product = self._make("MatmulDesc", _COMPUTE[p.compute], dtype(scalar).cuda)
        # A row-major N×K (layout T) reads as a column-major K×N, which is what op() then turns over.
        turned = [ct.c_int32(p.layout[1] == "T"), ct.c_int32(p.layout[0] == "T")]
        for attribute, value in zip((_TRANSA, _TRANSB), turned, strict=True):
            _check(lib.cublasLtMatmulDescSetAttribute(self._product, attribute, ct.byref(value), ct.sizeof(value)))
        self._fuse()
        a, b, c = p.strides
        self._b = self._matrix(p.dtype, p.columns_b, p.rows_b, p.ldb, b)
        self._a = self._matrix(p.dtype, p.columns_a, p.rows_a, p.lda, a)
        self._d = self._matrix(p.out, p.n, p.m, p.ldc, c)
        # what it adds to 8-bit floats, times zero, has 16 bits
        self._c = self._matrix("bf16", p.n, p.m, p.ldc, c) if p.output.fp8 else self._d
        wish = self._make("MatmulPreference")
        space = ct.c_uint64(WORKSPACE)
        _check(lib.cublasLtMatmulPreferenceSetAttribute(wish, _MAX_WORKSPACE, ct.byref(space), ct.sizeof(space)))
        for attribute, aligned in (
            (_ALIGNMENT_A, self._start("b")),
            (_ALIGNMENT_B, self._start("a")),
            (_ALIGNMENT_C, self._start("c")),
            (_ALIGNMENT_D, self._start("c")),
        ):
            if aligned < 16:  # no kernel needs more than 16, and the default of 256 is what benchmarks allocate
                bytes_ = ct.c_uint32(aligned)
                _check(lib.cublasLtMatmulPreferenceSetAttribute(wish, attribute, ct.byref(bytes_), ct.sizeof(bytes_)))
        found, count = (Algorithm * CANDIDATES)(), ct.c_int()
        layouts = (self._b, self._a, self._c, self._d)
        status = lib.cublasLtMatmulAlgoGetHeuristic(
            self._handle, self._product, *layouts, wish, CANDIDATES, found, ct.byref(count)
        )
        if status != _NOT_SUPPORTED:
            _check(status)
        self.algorithms = [found[i] for i in range(count.value) if found[i].state == 0]
        if not self.algorithms:
            raise LaunchError(f"cuBLASLt has no algorithm for {p.key()}")

    def _fuse(self) -> None:
        """Column-major, a bias of our columns is one of its rows, which is the one that it has."""
        facts: list[tuple[int, Any]] = []
        if code := sum(_STAGES[stage] for stage in self.problem.epilogue_ops):
            facts.append((_EPILOGUE, ct.c_int32(code)))
        if "bias" in self._more:
            facts.append((_BIAS_POINTER, ct.c_void_p(self._more["bias"])))
        for attribute, value in facts:
            size = ct.sizeof(value)
            _check(self._library.cublasLtMatmulDescSetAttribute(self._product, attribute, ct.byref(value), size))

    def _make(self, kind: str, *arguments: int) -> ct.c_void_p:
        handle = ct.c_void_p()
        _check(getattr(self._library, f"cublasLt{kind}Create")(ct.byref(handle), *arguments))
        self._open.append((kind, handle))
        return handle

    def _start(self, operand: str) -> int:
        """Bytes, up to 16, that the operand's first element is a multiple of, in every item."""
        offset = self.problem.offsets["abc".index(operand)] if self.problem.batch > 1 else 0
        return math.gcd(int(getattr(self.problem, f"aligned_{operand}")), offset)

    def _matrix(self, kind: str, rows: int, columns: int, ld: int, stride: int) -> ct.c_void_p:
        sizes = (ct.c_uint64(rows), ct.c_uint64(columns), ct.c_int64(ld))
        made = self._make("MatrixLayout", dtype(kind).cuda, *sizes)  # type: ignore[arg-type]
        if self.problem.batch > 1:
            facts = ((_BATCH_COUNT, ct.c_int32(self.problem.batch)), (_BATCH_STRIDE, ct.c_int64(stride)))
            for attribute, value in facts:
                size = ct.c_size_t(ct.sizeof(value))
                _check(self._library.cublasLtMatrixLayoutSetAttribute(made, attribute, ct.byref(value), size))
        return made

    def _queue(self, index: int, a: int, b: int, c: int, stream: int = 0) -> None:
        algorithm = self.algorithms[index]
        out = ct.c_void_p(c)
        before = self._more.get("residual")
        # what is added to 8-bit floats has another type, and may not be where they are
        added = ct.c_void_p(before) if before else None if self.problem.output.fp8 else out
        _check(
            self._library.cublasLtMatmul(
                self._handle,
                self._product,
                ct.byref(self._one),
                ct.c_void_p(b),
                self._b,
                ct.c_void_p(a),
                self._a,
                ct.byref(self._one if before else self._zero),
                added,
                self._c,
                out,
                self._d,
                ct.byref(algorithm),  # its first member is the cublasLtMatmulAlgo_t
                ct.c_void_p(self._space),
                ct.c_size_t(algorithm.workspace),
                ct.c_void_p(stream or self._driver.stream),
            )
        )

    def _time(self, index: int, sets: Sequence[tuple[int, int, int]], timing: Timing) -> float:
        launches = [functools.partial(self._queue, index, *addresses) for addresses in sets]
        return statistics.median(self._driver.time(launches, timing))

    def _brief(self, sets: Sequence[tuple[int, int, int]], timing: Timing) -> dict[int, float]:
        """Roughly the microseconds of every candidate that runs and is not far behind; ``failed`` counts the others."""
        quick = replace(timing, samples=1, target_ms=min(0.5, timing.target_ms))
        found: dict[int, float] = {}
        self.failed = 0
        for index in range(len(self.algorithms)):
            launch = functools.partial(self._queue, index, *sets[0])
            try:
                launch()  # the first run of an algorithm loads its kernel
                rough = self._driver.elapsed(launch)
                if found and rough > 2 * min(found.values()) + 20:  # a single run is up to some 10 us too slow
                    continue
                # one set will do here where a run is long: its operands do not stay in L2 until the next
                found[index] = self._time(index, sets if rough < 500 else sets[:1], quick)
            except LaunchError:
                self._driver.synchronize()  # raises where it was no refusal but a lost context
                self.failed += 1
        if not found:
            raise LaunchError(f"none of cuBLASLt's {len(self.algorithms)} algorithms runs for {self.problem.key()}")
        return found


def _check(status: int) -> None:
    if status:
        raise LaunchError(f"cuBLASLt failed with status {status} ({_status_name(status)})")


def _status_name(status: int) -> str:
    text = _library().cublasLtGetStatusName(status)
    return text.decode() if text else "unknown"


@functools.cache
def _library() -> ct.CDLL:
    """The loaded library. UnavailableError: none is found."""
    for name in [*_wheels(), "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]:
        try:
            library = ct.CDLL(name)
        except OSError:
            continue
        library.cublasLtGetVersion.restype = ct.c_size_t
        library.cublasLtGetStatusName.restype = ct.c_char_p
        return library
    raise UnavailableError('cuBLASLt was not found; pip install "ptxgen[baseline]"')


def _wheels() -> list[str]:
    """The libraries of NVIDIA's wheels, the newest first."""
    spec = importlib.util.find_spec("nvidia")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    found = [path for folder in folders for path in Path(folder).glob("*/lib/libcublasLt.so.*")]
    return [str(p) for p in sorted(found, key=lambda p: (_number(p), str(p)), reverse=True)]


def _number(path: Path) -> int:
    tail = path.name.rpartition(".")[2]
    return int(tail) if tail.isdigit() else 0
