"""Slices that take every eighth k, straight from rows that are contiguous across K."""

from __future__ import annotations

import pytest
from gemm_runs import verify

from ptxgen.config import parse_config
from ptxgen.device import device
from ptxgen.problem import Gemm
from ptxgen.rules import broken

H200 = device("h200")
WAYS = {
    "a cluster of eight": "ml=64 nl=48 u=32 kc=8 stages=2",
    "a cluster of eight, slices that wait": "ml=64 nl=48 u=16 kc=8 kg=2 split=3 stages=2",
    "slices that wait": "ml=64 nl=48 u=32 kg=8 split=3 stages=2",
    "slices that share, two warpgroups": "ml=128 nl=80 u=16 wg=2 kg=16 split=4 stages=3",
    "a second pass": "swap=1 ml=48 nl=64 u=16 kg=8 split=2 stages=3",
    "blocks that share Y": "ml=64 nl=64 u=16 kg=8 cluster=2 split=3 stages=4 stage_c=1",
    "blocks that share X": "ml=64 nl=32 u=16 kg=8 yc=2 split=4 stages=4",
    "through shared memory": "swap=1 ml=80 nl=128 wg=2 u=32 kc=8 stages=2 stage_c=1",
    "through the operands' memory": "swap=1 ml=16 nl=128 u=32 kc=8 stages=2 stage_c=1 reuse=1",
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_rows_at_any_place(way):
    """Starts of 2, 4, 8 and 16 bytes between guards of NaN, several tiles a side, K that not all eighths divide."""
    c, seed = parse_config(f"family=2 repack=16 {WAYS[way]}"), list(WAYS).index(way)
    for n in range(2):
        p = Gemm(67 + seed % 3, 71 - seed % 5, (277, 403, 530)[(seed + n) % 3], "TN", ("f16", "bf16")[(seed + n) % 2],
                 aligned_a=(2, 4, 8, 16)[(seed + n) % 4], aligned_b=2)  # fmt: skip
        assert broken(p, c, H200) is None
        verify(p, c, ("integers", "normal")[n], 1.0, float(n), data=n, on="h200", shift=True)
