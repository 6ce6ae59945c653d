"""The axes of the family depthwise."""

from __future__ import annotations

from ptxgen.codegen.axes import common

AXES = (
    common("ns", (1, 2, 4, 8, 16), "results per strip, which are a thread's"),
    common("ml", (1, 2, 4, 8, 16), "rows of results per block"),
    common("nl", (32, 64, 128, 256), "lanes per block: threads side by side in a row"),
    common("kg", (), "blocks that split a gradient of filters, added in global memory"),
    common("vec_a", (1, 2, 4), "adjacent results per lane"),
    common("splitk"),
    common("store_policy", (0, 1)),
    common("min_ctas_per_sm", (1, 2, 4, 8)),
    common("pdl"),
)
