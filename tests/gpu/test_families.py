"""Every family's kernels on real hardware: random problems and configurations against float64, 6,300 cases a family."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ptxgen.assemble import assemble
from ptxgen.drivers import open_driver
from ptxgen.memory import A, B, C, elements, padded, read_after
from ptxgen.reference import compare, epilogue_arrays, operands, reference
from ptxgen.runner import Runner, Workspace, generate
from tests import cases, cases_mma, cases_planes, cases_stream, cases_wgmma

pytestmark = pytest.mark.gpu
SCALES = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))
KINDS = ("integers", "normal", "scaled")

#: name -> (where its random pairs come from, how many, the longest extent)
FAMILIES = {
    "simt": (cases.cases, 700, 700), "mma": (cases_mma.cases, 700, 700), "stream": (cases_stream.cases, 700, 700),
    "wgmma": (cases_wgmma.cases, 700, 400), "planes": (cases_planes.cases, 200, 400),
}  # fmt: skip
NEEDS_WGMMA = ("wgmma", "planes")


@pytest.fixture(scope="module")
def driver():
    return open_driver("cuda")


@pytest.fixture(scope="module", params=FAMILIES)
def made(driver, request):
    """A family's random legal pairs, assembled in parallel, none with a spill."""
    if request.param in NEEDS_WGMMA and driver.device.sm != 90:
        pytest.skip(f"{driver.device.name} has no wgmma")
    draw, count, limit = FAMILIES[request.param]
    chosen = list(draw(41, count, driver.device, limit=limit))

    def build(pair):
        plan, source = generate(*pair, driver)
        return plan, source, assemble(source).spills

    with ThreadPoolExecutor(16) as pool:
        built = list(pool.map(build, chosen))
    spilt = [
        f"{p.key()} | {c}: {found[2]}" for (p, c), found in zip(chosen, built, strict=True) if any(found[2].values())
    ]
    assert not spilt, f"{len(spilt)} spill:\n" + "\n".join(spilt[:10])
    return [(p, c, driver.load(source), plan) for (p, c), (plan, source, _) in zip(chosen, built, strict=True)]


def wrong(runner, p, kind, seed, alpha, beta) -> str:
    """What is wrong with two launches one after the other, or nothing."""
    a, b, before = operands(p, seed, kind)
    if beta == 0:
        before = np.full_like(before, p.output.poison)
    more, at = epilogue_arrays(p, seed, kind), padded(p, (a, b, before))
    expected = reference(p, elements(p, A, at[A]), elements(p, B, at[B]), before, alpha, beta, more)
    for launch in ("first", "second"):
        out = runner.compute(*at, alpha, beta, read_after(p, more))
        got = elements(p, C, out)
        found = compare(got, expected)
        if not found.ok:
            return f"{launch} launch: {found}"
        if kind == "integers" and not p.epilogue and not np.array_equal(got.astype(np.float64), expected.exact):
            return f"{launch} launch: not exact"
        got[...] = p.output.poison
        if not np.array_equal(out, np.full_like(out, p.output.poison), equal_nan=not p.output.integer):
            return f"{launch} launch: written beside C"
    return ""


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_random_kernels(driver, made, kind, scales):
    """Every pair, twice; what lies between rows is poisoned. Workspaces are shared: a kernel that leaves anything behind
    spoils the next."""
    workspace, bad = Workspace(driver), []
    for n, (p, c, kernel, plan) in enumerate(made):
        found = wrong(Runner(driver, plan, kernel, p, workspace), p, kind, n, *scales)
        if found:
            bad.append(f"{p.key()} | {c} | {scales}: {found}")
    assert not bad, f"{len(bad)} of {len(made)}:\n" + "\n".join(bad[:10])
