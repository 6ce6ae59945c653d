"""State of the workspace after kernels on a GPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ptxgen.operations.gemm.strided_arrays import padded
from ptxgen.problem.reference import operands, reference
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.open_driver import open_driver
from ptxgen.runtime.runner import Runner, Workspace, generate
from tests.cases import SOURCES

pytestmark = pytest.mark.gpu
CONFIGS = 300


@pytest.fixture(scope="module")
def driver():
    return open_driver("cuda")


@pytest.fixture(scope="module")
def made(driver):
    """Random cases, assembled in parallel."""
    chosen = list(SOURCES["simt"].cases(11, CONFIGS, driver.device, limit=700))

    def build(pair):
        plan, source = generate(*pair, driver)
        assemble(source)
        return plan, source

    with ThreadPoolExecutor(16) as pool:
        return list(zip(chosen, pool.map(build, chosen), strict=True))


def test_kernels_reset_their_flags(driver, made):
    """Kernels with split-K flags clear them: the same launch twice, and once more on other slices."""
    for (p, c), (plan, source) in made:
        if not plan.reduction.uses_flag:
            continue
        workspace = Workspace(driver)
        runner = Runner(driver, plan, driver.load(source), p, workspace)
        a, b, c0 = operands(p, 3, "integers").values()
        exact = reference(p, {"A": a, "B": b}).exact
        for _ in range(3):
            out = runner.compute(padded(p, {"A": a, "B": b, "C": np.full_like(c0, np.nan)}))["C"]
            np.testing.assert_array_equal(out[:, : p.n], exact, err_msg=f"{p.key()} | {c}")
        flags = np.empty(runner.launch.workspace // 4, np.uint32)
        driver.download(workspace.address(runner.launch), flags)
        assert not flags.any()
        workspace.release()
