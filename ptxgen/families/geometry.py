"""Every number that follows from a problem and a configuration.

One arithmetic, two carriers: ``c`` is a ``Config`` (integers) or ``Columns`` (NumPy columns) of one family, and the
same lines serve the generator and the exhaustive search, so the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from ptxgen.codegen.vectorized import SECTOR, WARP, ceil_div, pick, register_cap
from ptxgen.families.depthwise.geometry import geometry as slide
from ptxgen.families.mma.geometry import geometry as mma
from ptxgen.families.simt.geometry import geometry as simt
from ptxgen.families.simt.geometry import warp_rows
from ptxgen.families.skinny.geometry import geometry as stream
from ptxgen.families.wgmma.geometry import geometry as wgmma
from ptxgen.lowering.kernel_gemm import KernelGemm

#: by the code of the ``family`` axis. What all of them must have: threads, shared, registers, tiles_m, tiles_n, tiles,
#: chunk, slices, blocks, workspace, gathers
GEOMETRIES: tuple[Callable[[KernelGemm, Any], SimpleNamespace], ...] = (simt, mma, wgmma, stream, slide)


def geometry(p: KernelGemm, c: Any) -> SimpleNamespace:
    """Threads, tiles, shared memory and registers of ``c`` on ``p``. Sizes in bytes, registers in 32-bit words."""
    code = c.family
    if isinstance(code, np.ndarray):
        code = code[0] if len(code) else 0
    return GEOMETRIES[int(code)](p, c)


__all__ = ["SECTOR", "WARP", "ceil_div", "geometry", "pick", "register_cap", "warp_rows"]
