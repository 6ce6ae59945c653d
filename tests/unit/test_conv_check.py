"""Checks of convolutions: parts of results in float64, mistakes that must be noticed."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen import conv_check
from ptxgen.check import CASES, check
from ptxgen.config import Config
from ptxgen.conv import Conv
from ptxgen.conv_check import ConvRing, adjoint, guarded, part
from ptxgen.device import device
from ptxgen.dispatch import select
from ptxgen.drivers import Timing
from ptxgen.drivers.emulated import EmulatedDriver
from ptxgen.reference import compare, epilogue_arrays, operands, reference

#: 1x1 filters on NHWC: a plain product, which any family computes
PLAIN = Conv(2, 8, 5, 5, 16, 1, 1, layout="NHWC", filters="CRSK")

SEVERAL = [
    Conv(5, 4, 7, 6, 6, 3, 3, padding=1, epilogue="bias,residual,relu"),
    Conv(5, 4, 7, 6, 6, 3, 3, stride=2, groups=2, layout="NHWC", epilogue="bias"),
    Conv(3, 4, 7, 6, 6, 3, 3, layout="CHWN", epilogue="bias,residual"),
    Conv(3, 4, 7, 6, 6, 3, 3, groups=2, layout="CHWN", padding=(1, 0, 2, 1)),
    Conv(3, 4, 7, 6, 6, 3, 2, stride=2, direction="input_grad"),
    Conv(3, 4, 7, 6, 6, 3, 2, layout="CHWN", direction="input_grad"),
    Conv(3, 4, 7, 6, 6, 3, 2, padding=1, direction="weight_grad"),
    Conv(3, 4, 7, 6, 6, 3, 2, layout="CHWN", direction="weight_grad"),
    Conv(3, 4, 7, 6, 6, 3, 2, layout="NHWC", groups=2, direction="weight_grad"),
    Conv(2, 3, 5, 5, 4, 3, 3, d=4, t=2, padding=1, epilogue="residual"),
]


@pytest.mark.parametrize("p", SEVERAL, ids=lambda p: p.key())
def test_a_part_of_the_result_is_what_the_whole_has_there(p: Conv) -> None:
    a, b, _ = operands(p, 1)
    more = epilogue_arrays(p, 1)
    whole = reference(p, a, b, more=more)
    size = whole.exact.size
    for first, last in ((0, size), (0, 3), (size // 3, size // 3 + size // 5), (size - 7, size)):
        found = part(p, a, b, more, first, last)
        np.testing.assert_allclose(found.exact, whole.exact.reshape(-1)[first:last])
        np.testing.assert_allclose(found.scale, whole.scale.reshape(-1)[first:last])
        assert compare(whole.exact.reshape(-1)[first:last].astype(p.output.numpy), found).ok


@pytest.mark.parametrize("p", [replace(p, epilogue="") for p in SEVERAL], ids=lambda p: p.key())
def test_gradients_are_adjoint_in_float64(p: Conv) -> None:
    a, b, _ = operands(p, 2, "integers")
    exact = reference(p, a, b).exact
    left, right = adjoint(p, a, b, exact, 3)
    assert left == right
    wrong = exact.copy()
    wrong.flat[0] += 1
    wrong.flat[1:] = exact.flat[1:]
    sides = [adjoint(p, a, b, wrong, seed) for seed in range(8)]
    assert any(x != y for x, y in sides)


def runs(p: Conv, limit: int) -> list[tuple[int, int]]:
    ring = ConvRing(EmulatedDriver(), p, Timing())
    return list(ring.runs(limit))


def test_runs_reach_from_the_first_result_to_the_last() -> None:
    size = 2 * 16 * 25
    assert runs(PLAIN, size) == [(0, size)]
    few = runs(PLAIN, 80)
    assert (few[0][0], few[-1][1], len(few)) == (0, size, conv_check.RUNS)
    assert sum(last - first for first, last in few) <= 80
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(few))


@pytest.mark.parametrize("p", SEVERAL[3:9:5], ids=lambda p: p.key())
def test_a_ring_compares_runs_of_any_problem(p: Conv, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where groups keep it from being cut, the whole is computed once."""
    driver, parts = EmulatedDriver(), []

    def noted(*arguments: Any) -> Any:
        parts.append(arguments[-2:])
        return part(*arguments)

    monkeypatch.setattr(conv_check, "part", noted)
    ring = ConvRing(driver, p, Timing())
    result = reference(p, ring.a, ring.b, more=ring.more).exact.astype(p.output.numpy)
    driver.upload(ring.sets[0][2], result)
    assert ring.deviation(64).ok
    assert len(parts) == (1 if not conv_check.cuts(p) else conv_check.RUNS)
    driver.fill(ring.sets[0][2] + result.nbytes - 4, 4, 0x7F)
    found = ring.deviation(64)
    assert not found.ok
    assert found.where == tuple(n - 1 for n in result.shape)


def chosen(p: Conv, driver: EmulatedDriver) -> Config:
    return select(p, driver.device)[0].config


def test_a_right_kernel_passes_every_kind() -> None:
    driver = EmulatedDriver()
    found = check(driver, PLAIN, chosen(PLAIN, driver))
    assert [r.kind for r in found][:2] == ["integers", "adjoint"]
    assert len(found) == len(CASES) + 1
    assert all(r.ok for r in found)


@pytest.mark.parametrize("spoilt", ["result", "zone", "operand"])
def test_a_mistake_is_noticed(spoilt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device computed is changed behind the check's back."""
    driver = EmulatedDriver()

    def wrong(*arguments: Any) -> Any:
        out, kept = guarded(*arguments)
        if spoilt == "result":
            out = out.copy()
            out.flat[17] += 1
        return out, kept and spoilt == "result"

    monkeypatch.setattr(conv_check, "guarded", wrong)
    found = check(driver, PLAIN, chosen(PLAIN, driver))
    assert not any(r.ok for r in found if r.kind != "adjoint")
    assert found[0].deviation.where == (np.unravel_index(17, (2, 5, 5, 16)) if spoilt == "result" else (-1,))


def test_a_write_beside_the_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, p = EmulatedDriver(), PLAIN
    runner = conv_check.Runner.of(driver, p, chosen(p, driver))
    a, b, c = operands(p, 0, "integers")
    assert guarded(runner, a, b, c, 1.0, 0.0, ())[1]
    bind = runner.bind

    def beside(first: int, second: int, result: int, *rest: Any) -> Any:
        go = bind(first, second, result, *rest)
        return lambda: (go(), driver.fill(result + c.nbytes, 4))

    monkeypatch.setattr(runner, "bind", beside)
    assert not guarded(runner, a, b, c, 1.0, 0.0, ())[1]
    monkeypatch.setattr(runner, "bind", lambda x, y, *rest: lambda: (bind(x, y, *rest)(), driver.fill(y, 4, 1)))
    assert not guarded(runner, a, b, c, 1.0, 0.0, ())[1]


def test_measurements_compare_a_part_or_everything() -> None:
    from ptxgen.bench import Bench

    driver = EmulatedDriver()
    work = Bench(driver)
    for full in (False, True):
        found = work.measure(PLAIN, chosen(PLAIN, driver), full=full)
        assert found.outcome == "ok", found.message
    ring = work.ring_for(PLAIN, Timing())
    assert isinstance(ring, ConvRing)
    driver.fill(ring.sets[0][2], 4)
    assert not ring.deviation(8).ok
    assert ring.deviation(1 << 40).where == (0, 0, 0, 0)
    assert device("emulated").name == driver.device.name
