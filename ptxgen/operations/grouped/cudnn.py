"""The baseline cuDNN for grouped products: every item is a 1x1 convolution, as in an Inception module."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ptxgen.errors import LaunchError, ShapeError
from ptxgen.operations.conv.cudnn import Cudnn
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.grouped.problem import GroupedGemm
from ptxgen.problem.operation import VendorTimes
from ptxgen.runtime.cuda import CudaDriver
from ptxgen.runtime.driver import Timing


class CudnnGrouped:
    """A grouped product that cuDNN computes, one convolution after the other, on tensors that this object allocates.
    Layouts, leading dimensions and ``addresses`` are not used.

    UnavailableError: PyTorch is missing, or has no cuDNN. ShapeError: all items are empty.
    """

    def __init__(self, driver: CudaDriver, problem: GroupedGemm, addresses: Mapping[str, int] | None = None) -> None:
        layers = [convolution(problem, i) for i, extents in enumerate(problem.items) if all(extents)]
        if not layers:
            raise ShapeError(f"{problem.key()}: all items are empty, which cuDNN does not support")
        self.layers = [Cudnn(driver, layer) for layer in layers]

    def best(self, sets: Sequence[Mapping[str, int]], timing: Timing) -> VendorTimes:
        """The time of all items in microseconds: the sum of cuDNN's fastest times. ``sets``: their number is the number
        of tensor sets used in rotation. LaunchError: cuDNN does not compute an item."""
        known: dict[Conv, float] = {}
        for layer in self.layers:
            if layer.problem not in known:
                known[layer.problem] = layer.best(sets, timing).best
        return VendorTimes(sum(known[layer.problem] for layer in self.layers))


def convolution(problem: GroupedGemm, item: int) -> Conv:
    """Item ``item`` as a 1x1 convolution of one image with M pixels, from K channels to N channels. The image is square
    if M is a square number."""
    m, n, k = problem.items[item]
    side = math.isqrt(m)
    h, w = (side, side) if side * side == m else (1, m)
    p = problem
    if p.gated:
        raise LaunchError(f"epilogue is {p.epilogue!r}; convolutions have no gated activation")
    return Conv(1, k, h, w, n, 1, 1, dtype=p.dtype, compute=p.compute, out=p.out, epilogue=p.epilogue)
