"""The rules of legal configurations of Winograd families: their own, and those of SIMT kernels for the products."""

from __future__ import annotations

from ptxgen.codegen.config import SPLIT_WORKSPACE
from ptxgen.codegen.rule import Rule
from ptxgen.families.simt.rules import RULES as SIMT_RULES
from ptxgen.lowering.winograd import LEAST_CHANNELS, LEAST_PIXELS, TILES, WinogradGemm


def rules_of(family: str) -> tuple[Rule, ...]:
    """The rules of a family."""
    tile = TILES[family]
    return (
        Rule(
            "winograd_filter",
            lambda p, c, g, d: isinstance(p, WinogradGemm) and p.tile == tile,
            f"family {family} computes f32 convolutions of images in NCHW or NHWC and their gradients, with 3x3 filters,"
            f" stride 1, dilation 1, one group and at least {LEAST_CHANNELS} channels of images and results, and for weight"
            f" gradients at least {LEAST_PIXELS[tile]} rows and columns of them",
        ),
        Rule(
            "winograd_slices",
            lambda p, c, g, d: (c.kg == 1) | ((c.splitk == SPLIT_WORKSPACE) & getattr(p, "weight_grad", False)),
            "kg={c.kg} with splitk={c.splitk}: family "
            f"{family} splits only the sums of weight gradients, with splitk=workspace",
        ),
        *SIMT_RULES,
    )
