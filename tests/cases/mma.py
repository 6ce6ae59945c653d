"""Random legal problems and configurations of the mma.sync family."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import FAMILIES, Columns, Config
from ptxgen.families.common.matrix_instructions import instruction
from ptxgen.lowering.lower import lower
from ptxgen.operations.gemm.problem import LAYOUTS, Gemm
from ptxgen.problem.block_scales import SCALINGS
from ptxgen.problem.device import Device
from tests.cases.source import RandomCases, extents, with_both_floats_8
from tests.lowered import legal

#: dtype, compute, out
TYPES = (
    ("f16", "f32", "f16"),
    ("f16", "f16", "f16"),
    ("f16", "f32", "f32"),
    ("bf16", "f32", "bf16"),
    ("bf16", "f32", "f32"),
    ("f32", "tf32", "f32"),
    ("f32", "tf32", "f32"),
    ("f64", "f64", "f64"),
    ("f64", "f64", "f64"),
    ("s8", "s32", "s32"),
    ("e4m3", "f32", "bf16"),
    ("e5m2", "f32", "f16"),
    ("e4m3", "f32", "e4m3"),
    ("e5m2", "f32", "e5m2"),
)
DRAWS = 20000

AXES = {
    "ms": (16, 32, 48, 64, 80, 128),
    "ns": (8, 16, 24, 32, 40, 48, 64, 96, 128),
    "ml": (16, 32, 48, 64, 80, 96, 128, 256),
    "nl": (8, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256),
    "u": (8, 16, 32, 64, 128, 256),
    "kl": (1, 1, 2, 4, 8),
    "kg": (1, 1, 2, 3, 5, 8, 16),
    "stages": (2, 3, 4, 5),
    "cp_async_a": (0, 1),
    "cp_async_b": (0, 1),
    "vec_a": (1, 2, 4, 8, 16),
    "vec_b": (1, 2, 4, 8, 16),
    "vec_c": (1, 2, 4, 8),
    "splitk": (0, 1, 2),
    "epilogue_smem": (0, 1),
    "bounds": (0, 1, 1, 2),
    "mma_order": (0, 1, 2),
    "fragment_prefetch": (0, 1),
    "prefetch_k": (0, 1),
    "deferred_sts": (0, 1),
    "raster_group": (1, 4, 8),
    "store_policy": (0, 1),
    "min_ctas_per_sm": (1, 2, 3),
    "stream_k": (0, 0, 0, 1),
    "operand_paths": (0, 0, 0, 1, 2, 3),  # bits: A, B is packed
}


def problem(rng: np.random.Generator, limit: int, d: Device) -> Gemm:
    """A random problem: types that ``d`` multiplies, layout, extents, longer rows, unaligned starts."""
    types = [t for t in TYPES if instruction(lower(Gemm(1, 1, 1, "NN", t[0], t[1])), d).sm <= d.sm]
    dtype, compute, out = types[rng.integers(len(types))]
    m, n, k = extents(rng, limit)
    p = Gemm(m, n, k, LAYOUTS[rng.integers(4)], dtype, compute, out=out, deterministic=bool(rng.random() < 0.15))
    if rng.random() < 0.5:
        pads = [int(x) for x in rng.choice([0, 1, 2, 3, 4, 8, 16], 3)]
        if rng.random() < 0.5:  # whole 16 bytes
            pads = [
                -columns % (16 // size)
                for columns, size in (
                    (p.columns_a, p.element.bytes),
                    (p.columns_b, p.element.bytes),
                    (n, p.output.bytes),
                )
            ]
        p = replace(p, lda=p.columns_a + pads[0], ldb=p.columns_b + pads[1], ldc=n + pads[2])
    return with_both_floats_8(p, bool(m % 2))


def config(p: Gemm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration, wide accesses preferred, or None if none was drawn."""
    values = {name: rng.choice(np.array(choices), DRAWS) for name, choices in AXES.items()}
    sliced = rng.random(DRAWS) < 0.3
    values["kg"] = np.where(sliced, values["kg"], 1)
    values["splitk"] = np.where(values["kg"] > 1, values["splitk"], 0)
    for n, name in enumerate(("vec_a", "vec_b", "vec_c")):
        widest = min(p.vectors[n], 16 if n < 2 else 8)
        if n < 2:
            widest = np.where(values["operand_paths"] >> n & 1, 16 // p.element.bytes, widest)
        values[name] = np.where(rng.random(DRAWS) < 0.6, widest, values[name])
    paths = values.pop("operand_paths")
    values.update(operand_path_a=paths & 1, operand_path_b=paths >> 1)
    c = Columns({**values, "family": np.full(DRAWS, FAMILIES.index("mma"))}, DRAWS)
    c = c.take(np.flatnonzero(c.ml // c.ms * (c.nl // c.ns) * c.kl * 32 <= threads))
    rows = np.flatnonzero(legal(p, c, d))
    return c.row(int(rng.choice(rows))) if len(rows) else None


def scaled(rng: np.random.Generator, limit: int, d: Device) -> Gemm:
    """As ``problem``, of fp8 with scales of blocks."""
    while True:
        p = problem(rng, limit, d)
        if p.element.fp8 and not p.output.fp8:
            blocks = rng.choice(list(SCALINGS), 2).tolist()
            return replace(p, block_a=blocks[0], block_b=blocks[1])


SCALED = RandomCases("mma_scaled", scaled, config, limit=300, sms=range(89, 1000))
SOURCE = RandomCases("mma", problem, config)
