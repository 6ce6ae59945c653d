"""The kernel families, each with its geometry, rules, candidates, performance model and plan; the candidate space; the
features of the model."""

from ptxgen.families.compressed_tiles.family import FAMILY as COMPRESSED_TILES
from ptxgen.families.depthwise.family import FAMILY as DEPTHWISE
from ptxgen.families.mma.family import FAMILY as MMA
from ptxgen.families.private_groups.family import FAMILY as PRIVATE_GROUPS
from ptxgen.families.quantized_mma.family import FAMILY as QUANTIZED_MMA
from ptxgen.families.registry import register
from ptxgen.families.resident_rows.family import FAMILY as RESIDENT_ROWS
from ptxgen.families.row_split.family import FAMILY as ROW_SPLIT
from ptxgen.families.shared_slab.family import FAMILY as SHARED_SLAB
from ptxgen.families.simt.family import FAMILY as SIMT
from ptxgen.families.skinny.family import FAMILY as SKINNY
from ptxgen.families.tap_products.family import FAMILY as TAP_PRODUCTS
from ptxgen.families.tca.family import FAMILY as TCA
from ptxgen.families.vector_mma.family import FAMILY as VECTOR_MMA
from ptxgen.families.wgmma.family import FAMILY as WGMMA
from ptxgen.families.winograd.family import FAMILY as WINOGRAD
from ptxgen.families.winograd.family import FAMILY_4X4 as WINOGRAD_4X4

for _family in (
    SIMT,
    MMA,
    WGMMA,
    SKINNY,
    DEPTHWISE,
    WINOGRAD,
    WINOGRAD_4X4,
    ROW_SPLIT,
    SHARED_SLAB,
    VECTOR_MMA,
    TCA,
    COMPRESSED_TILES,
    PRIVATE_GROUPS,
    RESIDENT_ROWS,
    QUANTIZED_MMA,
    TAP_PRODUCTS,
):
    register(_family)
