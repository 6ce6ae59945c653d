"""The GPU test of random kernels, run on the emulated device: some of its sources, and whether it finds errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxgen.codegen.config.config import parse_config
from ptxgen.codegen.render import render
from ptxgen.families.plan_factory import plan_for
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.checks import GUARD
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.gemm.problem import Gemm
from ptxgen.problem.device import device
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from tests.cases import SOURCES
from tests.gpu.test_families import FAMILIES, fail, find_errors, wrong

H200 = device("h200")
ANY = parse_config("ms=2 ns=2 ml=16 nl=16 cp_async_a=0 cp_async_b=0 stages=2")


def small(family):
    """The first case of a source whose product is small."""
    cases = SOURCES[family].cases(41, 50, H200, limit=48)
    return next((p, c) for p, c in cases if lower(p).batch * lower(p).m * lower(p).n * lower(p).k < 3e5)


@pytest.mark.parametrize("family", [*FAMILIES][::3])
def test_a_case_of_some_sources(family):
    driver = EmulatedDriver(H200)
    p, c = small(family)
    plan = plan_for(p, c, H200)
    assert not find_errors(driver, [(p, c, plan, driver.load(render(plan)))], "integers", 2.0, 1.0)


class Corrupting(EmulatedDriver):
    """Changes one byte of a download: ``where`` of the ``nth`` download."""

    where, nth = 0, 0

    def download(self, address, array):
        super().download(address, array)
        self.nth -= 1
        if self.nth == 0 and array.size:
            array.reshape(-1).view(np.uint8)[self.where] ^= 0x55


@pytest.mark.parametrize("p", [Gemm(5, 6, 7, ldc=8), Conv(1, 2, 3, 4, 2, 2, 2)], ids=["gemm", "conv"])
@pytest.mark.parametrize(
    ("where", "nth", "message"),
    [
        ("result", 1, "first launch: "),
        ("outside", 1, "first launch: written outside the result"),
        ("result", 2, "second launch: "),
    ],
)
def test_corrupted_results_are_found(p, where, nth, message):
    driver = Corrupting(H200)
    runner = Runner.of(driver, p, ANY)
    per_launch = 1 if isinstance(p, Gemm) else 3  # guards look at the operands, too
    driver.nth = 1 + (nth - 1) * per_launch
    gemm = {"result": 3, "outside": 6 * 4 + 3}
    conv = {"result": GUARD + 3, "outside": 3}
    driver.where = (gemm if isinstance(p, Gemm) else conv)[where]
    assert wrong(runner, p, "normal", 0, 1.0, 0.0).startswith(message)


def test_failure_names_only_the_first_cases():
    with pytest.raises(pytest.fail.Exception) as output:
        fail([f"pair {n}" for n in range(9)], 20)
    assert str(output.value).splitlines() == ["9 of 20: pair 0", "pair 1", "pair 2", "pair 3"]
    fail([], 20)


def test_faulting_kernel_is_named_first():
    driver = EmulatedDriver(H200)
    p = Gemm(5, 6, 7)
    plan = plan_for(p, ANY, H200)
    source = render(plan)
    bad = replace(source, text=source.text.replace("ld.global", "st.global.b32 [%A+1], %tmp0;\n    ld.global", 1))
    kernels = [driver.load(x) for x in (source, bad, source)]
    (output,) = find_errors(driver, [(p, ANY, plan, kernel) for kernel in kernels], "integers", 1.0, 0.0)
    assert output.startswith(f"{p.key()} | {ANY} | integers, alpha=1, beta=0: ")
    assert "\n" not in output
