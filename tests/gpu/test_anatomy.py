"""The comparison of kernels of the paper's section 8.1, measured."""

from __future__ import annotations

import pytest

from ptxgen.cli import paper_anatomy
from ptxgen.operations.gemm import cublaslt
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.open_driver import open_driver

pytestmark = pytest.mark.gpu


def test_both_kernels_have_resources() -> None:
    if cublaslt.available() is None:
        pytest.skip('no cuBLASLt; pip install "ptxgen[baseline]"')
    driver = open_driver("cuda")
    assert isinstance(driver, CudaDriver)
    document = paper_anatomy.measured(driver)
    own, vendor = document["libraries"]
    for row in (own, vendor):
        assert row["main"]["registers"] > 16
        assert row["main"]["blocks_sm"] > 0
        assert 0 < row["occupancy"] <= 1
        assert bool(row["profile"]) != bool(row["note"])
    assert vendor["splits"] >= 1
    assert own["us"] < vendor["us"]
