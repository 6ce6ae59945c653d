"""Every number that follows from a problem and a configuration.

One arithmetic, two carriers: ``c`` is a ``Config`` (integers) or ``Columns`` (NumPy columns) of one family, and the
same lines serve the generator and the exhaustive search, so the two cannot disagree.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ptxgen.codegen.vectorized import SECTOR, WARP, ceil_div, pick, register_cap
from ptxgen.families import registry
from ptxgen.families.simt.geometry import warp_rows
from ptxgen.lowering.kernel_gemm import KernelGemm


def geometry(p: KernelGemm, c: Any) -> SimpleNamespace:
    """Threads, tiles, shared memory and registers of ``c`` on ``p``. Sizes in bytes, registers in 32-bit words.

    Every family gives at least threads, shared, registers, tiles_m, tiles_n, tiles, chunk, slices, blocks, workspace
    and gathers."""
    return registry.of(c).geometry(p, c)


__all__ = ["SECTOR", "WARP", "ceil_div", "geometry", "pick", "register_cap", "warp_rows"]
