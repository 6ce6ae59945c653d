"""Products whose wgmma kernels store the sums and C through shared memory: random matrices, batches and jagged groups,
executed with checks for bounds and races."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxgen.errors import InputError
from ptxgen.families.common.rules import first_violation
from ptxgen.lowering.lower import lower
from ptxgen.problem.device import device
from ptxgen.problem.epilogue_ops import SCALE, epilogue_op
from ptxgen.runtime.check import CASES
from tests.cases import SOURCES
from tests.emulated.gemm_runs import right

H200 = device("h200")
SUBTILES = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4))


@pytest.mark.parametrize(("source", "count"), [("wgmma", 90), ("batch_wgmma", 40), ("grouped_wgmma", 40)])
def test_random_products(source: str, count: int) -> None:
    staged = set()
    for n, (p, c) in enumerate(SOURCES[source].cases(11, count, H200)):
        before = [x for x in p.epilogue_ops if epilogue_op(x).place == SCALE or x in ("bias_row", "bias_column")]
        try:
            p = replace(p, epilogue=",".join((*before, "store_sums", ("clamp(-1,2)", "relu")[n % 2])))
        except InputError:  # results of 8 bits
            continue
        subtiles, buffers = SUBTILES[n % len(SUBTILES)]
        c = c.replace(epilogue_smem=1, epilogue_subtiles=subtiles, epilogue_buffers=buffers)
        if first_violation(lower(p), c, H200) is None:
            right(p, c, n, H200, (CASES[n % len(CASES)],))
            staged.add((subtiles, buffers, c.persistent))
    assert len(staged) >= len(SUBTILES)
