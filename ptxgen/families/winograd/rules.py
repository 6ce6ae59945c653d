"""The rules of legal configurations of the family winograd: its own, and those of SIMT kernels for its products."""

from __future__ import annotations

from ptxgen.codegen.rule import Rule
from ptxgen.families.simt.rules import RULES as SIMT_RULES
from ptxgen.lowering.winograd import LEAST_CHANNELS, WinogradGemm

RULES = (
    Rule(
        "winograd_filter",
        lambda p, c, g, d: isinstance(p, WinogradGemm),
        "family winograd computes f32 convolutions of images in NCHW or NHWC and their input gradients, with 3x3"
        f" filters, stride 1, dilation 1, one group and at least {LEAST_CHANNELS} channels of images and results",
    ),
    Rule(
        "winograd_slices",
        lambda p, c, g, d: c.kg == 1,
        "kg={c.kg}: the sums of transformed products are not split; family winograd takes kg=1",
    ),
    *SIMT_RULES,
)
