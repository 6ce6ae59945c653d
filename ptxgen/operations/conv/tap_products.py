"""Makes the products of taps of convolutions with few results per pixel, which the family tap_products computes."""

from __future__ import annotations

import math

from ptxgen.lowering.tap_products import LEAST_CHANNELS, MAX_PRODUCTS, TapAxis, TapProducts
from ptxgen.operations.conv.problem import Conv

LAYOUTS = ("NCHW", "NHWC")  #: layouts in which adjacent pixels, or the channels of a pixel, are contiguous


def tap_products_of(v: Conv) -> TapProducts | None:
    """The products of taps of a forward convolution or of an input gradient of stride 1. None: it has groups, a depth
    axis, one tap, few channels, many products per pixel, or types that the kernels lack. With tf32 the kernels compute
    in f32, because memory bounds their time."""
    gradient = v.direction == "input_grad"
    channels, filters = (v.k, v.c) if gradient else (v.c, v.k)
    types = v.compute in ("f32", "tf32", "f64") and v.element.bytes > 1
    flat = v.groups == 1 and v.d == v.t == 1 and v.layout in LAYOUTS and not any(v.pads[0])
    if not (types and flat) or v.direction == "weight_grad" or (gradient and v.strides != (1, 1, 1)):
        return None
    if channels < LEAST_CHANNELS or v.r * v.s == 1 or v.r * v.s * filters > MAX_PRODUCTS:
        return None
    x, w, y = (v.steps(name) for name in "xwy")
    pixels, results, of_pixels, of_results = (y, x, "k", "c") if gradient else (x, y, "c", "k")
    axes = []
    for n, (pixel, result, tap) in enumerate((("h", "p", "r"), ("w", "q", "s")), start=1):
        taps, extents = (v.t, v.r, v.s)[n], ((v.d, v.h, v.w)[n], v.results[n])
        padding, names = v.pads[n][0], (pixel, result)
        if gradient:
            padding, names, extents = (taps - 1) * v.dilations[n] - padding, (result, pixel), extents[::-1]
        steps = pixels[names[0]], results[names[1]], -w[tap] if gradient else w[tap]
        axes.append(TapAxis(*extents, taps, v.strides[n], v.dilations[n], padding, *steps))
    last = v.layout == "NHWC"
    aligned = max((v.aligned_output if gradient else v.aligned_input) // v.element.bytes, 1)
    strides = [pixels["n"], *(axis.pixel_stride for axis in axes)]
    return TapProducts(
        image="b" if v.swapped else "a",
        images=v.n,
        channels=channels,
        filters=filters,
        rows=axes[0],
        columns=axes[1],
        image_strides=(pixels["n"], pixels[of_pixels]),
        result_strides=(results["n"], results[of_results]),
        filter_strides=(w[of_pixels], w[of_results]),
        filter_start=sum((axis.taps - 1) * -axis.filter_stride for axis in axes) if gradient else 0,
        channels_last=last,
        vec=math.gcd(16 // v.element.bytes, aligned, channels, *strides) if last else 1,
    )
