"""The operation ``conv``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptxgen.install_advice import install
from ptxgen.operations.conv import random_problems
from ptxgen.operations.conv.c_form import C_FORM
from ptxgen.operations.conv.problem import DIRECTIONS, Conv
from ptxgen.operations.conv.reference import product, slices
from ptxgen.operations.conv.suites import SUITES, TITLES, cells
from ptxgen.problem.operation import (
    HEURISTIC,
    Baseline,
    Installation,
    Operation,
    RandomProblems,
    VendorCalls,
    VendorKernel,
)

if TYPE_CHECKING:
    from ptxgen.codegen.config.config import Config
    from ptxgen.lowering.kernel_problem import KernelProblem
    from ptxgen.operations.conv.checks import ConvOperandSets
    from ptxgen.runtime.check import CheckResult
    from ptxgen.runtime.driver import Driver, Timing


def _lowering(v: Conv) -> KernelProblem:
    from ptxgen.operations.conv.lowering import lower_conv  # 20 ms, which no other operation needs

    return lower_conv(v)


def _checks(driver: Driver, p: Conv, config: Config, seed: int, row_padding: int) -> Iterable[CheckResult]:
    from ptxgen.operations.conv.checks import check_conv

    return check_conv(driver, p, config, seed, row_padding)


def _operand_sets(driver: Driver, p: Conv, timing: Timing) -> ConvOperandSets:
    from ptxgen.operations.conv.checks import ConvOperandSets

    return ConvOperandSets(driver, p, timing)


def _plain(p: Conv) -> Conv:
    """The convolution without an epilogue; ``p`` itself if that one has other operands of the GEMM, as in most layouts
    with a gated activation."""
    plain = replace(p, epilogue="")
    product, other = p.one_pixel, plain.one_pixel
    return plain if (other.swapped, other.fold, other.c) == (product.swapped, product.fold, product.c) else p


def _cudnn() -> Callable[..., Any]:
    from ptxgen.operations.conv import cudnn

    cudnn.load_torch()
    return cudnn.Cudnn


def _cudnn_version() -> str | None:
    from ptxgen.operations.conv import cudnn

    return cudnn.available()


def _search(driver: Any, p: Conv, sets: Any, timing: Any) -> str:
    """The text that stands for the choice of cuDNN's heuristic: PyTorch's calls use this algorithm, and cannot name
    another one."""
    return HEURISTIC


def _kernel(driver: Any, p: Conv, text: str) -> VendorKernel:
    from ptxgen.operations.conv.cudnn_kernel import CudnnKernel

    return CudnnKernel(driver, p, text)


def _computes(p: Conv) -> bool:
    from ptxgen.operations.conv.cudnn_kernel import unsupported

    return not unsupported(p)


_CUDNN = Installation(_cudnn_version, "not installed with PyTorch", lambda: install("torch"))
_FEATURES: dict[str, Callable[[Conv], float]] = {
    "direction": lambda p: DIRECTIONS.index(p.direction),
    "channels_last": lambda p: p.layout == "NHWC",
    "taps": lambda p: p.t * p.r * p.s,
    "channels": lambda p: math.log2(max(p.c // p.groups, 1)),
    "filters": lambda p: math.log2(max(p.k // p.groups, 1)),
    "groups": lambda p: math.log2(p.groups),
    "stride": lambda p: math.prod(p.strides),
    "dilation": lambda p: math.prod(p.dilations),
    "images": lambda p: math.log2(max(p.n, 1)),
    "pixels": lambda p: math.log2(max(p.d * p.h * p.w, 1)),
}
_CALLS = VendorCalls(_cudnn_version, _search, _kernel, _FEATURES, _computes)

CONV = Operation(
    Conv,
    lowering=_lowering,
    product=product,
    slices=slices,
    plain=_plain,
    checks=_checks,
    operand_sets=_operand_sets,
    titles=TITLES,
    cells=cells,
    suites=SUITES,
    baselines={"cudnn": Baseline("cudnn", "cuDNN", _cudnn, _CUDNN, calls=_CALLS)},
    c_form=C_FORM,
    random_problems={"conv": RandomProblems(random_problems.conv, 0.22, random_problems.varied)},
)
