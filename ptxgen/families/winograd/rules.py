"""The rules of legal configurations of Winograd families: their own, and those of FMA kernels for the products."""

from __future__ import annotations

from ptxgen.codegen.config.config import SPLIT_WORKSPACE
from ptxgen.codegen.config.rule import Rule
from ptxgen.families.common.fma.rules import RULES as FMA_RULES
from ptxgen.families.winograd.axes import TILES
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.winograd import LEAST_CHANNELS, LEAST_PIXELS, MOST_PADDING, winograd


def scope(family: str) -> str:
    """A text: the convolutions that ``family`` computes."""
    tile = TILES[family]
    padding = ""
    if (most := MOST_PADDING.get(tile)) is not None:
        padding = f", with at most {most} row and column of padding on each side, input gradients with at least {most}"
    return (
        f"f32 convolutions and their gradients, with 3x3 filters,"
        f" stride 1, dilation 1, one group and at least {LEAST_CHANNELS[tile]} channels of images and results{padding},"
        f" and for weight gradients at least {LEAST_PIXELS[tile]} rows and columns of them"
    )


def _of_weights(p: KernelProblem) -> bool:
    algorithm = winograd(p)
    return algorithm is not None and algorithm.weight_grad


def rules_of(family: str) -> tuple[Rule, ...]:
    """The rules of ``family``."""
    return (
        Rule(
            "winograd_slices",
            lambda p, c, g, d: (c.kg == 1) | ((c.splitk == SPLIT_WORKSPACE) & _of_weights(p)),
            "kg={c.kg} with splitk={c.splitk}: family "
            f"{family} splits only the sums of weight gradients, with splitk=workspace",
        ),
        *FMA_RULES,
    )
