"""Describes the feature maps of depthwise convolutions."""

from __future__ import annotations

from ptxgen.lowering.feature_maps import MAX_TAPS, FeatureMapAxis, FeatureMaps
from ptxgen.operations.conv.problem import Conv


def feature_maps_of(v: Conv) -> FeatureMaps | None:
    """The feature maps of a depthwise convolution. None: adjacent feature maps are not contiguous, images have a depth
    axis, or filters are not contiguous or too large."""
    wgrad = v.direction == "weight_grad"
    contiguous = wgrad or v.steps("w")["k"] == v.r * v.s  # an auxiliary kernel stores weight gradients
    if v.layout != "NCHW" or v.deep or any(v.pads[0]) or not contiguous:
        return None
    if v.r * v.s > MAX_TAPS:
        return None
    gradient = v.direction == "input_grad"

    def axis(n: int, extent: int, taps: int) -> FeatureMapAxis:
        image, results = (v.results[n], extent) if gradient else (extent, v.results[n])
        stride, ratio = (1, v.strides[n]) if gradient else (v.strides[n], 1)
        return FeatureMapAxis(image, results, taps, stride, v.dilations[n], ratio, v.pads[n][0], gradient)

    rows, columns = axis(1, v.h, v.r), axis(2, v.w, v.s)
    result_bytes = (v.element if wgrad else v.output).bytes
    return FeatureMaps(v.n * v.groups, v.groups, rows, columns, v.element.bytes, result_bytes)
