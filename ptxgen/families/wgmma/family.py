"""The family wgmma: products by TMA and wgmma on sm_90."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxgen.codegen.config.config import SPLIT_DISTRIBUTED, parse_config
from ptxgen.families.common.tile_family import TileFamily
from ptxgen.families.registry import FUSES_EPILOGUES, STORES_PRODUCTS, Probe, class_in, module
from ptxgen.families.wgmma import axes, cost, reach, rules
from ptxgen.families.wgmma.candidates import WgmmaSpace
from ptxgen.families.wgmma.geometry import WgmmaGeometry, counts, geometry
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.strided import matrix_product

WARPGROUP = 128  #: threads of a warpgroup


def _groups(c: Any) -> Any:
    """The number of warpgroups that share a tile of C."""
    return np.where(c.pingpong == 1, 1, c.math_warpgroups)


def _issuer_tile(p: KernelProblem, c: Any, g: WgmmaGeometry) -> tuple[Any, Any, Any, Any, Any]:
    """The ``issuer_tile`` of a warpgroup. TMA counts as loads of 16 bytes."""
    size = g.math.element_bytes * g.math.planes
    x_rows = g.x.rows / c.cluster_y
    y_columns = g.y.tile / c.cluster_x
    loads = [np.where(c.transposed_mma == other, x_rows, y_columns) * c.u * size / 16 for other in (0, 1)]
    return g.x.tile // _groups(c), g.y.tile, c.u, loads[0], loads[1]


def _thread_products(c: Any) -> Any:
    return c.ml * c.nl * c.u // (_groups(c) * WARPGROUP)


def _probes() -> tuple[Probe, ...]:
    configs = (
        parse_config(
            "family=wgmma ml=128 nl=96 u=64 math_warpgroups=2 cluster_x=2 persistent=1"
            " epilogue_smem=1 epilogue_subtiles=2"
        ),
        parse_config("family=wgmma ml=16 nl=64 u=128 transposed_mma=1 cluster_k=2 kg=3 splitk=last_cta"),
    )
    return ((matrix_product(512, 768, 4096, "NT", "f16"), configs),)


FAMILY = TileFamily(
    name="wgmma",
    axes=axes.AXES,
    geometry=geometry,
    counts=counts,
    rules=rules.RULES,
    candidates=WgmmaSpace(),
    model=module("ptxgen.families.wgmma.perf_model"),
    rate=lambda p, d: cost.rate(p),
    issuer_tile=_issuer_tile,
    thread_products=_thread_products,
    plan=class_in("ptxgen.families.wgmma.plan", "WgmmaPlan"),
    splitk=SPLIT_DISTRIBUTED,
    provides=STORES_PRODUCTS
    | FUSES_EPILOGUES
    | {
        "strided",
        "block_scaled",
        "quantized_rows",
        "im2col",
        "im2col_output",
        "item_rows",
        "item_rows_output",
        "item_columns",
        "descriptor_table",
        "descriptor_table_output",
        "packed_items",
    },
    native=reach.native,
    probes=_probes,
    instructions=("wgmma",),
)
