"""The operation ``conv``."""

from __future__ import annotations

from ptxgen.problem.conv import Conv
from ptxgen.problem.conv_reference import Array, Box, convolve, region_slices
from ptxgen.problem.conv_suites import SUITES, TITLES, cells
from ptxgen.problem.operation import Baseline, Operation, RandomKind


def product(v: Conv, a: Array, b: Array, region: Box | None = None) -> tuple[Array, Array]:
    """Σab and Σ|a||b| of each element of the result, or of a box of the result, in float64."""
    return convolve(v, a, b, region, False), convolve(v, a, b, region, True)


def slices(v: Conv, region: Box | None = None) -> tuple[slice, ...]:
    return region_slices(v, region) if region else ()


CONV = Operation(
    Conv,
    lowering="ptxgen.lowering.conv_to_gemm:lower_conv",
    product=product,
    slices=slices,
    checks="ptxgen.runtime.conv_check:check_conv",
    operand_sets="ptxgen.runtime.conv_check:ConvOperandSets",
    titles=TITLES,
    cells=cells,
    suites=SUITES,
    baselines={
        "cudnn": Baseline("cudnn", "cuDNN", "ptxgen.runtime.vendor.cudnn:Cudnn", "ptxgen.runtime.vendor.cudnn:_torch")
    },
    random_kinds={"conv": RandomKind("ptxgen.tuning.random_conv:conv", 0.22, "ptxgen.tuning.random_conv:varied")},
)
