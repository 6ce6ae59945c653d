"""The family of TCA-SpMM without a device: layout in shared memory, rules, space, performance model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import Columns, parse_config
from ptxgen.codegen.render import render
from ptxgen.errors import ConfigError
from ptxgen.families.common.perf_model import predict
from ptxgen.families.common.rules import legal
from ptxgen.families.common.space import candidates, families
from ptxgen.families.plan_factory import plan_for
from ptxgen.families.registry import FAMILIES
from ptxgen.families.tca.layout import BUFFER_AT, BUFFER_BYTES, FRAGMENTS, SHARES, SUMS_AT, Share
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.problem.device import device

H100, H200 = device("h100"), device("h200")
P = Spmm(64, 64, 48, dtype="f16", pattern="bernoulli:density=0.1,seed=7", calls=1000)


def place(column: int, word: int, warps: int) -> int:
    """The byte of a pair of nonzeros of a column in the buffer of a row."""
    return 16 * warps * column + 16 * (column // 8) + 4 * word


def distinct_banks(addresses: Iterator[int]) -> bool:
    return len({x // 4 % 32 for x in addresses}) == 32


@pytest.mark.parametrize("warps", SHARES)
def test_layout(warps: int) -> None:
    """Stores and loads of a warp are where the layout says, and have no bank conflicts; the buffer of a row is in
    proportion to its warps."""
    share, lanes = Share(warps), range(32)
    for warp in range(warps):
        for i in range(8):
            stored = [share.lane_bytes * (n % 8) + 16 * warp + 4 * (n // 8) + share.column_bytes * i for n in lanes]
            assert stored == [place(8 * (n % 8) + i, 4 * warp + n // 8, warps) for n in lanes]
            assert distinct_banks(iter(stored))
        for q in range(FRAGMENTS):
            for half, offset in enumerate(share.fragments[q]):
                loaded = [4 * (64 * warp + n) + 16 * (2 * warp // warps) + offset - BUFFER_AT for n in lanes]
                rows = [n // 4 + 8 * half for n in lanes]
                first = (q * warps + warp) * share.columns
                assert loaded == [
                    place(first + row // warps, 4 * (row % warps) + n % 4, warps)
                    for n, row in zip(lanes, rows, strict=True)
                ]
                assert distinct_banks(iter(loaded))
    assert place(63, 4 * warps - 1, warps) + 4 <= BUFFER_BYTES * warps


@pytest.mark.parametrize("warps", SHARES)
def test_diagonals(warps: int) -> None:
    """The shuffles add the diagonal elements of all parts of each column."""
    share = Share(warps)
    c = np.arange(128.0).reshape(16, 8) ** 2  # the product
    for half in (0, 1):
        # a lane has elements (row, 2t) and (row, 2t + 1) of both halves
        lane = np.array([c[n // 4 + 8 * half, 2 * (n % 4) + (n // 4 % 2 if warps > 1 else 0)] for n in range(32)])
        for distance in share.distances:
            lane = lane + np.concatenate([lane[distance:], lane[32 - distance :]])
        sums = [c[8 * half + warps * i + np.arange(warps), np.arange(warps)].sum() for i in range(8 // warps)]
        assert lane[:: share.stride].tolist() == sums
        assert share.sums[2 + half] - SUMS_AT == 4 * (16 + half * len(sums))


def test_it_computes_prepared_matrices_in_16_bits() -> None:
    assert "tca" in [f.name for f in families(lower(P), H200)]
    assert "tca" in [f.name for f in families(lower(replace(P, exact_nonfinite=True)), H200)]
    with pytest.raises(ConfigError, match="family tca lacks sparse matrices in CSR that are not prepared"):
        plan_for(replace(P, calls=0), parse_config("family=tca"), H200)


@pytest.mark.parametrize(
    ("problem", "vec", "message", "name"),
    [
        (
            Spmm(64, 64, 48, calls=1000),
            1,
            "tca multiplies f16 .* and bf16 .*, not f32 in f32 into f32 on sm_90",
            "h200",
        ),
        (replace(P, compute="f16"), 1, "not f16 in f16 into f16", "h200"),
        (replace(P, dtype="bf16", out="bf16"), 1, "not bf16 in f32 into bf16 on sm_75", "t4"),
        (P, 16, "vec_b=16: a power of two, at most 16 bytes", "h200"),
        (replace(P, n=65, ldb=0, ldc=0), 2, "no wider than rows of B and C are aligned", "h200"),
        (replace(P, aligned_b=8), 8, "no wider than rows of B and C are aligned", "h200"),
        (Spmm(8, 8, 8, dtype="f16", ldb=(1 << 31) - 8, calls=1000), 1, None, "h200"),
    ],
)
def test_rules(problem: Spmm, vec: int, message: str | None, name: str) -> None:
    config = parse_config(f"family=tca vec_b={vec}")
    if message is None:
        plan_for(problem, config, device(name))
        return
    with pytest.raises(ConfigError, match=message):
        plan_for(problem, config, device(name))


def test_candidates_are_the_legal_rows_of_a_plain_search() -> None:
    family = FAMILIES["tca"]
    for p in (P, replace(P, n=36, ldb=0, ldc=0), replace(P, aligned_c=2)):
        columns = candidates(lower(p), H200)
        own = columns.take(np.flatnonzero(columns.take(np.arange(len(columns))).family == family.code))
        every = Columns.product({a.name: a.values for a in family.axes})
        every = every.replace(family=family.code)
        plain = every.take(np.flatnonzero(legal(lower(p), every, H200)))
        assert sorted(own.vec_b.tolist()) == sorted(plain.vec_b.tolist()) != []


def test_a_kernel_serves_every_pattern_and_shape() -> None:
    config = parse_config("family=tca vec_b=4")
    other = Spmm(700, 1028, 9000, dtype="f16", pattern="banded:width=300", calls=1000)
    assert render(plan_for(P, config, H200)).digest == render(plan_for(other, config, H200)).digest


#: microseconds of a prototype of the method on an H100: M, N, K, nonzeros (of rows of about one length), time
MEASURED = (
    (4096, 128, 4096, 1676678, 127.2),
    (4096, 512, 4096, 1676678, 457.2),
    (4096, 512, 4096, 5033209, 1231.5),
    (4096, 512, 4096, 334931, 148.9),
    (2048, 128, 512, 20800, 7.6),
    (2048, 512, 512, 104916, 94.6),
    (4096, 128, 4096, 83515, 25.6),
    (131072, 256, 131072, 1048542, 534.0),
    (131072, 64, 131072, 4032272, 651.8),
    (1000000, 64, 1000000, 6940000, 898.1),
)


@pytest.mark.parametrize(("m", "n", "k", "nnz", "us"), MEASURED)
def test_predictions_are_near_measured_times(m: int, n: int, k: int, nnz: int, us: float) -> None:
    p = Spmm(m, n, k, dtype="f16", pattern=f"even:nnz={nnz}", calls=1000)
    assert predict(lower(p), parse_config("family=tca vec_b=8"), H100) == pytest.approx(us, rel=0.5)
