"""Checks of convolutions: parts of results in float64, and errors that must be reported."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import Config
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv import checks as conv_check
from ptxgen.operations.conv import reference as conv_reference
from ptxgen.operations.conv.checks import ConvOperandSets, adjoint, boxes, guarded
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.conv.reference import region_slices
from ptxgen.problem.device import device
from ptxgen.problem.reference import compare, epilogue_arrays, operands, reference
from ptxgen.runtime.check import CASES, check
from ptxgen.runtime.driver import Timing
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.tuning.measure.bench import CHECKED_ELEMENTS
from ptxgen.tuning.selection import select

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
    Conv(3, 4, 7, 6, 8, 3, 2, dtype="f16", groups=2, epilogue="bias,swiglu"),
    Conv(3, 4, 7, 6, 8, 3, 2, dtype="f16", layout="CHWN", epilogue="geglu"),
    Conv(2, 3, 5, 5, 8, 3, 3, d=4, t=2, dtype="bf16", layout="NHWC", epilogue="bias,x*(up+1)"),
]


@pytest.mark.parametrize("p", SEVERAL, ids=lambda p: p.key())
def test_reference_of_a_box_is_a_part_of_the_whole(p: Conv) -> None:
    a, b, _ = operands(p, 1).values()
    more = epilogue_arrays(p, 1)
    all_ = reference(p, {"A": a, "B": b, **more})
    assert all_.exact.shape == p.stored[2]
    extents = p.extents(p.tensors[2])
    few = [{name: slice(extent - 1, extent)} for name, extent in extents.items() if name not in "kc" or p.groups == 1]
    few.append({name: slice(extent // 3, extent) for name, extent in extents.items() if name not in "kc"})
    letter = "c" if p.direction == "input_grad" else "k"
    few.append({letter: slice(extents[letter] // 2, extents[letter])})  # the last group, where there are two
    for box in [*few, *boxes(p, 40)]:
        at = region_slices(p, box)
        computed = reference(p, {"A": a, "B": b, **more}, box=box)
        np.testing.assert_allclose(computed.exact, all_.exact[at], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(computed.scale, all_.part(at).scale)
        assert compare(all_.exact[at].astype(p.output.numpy), computed).ok


@pytest.mark.parametrize("p", SEVERAL, ids=lambda p: p.key())
def test_sums_do_not_depend_on_the_chunk_size(p: Conv, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, _ = operands(p, 3, "integers").values()
    at_once = conv_reference.convolve(p, a, b)
    for held in (1, 200, 1000):
        monkeypatch.setattr(conv_reference, "UNFOLDED_ELEMENTS", held)
        assert np.array_equal(conv_reference.convolve(p, a, b), at_once)


@pytest.mark.parametrize("p", [replace(p, epilogue="") for p in SEVERAL], ids=lambda p: p.key())
def test_gradients_are_adjoint_in_float64(p: Conv) -> None:
    a, b, _ = operands(p, 2, "integers").values()
    exact = reference(p, {"A": a, "B": b}).exact
    left, right = adjoint(p, {"A": a, "B": b}, exact, 3)
    assert left == right
    wrong = exact.copy()
    wrong.flat[0] += 1
    wrong.flat[1:] = exact.flat[1:]
    sides = [adjoint(p, {"A": a, "B": b}, wrong, seed) for seed in range(8)]
    assert any(x != y for x, y in sides)


def test_boxes_contain_the_first_and_the_last_result() -> None:
    assert [region_slices(PLAIN, box) for box in boxes(PLAIN, 2 * 16 * 25)] == [region_slices(PLAIN, {})]
    for p in SEVERAL:
        size = math.prod(p.stored[2])
        few = [region_slices(p, box) for box in boxes(p, size // 2)]
        assert len(few) == conv_check.RUNS
        assert all(s.start == 0 for s in few[0])
        assert [s.stop for s in few[-1]] == list(p.stored[2])
        assert all(0 <= s.start < s.stop <= extent for at in few for s, extent in zip(at, p.stored[2], strict=True))
        if p.groups == 1:
            assert sum(math.prod(s.stop - s.start for s in at) for at in few) <= max(size // 2, conv_check.RUNS)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "CHWN"])
@pytest.mark.parametrize("direction", ["forward", "input_grad", "weight_grad"])
def test_comparison_of_a_large_result_is_bounded(layout: str, direction: str) -> None:
    """Neither sums that take longer than the search, nor many small copies from the device."""
    p = Conv(16, 64, 350, 80, 128, 5, 5, stride=2, padding=1, layout=layout, direction=direction)
    few = [region_slices(p, box) for box in boxes(p, CHECKED_ELEMENTS)]
    compared = [math.prod(s.stop - s.start for s in at) for at in few]
    assert sum(compared) * max(lower(p).k, conv_check.DEPTH) > CHECKED_ELEMENTS * conv_check.DEPTH // 4
    assert sum(compared) * lower(p).k <= CHECKED_ELEMENTS * conv_check.DEPTH
    copies: list[int] = []
    operand_sets = object.__new__(ConvOperandSets)
    operand_sets.problem, operand_sets.sets = p, [{"C": 0}]
    operand_sets.driver = EmulatedDriver()
    operand_sets.driver.download = lambda address, array: copies.append(array.size)  # type: ignore[method-assign]
    for box in boxes(p, CHECKED_ELEMENTS):
        operand_sets._result(box)
    assert sum(copies) == sum(compared)
    assert len(copies) <= conv_check.RUNS * conv_check.CHANNELS


@pytest.mark.parametrize("p", SEVERAL, ids=lambda p: p.key())
def test_operand_sets_compare_boxes_of_any_problem(p: Conv, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, made = EmulatedDriver(), []

    def noted(*arguments: Any, **options: Any) -> Any:
        made.append(options)
        return reference(*arguments, **options)

    monkeypatch.setattr(conv_check, "reference", noted)
    operand_sets = ConvOperandSets(driver, p, Timing())
    exact = reference(p, operand_sets.arrays).exact
    driver.upload(operand_sets.sets[0]["C"], exact.astype(p.output.numpy))
    few = len({str(region_slices(p, box)) for box in boxes(p, 64)})
    for limit, count in ((64, few), (64, 0), (1 << 40, 1), (1 << 40, 0), (48, 0)):
        made.clear()
        assert operand_sets.deviation(limit).ok
        assert len(made) == count, "float64 results are cached, and parts are cut from the whole"
    driver.fill(operand_sets.sets[0]["C"] + (exact.size - 1) * p.output.bytes, p.output.bytes, 0x7F)
    for limit in (64, 1 << 40):
        deviation = operand_sets.deviation(limit)
        assert not deviation.ok
        assert deviation.where == tuple(n - 1 for n in exact.shape)


def chosen(p: Conv, driver: EmulatedDriver) -> Config:
    return select(p, driver.device)[0].config


def test_right_kernel_passes_every_kind() -> None:
    driver = EmulatedDriver()
    deviation = check(driver, PLAIN, chosen(PLAIN, driver))
    assert [r.inputs for r in deviation][:2] == ["integers", "adjoint"]
    assert len(deviation) == len(CASES) + 1
    assert all(r.ok for r in deviation)


@pytest.mark.parametrize("corrupted", ["result", "zone", "operand"])
def test_wrong_result_is_found(corrupted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's result is changed after the kernel ran."""
    driver = EmulatedDriver()

    def wrong(*arguments: Any) -> Any:
        outputs, unchanged = guarded(*arguments)
        if corrupted == "result":
            outputs["C"] = outputs["C"].copy()
            outputs["C"].flat[17] += 1
        return outputs, unchanged and corrupted == "result"

    monkeypatch.setattr(conv_check, "guarded", wrong)
    deviation = check(driver, PLAIN, chosen(PLAIN, driver))
    assert not any(r.ok for r in deviation if r.inputs != "adjoint")
    assert deviation[0].deviation.where == (np.unravel_index(17, (2, 5, 5, 16)) if corrupted == "result" else (-1,))


def test_write_outside_the_result_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, p = EmulatedDriver(), PLAIN
    runner = conv_check.Runner.of(driver, p, chosen(p, driver))
    a, b, c = operands(p, 0, "integers").values()
    assert guarded(runner, {"A": a, "B": b, "C": c}, 1.0, 0.0)[1]
    bind = runner.bind

    def outside(addresses: dict[str, int], *rest: Any) -> Any:
        go = bind(addresses, *rest)
        return lambda: (go(), driver.fill(addresses["C"] + c.nbytes, 4))

    monkeypatch.setattr(runner, "bind", outside)
    assert not guarded(runner, {"A": a, "B": b, "C": c}, 1.0, 0.0)[1]
    monkeypatch.setattr(runner, "bind", lambda at, *rest: lambda: (bind(at, *rest)(), driver.fill(at["B"], 4, 1)))
    assert not guarded(runner, {"A": a, "B": b, "C": c}, 1.0, 0.0)[1]


def test_measurements_compare_a_part_or_everything() -> None:
    from ptxgen.tuning.measure.bench import Bench

    driver = EmulatedDriver()
    work = Bench(driver)
    for full in (False, True):
        measurement = work.measure(PLAIN, chosen(PLAIN, driver), full=full)
        assert measurement.outcome == "ok", measurement.message
    operand_sets = work.operand_sets_for(PLAIN, Timing())
    assert isinstance(operand_sets, ConvOperandSets)
    driver.fill(operand_sets.sets[0]["C"], 4)
    assert not operand_sets.deviation(8).ok
    assert operand_sets.deviation(1 << 40).where == (0, 0, 0, 0)
    assert device("emulated").name == driver.device.name
