"""Every family's kernels on real hardware: random problems and configurations against float64, nine cases a pair."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from ptxgen.errors import AssembleError, PtxgenError
from ptxgen.problem.conv import Conv
from ptxgen.problem.reference import compare, epilogue_arrays, operands, reference
from ptxgen.problem.strided_arrays import A, B, C, elements, padded, read_after
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.conv_check import guarded
from ptxgen.runtime.open_driver import open_driver
from ptxgen.runtime.runner import Runner, Workspace, generate
from tests import cases, cases_batch, cases_conv, cases_images, cases_mma, cases_planes, cases_stream, cases_wgmma

pytestmark = pytest.mark.gpu
SCALES = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))
KINDS = ("integers", "normal", "scaled")
SHOWN = 4  #: pairs that a failure names: few enough for the end of a log

#: name -> (where its random pairs come from, how many)
FAMILIES = {
    "simt": (partial(cases.cases, limit=700), 700),
    "mma": (partial(cases_mma.cases, limit=700), 700),
    "skinny": (partial(cases_stream.cases, limit=700), 700),
    "wgmma": (partial(cases_wgmma.cases, limit=400), 700),
    "planes": (partial(cases_planes.cases, limit=400), 200),
    **{f"batch {x}": (partial(cases_batch.batches, family=x), 150) for x in cases_batch.FAMILIES},
    "conv simt": (partial(cases_images.cases, family="simt"), 700),
    "conv mma": (partial(cases_images.cases, family="mma"), 700),
    "conv slide": (partial(cases_images.cases, family="depthwise"), 700),
    "conv wgmma": (partial(cases_conv.cases, limit=300), 700),
}
NEEDS_WGMMA = ("wgmma", "planes", "batch wgmma", "conv wgmma")


@pytest.fixture(scope="module")
def driver():
    return open_driver("cuda")


@pytest.fixture(scope="module", params=FAMILIES)
def made(driver, request):
    """A family's random legal pairs, each with its plan and PTX and what the assembler says: bytes spilt, or why not."""
    if request.param in NEEDS_WGMMA and driver.device.sm != 90:
        pytest.skip(f"{driver.device.name} has no wgmma")
    draw, count = FAMILIES[request.param]

    def build(pair):
        plan, source = generate(*pair, driver)
        try:
            return *pair, plan, source, {k: n for k, n in assemble(source).spills.items() if n}
        except AssembleError as error:
            return *pair, plan, source, str(error).splitlines()[0]

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(build, draw(41, count, driver.device)))


def fail(bad, count) -> None:
    """Fails with the first few lines of ``bad`` and nothing else, if there are any."""
    if bad:
        pytest.fail("\n".join([f"{len(bad)} of {count}: {bad[0]}", *bad[1:SHOWN]]), pytrace=False)


def matrices(runner, p, arrays, more, alpha, beta):
    """(what is to come of it, a launch: the result, and whether what lies between its rows has stayed)."""
    at, poison = padded(p, arrays), p.output.poison
    expected = reference(p, elements(p, A, at[A]), elements(p, B, at[B]), arrays[2], alpha, beta, more)

    def launch():
        out = runner.compute(*at, alpha, beta, read_after(p, more))
        got = elements(p, C, out).copy()
        elements(p, C, out)[...] = poison
        return got, np.array_equal(out, np.full_like(out, poison), equal_nan=not p.output.integer)

    return expected, launch


def images(runner, p, arrays, more, alpha, beta):
    """The same of a convolution, with guard zones around the result; operands must stay, too."""
    return reference(p, *arrays, alpha, beta, more), lambda: guarded(runner, *arrays, alpha, beta, more)


def wrong(runner, p, kind, seed, alpha, beta) -> str:
    """What is wrong with two launches one after the other, or nothing."""
    a, b, before = operands(p, seed, kind)
    if beta == 0:
        before = np.full_like(before, p.output.poison)
    prepare = images if isinstance(p, Conv) else matrices
    expected, launch = prepare(runner, p, (a, b, before), epilogue_arrays(p, seed, kind), alpha, beta)
    for name in ("first", "second"):
        got, kept = launch()
        found = compare(got, expected)
        if not found.ok:
            return f"{name} launch: {found}"
        if kind == "integers" and not p.epilogue and not np.array_equal(got.astype(np.float64), expected.rounded):
            return f"{name} launch: not exact"
        if not kept:
            return f"{name} launch: written beside the result"
    return ""


def judged(driver, pairs, kind, alpha, beta) -> list[str]:
    """What is wrong, a line each. ``pairs``: (problem, configuration, plan, what loads its kernel). Workspaces are
    shared: a kernel that leaves anything behind spoils the next."""
    workspace, bad = Workspace(driver), []
    for n, (p, c, plan, kernel) in enumerate(pairs):
        what = f"{p.key()} | {c} | {kind}, alpha={alpha:g}, beta={beta:g}"
        try:
            found = wrong(Runner(driver, plan, kernel, p, workspace), p, kind, n, alpha, beta)
        except PtxgenError as error:
            return [f"{what}: {str(error).splitlines()[0]}", *bad]  # a fault: nothing runs after it
        if found:
            bad.append(f"{what}: {found}")
    workspace.release()
    return bad


@pytest.fixture(scope="module")
def loaded(driver, made):
    """What the assembler took, loaded, spills or not."""
    return [(p, c, plan, driver.load(source)) for p, c, plan, source, told in made if isinstance(told, dict)]


def test_kernels_assemble_without_spills(made):
    fail([f"{p.key()} | {c}: {told}" for p, c, _, _, told in made if told], len(made))


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_random_kernels(driver, loaded, kind, scales):
    """Every pair, twice; what lies between rows is poisoned, and so is what lies around results."""
    fail(judged(driver, loaded, kind, *scales), len(loaded))
