"""The baseline CUTLASS: its grouped GEMM, compiled by nvcc from the headers of the package ``nvidia-cutlass``.

One launch of one kernel computes all items, which are sorted by K, the longest first. The kernel has one tile for all
items; three tiles are tried, and the fastest counts.
"""

from __future__ import annotations

import ctypes as ct
import functools
import hashlib
import importlib.util
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ptxgen import disk_cache
from ptxgen.errors import LaunchError, ShapeError, UnavailableError
from ptxgen.install_advice import install
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.task.baselines.cuda_staged import find_nvcc
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.driver import Timing
from ptxgen.settings import settings

SECONDS = 300  #: time limit of the compilation in seconds
#: rows and columns of C of a block, then of a warp, for f32 on CUDA cores
TILES = ((128, 128, 32, 64), (64, 64, 32, 32), (32, 64, 32, 32))
SOURCE = r"""
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_grouped.h>
#include <cutlass/gemm/kernel/default_gemm_grouped.h>
#include <cutlass/gemm/kernel/gemm_grouped.h>

using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using Extents = cutlass::gemm::GemmCoord;

struct Product {
    virtual ~Product() {}
    virtual int run(cudaStream_t stream) = 0;
};

template <int M, int N, int WM, int WN> struct Grouped : Product {
    using Kernel = typename cutlass::gemm::kernel::DefaultGemmGrouped<
        float, LAYOUT_A, cutlass::ComplexTransform::kNone, 1,
        float, LAYOUT_B, cutlass::ComplexTransform::kNone, 1,
        float, Row, float, cutlass::arch::OpClassSimt, cutlass::arch::Sm80,
        cutlass::gemm::GemmShape<M, N, 8>, cutlass::gemm::GemmShape<WM, WN, 8>, cutlass::gemm::GemmShape<1, 1, 1>,
        cutlass::epilogue::thread::LinearCombination<float, 1, float, float>,
        cutlass::gemm::threadblock::GemmBatchedIdentityThreadblockSwizzle, 4>::GemmKernel;
    using Device = cutlass::gemm::device::GemmGrouped<Kernel>;
    Device device;

    int initialize(int count, Extents* host, Extents* extents, float** a, float** b, float** c, int64_t* lds) {
        const int blocks = Device::sufficient(host, count);
        if (!blocks) return -1;
        typename Device::EpilogueOutputOp::Params scale(1.0f, 0.0f);
        typename Device::Arguments arguments(extents, count, blocks, scale, a, b, c, c, lds, lds + count,
                                             lds + 2 * count, lds + 2 * count, host);
        return (int)device.initialize(arguments);
    }
    int run(cudaStream_t stream) override { return (int)device.run(stream); }
};

template <int M, int N, int WM, int WN>
static int make(Product** out, int count, void* host, void* extents, void* a, void* b, void* c, void* lds) {
    auto* made = new Grouped<M, N, WM, WN>();
    *out = made;
    auto** pa = (float**)a, **pb = (float**)b, **pc = (float**)c;
    return made->initialize(count, (Extents*)host, (Extents*)extents, pa, pb, pc, (int64_t*)lds);
}

extern "C" int grouped_make(int tile, Product** out, int count, void* host, void* extents, void* a, void* b, void* c,
                            void* lds) {
    switch (tile) {
CASES
    }
    return -2;
}
extern "C" int grouped_run(Product* product, void* stream) { return product->run((cudaStream_t)stream); }
extern "C" void grouped_free(Product* product) { delete product; }
"""
_LAYOUTS = {"N": "Row", "T": "Column"}


def find_headers() -> Path:
    """The folder of CUTLASS's headers. UnavailableError: the package is missing."""
    spec = importlib.util.find_spec("cutlass_library")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        headers = Path(folder) / "source" / "include"
        if (headers / "cutlass" / "gemm" / "device" / "gemm_grouped.h").is_file():
            return headers
    raise UnavailableError(f"CUTLASS's headers were not found; {install('nvidia-cutlass')}")


def source_of(layout: str) -> tuple[str, list[str]]:
    """The source text for a layout, and nvcc's options that define its macros."""
    cases = [f"        case {i}: return make<{', '.join(map(str, tile))}>" for i, tile in enumerate(TILES)]
    calls = "\n".join(f"{case}(out, count, host, extents, a, b, c, lds);" for case in cases)
    macros = [f"-DLAYOUT_{x}={_LAYOUTS[letter]}" for x, letter in zip("AB", layout, strict=True)]
    return SOURCE.replace("CASES", calls), macros


@functools.lru_cache(4)
def library_for(layout: str, target: str) -> Any:
    """The loaded library for a layout, compiled for ``target`` unless the disk cache has it. UnavailableError: nvcc or
    the headers are missing. LaunchError: nvcc rejects the source."""
    nvcc, headers = find_nvcc(), find_headers()
    text, macros = source_of(layout)
    version = (headers / "cutlass" / "version.h").read_text(encoding="utf-8")
    name = hashlib.sha256("\n".join((text, *macros, target, version)).encode()).hexdigest()[:16]
    folder = settings().cache / "cutlass"
    path = folder / f"{name}.so"
    if disk_cache.unsafe(folder) or not path.exists():
        code = _compiled(nvcc, headers, text, macros, target)
        with suppress(OSError):
            disk_cache.create(folder)
        with tempfile.TemporaryDirectory() as temporary:
            own = path if folder.is_dir() and not disk_cache.unsafe(folder) else Path(temporary) / path.name
            disk_cache.replace(own, code)
            return _loaded(own)
    return _loaded(path)


def _compiled(nvcc: str, headers: Path, text: str, macros: list[str], target: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "grouped.cu", Path(folder) / "grouped.so"
        source.write_text(text, encoding="utf-8")
        words = [nvcc, f"-arch={target}", "-O3", "-std=c++17", "-w", *macros, f"-I{headers}", "-shared"]
        words += ["-Xcompiler", "-fPIC", "-o", str(out), str(source)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise LaunchError(f"nvcc took more than {SECONDS} s for CUTLASS") from error
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise LaunchError(f"nvcc failed for CUTLASS: {lines[0] if lines else done.returncode}")
        return out.read_bytes()


def _loaded(path: Path) -> Any:
    try:
        return ct.CDLL(str(path))
    except OSError as error:
        raise UnavailableError(f"CUTLASS's library cannot be loaded: {error}") from error


class CutlassGrouped:
    """A grouped f32 product that CUTLASS computes with alpha = 1 and beta = 0. The object keeps arrays of extents,
    leading dimensions and addresses on the device until it is closed or deleted.

    Items without elements are left out. UnavailableError: nvcc or the headers are missing. ShapeError: all items are
    empty. LaunchError: the problem is not f32, or has an epilogue.
    """

    def __init__(self, driver: CudaDriver, problem: GroupedGemm, addresses: Mapping[str, int] | None = None) -> None:
        p = problem
        if (p.dtype, p.compute, p.out) != ("f32", "f32", "f32") or p.epilogue_ops:
            raise LaunchError(f"{p.key()[:80]}: CUTLASS is compiled for f32 without an epilogue")
        self.problem, self._driver = problem, driver
        self.order = sorted((i for i, (m, n, _) in enumerate(p.items) if m and n), key=lambda i: -p.items[i][2])
        if not self.order:
            raise ShapeError(f"{p.key()[:80]}: all items are empty, which is not timed")
        self._library = library_for(p.layout, driver.device.target)
        self._memory: list[int] = []
        self._made: list[ct.c_void_p] = []
        self._extents = np.ascontiguousarray(p.extents[self.order], np.int32)
        self._on_device = self._upload(self._extents)
        self._lds = self._upload(np.ascontiguousarray(p.lds[self.order].T, np.int64))

    def make(self, tile: int, addresses: Mapping[str, int]) -> ct.c_void_p:
        """A handle of the product with tile number ``tile`` of TILES on arrays at these addresses, for ``run``.
        LaunchError: CUTLASS cannot launch it."""
        p = self.problem
        starts = p.starts[self.order] * np.array([p.element.bytes, p.element.bytes, p.output.bytes])
        pointers = [self._upload((addresses[name] + starts[:, x]).astype(np.uint64)) for x, name in enumerate("ABC")]
        made = ct.c_void_p()
        with self._driver.context("CUTLASS"):
            status = self._library.grouped_make(
                ct.c_int(tile),
                ct.byref(made),
                ct.c_int(len(self.order)),
                self._extents.ctypes.data_as(ct.c_void_p),
                *(ct.c_void_p(at) for at in (self._on_device, *pointers, self._lds)),
            )
        if made:
            self._made.append(made)
        _check(status)
        return made

    def run(self, made: ct.c_void_p, stream: int = 0) -> None:
        """Queues a product that ``make`` returned. ``stream``: a raw handle, 0: the driver's own stream. LaunchError:
        the launch failed."""
        with self._driver.context("CUTLASS"):
            _check(self._library.grouped_run(made, ct.c_void_p(stream or self._driver.stream)))

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The time with the fastest tile: the median of the samples in microseconds. ``sets``: addresses by name of the
        array, used in rotation. LaunchError: no tile can be launched."""
        times, failure = [], None
        for tile in range(len(TILES)):
            try:
                launches = [functools.partial(self.run, self.make(tile, addresses)) for addresses in sets]
                launches[0]()
                times.append(statistics.median(self._driver.time(launches, timing)))
            except LaunchError as error:
                self._driver.synchronize()  # raises if the context is lost
                failure = error
        if not times and failure is not None:
            raise failure
        return VendorTimes(min(times), same_layout=min(times))

    def close(self) -> None:
        """Frees the products and the arrays."""
        with self._driver.context("CUTLASS"):
            while self._made:
                self._library.grouped_free(self._made.pop())
        while self._memory:
            self._driver.release(self._memory.pop())

    def __del__(self) -> None:
        with suppress(Exception):  # at exit the driver may be closed first
            self.close()

    def _upload(self, array: np.ndarray[Any, Any]) -> int:
        at = self._driver.allocate(array.nbytes)
        self._memory.append(at)
        self._driver.upload(at, np.ascontiguousarray(array))
        return at


def _check(status: int) -> None:
    if status:
        raise LaunchError(f"CUTLASS failed with status {status}")
