"""The rules of the families whose warps all copy and multiply."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config.rule import Rule

#: the rule of kernels that add the elements of each column of C
SUM_COLUMNS = Rule(
    "sum_columns",
    lambda p, c, g, d: (
        ("sum_columns" not in p.needs)
        | (np.logical_not(g.c_via_smem) & (c.kg == 1) & (c.stream_k == 0) & (c.stages > 0))
    ),
    "sum_columns takes an epilogue from registers (epilogue_smem=0, kl=1), stages in shared memory, and blocks that sum"
    " all of K (kg=1, stream_k=0)",
)
#: the rule of kernels that add the elements of each row of A
SUM_A = Rule(
    "sum_a",
    lambda p, c, g, d: (
        ("sum_a" not in p.needs)
        | ((c.stages > 0) & (p.accumulator.bytes >= 4) & ((not p.deterministic) | (c.kg * c.kl == 1)))
    ),
    "sum_a takes stages in shared memory and sums of four bytes; with deterministic=1 also one slice of K (kg=1, kl=1)",
)
