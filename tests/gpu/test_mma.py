"""mma.sync kernels: errors that only hardware shows."""

from __future__ import annotations

import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.runtime.open_driver import open_driver
from ptxgen.runtime.runner import Runner
from tests.gpu.test_families import wrong

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def driver():
    return open_driver("cuda")


@pytest.mark.parametrize(
    "text",
    [
        "ms=16 ns=8 ml=16 nl=32 u=32 fragment_prefetch=0 min_ctas_per_sm=3",
        "ms=16 ns=16 ml=16 nl=64 u=16 stages=5 min_ctas_per_sm=3",
        "ms=32 ns=8 ml=64 nl=32 u=8 stages=4",
        "ms=32 ns=32 ml=64 nl=64 u=32 kl=2",
        "ms=64 ns=32 ml=64 nl=64 u=16 stages=4",
    ],
)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_long_f64_accumulation(driver, layout, text):
    """Many K iterations with many blocks per multiprocessor: missing waits for accumulators show here, and nowhere
    else."""
    p = Gemm(256, 2560, 2560, layout, "f64")
    runner = Runner.of(driver, p, parse_config(f"family=mma vec_a=2 vec_b=2 vec_c=2 {text}"))
    assert not wrong(runner, p, "integers", 1, 1.0, 0.0)
