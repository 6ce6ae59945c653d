"""cuDNN as a baseline, where there is none."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from ptxgen.baselines import BASELINES, cudnn
from ptxgen.conv import Conv
from ptxgen.drivers import Timing
from ptxgen.errors import ShapeError, UnavailableError

P = Conv(2, 8, 5, 5, 16, 1, 1, layout="NHWC")


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is here")
def test_without_pytorch_the_error_says_what_to_install() -> None:
    driver: Any = None
    assert cudnn.available() is None
    with pytest.raises(UnavailableError, match="pip install torch"):
        BASELINES["cudnn"].best(driver, P, [(0, 0, 0)], Timing())


def test_an_extent_of_zero_is_refused() -> None:
    driver: Any = None
    with pytest.raises(ShapeError, match="an extent is 0"):
        cudnn.Cudnn(driver, Conv(0, 8, 5, 5, 16, 1, 1))
