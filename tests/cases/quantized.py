"""Random legal products with quantized weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ptxgen.codegen.config.config import Columns, Config
from ptxgen.families.registry import FAMILIES
from ptxgen.lowering.lower import lower
from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.operations.quantized_jagged.problem import QuantizedJagged
from ptxgen.problem.device import Device
from ptxgen.problem.weight_formats import WEIGHT_FORMATS
from tests.cases import wgmma
from tests.cases.source import RandomCases, extents
from tests.lowered import legal

DRAWS = 20000
FAMILY = "quantized_mma"
OUTS = {"f16": ("f16", "f32"), "bf16": ("bf16", "f32")}
EPILOGUES = ("", "", "", "bias_column,relu", "scale_rows,residual", "swiglu")


def problem(rng: np.random.Generator, limit: int, d: Device) -> QuantizedGemm:
    """Types, formats, groups, extents, longer rows, unaligned starts, epilogues."""
    m, n, k = extents(rng, limit)
    dtype, weights = str(rng.choice(["f16", "bf16"])), str(rng.choice(["s8", "u8", "s4", "u4"]))
    group = int(rng.choice([0, 32, 64, 128]))
    if group:
        k = -(-k // group) * group
    elif weights[1] == "4":
        k += k % 2
    fields: dict[str, Any] = {"weights": weights, "group": group, "zeros": weights[0] == "u" and rng.random() < 0.7}
    fields |= {"out": str(rng.choice(OUTS[dtype])), "epilogue": str(rng.choice(EPILOGUES))}
    fields["deterministic"] = bool(rng.random() < 0.15)
    if fields["epilogue"] == "swiglu":
        n += n % 2
    p = QuantizedGemm(m, n, k, dtype=dtype, scales=str(rng.choice(["f16", "bf16", "f32"])), **fields)
    if p.scales == dtype and (m + n) % 3:  # drawn from the extents, so that other cases stay the same
        p = replace(p, precision="fast")
    if rng.random() < 0.4:
        pads = [int(x) for x in rng.choice([0, 1, 2, 4, 8, 16], 3)]
        p = replace(p, lda=p.lda + pads[0], ldb=p.ldb + pads[1], ldc=p.ldc + pads[2])
    if rng.random() < 0.3:
        least = [t.bytes for t in p.types]
        starts = [int(rng.choice([x for x in (1, 2, 4, 8, 16) if x >= b])) for b in least]
        p = replace(p, aligned_a=starts[0], aligned_b=starts[1], aligned_c=starts[2])
    return p


def config(
    p: QuantizedGemm | QuantizedJagged, d: Device, rng: np.random.Generator, threads: int = 1024
) -> Config | None:
    """A random legal configuration, wide accesses preferred, or None if none was drawn."""

    def powers(low: int, high: int) -> np.ndarray:
        return 1 << rng.integers(low, high + 1, DRAWS)

    def up_to(most: int) -> np.ndarray:
        return np.minimum(powers(0, 4), most) if rng.random() < 0.4 else np.full(DRAWS, most)

    lowered = lower(p)
    vectors, per_byte = lowered.vectors, WEIGHT_FORMATS[p.weights].per_byte
    ms, ns, kl, vec_b = powers(1, 4), powers(1, 3), powers(0, 3), up_to(min(vectors[1], 16))
    if p.group:
        vec_b = np.minimum(vec_b, p.group // 4 // per_byte)
    step_depth = 4 * np.maximum(vec_b, 4) * per_byte
    c: dict[str, Any] = {"ms": ms, "ns": ns, "ml": 4 * ms, "nl": 8 * ns * powers(0, 2), "kl": kl}
    c |= {
        "u": kl * step_depth * powers(0, 3),
        "vec_b": vec_b,
        "vec_a": np.minimum(up_to(min(vectors[0], 8)), step_depth // 4),
    }
    c["vec_c"] = np.minimum(up_to(min(vectors[2], 8)), c["nl"])
    c["kg"] = np.where(rng.random(DRAWS) < 0.4, rng.integers(2, 7, DRAWS), 1)
    c["splitk"] = np.where(c["kg"] == 1, 0, rng.integers(0, 3, DRAWS))
    c |= {"raster_group": rng.choice([1, 4, 8], DRAWS), "min_ctas_per_sm": rng.integers(1, 4, DRAWS)}
    c |= {"store_policy": rng.integers(0, 2, DRAWS), "fragment_prefetch": rng.integers(0, 2, DRAWS)}
    c["stages"] = rng.choice([0, 2, 3, 4], DRAWS)
    c["family"] = np.full(DRAWS, FAMILIES[FAMILY].code)
    columns = Columns({name: np.asarray(v, np.int64) for name, v in c.items()}, DRAWS)
    g = FAMILIES[FAMILY].geometry(lowered, columns)
    rows = np.flatnonzero(legal(p, columns, d) & (g.threads <= threads))
    return columns.row(int(rng.choice(rows))) if len(rows) else None


def by_tma(rng: np.random.Generator, limit: int, d: Device) -> QuantizedGemm:
    """As ``problem``, with weights that TMA can map."""
    while (p := problem(rng, limit, d)).gated:
        pass
    whole = max(p.group, 16 * p.format.per_byte)
    k = -(-p.k // whole) * whole
    p = replace(p, k=k, lda=k + p.lda - p.k, ldb=0, aligned_b=16)
    return replace(p, ldb=p.ldb + 16 * int(rng.integers(2)))


def wgmma_config(p: QuantizedGemm, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration of wgmma, or None if none was drawn."""
    return wgmma.config(p, d, rng, threads, transposed_mma=1, operand_path_b=0, tma_rows=0)


def jagged(
    draw: Callable[[np.random.Generator, int, Device], QuantizedGemm],
) -> Callable[[np.random.Generator, int, Device], QuantizedJagged]:
    """Draws the weights of several experts as those of ``draw``, and random rows, of which some experts have none."""

    def experts(rng: np.random.Generator, limit: int, d: Device) -> QuantizedJagged:
        p = draw(rng, limit, d)
        sizes = [0 if rng.random() < 0.15 else extents(rng, limit)[0] for _ in range(int(rng.integers(1, 12)))]
        return QuantizedJagged(
            tuple((m, p.n, p.k) for m in sizes),
            ld=f"{p.lda}:{p.ldb}:{p.ldc}",
            **{name: getattr(p, name) for name in JAGGED_FIELDS},
        )

    return experts


#: the fields that a product with quantized weights and a jagged one have
JAGGED_FIELDS = ("dtype", "out", "epilogue", "aligned_a", "aligned_b", "aligned_c", "deterministic")
JAGGED_FIELDS += ("weights", "group", "zeros", "scales", "precision")
JAGGED = RandomCases(f"grouped_{FAMILY}", jagged(problem), config, limit=140, sms=range(80, 1000))
JAGGED_WGMMA = RandomCases("grouped_quantized_wgmma", jagged(by_tma), wgmma_config, limit=300, sms=wgmma.SMS)
WGMMA = RandomCases("quantized_wgmma", by_tma, wgmma_config, limit=300, sms=wgmma.SMS)
SOURCE = RandomCases(FAMILY, problem, config, limit=140, sms=range(80, 1000))
