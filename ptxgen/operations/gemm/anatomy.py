"""Compares a kernel of ptxgen with cuBLASLt's fastest one for a product: tiles, resources, occupancy, hit rate of the
L2 cache (section 8.1 of the paper)."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.errors import LaunchError, UnavailableError
from ptxgen.operations.gemm.cublaslt import CublasLt
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import Device
from ptxgen.problem.registry import parse
from ptxgen.runtime import profiler
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.cuda_graph import CapturedKernel
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.open_driver import open_driver
from ptxgen.runtime.runner import Runner
from ptxgen.tuning.measure.bench import Bench
from ptxgen.tuning.selection import require

#: the rows and columns of C of a block, column-major, in the name of a cuBLASLt kernel
_TILE = re.compile(r"(?:_|tilesize)(\d{1,3})x(\d{1,3})(?:x\d{1,3})?_")


@dataclass(frozen=True)
class Anatomy:
    """A product as one library computes it. ``name``: the name of the library; ``us``: its time in microseconds;
    ``kernels``: the kernels of a call; ``main``: the kernel that multiplies; ``occupancy``: its resident warps over
    those that the device can hold; ``profile``: its metrics of ``profiler.METRICS``, empty if unknown; ``note``: why
    they are unknown; ``tile``: rows and columns of C of a block, column-major, None: unknown; ``splits``: the number of
    slices of K; ``config``: ptxgen's configuration; ``candidate``: the position in the order of cuBLASLt's
    heuristic."""

    name: str
    us: float
    kernels: Sequence[CapturedKernel]
    main: CapturedKernel
    occupancy: float
    profile: dict[str, float]
    note: str
    tile: tuple[int, int] | None
    splits: int
    config: Config | None = None
    candidate: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The anatomy as plain data for JSON."""
        values = {name: value for name, value in vars(self).items() if name not in ("config", "kernels", "main")}
        document = {**values, "main": asdict(self.main), "kernels": [asdict(k) for k in self.kernels]}
        if self.config is not None:
            document |= {"config": self.config.values(), "config_text": str(self.config)}
        return document


def compared(driver: CudaDriver, p: Gemm, timing: Timing) -> list[Anatomy]:
    """The anatomies of ptxgen's choice, whose result is checked, and of cuBLASLt's fastest candidate. Both are timed in
    the same run, then profiled. LaunchError: a library fails. UnavailableError: cuBLASLt is missing."""
    selection = require(p, driver.device)[0]
    bench, config = Bench(driver), selection.config
    measured = bench.measure(p, config, timing, "bench", full=True)
    if measured.outcome != "ok":
        raise LaunchError(f"{p.key()}: {measured.outcome}: {measured.message}")
    sets = bench.operand_sets_for(p, timing).sets
    with CublasLt(driver, p) as library:
        times = library.times(sets, timing)
        index = min(times, key=times.__getitem__)
        launched = driver.kernels_of(lambda: library.run(index, sets[0]))
        splits = library.splits(index)

    def anatomy(name: str, us: float, kernels: Sequence[CapturedKernel], which: str, **others: Any) -> Anatomy:
        main = main_kernel(kernels)
        profile, note = _profile(p, which, main.name)
        return Anatomy(name, us, kernels, main, occupancy(main, driver.device), profile, note, **others)

    go = Runner.of(driver, p, config, bench.workspace).bind(sets[0])
    tile, vendor_tile = (config.nl, config.ml), tile_in(main_kernel(launched).name)
    vendor = {"tile": vendor_tile, "splits": splits, "candidate": index}
    return [
        anatomy("ptxgen", measured.us, driver.kernels_of(go), str(config), tile=tile, splits=config.kg, config=config),
        anatomy("cuBLASLt", times[index], launched, f"vendor={index}", **vendor),
    ]


def main_kernel(kernels: Sequence[CapturedKernel]) -> CapturedKernel:
    """The kernel that multiplies: the one with the most registers, because other kernels only add slices of K.
    LaunchError: ``kernels`` is empty."""
    if not kernels:
        raise LaunchError("the call launches no kernel")
    return max(kernels, key=lambda k: (k.registers, k.shared))


def tile_in(name: str) -> tuple[int, int] | None:
    """The rows and columns of C of a block, read from the name of a cuBLASLt kernel. None: the name does not have
    them."""
    tile = _TILE.search(name)
    return (int(tile[1]), int(tile[2])) if tile else None


def occupancy(kernel: CapturedKernel, device: Device) -> float:
    """The warps that are resident when a kernel starts, as a fraction of those that the device can hold."""
    warps = -(-kernel.threads // 32)
    resident = min(kernel.blocks, kernel.blocks_sm * device.sms)
    return resident * warps / (device.sms * device.threads_sm // 32)


def _profile(p: Gemm, which: str, kernel: str) -> tuple[dict[str, float], str]:
    """The metrics of a kernel and "", or no metrics and the reason."""
    code = f"from {__name__} import launch_once; launch_once(*__import__('sys').argv[1:])"
    try:
        return profiler.profiled([sys.executable, "-c", code, p.key(), which], kernel), ""
    except (UnavailableError, LaunchError) as error:
        return {}, str(error)


def launch_once(key: str, which: str) -> None:
    """Computes a product once. ``which``: a configuration, or ``vendor=N`` for candidate N of cuBLASLt. The profiler
    runs this function in a process of its own."""
    p, driver = parse(key), open_driver("cuda")
    assert isinstance(p, Gemm)
    assert isinstance(driver, CudaDriver)
    timing = Timing(samples=1)
    bench = Bench(driver)
    sets = bench.operand_sets_for(p, timing).sets
    if which.startswith("vendor="):
        with CublasLt(driver, p) as library:
            library.run(int(which.removeprefix("vendor=")), sets[0])
            driver.synchronize()
    else:
        Runner.of(driver, p, parse_config(which), bench.workspace).bind(sets[0])()
        driver.synchronize()
