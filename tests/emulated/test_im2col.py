"""TMA im2col boxes on the emulated device; tests/gpu/test_im2col.py runs the same on hardware."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.codegen.source import PixelBox, TensorMap
from ptxgen.errors import LaunchError
from ptxgen.runtime.emulated import EmulatedDriver
from tests.im2col import cases, rounded, source


@pytest.mark.parametrize("completion", ["early", "late"])
def test_im2col_boxes(completion):
    driver = EmulatedDriver(completion=completion)
    kernels = {rank: driver.load(source(rank)) for rank in (3, 4, 5)}
    for n, case in enumerate(cases(7, 60)):
        x = case.image(n)
        want = case.columns(x)
        got = case.run(driver, kernels[len(case.map.extents)], x)
        assert np.array_equal(got, rounded(want) if case.map.dtype == "tf32" else want), case


def test_maps_beyond_the_limits_are_refused():
    pixel_box = PixelBox((-129, 0), (0, 0), (1, 1))
    described = TensorMap("A", "f16", (64, 8, 8, 1), (128, 1024, 8192), (64, 8), 128, pixel_box)
    with pytest.raises(LaunchError, match=r"lower\[0\] is -129"):
        EmulatedDriver().tensor_map(described, 1 << 20)
