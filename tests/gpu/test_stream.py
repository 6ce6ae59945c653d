"""The streaming kernels on real hardware: random problems and configurations against float64."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ptxgen.assemble import assemble
from ptxgen.drivers import open_driver
from ptxgen.reference import compare, operands, reference
from ptxgen.runner import Runner, Workspace, generate, padded
from tests.cases_stream import cases

pytestmark = pytest.mark.gpu
CONFIGS = 500
SCALES = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))


@pytest.fixture(scope="module")
def driver():
    return open_driver("cuda")


@pytest.fixture(scope="module")
def made(driver):
    """Random legal pairs, assembled in parallel, none with a spill."""
    chosen = list(cases(19, CONFIGS, driver.device, limit=700))

    def build(pair):
        plan, source = generate(*pair, driver)
        assert not any(assemble(source).spills.values()), f"{pair[0].key()} | {pair[1]}"
        return plan, source

    with ThreadPoolExecutor(16) as pool:
        return list(zip(chosen, pool.map(build, chosen), strict=True))


def wrong(runner, p, kind, seed, alpha, beta) -> str:
    """What is wrong with one launch, or nothing."""
    a, b, before = operands(p, seed, kind)
    if beta == 0:
        before = np.full_like(before, p.output.poison)
    out = runner.compute(*padded(p, (a, b, before)), alpha, beta)
    ref = reference(p, a, b, before, alpha, beta)
    found, rest = compare(out[:, : p.n], ref), out[:, p.n :]
    if not found.ok:
        return str(found)
    if kind == "integers" and not np.array_equal(out[:, : p.n].astype(np.float64), ref.exact):
        return "not exact"
    return "" if np.array_equal(rest, np.full_like(rest, p.output.poison), equal_nan=True) else "written past a row"


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", ["integers", "normal", "scaled"])
def test_random_kernels(driver, made, kind, scales):
    """Every pair; what leading dimensions pad is poisoned, before and after."""
    workspace, bad = Workspace(driver), []
    for n, ((p, c), (plan, source)) in enumerate(made):
        runner = Runner(driver, plan, driver.load(source), p, workspace)
        found = wrong(runner, p, kind, n, *scales)
        if found:
            bad.append(f"{p.key()} | {c} | {scales}: {found}")
    assert not bad, f"{len(bad)} of {len(made)}:\n" + "\n".join(bad[:10])
