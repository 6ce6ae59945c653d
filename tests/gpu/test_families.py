"""Kernels of every family on a GPU: random problems and configurations against float64, nine input sets per case.

With pytest-xdist, --dist loadgroup keeps the tests of a family in one process, which makes its kernels once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ptxgen.errors import AssembleError, PtxgenError
from ptxgen.families import registry
from ptxgen.operations.conv.checks import guarded
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.strided_arrays import A, B, C, elements, padded
from ptxgen.operations.quantized.problem import QuantizedGemm
from ptxgen.operations.quantized.reference import quantized_arrays
from ptxgen.problem.reference import INPUTS, compare, epilogue_arrays, operands, reference
from ptxgen.runtime.assemble import assemble
from ptxgen.runtime.runner import Runner, Workspace, generate
from tests.cases import SOURCES

pytestmark = pytest.mark.gpu
SCALES = ((1.0, 0.0), (2.0, 1.0), (1.0, -1.0))
SHOWN = 4  #: pairs that a failure names: few enough for the end of a log

#: case source -> largest extent, how many cases
FAMILIES = {
    "simt": (700, 700),
    "mma": (700, 700),
    "mma_scaled": (300, 300),
    "skinny": (700, 700),
    "wgmma": (400, 700),
    "wgmma_resident_b": (40000, 300),
    "bf16x3": (400, 200),
    **{f"batch_{family}": (160, 150) for family in ("simt", "mma", "wgmma", "skinny")},
    **{f"conv_{family}": (None, 700) for family in ("simt", "mma", "depthwise")},
    "conv_tap_products": (None, 400),
    "conv_wgmma": (300, 700),
    "conv_wgmma_packed": (300, 400),
    "conv_wgmma_phased": (300, 400),
    "conv_wgmma_few_channels": (200, 400),
    "conv_wgmma_interleaved": (300, 300),
    "conv_wgmma_row_taps": (300, 400),
    "conv_wgmma_tiled": (300, 400),
    "conv_wgmma_by_image": (300, 400),
    "conv_wgmma_groups": (300, 400),
    "quantized_mma": (700, 500),
    "quantized_wgmma": (700, 500),
    "winograd": (200, 400),
    "winograd_4x4": (200, 400),
}


@pytest.fixture(scope="module")
def driver(random_kernels_driver):
    return random_kernels_driver


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in FAMILIES])
def made(driver, request):
    """A family's random cases, each with its plan, its PTX, and the assembler's result: spilled bytes, or the error."""
    source, (limit, count) = SOURCES[request.param], FAMILIES[request.param]
    if not source.supports(driver.device):
        pytest.skip(f"{driver.device.name} does not run kernels of {source.name}")

    def build(pair):
        plan, source = generate(*pair, driver)
        try:
            return *pair, plan, source, {k: n for k, n in assemble(source).spills.items() if n}
        except AssembleError as error:
            return *pair, plan, source, str(error).splitlines()[0]

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(build, source.cases(41, count, driver.device, limit)))


def fail(bad, count) -> None:
    """Fails with the first lines of ``bad`` alone, if there are any."""
    if bad:
        pytest.fail("\n".join([f"{len(bad)} of {count}: {bad[0]}", *bad[1:SHOWN]]), pytrace=False)


def matrices(runner, p, arrays, alpha, beta):
    """The pair (expected result, a launch that returns the result and whether memory between its rows is unchanged)."""
    others = {name: arrays[name] for name in p.arrays if name in ("scales", "zeros")}
    stored, poison = padded(p, arrays) | others, p.output.poison
    used = arrays | {"A": elements(p, A, stored["A"]), "B": elements(p, B, stored["B"])}
    expected = reference(p, used, alpha, beta)

    def launch():
        out = runner.compute(stored, alpha, beta)["C"]
        got = elements(p, C, out).copy()
        elements(p, C, out)[...] = poison
        return got, np.array_equal(out, np.full_like(out, poison), equal_nan=not p.output.integer)

    return expected, launch


def images(runner, p, arrays, alpha, beta):
    """The same for a convolution, with guard zones around the result; operands must not change either."""

    def launch():
        outputs, unchanged = guarded(runner, arrays, alpha, beta)
        return outputs["C"], unchanged

    return reference(p, arrays, alpha, beta), launch


def wrong(runner, p, inputs, seed, alpha, beta) -> str:
    """The error of two consecutive launches, or ""."""
    arrays = operands(p, seed, inputs) | epilogue_arrays(p, seed, inputs)
    if isinstance(p, QuantizedGemm):
        arrays |= quantized_arrays(p, seed, inputs)
    beta = 0.0 if p.gated else beta
    if beta == 0:
        arrays["C"] = np.full_like(arrays["C"], p.output.poison)
    prepare = images if isinstance(p, Conv) else matrices
    expected, launch = prepare(runner, p, arrays, alpha, beta)
    for name in ("first", "second"):
        got, unchanged = launch()
        deviation = compare(got, expected)
        if not deviation.ok:
            return f"{name} launch: {deviation}"
        exact = registry.of(runner.plan.config).exact_integers
        if (
            inputs == "integers"
            and exact
            and not p.epilogue
            and not np.array_equal(got.astype(np.float64), expected.rounded)
        ):
            return f"{name} launch: not exact"
        if not unchanged:
            return f"{name} launch: written outside the result"
    return ""


def find_errors(driver, pairs, inputs, alpha, beta) -> list[str]:
    """The errors, a line each. ``pairs``: (problem, configuration, plan, loaded kernel). Workspaces are shared: a
    kernel that does not clear its flags breaks the next one."""
    workspace, bad = Workspace(driver), []
    for n, (p, c, plan, kernel) in enumerate(pairs):
        case = f"{p.key()} | {c} | {inputs}, alpha={alpha:g}, beta={beta:g}"
        try:
            deviation = wrong(Runner(driver, plan, kernel, p, workspace), p, inputs, n, alpha, beta)
        except PtxgenError as error:
            return [f"{case}: {str(error).splitlines()[0]}", *bad]  # a fault: nothing runs after it
        if deviation:
            bad.append(f"{case}: {deviation}")
    workspace.release()
    return bad


@pytest.fixture(scope="module")
def loaded(driver, made):
    """The loaded kernels of the cases that the assembler accepted, with spills or without."""
    return [(p, c, plan, driver.load(source)) for p, c, plan, source, output in made if isinstance(output, dict)]


def test_kernels_assemble_without_spills(made):
    fail([f"{p.key()} | {c}: {output}" for p, c, _, _, output in made if output], len(made))


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("inputs", INPUTS)
def test_random_kernels_are_right(driver, loaded, inputs, scales):
    """Every case, twice; memory between rows and around results is poisoned."""
    fail(find_errors(driver, loaded, inputs, *scales), len(loaded))
