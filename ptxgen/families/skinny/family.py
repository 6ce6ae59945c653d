"""The family skinny: products with a short side, read once from global memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.vectorized import WARP
from ptxgen.families.common.tile_family import TileFamily, thread_products
from ptxgen.families.registry import STORES_PRODUCTS, Probe, class_in, function_in, module
from ptxgen.families.skinny import axes, rules
from ptxgen.families.skinny.candidates import SkinnySpace
from ptxgen.families.skinny.geometry import counts, geometry
from ptxgen.lowering.strided import matrix_product


def _thread_products(c: Any) -> Any:
    """The multiply-adds of a thread per iteration. With FMA, they are those of its part of K; with MMA instructions,
    all multiply-adds for the sums that it holds."""
    return thread_products(c) // np.where(c.mma_m16 > 0, 1, WARP // c.lanes_long)


def _probes() -> tuple[Probe, ...]:
    configs = (
        parse_config("family=skinny ms=4 ns=1 ml=16 nl=1 lanes_long=1 kl=2 u=1024 vec_a=8 vec_b=8 min_ctas_per_sm=2"),
        parse_config("family=skinny ms=1 ns=1 ml=8 nl=1 lanes_long=2 kl=1 u=512 vec_a=8 vec_b=8 kg=2 splitk=workspace"),
    )
    return ((matrix_product(4096, 1, 4096, "NT", "f16"), configs),)


FAMILY = TileFamily(
    name="skinny",
    axes=axes.AXES,
    geometry=geometry,
    counts=counts,
    rules=rules.RULES,
    candidates=SkinnySpace(),
    model=module("ptxgen.families.skinny.perf_model"),
    rate=function_in("ptxgen.families.skinny.perf_model", "rate"),
    thread_products=_thread_products,
    plan=class_in("ptxgen.families.skinny.plan", "SkinnyPlan"),
    provides=STORES_PRODUCTS | {"strided", "store_gated"},
    features={
        "lanes_m": lambda c: c.lanes_long,
        "transposed_mma": lambda c: c.long_n,
        "tma_rows": lambda c: 16 * c.mma_m16,
    },
    probes=_probes,
    instructions=("fma", "mma.sync"),
)
