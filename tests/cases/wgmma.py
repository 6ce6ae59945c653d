"""Random legal problems and configurations of the wgmma family."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import FAMILIES, Columns, Config
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.block_scales import SCALINGS
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import HALVES
from tests.cases.source import RandomCases, extents, with_both_floats_8
from tests.lowered import legal

#: dtype, compute, out
TYPES = (
    ("f16", "", ""),
    ("f16", "f16", ""),
    ("f16", "", "f32"),
    ("bf16", "", ""),
    ("bf16", "", "f32"),
    ("f32", "tf32", ""),
    ("f32", "tf32", ""),
    ("e4m3", "", ""),
    ("e5m2", "", "f16"),
    ("e4m3", "f32_fast_accum", ""),
    ("s8", "", ""),
    ("e4m3", "", "e4m3"),
    ("f16", "", "e5m2"),
)
GATED = ("swiglu", "geglu")
SUMS = ("relu_grad,sum_columns", "sum_a")
EPILOGUES = (
    "relu",
    "bias_column",
    "bias_row,gelu",
    "residual",
    "relu_grad",
    "residual,relu_grad",
    "bias_column,residual,silu",
    "scale",
    "scale_rows,bias_row,relu",
    *SUMS,
    *GATED,
)
DRAWS = 6000
SMS = range(90, 91)  #: compute capabilities with wgmma

#: axis -> values, and how likely the first of them is
AXES = {
    "u": ((64, 16, 32, 128, 256), 0.3),
    "stages": ((4, 1, 2, 3, 5, 8, 12), 0.2),
    "transposed_mma": ((0, 1), 0.5),
    "math_warpgroups": ((1, 2, 3), 0.6),
    "persistent": ((0, 1), 0.7),
    "pingpong": ((0, 1), 0.7),
    "cluster_x": ((1, 2, 3, 4), 0.6),
    "cluster_y": ((1, 2, 3, 4), 0.7),
    "cluster_k": ((1, 2, 3, 4, 5, 8), 0.7),
    "dsmem_completion": ((0, 1), 0.9),
    "kg": ((1, 2, 3, 4, 7, 15), 0.6),
    "epilogue_subtiles": ((1, 2, 4, 8), 0.5),
    "epilogue_buffers": ((1, 2, 4), 0.6),
    "epilogue_aliases_ab": ((0, 1), 0.7),
    "l2_evict_first": ((0, 1, 2, 3, 4), 0.5),
    "tma_rows": ((0, 8, 16, 24, 32), 0.7),
    "epilogue_smem": ((1, 0), 0.7),
    "vec_c": ((1, 2, 4, 8), 0.5),
    "raster_group": ((1, 4, 8), 0.6),
    "min_ctas_per_sm": ((1, 2), 0.8),
    "operand_paths": ((0, 1, 2, 3, 4, 6, 8, 9, 12, 12), 0.4),
    "stream_waves": ((0, 1, 2), 0.8),
    "promotion_buffers": ((1, 2), 0.7),
    "y_boxes": ((0, 1), 0.8),
}


def problem(rng: np.random.Generator, limit: int, d: Device) -> Gemm:
    """Rows of A and B are multiples of 16 bytes, or those of one or both are not; any extents."""
    dtype, compute, out = TYPES[rng.integers(len(TYPES))]
    m, n, k = extents(rng, limit)
    if rng.random() < 0.3:
        k = int(rng.integers(1, 8 * limit))
    if rng.random() < 0.5:
        n = -(-n // 8) * 8
    p = Gemm(m, n, k, LAYOUTS[rng.integers(4)], dtype, compute, out=out)
    unit, unit_c = 16 // p.element.bytes, 16 // p.output.bytes
    pad = [int(v) for v in rng.choice([0, 1, 2], 3)]
    longer = {
        "lda": (-(-p.columns_a // unit) + pad[0]) * unit,
        "ldb": (-(-p.columns_b // unit) + pad[1]) * unit,
        "ldc": (-(-n // unit_c) + pad[2]) * unit_c if rng.random() < 0.8 else n + int(rng.integers(0, 5)),
    }
    for x in "ab" if rng.random() < 0.3 else ():
        if rng.random() < 0.7:
            longer[f"ld{x}"] += int(rng.integers(0, unit))
            longer[f"aligned_{x}"] = int(rng.choice([n for n in (1, 2, 4, 8, 16) if n >= p.element.bytes]))
    if dtype != "s8" and rng.random() < 0.25:
        longer["epilogue"] = EPILOGUES[rng.integers(len(EPILOGUES))]
        if longer["epilogue"] in SUMS and 1 in (p.element.bytes, p.output.bytes):
            longer["epilogue"] = "scale"
        if longer["epilogue"] in GATED:
            longer |= {"n": n + n % 2} if p.out in HALVES else {"epilogue": "scale"}
    return with_both_floats_8(replace(p, **longer), bool(m % 2))


def config(p: Gemm, d: Device, rng: np.random.Generator, threads: int = 1024, **fixed: int) -> Config | None:
    """A random legal configuration with the axes of ``fixed``, or None if none was drawn."""
    values = {}
    for name, (choices, first) in AXES.items():
        likely = [first] + [(1 - first) / (len(choices) - 1)] * (len(choices) - 1)
        values[name] = rng.choice(np.array(choices), DRAWS, p=likely)
    wide = 64 * values["math_warpgroups"] * rng.choice([1, 1, 2, 3], DRAWS)
    wide = np.where(values["pingpong"] == 1, wide // 2, wide)
    other = 8 * rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 14, 16, 24, 24, 32], DRAWS)
    values["ml"] = np.where(values["transposed_mma"] == 1, other, wide)
    values["nl"] = np.where(values["transposed_mma"] == 1, wide, other)
    values["splitk"] = np.where(values["kg"] > 1, rng.choice([0, 2, 3, 4], DRAWS), 0)
    values["family"] = np.full(DRAWS, FAMILIES.index("wgmma"))
    paths = values.pop("operand_paths")  # bits: 1 A, 2 B is packed; 4 A, 8 B is realigned
    values["operand_path_a"] = (paths & 1) + (paths >> 2 & 1) * 2
    values["operand_path_b"] = (paths >> 1 & 1) + (paths >> 3 & 1) * 2
    values.update((name, np.full(DRAWS, value)) for name, value in fixed.items())
    c = Columns(values, DRAWS)
    rows = np.flatnonzero(legal(p, c, d))
    if not len(rows):
        return None
    # kernels that do something special first: chance alone rarely draws them
    special = rows[(values["cluster_k"][rows] > 1) | (values["kg"][rows] > 1) | (values["persistent"][rows] == 1)]
    pool = special if len(special) and rng.random() < 0.6 else rows
    return c.row(int(rng.choice(pool)))


def narrow(rng: np.random.Generator, limit: int, d: Device) -> Gemm:
    """As ``problem``, with one tile along N and few K iterations."""
    p = problem(rng, limit, d)
    n, k = int(rng.integers(1, 200)), int(rng.integers(1, 320))
    fused = "" if p.dtype == "s8" or rng.random() < 0.7 else "bias_column,relu"
    return replace(p, n=n, k=k, lda=0, ldb=0, ldc=0, epilogue=fused)


def resident(p: Gemm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration with B resident, or None if none was drawn."""
    return config(p, d, rng, threads, resident_b=1, persistent=1, kg=1, cluster_k=1)


def scaled(rng: np.random.Generator, limit: int, d: Device) -> Gemm:
    """As ``problem``, of fp8 with scales of blocks."""
    while True:
        p = problem(rng, limit, d)
        fused = p.epilogue.removeprefix("scale_rows,").replace("scale_rows", "").removeprefix("scale")
        if p.element.fp8 and not p.output.fp8 and p.compute == "f32":
            blocks = rng.choice(list(SCALINGS), 2).tolist()
            return replace(p, epilogue=fused, block_a=blocks[0], block_b=blocks[1])


RESIDENT_B = RandomCases("wgmma_resident_b", narrow, resident, limit=300, sms=SMS)
SCALED = RandomCases("wgmma_scaled", scaled, config, limit=300, sms=SMS)
SOURCE = RandomCases("wgmma", problem, config, limit=300, sms=SMS)
