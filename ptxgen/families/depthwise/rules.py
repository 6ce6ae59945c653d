"""What makes a sliding configuration legal."""

from __future__ import annotations

import numpy as np

from ptxgen.codegen.config import AXIS
from ptxgen.codegen.rule import Rule
from ptxgen.codegen.vectorized import WARP
from ptxgen.lowering.depthwise_strips import LONGEST
from ptxgen.lowering.kernel_gemm import KernelGemm

SLIDE = 4
TAPS = 32  #: along a strip, which are all written out

USED = ("family", "ns", "ml", "nl", "vec_a", "min_ctas_per_sm", "store_policy", "pdl")
#: axes that have no meaning here, and stay at their defaults
UNUSED = tuple(name for name in AXIS if name not in USED)
SUMMED = ("kg", "splitk")  #: that gradients of filters use too
SUMS = 64  #: of a thread, at most


def slides(p: KernelGemm) -> bool:
    if p.strip is None or not p.strip.summed:
        return p.strip is not None and p.strip.taps <= TAPS
    return bool(p.strip.tapped <= SUMS)


RULES = (
    Rule(
        "slide_filters",
        lambda p, c, g, d: slides(p),
        f"family slide has strips of results of filters of one channel, with {TAPS} taps at most, of a gradient {SUMS}"
        " in all",
        family=SLIDE,
    ),
    Rule(
        "slide_sums",
        lambda p, c, g, d: (p.strip is None) or (not p.strip.summed) | (p.strip.tapped * c.vec_a <= SUMS),
        f"vec_a={{c.vec_a}}: a thread sums {{p.strip.tapped}} taps of each; it holds {SUMS}",
        family=SLIDE,
    ),
    Rule(
        "slide_unused",
        lambda p, c, g, d: np.logical_and.reduce(
            [
                getattr(c, n) == AXIS[n].default
                for n in UNUSED
                if n not in SUMMED or p.strip is None or not p.strip.summed
            ]
        ),
        "sliding has no use for some axes, which must have their defaults: "
        + " ".join(f"{n}={AXIS[n].default}" for n in UNUSED),
        family=SLIDE,
    ),
    Rule(
        "slide_strip",
        lambda p, c, g, d: (c.ns >= 1) & (c.ns <= LONGEST) & (c.nl >= WARP) & (g.threads >= WARP),
        f"ns={{c.ns}} results a strip, nl={{c.nl}} lanes: 1 to {LONGEST}, and whole warps",
        family=SLIDE,
    ),
    Rule(
        "slide_ratio",
        lambda p, c, g, d: (p.strip is None) or (c.ns % p.strip.ratio == 0),
        "ns={c.ns} results a strip; under a stride of {p.strip.ratio} a strip has as many of each phase",
        family=SLIDE,
    ),
    Rule(
        "slide_vector",
        lambda p, c, g, d: c.vec_a <= (p.strip_kind[-1] if p.strip_kind else 1),
        "vec_a={c.vec_a} results side by side a thread; images, results and their alignment allow fewer",
        family=SLIDE,
    ),
)
