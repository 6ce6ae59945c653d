"""The results that a NaN of an operand reaches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ptxgen.codegen.config.config import Config, parse_config
from ptxgen.operations.conv.problem import Conv
from ptxgen.problem.reference import reference
from ptxgen.runtime.emulated import EmulatedDriver
from ptxgen.runtime.runner import Runner
from ptxgen.tuning.selection import select

WINOGRAD = Conv(1, 16, 8, 8, 16, 3, 3, padding=1, layout="NHWC")
FOLDED = Conv(1, 3, 9, 40, 3, 3, 3, padding=1)


def reached(p: Conv, config: Config, value: float) -> tuple[Any, Any]:
    """The pair (the results of positive operands of which one element of A is replaced, which of them depend on the element)."""
    rng, driver = np.random.default_rng(0), EmulatedDriver()
    arrays = {n: rng.integers(1, 4, shape).astype(np.float32) for n, shape in zip("ABC", p.stored, strict=True)}
    other = {name: x.copy() for name, x in arrays.items()}
    element = other["A"].reshape(-1)[other["A"].size // 2 :]
    element[0] += 1
    depend = reference(p, other).exact != reference(p, arrays).exact
    element[0] = value
    return Runner.of(driver, p, config).compute(other)["C"].reshape(depend.shape), depend


@pytest.mark.each_value
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    "p",
    [
        WINOGRAD,
        FOLDED,
        replace(FOLDED, layout="NHWC", filters=""),
        replace(WINOGRAD, direction="weight_grad"),
        Conv(1, 8, 9, 9, 8, 3, 3, stride=2, padding=1, direction="input_grad"),
        Conv(1, 4, 9, 9, 4, 3, 3, padding=1, groups=4),
    ],
    ids=lambda p: p.key(),
)
def test_exact_nonfinite_reaches_what_depends_on_it(p: Conv, value: float) -> None:
    exact = replace(p, exact_nonfinite=True)
    reach, depend = reached(exact, select(exact, EmulatedDriver().device)[0].config, value)
    assert 0 < depend.sum() < depend.size
    np.testing.assert_array_equal(np.isfinite(reach), ~depend)
    np.testing.assert_array_equal(np.isinf(reach), depend & np.isinf(value))


@pytest.mark.parametrize(
    ("p", "text", "value"),
    [
        (WINOGRAD, "family=winograd ms=2 ns=2 ml=16 nl=16 u=8", np.inf),
        (replace(WINOGRAD, c=32, k=32), "family=winograd_4x4 ms=2 ns=2 ml=16 nl=16 u=8", np.nan),
        (FOLDED, "ms=2 ns=2 ml=16 nl=16 u=8", np.nan),
    ],
    ids=["winograd", "winograd_4x4", "folded"],
)
def test_other_kernels_reach_more(p: Conv, text: str, value: float) -> None:
    reach, depend = reached(p, parse_config(text), value)
    assert not np.isfinite(reach[depend]).any()
    if np.isnan(value):
        assert np.isnan(reach).sum() > depend.sum()
    else:
        assert np.isnan(reach).any()  # differences of infinities
