"""Makes the strips of depthwise convolutions, which kernels of the depthwise family compute."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

from ptxgen.codegen.vectorized import WARP
from ptxgen.errors import ShapeError
from ptxgen.lowering.depthwise_strips import (
    MAX_COLUMNS,
    CrossAxis,
    DepthwiseStrip,
    DigitStrides,
    first_pixel,
)
from ptxgen.operations.conv.feature_maps import feature_maps_of
from ptxgen.operations.conv.problem import Conv
from ptxgen.operations.conv.strided_dgrad import DgradPhase, dgrad_phases

PARTS = (16, 8, 4, 2)  #: numbers of equal parts of the results along the only axis of an image


@dataclass(frozen=True)
class _Axis:
    """One axis of the image. ``extent``, ``results``: the extents of operand and result along it; ``taps``, ``stride``,
    ``dilation``: those of the filter; ``begin``: the padding before the first pixel; ``padded``: True if windows may
    reach outside the operand. ``image_stride``, ``result_stride``, ``filter_stride``: strides in elements.
    ``filter_start``, ``result_start``: the offsets of the first tap and of the first result; by default a negative
    filter stride means taps in reverse order."""

    extent: int
    results: int
    taps: int
    stride: int
    dilation: int
    begin: int
    padded: bool
    image_stride: int
    result_stride: int
    filter_stride: int
    filter_start: int | None = None
    result_start: int = 0

    @property
    def first_filter_offset(self) -> int:
        if self.filter_start is not None:
            return self.filter_start
        return (self.taps - 1) * max(-self.filter_stride, 0)


def _axes(v: Conv) -> dict[str, _Axis]:
    """The axes by the letters of their results: depth z, height p and width q. An input gradient with stride 1 is a
    convolution of the result gradients with the taps in reverse order."""
    x, w, y = (v.steps(name) for name in "xwy")
    out = {}
    for n, (i, pixel, tap) in enumerate(zip("zpq", "dhw", "trs", strict=True)):
        taps, (begin, end) = (v.t, v.r, v.s)[n], v.pads[n]
        extents = (v.d, v.h, v.w)[n], v.results[n]
        steps = x[pixel], y[i]
        if v.direction == "input_grad":
            begin, end = ((taps - 1) * v.dilations[n] - pad for pad in (begin, end))
            extents, steps = extents[::-1], steps[::-1]
        back = -1 if v.direction == "input_grad" else 1
        stride = 1 if v.direction == "input_grad" else v.strides[n]
        out[i] = _Axis(*extents, taps, stride, v.dilations[n], begin, begin > 0 or end > 0, *steps, back * w[tap])
    return out


def _phased(axis: _Axis, stride: int, phase: DgradPhase) -> _Axis:
    """The axis for one phase of a strided input gradient. A phase without taps has an operand of extent 0."""
    tap = axis.filter_stride * phase.tap_step
    start = -axis.filter_stride * phase.tap
    if not phase.taps:
        return replace(
            axis,
            extent=0,
            results=phase.count,
            taps=1,
            padded=True,
            result_stride=axis.result_stride * stride,
            filter_start=0,
            result_start=phase.first * axis.result_stride,
        )
    return replace(
        axis,
        results=phase.count,
        taps=phase.taps,
        dilation=phase.result_step,
        begin=(phase.taps - 1) * phase.result_step - phase.at,
        padded=True,
        result_stride=axis.result_stride * stride,
        filter_stride=tap,
        filter_start=start - (phase.taps - 1) * tap,
        result_start=phase.first * axis.result_stride,
    )


def depthwise_strip_of(v: Conv) -> DepthwiseStrip | None:
    """The strips of a convolution. None: it is not depthwise, its elements have one byte, or it is summed in f16. With
    tf32 the kernels compute in f32, because memory bounds their time."""
    depthwise = (v.c, v.k) == (v.groups, v.groups) and v.compute in ("f32", "tf32", "f64") and v.element.bytes > 1
    if not depthwise:
        return None
    axes, results = _axes(v), v.steps("x" if v.direction == "input_grad" else "y")
    extents = {"n": v.n, "g": v.groups, **{i: axis.results for i, axis in axes.items()}}
    steps = {
        "n": results["n"],
        "g": results["c" if v.direction == "input_grad" else "k"],
        **{i: axis.result_stride for i, axis in axes.items()},
    }
    nontrivial = sorted((i for i in extents if extents[i] > 1), key=lambda i: steps[i])
    lane = nontrivial[0] if nontrivial else "q"
    strip_axis = min((i for i in "pqz" if i != lane), key=lambda i: -min(axes[i].taps, 2))
    if v.direction != "input_grad" or v.strides == (1, 1, 1):
        patch, feature_maps = _patch(v, axes, lane, strip_axis), feature_maps_of(v)
        one_axis = lane in axes and all(axis.results == axis.taps == 1 for i, axis in axes.items() if i != lane)
        strip = (_folded(v, axes, lane, strip_axis) if one_axis else None) or _strip(v, axes, lane, strip_axis)
        return replace(strip, patch=patch, feature_maps=feature_maps)
    parameters = dict(zip("zpq", zip(v.strides, v.dilations, v.pads, strict=True), strict=True))
    ratio, _, (pad, _) = parameters[strip_axis]
    choices = []
    for i, axis in axes.items():
        stride, dilation, (begin, _) = parameters[i]
        if i == strip_axis:
            lowest = first_pixel(axis.taps, dilation, stride, begin)
            stored = (
                replace(axis, begin=-lowest, padded=True, filter_stride=-axis.filter_stride) if stride > 1 else axis
            )
            choices.append([stored])
        else:
            phases = dgrad_phases(axis.results, axis.taps, stride, begin, dilation)
            choices.append([_phased(axis, stride, phase) for phase in phases] if stride > 1 else [axis])
    strips = [
        _strip(v, dict(zip("zpq", combination, strict=True)), lane, strip_axis, ratio, pad)
        for combination in product(*choices)
    ]
    first, *others = sorted(strips, key=lambda s: -s.outer_taps * s.rows * s.lanes)
    return replace(first, other_phases=tuple(others), feature_maps=feature_maps_of(v))


def _folded(v: Conv, axes: dict[str, _Axis], lane: str, strip_axis: str) -> DepthwiseStrip | None:
    """The strips of an image whose only axis is that of lanes: its results are split into equal parts, and the results
    of a strip have the same place in adjacent parts. None: the results have no equal parts of a warp or more, or
    coordinates do not fit a word."""
    results = axes[lane].results
    parts = next((n for n in PARTS if results % n == 0 and results // n >= WARP), 0)
    if not parts:
        return None
    strip = _strip(v, axes, lane, strip_axis, across=lane)
    lanes = results // parts
    strip = replace(strip, stride=1, dilation=1, lanes=lanes, results=parts, axis=strip.lane.scaled(lanes))
    try:
        _ = strip.packing
    except ShapeError:
        return None
    return strip


def _patch(v: Conv, axes: dict[str, _Axis], lane: str, strip_axis: str) -> DepthwiseStrip | None:
    """The strips that form patches of the image. None: lanes are not channels, the filters of adjacent lanes are not
    contiguous, taps are along three axes, or coordinates do not fit a word."""
    other = "p" if strip_axis == "q" else "q"
    contiguous = v.steps("w")["k"] == v.t * v.r * v.s == axes[strip_axis].taps * axes[other].taps
    if v.direction == "weight_grad" or v.layout != "NHWC" or lane != "g" or not contiguous:
        return None
    strip = _strip(v, axes, lane, strip_axis, across=other)
    along, cross = axes[strip_axis], axes[other]
    numbers = tuple(
        strip.filter_start + r * along.filter_stride + s * cross.filter_stride
        for r in range(along.taps)
        for s in range(cross.taps)
    )
    _, step = strip.result_digits[-1]
    pixel = DigitStrides(cross.image_stride, 0, 0, tuple(n // cross.stride for n in step.coordinates))
    strip = replace(
        strip,
        vec=math.gcd(strip.vec, v.aligned_filter // v.element.bytes),
        cross=CrossAxis(cross.results, cross.taps, cross.stride, cross.dilation, pixel, numbers),
    )
    try:
        _ = strip.widened(MAX_COLUMNS).packing
    except ShapeError:
        return None
    return strip


def _strip(
    v: Conv,
    axes: dict[str, _Axis],
    lane: str,
    strip_axis: str,
    ratio: int = 1,
    shift: int = 0,
    across: str = "",
) -> DepthwiseStrip:
    x, w, y = (v.steps(name) for name in "xwy")
    pixels, results, channels = (y, x, "kc") if v.direction == "input_grad" else (x, y, "ck")
    wgrad = v.direction == "weight_grad"
    if wgrad:
        w = {"s": 1, "r": v.s, "t": v.r * v.s, "k": v.t * v.r * v.s}
        axes = {i: replace(axis, filter_stride=w[tap]) for (i, axis), tap in zip(axes.items(), "trs", strict=True)}
    extents = {"n": v.n, "g": v.groups, **{i: axis.results for i, axis in axes.items()}}
    steps = {"n": results["n"], "g": results[channels[1]], **{i: axis.result_stride for i, axis in axes.items()}}
    guarded = [i for i in "zpq" if i in (strip_axis, across) or axes[i].padded]

    def pixel(i: str) -> DigitStrides:
        if i in "ng":
            return DigitStrides(
                pixels["n" if i == "n" else channels[0]], steps[i], w["k"] if i == "g" else 0, (0,) * len(guarded)
            )
        axis = axes[i]
        return DigitStrides(
            axis.stride * axis.image_stride, axis.result_stride, 0, tuple(axis.stride * (i == j) for j in guarded)
        )

    def tap(i: str) -> DigitStrides:
        axis = axes[i]
        return DigitStrides(
            axis.dilation * axis.image_stride, 0, axis.filter_stride, tuple(axis.dilation * (i == j) for j in guarded)
        )

    along = axes[strip_axis]
    lane_strides, size = pixel(lane), v.element.bytes
    adjacent = (lane, v.layout) in (("g", "NHWC"), ("n", "CHWN")) and lane_strides.image == lane_strides.result == 1
    adjacent = adjacent and (lane == "g" or not wgrad)  # weight gradients reduce over all other lanes
    strides = [pixels["n"], pixels[channels[0]], *(axis.image_stride for axis in axes.values()), *steps.values()]
    aligned = max(min(v.aligned_input, v.aligned_output) // size, 1)
    vec = (
        math.gcd(16 // v.accumulator.bytes, aligned, extents[lane], *(n for n in strides if n != 1)) if adjacent else 1
    )
    return DepthwiseStrip(
        image="b" if v.swapped else "a",
        vec=vec,
        taps=along.taps,
        stride=along.stride,
        dilation=along.dilation,
        lanes=extents[lane],
        lane=lane_strides,
        results=along.results,
        axis=pixel(strip_axis),
        result_digits=tuple(
            (extents[i], pixel(i))
            for i in (*(i for i in "ngzpq" if i != across), *across)
            if i not in (lane, strip_axis, *("g" * wgrad))
        ),
        tap_digits=tuple((axes[i].taps, tap(i)) for i in "zpq" if i != strip_axis),
        filter_strides=(along.filter_stride, w["k"]),
        image_start=-sum(axis.begin * axis.image_stride for axis in axes.values()),
        filter_start=sum(axis.first_filter_offset for axis in axes.values()),
        coordinate_start=tuple(-axes[i].begin for i in guarded),
        limits=tuple(axes[i].extent for i in guarded),
        ratio=ratio,
        shift=shift,
        wgrad=wgrad,
        groups=v.groups,
        group=pixel("g") if wgrad else DigitStrides(0, 0, 0, ()),
        result_start=sum(axis.result_start for axis in axes.values()),
    )
