"""What makes a sliding configuration legal."""

from __future__ import annotations

from ptxgen.codegen.rule import Rule
from ptxgen.codegen.vectorized import WARP
from ptxgen.lowering.depthwise_strips import LONGEST
from ptxgen.lowering.kernel_gemm import KernelGemm

TAPS = 32  #: along a strip, which are all written out

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
    ),
    Rule(
        "slide_sums",
        lambda p, c, g, d: (p.strip is None) or (not p.strip.summed) | (p.strip.tapped * c.vec_a <= SUMS),
        f"vec_a={{c.vec_a}}: a thread sums {{p.strip.tapped}} taps of each; it holds {SUMS}",
    ),
    Rule(
        "slide_slices",
        lambda p, c, g, d: (p.strip is not None and p.strip.summed) | (c.kg == 1),
        "kg={c.kg}: only gradients of filters are split; the others take kg=1",
    ),
    Rule(
        "slide_strip",
        lambda p, c, g, d: (c.ns >= 1) & (c.ns <= LONGEST) & (c.nl >= WARP) & (g.threads >= WARP),
        f"ns={{c.ns}} results a strip, nl={{c.nl}} lanes: 1 to {LONGEST}, and whole warps",
    ),
    Rule(
        "slide_ratio",
        lambda p, c, g, d: (p.strip is None) or (c.ns % p.strip.ratio == 0),
        "ns={c.ns} results a strip; under a stride of {p.strip.ratio} a strip has as many of each phase",
    ),
    Rule(
        "slide_vector",
        lambda p, c, g, d: c.vec_a <= (p.strip_kind[-1] if p.strip_kind else 1),
        "vec_a={c.vec_a} results side by side a thread; images, results and their alignment allow fewer",
    ),
)
