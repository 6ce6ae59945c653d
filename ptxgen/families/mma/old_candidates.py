"""The mma.sync configurations of a problem that are worth ranking, and the best of them by the cost model."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ptxgen.codegen.config import SPLIT_MEMSET, SPLIT_WORKSPACE, Columns, Config
from ptxgen.codegen.vectorized import ceil_div
from ptxgen.families.mma import operand_packing
from ptxgen.families.mma.cost import microseconds, rate
from ptxgen.families.mma.instructions import instruction, multiplies
from ptxgen.families.mma.rules import MMA
from ptxgen.families.rules import legal, reducible
from ptxgen.lowering.kernel_gemm import KernelGemm
from ptxgen.problem.device import Device

#: what the search visits; U in steps of the instruction
VALUES: dict[str, tuple[int, ...]] = {
    "ms": (16, 32, 64),
    "ns": (8, 16, 32, 64),
    "ml": (16, 32, 64, 128, 256),
    "nl": (8, 16, 32, 64, 128, 256),
    "kl": (1, 2, 4),
    "stages": (2, 3, 4, 5),
    "fragment_prefetch": (0, 1),
    "epilogue_smem": (0, 1),
}
STEPS = (2, 4, 8, 16)
THREADS = 512  #: of a block, at the most
WAVES = (1, 2, 3, 4, 6)  #: slices of K fill so many blocks a multiprocessor
ROW_BYTES = 256  #: of a row of a stage along K, at the most


def ways(p: KernelGemm) -> list[dict[str, int]]:
    """How operands reach shared memory: as they are, and from copies where their rows fit no wide access."""
    size, out = p.element.bytes, []
    off = [v * size < 16 for v in p.vectors[:2]]
    codes = [0]
    if any(off):
        alone = off[0] * operand_packing.A + off[1] * operand_packing.B
        turned = any(operand_packing.kmajor(p, n) for n, o in zip("ab", off, strict=True) if o)
        codes.append(3 if turned else alone)
    for code in codes:
        vectors = [
            16 // size if code & bit else v
            for bit, v in zip((operand_packing.A, operand_packing.B), p.vectors[:2], strict=True)
        ]
        copies = [int(v * size >= 4) for v in vectors]
        out.append(
            {
                "operand_path": code,
                "vec_a": vectors[0],
                "vec_b": vectors[1],
                "cp_async_a": copies[0],
                "cp_async_b": copies[1],
                "deferred_sts": int(0 in copies),
            }
        )
    return out


def slices(p: KernelGemm, c: Columns, d: Device) -> Any:
    """Slice counts that fill whole waves, a column each; the first is 1."""
    tiles = np.maximum(ceil_div(p.m, c.ml) * ceil_div(p.n, c.nl) * p.batch, 1)
    most = np.maximum(ceil_div(p.k, c.u) // 2, 1)
    columns = [np.ones_like(tiles), *(np.clip(d.sms * w // tiles, 1, most) for w in WAVES)]
    return np.stack(columns, axis=1)


@lru_cache(maxsize=4)
def candidates(p: KernelGemm, d: Device) -> Columns:
    """Legal rows over the axes that the cost model sees, the others at good defaults. Kept between calls."""
    depth, size = instruction(p).depth, p.element.bytes
    shapes = Columns.product({**VALUES, "u": [depth * s for s in STEPS if depth * s * size <= ROW_BYTES]})
    parts = []
    for way in ways(p):
        c = shapes.replace(family=MMA, vec_c=min(p.vectors[2], 4), store_policy=int(p.k < 512), raster_group=8, **way)
        c = c.take((c.ml // c.ms * (c.nl // c.ns) * c.kl * 32 <= THREADS) & ((c.kl == 1) | (c.epilogue_smem == 0)))
        c = c.take(legal(p, c, d))
        counts = slices(p, c, d)
        for n in range(counts.shape[1]):
            kg = counts[:, n]
            fresh = np.logical_and.reduce([kg != counts[:, m] for m in range(n)]) if n else np.ones(len(c), bool)
            split = np.where(kg > 1, SPLIT_MEMSET if reducible(p) else SPLIT_WORKSPACE, SPLIT_MEMSET)
            part = c.replace(kg=kg, splitk=split).take(fresh)
            tiles = ceil_div(p.m, part.ml) * ceil_div(p.n, part.nl) * p.batch
            parts.append(part.replace(raster_group=np.where(tiles > 2 * d.sms, 8, 1)))
    every = Columns.concat(parts)
    return every.take(legal(p, every, d))


def preferred(p: KernelGemm, d: Device) -> bool:
    """Whether the problem is for tensor cores: nothing else multiplies its types, or they do it faster."""
    if not multiplies(p) or d.sm < instruction(p, d).sm:
        return False
    return p.dtype != "f64" or rate(p, d) > d.fma64


def best(p: KernelGemm, d: Device, n: int = 1) -> list[tuple[Config, float]]:
    """The ``n`` configurations that the cost model likes best, with their microseconds."""
    c = candidates(p, d)
    us = microseconds(p, c, d)
    return [(c.row(int(i)), float(us[i])) for i in np.argsort(us, kind="stable")[:n]]


__all__ = ["VALUES", "best", "candidates", "preferred", "slices", "ways"]
