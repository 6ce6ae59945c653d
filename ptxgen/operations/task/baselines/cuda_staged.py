"""The baseline CUDA C++: the kernel of ``cuda_text``, compiled by nvcc and launched through CUDA's driver library."""

from __future__ import annotations

import ctypes as ct
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptxgen.errors import LaunchError, UnavailableError
from ptxgen.operations.task.baselines.checked import Candidate, TileBaseline
from ptxgen.operations.task.baselines.cuda_text import NAME, THREADS, TILE, source_of
from ptxgen.operations.task.baselines.operands import padded_extents
from ptxgen.operations.task.baselines.triton_outer import array_names
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime.driver import Timing

SECONDS = 120  #: time limit of a compilation in seconds
_LIBRARY = "libcuda.so.1"


@functools.cache
def find_nvcc() -> str:
    """The path of nvcc. UnavailableError: it is missing."""
    path = shutil.which("nvcc")
    if path is None and Path("/usr/local/cuda/bin/nvcc").is_file():
        path = "/usr/local/cuda/bin/nvcc"
    if path is None:
        raise UnavailableError("nvcc is not on PATH; install the CUDA toolkit to compare with CUDA C++")
    return path


@functools.lru_cache(maxsize=16)
def compiled(source: str, target: str) -> bytes:
    """The cubin of a source text. LaunchError: nvcc rejects it."""
    with tempfile.TemporaryDirectory() as folder:
        text, cubin = Path(folder) / "task.cu", Path(folder) / "task.cubin"
        text.write_text(source, encoding="utf-8")
        words = [find_nvcc(), f"-arch={target}", "-O3", "-std=c++17", "-cubin", "-o", str(cubin), str(text)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise LaunchError(f"nvcc took more than {SECONDS} s") from error
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            raise LaunchError(f"nvcc failed: {lines[0] if lines else done.returncode}")
        return cubin.read_bytes()


@functools.cache
def load_library() -> Any:
    """CUDA's driver library. UnavailableError: it is missing."""
    try:
        return ct.CDLL(_LIBRARY)
    except OSError as error:
        raise UnavailableError(f"{_LIBRARY} cannot be loaded ({error}); install the NVIDIA driver") from error


class Module:
    """A loaded cubin with one kernel."""

    def __init__(self, library: Any, cubin: bytes, name: str) -> None:
        self._library = library
        self._module, self._function = ct.c_void_p(), ct.c_void_p()
        _check(library.cuModuleLoadData(ct.byref(self._module), cubin), "loading")
        _check(library.cuModuleGetFunction(ct.byref(self._function), self._module, name.encode()), "loading")

    def launch(self, blocks: int, threads: int, stream: int, arguments: Sequence[Any]) -> None:
        """Queues a launch. ``arguments``: ctypes values."""
        table = (ct.c_void_p * len(arguments))(*(ct.cast(ct.byref(x), ct.c_void_p) for x in arguments))
        sizes = (ct.c_uint(n) for n in (blocks, 1, 1, threads, 1, 1, 0))
        _check(
            self._library.cuLaunchKernel(self._function, *sizes, ct.c_void_p(stream), table, ct.c_void_p()), "launching"
        )

    def close(self) -> None:
        _check(self._library.cuModuleUnload(self._module), "unloading")


def _check(status: int, doing: str) -> None:
    if status:
        raise LaunchError(f"{doing}: CUDA failed with status {status}")


class CudaStaged(TileBaseline):
    """The staged kernel in CUDA C++, which has one tile. UnavailableError: nvcc or the driver is missing."""

    title = "CUDA C++"
    errors = (LaunchError,)

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        with self.driver.context("CUDA C++"):
            return super().best(sets, timing)

    def candidates(self, sets: Sequence[Mapping[str, int]]) -> Iterator[Candidate]:
        p, device = self.problem, self.driver.device
        target = f"{device.target}a" if device.sm >= 90 else device.target
        module = Module(load_library(), compiled(source_of(self.parts), target), NAME)
        m, n, k = padded_extents(p)
        names = ("A", "B", "C", *array_names(self.parts))
        numbers = [ct.c_int(x) for x in (p.m, p.n, p.k, m, n, k)]
        stream = self.driver.stream
        blocks = m // TILE * (n // TILE)

        def launch(arguments: Sequence[Any]) -> None:
            module.launch(blocks, THREADS, stream, arguments)

        try:
            launches = []
            for addresses in sets:
                arguments = [*(ct.c_uint64(addresses[name]) for name in names), *numbers]
                launches.append(functools.partial(launch, arguments))
            yield Candidate(f"{TILE}×{TILE}", launches)
        finally:
            self.driver.synchronize()
            module.close()
