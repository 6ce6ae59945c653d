"""The vendor baselines of grouped products give the results that float64 gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from ptxgen.errors import UnavailableError
from ptxgen.operations.conv import cudnn
from ptxgen.operations.grouped import cublas as cublas_grouped
from ptxgen.operations.grouped import cutlass
from ptxgen.operations.grouped import pytorch as torch_grouped
from ptxgen.operations.grouped.checks import group_deviation, random_group
from ptxgen.operations.grouped.cublas import CublasGrouped
from ptxgen.operations.grouped.cudnn import CudnnGrouped
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.operations.grouped.pytorch import TorchGrouped
from ptxgen.operations.grouped.suites import INCEPTION
from ptxgen.operations.task.baselines.cuda_staged import find_nvcc
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.open_driver import open_driver

pytestmark = pytest.mark.gpu

#: equal items, empty items, an item without K, extents of 1
ITEMS = ((40, 24, 32), (0, 16, 16), (17, 33, 65), (40, 24, 32), (5, 3, 0), (1, 1, 1), (8, 0, 8), (128, 200, 96))
BRIEF = Timing(samples=3, target_ms=0.5)


@pytest.fixture(scope="module")
def driver() -> CudaDriver:
    opened = open_driver("cuda")
    assert isinstance(opened, CudaDriver)
    return opened


@contextmanager
def on_device(driver: CudaDriver, arrays: dict[str, np.ndarray]) -> Iterator[dict[str, int]]:
    """The addresses of copies of the arrays."""
    addresses = {name: driver.allocate(max(x.nbytes, 16)) for name, x in arrays.items()}
    for name, x in arrays.items():
        driver.upload(addresses[name], x)
    try:
        yield addresses
    finally:
        for address in addresses.values():
            driver.release(address)


def check_cublas(driver: CudaDriver, p: GroupedGemm) -> None:
    """Both ways to call cuBLAS, eagerly, give exact products of integers, and write nothing between items."""
    if cublas_grouped.available() is None:
        pytest.skip('no cuBLAS; pip install "ptxgen[baseline]"')
    arrays = random_group(p, 1, "integers")
    c = arrays["C"]
    c[...] = p.output.poison
    with on_device(driver, arrays) as addresses, CublasGrouped(driver, p) as product:
        for which in ("grouped", "loop"):
            driver.upload(addresses["C"], c)
            product.run(which, addresses)
            out = np.empty_like(c)
            driver.download(addresses["C"], out)
            deviation = group_deviation(p, arrays, out, "integers")
            assert deviation.ok, f"{which}: {deviation}"


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(
    ("dtype", "compute"), [("f32", "f32"), ("f32", "tf32"), ("f64", "f64"), ("f16", "f32"), ("bf16", "f32")]
)
def test_cublas_is_right(driver: CudaDriver, layout: str, dtype: str, compute: str) -> None:
    check_cublas(driver, GroupedGemm(ITEMS, layout, dtype, compute))


def test_cublas_takes_leading_dimensions(driver: CudaDriver) -> None:
    check_cublas(driver, GroupedGemm(((20, 24, 16), (40, 24, 16)), ld="24:32:28"))


def test_cublas_takes_jagged_problems(driver: CudaDriver) -> None:
    sizes = (40, 0, 8, 72)
    check_cublas(driver, GroupedGemm(tuple((s, 64, 32) for s in sizes), "NN", "bf16", jagged="m"))
    check_cublas(driver, GroupedGemm(tuple((64, 32, s) for s in sizes), "TN", "bf16", jagged="k"))


def test_cublas_is_timed_in_graphs(driver: CudaDriver) -> None:
    if cublas_grouped.available() is None:
        pytest.skip('no cuBLAS; pip install "ptxgen[baseline]"')
    p = GroupedGemm(ITEMS)
    held = len(driver._memory)
    arrays = random_group(p, 1)
    with on_device(driver, arrays) as first, on_device(driver, arrays) as second, CublasGrouped(driver, p) as product:
        best, grouped, _ = product.best([first, second], BRIEF)
        assert 0.5 < best <= grouped < 1e5
    assert len(driver._memory) == held


@pytest.mark.parametrize(("layout", "jagged"), [("NN", "m"), ("NT", "m"), ("TN", "k")])
def test_torch_is_right(driver: CudaDriver, layout: str, jagged: str) -> None:
    if torch_grouped.available() is None:
        pytest.skip("no torch._grouped_mm")
    sizes = (40, 8, 72, 128) if jagged == "k" else (40, 0, 7, 128)
    items = tuple((s, 64, 32) if jagged == "m" else (64, 32, s) for s in sizes)
    p = GroupedGemm(items, layout, "bf16", jagged=jagged)
    arrays = random_group(p, 1, "integers")
    c = arrays["C"]
    c[...] = p.output.poison
    with on_device(driver, arrays) as on_gpu:
        product = TorchGrouped(driver, p, on_gpu)
        result = product.run(on_gpu)
        driver.synchronize()
        out = result.float().cpu().numpy().astype(c.dtype).reshape(-1)
        assert out.shape == c.shape
        deviation = group_deviation(p, arrays, out, "integers")
        assert deviation.ok, str(deviation)
        us, first, _ = product.best([on_gpu] * 2, BRIEF)
        assert 0.5 < us < 1e5
        assert np.isnan(first)


def test_torch_scales_rows_and_columns(driver: CudaDriver) -> None:
    if torch_grouped.available() is None:
        pytest.skip("no torch._grouped_mm")
    items = tuple((s, 64, 128) for s in (40, 16, 8, 128))
    p = GroupedGemm(items, "NT", "e4m3", out="bf16", epilogue="scale_rows", jagged="m")
    arrays = random_group(p, 1)
    arrays["C"][...] = p.output.poison
    with on_device(driver, arrays) as on_gpu:
        result = torch_grouped.torch_grouped(driver, p, on_gpu).run(on_gpu)
        driver.synchronize()
        out = result.float().cpu().numpy().astype(arrays["C"].dtype).reshape(-1)
    deviation = group_deviation(p, arrays, out, "normal")
    assert deviation.ok, str(deviation)


def test_cudnn_is_timed_item_by_item(driver: CudaDriver) -> None:
    if cudnn.available() is None:
        pytest.skip("no cuDNN")
    p = GroupedGemm(INCEPTION["Inception-9"])
    us, first, _ = CudnnGrouped(driver, p).best([{}] * 2, BRIEF)
    assert len(p.items) < us < 1e5
    assert np.isnan(first)


@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_cutlass(driver: CudaDriver, layout: str) -> None:
    """Each tile gives exact products of integers, and writes nothing between items."""
    try:
        find_nvcc(), cutlass.find_headers()
    except UnavailableError as error:
        pytest.skip(str(error))
    p = GroupedGemm(ITEMS, layout)
    arrays = random_group(p, 1, "integers")
    c = arrays["C"]
    c[...] = p.output.poison
    with on_device(driver, arrays) as addresses:
        product = cutlass.CutlassGrouped(driver, p)
        for tile in range(len(cutlass.TILES)):
            driver.upload(addresses["C"], c)
            product.run(product.make(tile, addresses))
            driver.synchronize()
            out = np.empty_like(c)
            driver.download(addresses["C"], out)
            assert group_deviation(p, arrays, out, "integers").ok
        assert product.best([addresses], BRIEF).best > 0
        product.close()
