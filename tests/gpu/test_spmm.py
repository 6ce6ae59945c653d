"""Sparse products on a GPU: every family, random problems and candidates, against float64."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import ptxgen
from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render_preparation
from ptxgen.errors import PtxgenError
from ptxgen.families.common.space import candidates, families
from ptxgen.lowering.lower import lower
from ptxgen.operations.spmm.problem import Spmm
from ptxgen.operations.spmm.reference import arrays_of
from ptxgen.problem.reference import compare, reference
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.check import check
from ptxgen.runtime.open_driver import open_driver
from ptxgen.runtime.runner import Runner, generate
from tests.cases import SOURCES

pytestmark = pytest.mark.gpu
PROBLEMS, EACH = 120, 2  #: random problems, and candidates of each family for each of them
SHOWN = 4


@pytest.fixture(scope="module")
def driver() -> Any:
    return open_driver("cuda")


def drawn(driver: Any) -> list[tuple[Any, Any]]:
    """Random problems, each with random candidates of every family that computes it."""
    rng, out = np.random.default_rng(3), []
    for p, _ in SOURCES["spmm"].cases(11, PROBLEMS, driver.device, 600):
        columns = candidates(lower(p), driver.device)
        for family in families(lower(p), driver.device):
            rows = np.flatnonzero(np.asarray(columns.take(np.arange(len(columns))).family) == family.code)
            out += [(p, columns.row(int(i))) for i in rng.choice(rows, min(EACH, len(rows)), replace=False)]
    return out


def test_random_problems_of_every_family(driver: Any) -> None:
    pairs = drawn(driver)

    def build(pair: tuple[Any, Any]) -> None:
        plan, source = generate(*pair, driver)
        for text in (source, *(render_preparation(x, driver.device) for x in plan.preparations)):
            assemble(text)

    with ThreadPoolExecutor() as pool:
        list(pool.map(build, pairs))
    wrong = []
    for p, c in pairs:
        try:
            bad = [f"{r.inputs}: {r.deviation}" for r in check(driver, p, c) if not r.ok]
        except PtxgenError as error:
            bad = [str(error)]
        wrong += [f"{p.key()} | {c}: {', '.join(bad)}"] if bad else []
    assert not wrong, f"{len(wrong)} of {len(pairs)}:\n" + "\n".join(wrong[:SHOWN])
    assert {c.family for _, c in pairs} >= {
        f.name for f in families(lower(Spmm(64, 64, 64, calls=1000)), driver.device)
    }


@pytest.mark.parametrize(
    "pattern", ["zipf:mean=16,exponent=0.9,empty=0.1", "rmat:degree=16", "banded:width=9", "even:nnz=0"]
)
def test_parts_of_long_rows(driver: Any, pattern: str) -> None:
    """Many rows of all lengths: each call gives the same bits, and the workspace is zero after it."""
    p = Spmm(1 << 16, 32, 1 << 16, pattern=pattern, calls=1000)
    config = parse_config("family=row_split row_lanes=8 block_groups=16 row_order=length longest_part=64 vec_b=4")
    runner, arrays = Runner.of(driver, p, config), arrays_of(p)
    first, second = (runner.compute(arrays)["C"] for _ in range(2))
    assert compare(first, reference(p, arrays)).ok
    np.testing.assert_array_equal(first, second)
    assert not runner.workspace_dirty()


def test_random_batches_of_graphs(driver: Any) -> None:
    wrong = [
        f"{p.key()} | {c}: {r.inputs} {r.deviation}"
        for p, c in SOURCES["spmm graphs"].cases(5, 40, driver.device, 2000)
        for r in check(driver, p, c)
        if not r.ok
    ]
    assert not wrong, wrong[:SHOWN]


def test_captured_calls_compute_other_batches() -> None:
    """The sizes of the graphs are read on the device."""
    torch = pytest.importorskip("torch")
    rows, nnz = 64, 256
    indptr = torch.arange(0, nnz + 1, nnz // rows, dtype=torch.int32, device="cuda")
    indices = torch.randint(0, 8, (nnz,), dtype=torch.int32, device="cuda")
    values, b = torch.randn(nnz, device="cuda"), torch.randn(rows, 16, device="cuda")
    offsets = torch.arange(8, rows + 1, 8, dtype=torch.int32, device="cuda")
    a = ptxgen.SparseMatrix(indptr, indices, values, (rows, 16))
    out = torch.zeros(rows, 16, device="cuda")
    ptxgen.spmm_grouped(a, b, offsets, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ptxgen.spmm_grouped(a, b, offsets, out)
    for ends in ([8, 16, 24, 32, 40, 48, 56, 64], [16, 16, 32, 32, 48, 48, 64, 64]):
        offsets.copy_(torch.tensor(ends, dtype=torch.int32))
        graph.replay()
        first = torch.zeros(rows, dtype=torch.int64)
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            first[begin:end] = begin
        columns = indices.cpu().long() + first.repeat_interleave(nnz // rows)
        dense = torch.zeros(rows, rows).index_put_(
            (torch.arange(rows).repeat_interleave(nnz // rows), columns), values.cpu(), accumulate=True
        )
        torch.testing.assert_close(out.cpu(), dense @ b.cpu(), rtol=1e-4, atol=1e-4)
