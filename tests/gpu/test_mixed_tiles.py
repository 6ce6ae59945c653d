"""The method of Zhang et al. on a GPU: results of every variant, and the tiles that the device's settings choose."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import ptxgen
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.suites import INCEPTION, batchgemm, random_items
from ptxgen.operations.grouped.tile_kernel import BODIES
from ptxgen.operations.grouped.tlp_schedule import VARIANTS, Setting, TlpBaseline, TlpSchedule
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.open_driver import open_driver

pytestmark = pytest.mark.gpu

#: every tile, primes, an item without elements, one without K
ODD = ((64, 64, 20), (33, 17, 40), (16, 32, 5), (0, 4, 4), (32, 64, 9), (32, 32, 16), (7, 9, 0), (128, 200, 96))
LISTS = (ODD, INCEPTION["Inception-4"], random_items(40, 128, 128))


@pytest.fixture(scope="module")
def driver() -> CudaDriver:
    opened = open_driver("cuda")
    assert isinstance(opened, CudaDriver)
    return opened


@pytest.mark.parametrize("name", VARIANTS)
def test_results_of_variants(driver: CudaDriver, name: str) -> None:
    """With the largest and the smallest tiles, and with each kind of bodies: every kind of input."""
    for items, bodies, limit in itertools.product(LISTS, BODIES, (0, 10**9)):
        p = GroupedGemm(items)
        schedule = TlpSchedule.choose(p, driver.device, variant=VARIANTS[name], setting=Setting(limit, bodies))
        for result in TlpBaseline(driver, p, schedule=schedule).check():
            assert result.ok, f"{p.key()} {bodies} {limit}: {result}"


@pytest.mark.parametrize("layout", ["NT", "TN", "TT"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_results_of_layouts_and_types(driver: CudaDriver, layout: str, dtype: str) -> None:
    for bodies in BODIES:
        p = GroupedGemm(ODD, layout, dtype)
        schedule = TlpSchedule.choose(p, driver.device, setting=Setting(0, bodies))
        assert all(result.ok for result in TlpBaseline(driver, p, schedule=schedule).check())


def test_surplus_threads_exit_in_every_block(driver: CudaDriver) -> None:
    """Many blocks of 128 of 256 threads wait at barriers again and again."""
    p = GroupedGemm(((16, 16, 300),) * 3000)
    assert all(result.ok for result in TlpBaseline(driver, p).check())


def test_lists_of_the_suite_have_several_tiles(driver: CudaDriver) -> None:
    """With the settings of this device, not all items have the same tile."""
    mixed, tiles = 0, set()
    for group in batchgemm():
        schedule = TlpSchedule.choose(GroupedGemm(group.items), driver.device)
        names = {tile["tile"] for tile in schedule.facts()["tiles"]}
        tiles |= names
        mixed += len(names) > 1
    assert mixed > 10
    assert len(tiles) > 2


def test_calls_on_tensors(driver: CudaDriver) -> None:
    """First calls, cached ones and captured ones."""
    torch: Any = pytest.importorskip("torch")
    a = [torch.randint(-4, 5, (m, k), device="cuda").float() for m, _, k in ODD]
    b = [torch.randint(-4, 5, (k, n), device="cuda").float() for _, n, k in ODD]
    outs = [torch.empty(m, n, device="cuda") for m, n, _ in ODD]
    for _ in range(3):
        for x in outs:
            x.fill_(float("nan"))
        ptxgen.gemm_grouped(a, b, outs, schedule="tlp")
        assert all(torch.equal(x, y @ z) for x, y, z in zip(outs, a, b, strict=True))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ptxgen.gemm_grouped(a, b, outs, schedule="tlp")
    for x in outs:
        x.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(x, y @ z) for x, y, z in zip(outs, a, b, strict=True))
