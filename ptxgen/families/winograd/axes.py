"""The axes of the Winograd families, which are those of FMA kernels. Only products of weight gradients are split along
K. There are no lists of products.

Axes that keep their defaults remain axes, because stored configurations name every axis of their family.
"""

from __future__ import annotations

from dataclasses import replace

from ptxgen.codegen.config.axes import SPLIT_MEMSET, SPLIT_WORKSPACE, common, searched
from ptxgen.families.common.fma.axes import AXES as FMA_AXES

#: family -> rows (and columns) of results of a tile
TILES = {"winograd": 2, "winograd_4x4": 4}
#: axis -> its values, for axes that have fewer values than in the family simt
VALUES = {
    "splitk": (SPLIT_MEMSET, SPLIT_WORKSPACE),
    "stream_k": (0,),
    "l2_prefetch": (0,),
    "listed_tiles": (0,),
    "column_pairs": (0,),
    "operand_path_a": (0,),
    "operand_path_b": (0,),
}

#: the axis ``stages`` without 0, as all kernels have stages
_STAGES = common("stages", searched(FMA_AXES)["stages"])

AXES = tuple(_STAGES if a.name == "stages" else replace(a, values=VALUES.get(a.name, a.values)) for a in FMA_AXES)
