"""wgmma kernels on real hardware: random problems and configurations against float64."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ptxgen.assemble import assemble
from ptxgen.drivers import open_driver
from ptxgen.memory import padded
from ptxgen.reference import compare, epilogue_arrays, operands, reference
from ptxgen.runner import Runner, Workspace, generate
from tests import cases_planes, cases_wgmma

pytestmark = pytest.mark.gpu
CONFIGS = 700


@pytest.fixture(scope="module")
def driver():
    found = open_driver("cuda")
    if found.device.sm != 90:
        pytest.skip(f"{found.device.name} has no wgmma")
    return found


@pytest.fixture(scope="module")
def made(driver):
    """Random legal pairs, assembled in parallel."""
    chosen = list(cases_wgmma.cases(41, CONFIGS, driver.device, limit=400))
    chosen += cases_planes.cases(42, CONFIGS // 4, driver.device, limit=400)

    def build(pair):
        plan, source = generate(*pair, driver)
        assemble(source)
        return plan, source

    with ThreadPoolExecutor(16) as pool:
        return list(zip(chosen, pool.map(build, chosen), strict=True))


@pytest.mark.parametrize("kind", ["integers", "normal", "scaled"])
def test_random_kernels(driver, made, kind):
    """Every pair twice, with alpha and beta; rows that leading dimensions pad hold NaN, before and after. Workspaces are
    shared: a kernel that leaves anything behind spoils the next."""
    workspace, wrong = Workspace(driver), []
    for n, ((p, c), (plan, source)) in enumerate(made):
        runner = Runner(driver, plan, driver.load(source), p, workspace)
        alpha, beta = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))[n % 3]
        a, b, before = operands(p, n, kind)
        if beta == 0:
            before = np.full_like(before, p.output.poison)
        more = epilogue_arrays(p, n, kind)
        expected = reference(p, a, b, before, alpha, beta, more)
        for _ in range(2):
            out = runner.compute(*padded(p, (a, b, before)), alpha, beta, more)
            found = compare(out[:, : p.n], expected)
            exact = kind != "integers" or p.epilogue or np.array_equal(out[:, : p.n].astype(np.float64), expected.exact)
            kept = np.array_equal(
                out[:, p.n :], np.full_like(out[:, p.n :], p.output.poison), equal_nan=not p.output.integer
            )
            if not found.ok or not exact or not kept:
                wrong.append(f"{p.key()} | {c} alpha {alpha} beta {beta}: {found}{'' if kept else ', padding changed'}")
                break
    assert not wrong, f"{len(wrong)} of {len(made)}:\n" + "\n".join(wrong[:10])
