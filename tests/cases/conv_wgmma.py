"""Random convolutions that the wgmma family loads with TMA, and configurations of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ptxgen.codegen.config.config import Config
from ptxgen.errors import ShapeError
from ptxgen.families.wgmma.geometry import widest_unit
from ptxgen.families.wgmma.operand_packing import paths
from ptxgen.lowering.lower import lower
from ptxgen.operations.conv.problem import FILTERS, Conv
from ptxgen.problem.device import Device
from tests.cases import wgmma
from tests.cases.conv import with_gate
from tests.cases.source import RandomCases
from tests.lowered import im2col_of

TYPES = (
    ("f16", ""),
    ("f16", "f32"),
    ("bf16", ""),
    ("f32", ""),
    ("e4m3", ""),
    ("e5m2", "f16"),
    ("s8", ""),
    ("e4m3", "e4m3"),
)
EPILOGUES = ("", "", "", "relu", "bias", "bias,residual,silu", "scale,bias,gelu", "relu_grad")
#: epilogue -> the one in its place if the problem may have a gated activation
GATES = {"relu": "swiglu", "scale,bias,gelu": "scale,bias,geglu"}
Draw = Callable[[np.random.Generator, int, Device], Conv | None]


def problem(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
    """Asymmetric padding, strides, dilation, channels that end within a box; None: the filter did not fit."""
    dtype, out = TYPES[rng.integers(len(TYPES))]
    size = {"f32": 4, "e4m3": 1, "e5m2": 1, "s8": 1}.get(dtype, 2)
    unit = 16 // size
    direction = ("forward", "forward", "input_grad", "weight_grad")[rng.integers(4)]
    deep = rng.random() < 0.15
    axes = 3 if deep else 2
    extents = [int(v) for v in rng.integers(1, {2: 15, 3: 6}[axes], axes)]
    taps, dilation = ([int(v) for v in rng.choice(a, axes)] for a in ([1, 1, 2, 3, 3, 4], [1, 1, 1, 2, 3]))
    stride = [1] * axes if direction == "input_grad" else [int(v) for v in rng.choice([1, 1, 2, 3], axes)]
    pads = [int(v) for v in rng.integers(0, 3, 2 * axes)] if rng.random() < 0.7 else 0
    c = unit * int(rng.choice([1, 2, 3, 4, 5, 8, 9, 12]))
    k = unit * int(rng.integers(1, limit // unit + 1)) if direction != "forward" else int(rng.integers(1, limit))
    if direction == "weight_grad":
        c = (16, 32, 64)[rng.integers(3)] * int(rng.integers(1, 4))
    names = ("d", "h", "w")[3 - axes :]
    spatial = dict(zip(names, extents, strict=True)) | dict(zip(("t", "r", "s")[3 - axes :], taps, strict=True))
    epilogue = EPILOGUES[rng.integers(len(EPILOGUES))] if direction != "weight_grad" and dtype != "s8" else ""
    try:
        return Conv(
            int(rng.integers(1, 4)),
            c,
            k=k,
            stride=stride,
            padding=pads,
            dilation=dilation,
            layout="NHWC",
            dtype=dtype,
            compute="tf32" if dtype == "f32" else "",
            out=out,
            epilogue=epilogue,
            direction=direction,
            **spatial,
        )
    except ShapeError:
        return None


def packed(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
    """As ``problem``, of operands that are packed before TMA loads them: other layouts, channel counts, alignments."""
    p = problem(rng, limit, d)
    if p is None:
        return None
    least = max(p.element.bytes, p.output.bytes)
    odd = p.direction != "weight_grad" and rng.random() < 0.4
    fields: dict[str, object] = {
        "layout": ("NCHW", "NCHW", "NHWC", "CHWN")[rng.integers(4)],
        "k": int(rng.integers(1, limit)),
        "filters": ("", "", *FILTERS.values())[rng.integers(5)],
        "c": int(rng.integers(1, 80)) if odd else p.c,
        "n": int(rng.integers(1, 10)),
        "aligned_output": max(least, (2, 8, 16)[rng.integers(3)]),
        "aligned_input": max(least, (2, 8, 16)[rng.integers(3)]),
    }
    if p.element.bytes == 1:
        fields.update(dtype="f16", compute="", out="")
    q = replace(p, **fields)
    return q if im2col_of(q) is not None and any(im2col_of(q).copies) else None


def few_channels(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
    """As ``problem``, forward, of images whose pixels have up to 16 bytes: pixels are padded first."""
    p = problem(rng, limit, d)
    if p is None:
        return None
    taps = {"s": int(rng.choice([2, 3, 4, 5, 7, 11])), "stride": (*p.strides[:2], int(rng.choice([1, 2, 2, 3, 4])))}
    least = max(p.element.bytes, 2)
    types = {"dtype": "f16", "compute": "", "out": ""} if p.element.bytes == 1 else {}
    try:
        q = replace(
            p,
            direction="forward",
            c=int(rng.integers(1, 5 if p.element.bytes == 4 else 9)),
            k=int(rng.integers(1, limit)),
            w=int(rng.integers(1, 40)),
            dilation=(*p.dilations[:2], 1),
            layout=("NHWC", "NHWC", "NCHW")[rng.integers(3)],
            filters=("", "", *FILTERS.values())[rng.integers(5)],
            aligned_input=max(least, (2, 8, 16)[rng.integers(3)]),
            epilogue=EPILOGUES[rng.integers(len(EPILOGUES))],
            **taps,
            **types,
        )
    except ShapeError:
        return None
    x = im2col_of(q)
    return q if x is not None and x.copies[0] is not None and x.copies[0].zeros else None


def phased(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
    """A strided input gradient: strides above the extent of the filter, phases without taps, unequal phases, layouts and
    channels that are packed first."""
    p = problem(rng, limit, d)
    if p is None:
        return None
    unit = 16 // p.element.bytes
    axes = 3 if p.deep or any(p.pads[0]) else 2
    packs = p.element.bytes > 1 and rng.random() < 0.5
    try:
        q = replace(
            p,
            direction="input_grad",
            layout=("NCHW", "NHWC", "CHWN")[rng.integers(3)] if packs else "NHWC",
            padding=[int(v) for v in rng.integers(0, 6, 2 * axes)] if rng.random() < 0.15 else p.padding,
            stride=tuple(int(v) for v in rng.choice([1, 2, 2, 3, 4], axes)),
            k=int(rng.integers(1, limit)) if packs else unit * int(rng.integers(1, limit // unit + 1)),
            c=int(rng.integers(1, limit)) if packs or rng.random() < 0.2 else p.c,
            filters=str(rng.choice(list(FILTERS.values()))) if packs else "KRSC",
            epilogue=EPILOGUES[rng.integers(len(EPILOGUES))] if p.dtype != "s8" else "",
        )
    except ShapeError:
        return None
    x = im2col_of(q)
    return q if x is not None and x.phases else None


def interleaved(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
    """As ``phased``, of phases whose images a kernel interleaves: unequal phases, some without taps, any alignment."""
    p = phased(rng, limit, d)
    if p is None or p.deep or any(p.pads[0]) or p.element.bytes == 1:
        return None
    try:
        q = replace(
            p,
            layout="NCHW",
            stride=(1, int(rng.choice([1, 2, 3])), int(rng.choice([2, 2, 2, 3, 4]))),
            w=int(rng.integers(1, 40)),
            k=int(rng.integers(1, limit)),
            filters=str(rng.choice(list(FILTERS.values()))),
            epilogue="",
            aligned_input=max(p.output.bytes, (2, 8, 16, 16)[rng.integers(4)]),
        )
    except ShapeError:
        return None
    x = im2col_of(q)
    return q if x is not None and x.images is not None else None


def row_shared(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
    """A convolution, or an input gradient, whose filters have several taps along a row that are a stride apart, without
    dilation there; also of groups."""
    p = (either if rng.random() < 0.7 else of_groups)(rng, limit, d)
    if p is None or p.direction == "weight_grad":
        return None
    stride = (*p.strides[:2], int(rng.choice([1, 1, 2, 3]))) if p.direction == "forward" else (1, 1, 1)
    try:
        q = replace(p, s=int(rng.choice([2, 3, 3, 3, 4, 5, 7])), stride=stride, dilation=(*p.dilations[:2], 1))
    except ShapeError:
        return None
    x = im2col_of(q)
    return q if x is not None and x.shares_row_taps else None


def merged(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
    """A strided input gradient of few channels, whose phases, or those along the width, are columns of a product."""
    dtype = ("f16", "bf16", "f32")[rng.integers(3)]
    unit = 8 if dtype != "f32" else 4
    stride = [int(v) for v in rng.choice([1, 2, 2, 3], 2)]
    h, w = (int(n) * step for n, step in zip(rng.integers(1, 9, 2), stride, strict=True))
    along_width = rng.random() < 0.5
    try:
        p = Conv(
            int(rng.integers(1, 4)),
            int(rng.integers(1, 64 if along_width else 9)),
            h + along_width * int(rng.integers(2)),
            w,
            unit * int(rng.integers(1, limit // unit + 1)),
            int(rng.integers(1, 8)),
            int(rng.integers(5, 10) if along_width else rng.integers(1, 8)),
            stride=stride,
            padding=[int(v) for v in rng.integers(0, 4, 4)],
            dtype=dtype,
            compute="tf32" if dtype == "f32" else "",
            out="f32" if rng.random() < 0.2 else "",
            layout="NHWC",
            filters=str(rng.choice(list(FILTERS.values()))),
            direction="input_grad",
        )
    except ShapeError:
        return None
    x = im2col_of(p)
    return p if x is not None and x.merged_phases > 1 else None


def tiled(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
    """A convolution whose images need no packing. In CHWN: images of whole 16 bytes along a pixel, or of whole boxes. In
    NCHW: a weight gradient with filters of one column, rows of whole 16 bytes, or images of whole 16 bytes if filters
    have one tap."""
    p = problem(rng, limit, d)
    if p is None:
        return None
    size = 4 if p.element.bytes == 4 else 2
    if rng.random() < 0.5:
        return _tiled_by_images(rng, limit, p, size)
    taps = (p.t, p.r) if rng.random() < 0.6 else (1, 1)
    sampled = taps == (1, 1) and rng.random() < 0.7
    h, w = (int(v) for v in rng.integers(1, 9, 2))
    try:
        q = replace(
            p,
            direction="weight_grad",
            layout="NCHW",
            filters=("", "", *FILTERS.values())[rng.integers(5)],
            t=taps[0],
            r=taps[1],
            s=1,
            h=h * (8 // size if sampled else 1),
            w=w * (2 if sampled else 16 // size),
            stride=1 if sampled else (*p.strides[:2], 1),
            padding=0 if sampled else (*sum(p.pads[:2], ()), 0, 0),
            k=int(rng.integers(1, limit)),
            c=int(rng.integers(1, 80)) if taps == (1, 1) else 8 * int(rng.integers(1, 12)),
            n=int(rng.integers(1, 5)),
            epilogue="",
            **({"dtype": "f16", "compute": "", "out": ""} if p.element.bytes == 1 else {}),
        )
    except ShapeError:
        return None
    return _if_unpacked(q)


def _tiled_by_images(rng: np.random.Generator, limit: int, p: Conv, size: int) -> Conv | None:
    wgrad, narrow = p.direction == "weight_grad", {"dtype": "f16", "compute": "", "out": ""}
    taps = [int(v) for v in rng.integers(1, 4, 2)]
    step = 16 // size if wgrad else 64 // size
    try:
        q = replace(
            p,
            layout="CHWN",
            filters=("", "", *FILTERS.values())[rng.integers(5)],
            t=1,
            r=taps[0],
            s=taps[1],
            d=1,
            h=int(rng.integers(3, 5)),
            w=int(rng.integers(3, 5)),
            stride=(1, *p.strides[1:]),
            padding=(0, 0, *sum(p.pads[1:], ())),
            k=int(rng.integers(1, limit)),
            c=8 * int(rng.integers(1, 6)) if wgrad and taps != [1, 1] else int(rng.integers(1, 48)),
            n=step * int(rng.integers(1, 5 if wgrad else 3)),
            aligned_input=16,
            aligned_output=16,
            epilogue="" if wgrad else p.epilogue,
            **(narrow if p.element.bytes == 1 else {}),
        )
    except ShapeError:
        return None
    return _if_unpacked(q)


def _if_unpacked(q: Conv) -> Conv | None:
    x = im2col_of(q)
    return q if x is not None and x.unpacked is not None else None


def by_image(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
    """A weight gradient in NCHW, in tf32, whose gradients of results are contiguous along the pixels of an image."""
    p = problem(rng, limit, d)
    if p is None:
        return None
    try:
        q = replace(
            p,
            direction="weight_grad",
            layout="NCHW",
            filters=("", "", *FILTERS.values())[rng.integers(5)],
            dtype="f32",
            compute="tf32",
            out="",
            k=int(rng.integers(1, limit)),
            c=32 * int(rng.integers(1, 4)),
            n=int(rng.integers(1, 5)),
            epilogue="",
            aligned_input=int(rng.choice([4, 16])),
            aligned_output=int(rng.choice([4, 16])),
        )
    except ShapeError:
        return None
    x = im2col_of(q)
    return q if x is not None and x.by_image and x.unpacked is None else None


def of_groups(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
    """A convolution of groups of whole 16 bytes of channels, each an item of a batch, or several are one."""
    p = problem(rng, limit, d)
    if p is None or p.deep or any(p.pads[0]):
        return None
    unit, groups = 16 // p.element.bytes, int(rng.choice([2, 3, 4, 6, 8, 12]))
    c, k = (unit * int(rng.choice([1, 1, 2, 3, 4, 8, 9])) for _ in "ck")
    if p.direction == "weight_grad":
        c = unit * int(rng.choice([1, 2, 4, 8]))
    fields: dict[str, object] = {"exact_nonfinite": bool(rng.random() < 0.2)}
    if p.direction == "input_grad" and rng.random() < 0.6:
        fields["stride"] = (1, *(int(v) for v in rng.choice([1, 2, 2, 3], 2)))
    if p.element.bytes > 1 and rng.random() < 0.4:  # operands that are packed
        fields |= {"layout": ("NCHW", "NHWC")[rng.integers(2)], "filters": str(rng.choice(list(FILTERS.values())))}
        fields |= {"aligned_input": int(rng.choice([4, 16]))}
    q = replace(p, c=groups * c, k=groups * k, groups=groups, **fields)
    return q if im2col_of(q) is not None else None


def either(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
    return (problem if rng.random() < 0.5 else packed)(rng, limit, d)


def sometimes_gated(draw: Draw) -> Draw:
    """``draw`` with gated activations in place of some others."""

    def drawn(rng: np.random.Generator, limit: int, d: Device) -> Conv | None:
        p = draw(rng, limit, d)
        return p if p is None or p.epilogue not in GATES else with_gate(p, GATES[p.epilogue])

    return drawn


def _fixed(p: Conv) -> dict[str, int]:
    """The axes without which few random configurations are legal for a gated activation."""
    if not p.gated:
        return {}
    x = im2col_of(p)
    paths_ = dict(zip(("operand_path_a", "operand_path_b"), paths(x), strict=True)) if any(x.copies) else {}
    direct = {"epilogue_smem": 0, "epilogue_subtiles": 1, "epilogue_buffers": 1, "epilogue_aliases_ab": 0}
    return {"transposed_mma": 0, "tma_rows": 0, **paths_, **(direct if x.result is not None else {})}


def config(p: Conv, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration, or None if TMA does not load the operands or none was drawn."""
    return None if im2col_of(p) is None else wgmma.config(lower(p), d, rng, threads, **_fixed(p))


def interleaving(p: Conv, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration that interleaves images of phases, or None if none was drawn."""
    return wgmma.config(lower(p), d, rng, threads, interleave_phases=1, kg=1, cluster_k=1)


def sharing_rows(p: Conv, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration whose stages have all taps of a filter row, or None if none was drawn."""
    g = lower(p)
    assert im2col_of(g) is not None
    resident = int(rng.random() < 0.3)
    fixed = {"kg": 1, "cluster_k": 1, "row_taps": im2col_of(g).taps_of_row, "u": widest_unit(g), "resident_b": resident}
    return wgmma.config(g, d, rng, threads, **fixed, **({"persistent": 1} if resident else {}))


def unpacked(p: Conv, d: Device, rng: np.random.Generator, threads: int = 1024) -> Config | None:
    """A random legal configuration that packs no images, or None if none was drawn."""
    g = lower(p)
    a, b = paths(im2col_of(g).unpacked)
    return wgmma.config(g, d, rng, threads, **_fixed(p) | {"operand_path_a": a, "operand_path_b": b})


SOURCE = RandomCases("conv_wgmma", sometimes_gated(either), config, limit=150, sms=wgmma.SMS)
PHASED = RandomCases("conv_wgmma_phased", phased, config, limit=150, sms=wgmma.SMS)
FEW_CHANNELS = RandomCases("conv_wgmma_few_channels", sometimes_gated(few_channels), config, limit=150, sms=wgmma.SMS)
PACKED = RandomCases("conv_wgmma_packed", sometimes_gated(packed), config, limit=150, sms=wgmma.SMS)
INTERLEAVED = RandomCases("conv_wgmma_interleaved", interleaved, interleaving, limit=150, sms=wgmma.SMS)
ROW_TAPS = RandomCases("conv_wgmma_row_taps", sometimes_gated(row_shared), sharing_rows, limit=150, sms=wgmma.SMS)
TILED = RandomCases("conv_wgmma_tiled", sometimes_gated(tiled), unpacked, limit=150, sms=wgmma.SMS)
BY_IMAGE = RandomCases("conv_wgmma_by_image", by_image, config, limit=150, sms=wgmma.SMS)
GROUPS = RandomCases("conv_wgmma_groups", sometimes_gated(of_groups), config, limit=150, sms=wgmma.SMS)
MERGED = RandomCases("conv_wgmma_merged", merged, config, limit=150, sms=wgmma.SMS)
