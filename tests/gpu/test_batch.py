"""Batched kernels of every family on real hardware: random problems and configurations against float64."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ptxgen.assemble import assemble
from ptxgen.drivers import open_driver
from ptxgen.memory import A, B, C, elements, padded, read_after
from ptxgen.reference import compare, epilogue_arrays, operands, reference
from ptxgen.runner import Runner, Workspace, generate
from tests.cases_batch import FAMILIES, batches

pytestmark = pytest.mark.gpu
CONFIGS = 150


@pytest.fixture(scope="module")
def driver():
    return open_driver("cuda")


@pytest.fixture(scope="module", params=FAMILIES)
def made(driver, request):
    """Random legal pairs of a family, assembled in parallel."""
    if request.param == "wgmma" and driver.device.sm != 90:
        pytest.skip(f"{driver.device.name} has no wgmma")
    chosen = list(batches(71, CONFIGS, driver.device, request.param))

    def build(pair):
        plan, source = generate(*pair, driver)
        assemble(source)
        return plan, source

    with ThreadPoolExecutor(16) as pool:
        return list(zip(chosen, pool.map(build, chosen), strict=True))


@pytest.mark.parametrize("kind", ["integers", "scaled"])
def test_random_kernels(driver, made, kind):
    """Every pair twice, with alpha and beta; what lies between rows and items stays as it is. Workspaces are shared."""
    workspace, wrong = Workspace(driver), []
    for n, ((p, c), (plan, source)) in enumerate(made):
        runner = Runner(driver, plan, driver.load(source), p, workspace)
        alpha, beta = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))[n % 3]
        a, b, before = operands(p, n, kind)
        if beta == 0:
            before = np.full_like(before, p.output.poison)
        more, at = epilogue_arrays(p, n, kind), padded(p, (a, b, before))
        expected = reference(p, elements(p, A, at[A]), elements(p, B, at[B]), before, alpha, beta, more)
        for _ in range(2):
            out = runner.compute(*at, alpha, beta, read_after(p, more))
            got = elements(p, C, out)
            found = compare(got, expected)
            exact = kind != "integers" or p.epilogue or np.array_equal(got.astype(np.float64), expected.exact)
            got[...] = p.output.poison
            kept = np.array_equal(out, np.full_like(out, p.output.poison), equal_nan=not p.output.integer)
            if not found.ok or not exact or not kept:
                wrong.append(f"{p.key()} | {c} alpha {alpha} beta {beta}: {found}{'' if kept else ', gaps changed'}")
                break
    assert not wrong, f"{len(wrong)} of {len(made)}:\n" + "\n".join(wrong[:10])
