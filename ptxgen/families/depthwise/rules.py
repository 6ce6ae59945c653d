"""The rules of legal configurations of the family depthwise."""

from __future__ import annotations

from ptxgen.codegen.config.rule import Rule
from ptxgen.codegen.vectorized import WARP
from ptxgen.lowering.depthwise_strips import MAX_COLUMNS, MAX_RESULTS, strips
from ptxgen.lowering.feature_maps import MAX_TAPS
from ptxgen.lowering.kernel_problem import KernelProblem

TAPS = 32  #: the most taps along a strip, which are unrolled

PATCH_REGISTERS = 168  #: the most registers, with those in reserve, of a thread that computes several strips

SUMS = 64  #: the most accumulators per thread of a weight gradient


def supports(p: KernelProblem) -> bool:
    """True if the family computes a problem."""
    if strips(p) is None or not strips(p).wgrad:
        return strips(p) is not None and strips(p).taps <= TAPS
    return bool(strips(p).tap_count <= SUMS)


def _height_ratio(p: KernelProblem) -> int:
    """The number of results along the height per pixel of the operand, if feature maps are contiguous."""
    maps = strips(p).feature_maps if strips(p) is not None else None
    return 1 if maps is None else int(maps.rows.ratio)


RULES = (
    Rule(
        "depthwise_filter",
        lambda p, c, g, d: supports(p),
        "family depthwise computes convolutions with one channel per group, of at most"
        f" {TAPS} taps along a strip, and weight gradients of at most {SUMS} taps",
    ),
    Rule(
        "depthwise_taps",
        lambda p, c, g, d: (strips(p) is None) or (not strips(p).wgrad) | (strips(p).tap_count * c.vec_lane <= SUMS),
        f"vec_lane={{c.vec_lane}}: a thread has {{p.operands[0].access.strip.tap_count}} accumulators per element of"
        f" vec_lane; at"
        f" most {SUMS}",
    ),
    Rule(
        "depthwise_kg",
        lambda p, c, g, d: (strips(p) is not None and strips(p).wgrad) | (c.kg == 1),
        "kg={c.kg}: only weight gradients are split; the others take kg=1",
    ),
    Rule(
        "depthwise_strip",
        lambda p, c, g, d: (c.strip_results >= 1) & (c.strip_results <= MAX_RESULTS) & (g.threads >= WARP),
        f"strip_results={{c.strip_results}}, {{g.threads}} threads: a strip has 1 to {MAX_RESULTS} results, and a block"
        " has whole warps",
    ),
    Rule(
        "depthwise_block_lanes",
        lambda p, c, g, d: (
            (strips(p) is None)
            or (c.block_lanes >= WARP)
            | (
                (not strips(p).wgrad and strips(p).feature_maps is None)
                & (c.strip_columns == 1)
                & (c.block_lanes * c.vec_lane >= strips(p).lanes)
            )
        ),
        "block_lanes={c.block_lanes}: fewer than 32 threads along the lane axis take strip_columns=1 and all lanes of"
        " a convolution or an input gradient whose feature maps are not contiguous",
    ),
    Rule(
        "depthwise_strip_results",
        lambda p, c, g, d: (strips(p) is None) or (c.strip_results % strips(p).ratio == 0),
        "strip_results={c.strip_results} must be a multiple of the stride {p.operands[0].access.strip.ratio}: a"
        " strip has all its phases"
        " equally",
    ),
    Rule(
        "depthwise_strip_columns",
        lambda p, c, g, d: (
            (c.strip_columns == 1)
            | (
                (strips(p) is not None and strips(p).patch is not None)
                and (c.strip_columns <= MAX_COLUMNS)
                & (c.block_rows == 1)
                & (c.vec_lane <= strips(p).patch.vec)
                & (g.registers + g.reg_margin <= PATCH_REGISTERS)
            )
        ),
        "strip_columns={c.strip_columns}: several strips per thread take channels-last images, stride 1 in input"
        f" gradients, contiguous filters with the alignment of vec_lane={{c.vec_lane}}, block_rows=1, at most"
        f" {MAX_COLUMNS} strips, and about {{g.registers}} registers with {{g.reg_margin}} in reserve, at most"
        f" {PATCH_REGISTERS}",
    ),
    Rule(
        "depthwise_feature_maps",
        lambda p, c, g, d: (
            (c.feature_map_bytes == 0)
            | (
                (strips(p) is not None and strips(p).feature_maps is not None)
                & (c.block_rows == 1)
                & (c.strip_columns == 1)
                & (c.vec_lane == 1)
            )
        ),
        "feature_map_bytes={c.feature_map_bytes}: feature maps in shared memory take NCHW images of two dimensions,"
        f" contiguous filters of at most {MAX_TAPS} taps, or gradients of any filters, and block_rows=1,"
        " strip_columns=1, vec_lane=1",
    ),
    Rule(
        "depthwise_feature_map_strips",
        lambda p, c, g, d: (c.feature_map_bytes == 0) | (c.strip_results % _height_ratio(p) == 0),
        "strip_results={c.strip_results} must be a multiple of {p.operands[0].access.strip.feature_maps.rows.ratio},"
        " the stride along the"
        " height",
    ),
    Rule(
        "depthwise_feature_map_bytes",
        lambda p, c, g, d: (c.feature_map_bytes == 0) | (g.maps > 0),
        "feature_map_bytes={c.feature_map_bytes}: a feature map of images has"
        " {p.operands[0].access.strip.feature_maps.image_bytes} bytes,"
        " its results {p.operands[0].access.strip.feature_maps.result_map_bytes}; with 64 bytes for their alignment,"
        " they do not fit",
    ),
    Rule(
        "depthwise_vec_lane",
        lambda p, c, g, d: c.vec_lane <= (p.operands[0].access.strip_constants[-1]),
        "vec_lane={c.vec_lane} adjacent results per thread; images, results and their alignment allow fewer",
    ),
)
