"""The rules of legal configurations of shared_slab kernels."""

from __future__ import annotations

from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.vectorized import WARP
from ptxgen.cuda_abi import GRID_LIMIT
from ptxgen.families.common.sparse_rules import VECTOR, core_types, vec_rule
from ptxgen.families.shared_slab.axes import ONE, SEVERAL

RULES = (
    Rule(
        "shared_slab_types",
        lambda p, c, g, d: core_types(p) and d.has_async_copy,
        "shared_slab multiplies f16, bf16, f32 and f64 from sm_80 on and sums in f32 or f64, not {p.dtype} in"
        " {p.compute} into {p.out} on sm_{d.sm}",
    ),
    vec_rule("shared_slab"),
    Rule(
        "shared_slab_columns",
        lambda p, c, g, d: (g.row_bytes <= WARP * VECTOR) & (c.slab_columns <= g.threads * c.vec_b),
        "slab_columns={c.slab_columns}: a warp reads at most 512 bytes of a row of a tile, and a thread copies at most"
        " one vector of a row",
    ),
    Rule(
        "shared_slab_flight",
        lambda p, c, g, d: (
            (c.nonzeros_in_flight * WARP <= c.nonzeros_staged * g.lanes) & (c.nonzeros_read <= c.nonzeros_in_flight)
        ),
        "nonzeros_in_flight={c.nonzeros_in_flight}: at least nonzeros_read={c.nonzeros_read}, and no more than the"
        " share of {g.lanes} lanes of nonzeros_staged={c.nonzeros_staged}",
    ),
    Rule(
        "shared_slab_read",
        lambda p, c, g, d: c.nonzeros_read * p.accumulator.bytes <= VECTOR // 2,
        "nonzeros_read={c.nonzeros_read}: a lane reads at most 16 bytes of staged nonzeros, one in f64",
    ),
    Rule(
        "shared_slab_buffers",
        lambda p, c, g, d: (c.tile_buffers == 1) | (c.k_tiles == SEVERAL),
        "tile_buffers={c.tile_buffers}: k_tiles=one has one tile",
    ),
    Rule(
        "shared_slab_prepared",
        lambda p, c, g, d: (
            (c.k_tiles == ONE) | (p.operand("values").access.prepared and p.operand("values").access.distinct)
        ),
        "k_tiles=several needs a matrix that is prepared (calls=1 or more) and whose columns increase in each row",
    ),
    Rule(
        "shared_slab_k",
        lambda p, c, g, d: (c.k_tiles == SEVERAL) | (p.extents.k <= c.tile_k),
        "k_tiles=one with tile_k={c.tile_k}: the tile must have all {p.extents.k} rows of B",
    ),
    Rule(
        "shared_slab_grid",
        lambda p, c, g, d: g.slabs <= GRID_LIMIT,
        f"{{g.slabs}} slabs of slab_columns={{c.slab_columns}}; a grid has at most {GRID_LIMIT}",
    ),
)
