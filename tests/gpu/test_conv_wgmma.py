"""Convolutions that TMA walks over, on real hardware: random problems and configurations against float64."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ptxgen.assemble import assemble
from ptxgen.drivers import open_driver
from ptxgen.reference import compare, epilogue_arrays, operands, reference
from ptxgen.runner import Runner, Workspace, generate
from tests.cases_conv import cases

pytestmark = pytest.mark.gpu
CONFIGS = 500


def test_random_convolutions():
    """Every pair twice, with alpha and beta. Workspaces are shared: a kernel that leaves anything spoils the next."""
    driver = open_driver("cuda")
    if driver.device.sm != 90:
        pytest.skip(f"{driver.device.name} has no wgmma")
    chosen = list(cases(47, CONFIGS, driver.device, limit=300))

    def build(pair):
        plan, source = generate(*pair, driver)
        assemble(source)
        return plan, source

    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(build, chosen))
    workspace, wrong = Workspace(driver), []
    for n, ((p, c), (plan, source)) in enumerate(zip(chosen, made, strict=True)):
        runner = Runner(driver, plan, driver.load(source), p, workspace)
        kind = ("integers", "normal", "scaled")[n % 3]
        alpha, beta = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))[n // 3 % 3]
        a, b, before = operands(p, n, kind)
        if beta == 0:
            before = np.full_like(before, p.output.poison)
        more = epilogue_arrays(p, n, kind)
        expected = reference(p, a, b, before, alpha, beta, more)
        for _ in range(2):
            out = runner.compute(a, b, before, alpha, beta, more)
            found = compare(out, expected)
            exact = kind != "integers" or p.epilogue or np.array_equal(out.astype(np.float64), expected.exact)
            if not found.ok or not exact:
                wrong.append(f"{p.key()} | {c} {kind} alpha {alpha} beta {beta}: {found}")
                break
    assert not wrong, f"{len(wrong)} of {len(made)}:\n" + "\n".join(wrong[:10])
