"""Boxes of pixels that TMA loads with an im2col map, against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.runtime.open_driver import open_driver
from tests.im2col import cases, rounded, source

pytestmark = pytest.mark.gpu


def test_im2col_boxes():
    driver = open_driver("cuda")
    if driver.device.sm != 90:
        pytest.skip(f"{driver.device.name} has no TMA")
    kernels = {rank: driver.load(source(rank)) for rank in (3, 4, 5)}
    wrong = []
    for n, case in enumerate(cases(8, 400)):
        x = case.image(n)
        want = case.columns(x)
        got = case.run(driver, kernels[len(case.map.extents)], x)
        if not np.array_equal(got, rounded(want) if case.map.dtype == "tf32" else want):
            wrong.append(case)
    assert not wrong, f"{len(wrong)} of 400:\n" + "\n".join(map(str, wrong[:10]))
