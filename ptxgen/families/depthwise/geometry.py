"""The geometry of depthwise kernels: a thread computes ``strip_results`` by ``vec_lane`` results; a block has
``block_rows`` by ``block_lanes`` threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxgen.codegen.geometry import OperandGeometry, ThreadLoadGeometry
from ptxgen.codegen.vectorized import IntOrColumn, ceil_div, where
from ptxgen.lowering.depthwise_strips import strips
from ptxgen.lowering.kernel_problem import KernelProblem

FIXED_REGISTERS = 44  #: registers per thread besides results, pixels and taps
PATCH_SAVES = 12  #: by how many registers FIXED_REGISTERS is less if a thread has no loop over taps
FEATURE_MAP_REGISTERS = 48  #: registers per thread of a kernel with feature maps besides results, taps and pixels
#: ptxas loads pixels of feature maps early: loads of a strip that take no further register, and the most registers that
#: early loads lead to
FEATURE_MAP_PIXELS, FEATURE_MAP_LIMIT = 26, 224
#: registers in reserve for fused operations in kernels with feature maps: a constant, and a number per result
FEATURE_MAP_MARGIN, RESULT_MARGIN = 16, 4
PATCH_MARGIN = 40  #: registers in reserve for fused operations of patches: ptxas loads their operands early


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class DepthwiseGeometry(ThreadLoadGeometry):
    """The geometry of a depthwise kernel. Tiles along M are lanes and rows, tiles along N are strips."""

    loads: IntOrColumn  #: pixels that a thread loads per step
    products: IntOrColumn  #: multiply-adds of a thread per step and lane
    steps: IntOrColumn  #: taps along the axes other than the strip axis; 1 if all taps are unrolled
    weights: IntOrColumn  #: loads of filters per step
    maps: IntOrColumn  #: feature maps of a block in shared memory; 0: none


def geometry(p: KernelProblem, c: Any) -> DepthwiseGeometry:
    """The geometry of ``c``, a configuration or columns of many, on ``p``."""
    s = strips(p)
    lanes, rows, results, taps, step, dilation, steps, ratio = (
        (s.lanes, s.rows, s.results, s.taps, s.stride, s.dilation, s.outer_taps, s.ratio) if s is not None else (1,) * 8
    )
    threads = c.block_rows * c.block_lanes
    tiles_m = ceil_div(lanes, np.maximum(c.block_lanes * c.vec_lane, 1)) * ceil_div(rows, np.maximum(c.block_rows, 1))
    tiles_n = ceil_div(results, np.maximum(c.strip_results, 1))
    products = ceil_div(c.strip_results * taps, ratio)
    loads = np.minimum(((c.strip_results - 1) * step + (taps - 1) * dilation) // ratio + 1, products)
    words = max(1, p.accumulator.bytes // 4)
    registers, shared, tiles_n, tiles = (
        (c.strip_results + taps + 1) * c.vec_lane * words,
        c.block_rows * 0,
        tiles_n,
        tiles_m * tiles_n,
    )
    patches = c.strip_columns > 1
    steps = where(patches, 1, steps)
    if s is not None and s.patch is not None and s.patch.cross is not None:
        cross = s.patch.cross
        columns = (c.strip_columns - 1) * cross.stride + (cross.taps - 1) * cross.dilation + 1
        columns = np.minimum(columns, c.strip_columns * cross.taps)
        across = s.patch.result_digits[-1][0]
        rows_of_patches = rows // max(across, 1) * ceil_div(across, np.maximum(c.strip_columns, 1))
        patch_tiles = ceil_div(ceil_div(lanes, np.maximum(c.vec_lane, 1)) * rows_of_patches, np.maximum(threads, 1))
        tiles_m = where(patches, patch_tiles, tiles_m)
        tiles = tiles_m * tiles_n
        held = c.strip_columns * c.strip_results + taps * cross.taps + 2  # sums, weights, pixels
        registers = where(patches, held * c.vec_lane * words - PATCH_SAVES, registers)
        loads = where(patches, loads * columns, loads)
        products = where(patches, products * c.strip_columns * cross.taps, products)
        taps = where(patches, taps * cross.taps, taps)
    if s is not None and s.wgrad:
        sums = s.tap_count * c.vec_lane
        registers = (sums + (c.strip_results + 1) * c.vec_lane) * words + 2 * steps
        shared = sums * threads * max(4, p.accumulator.bytes)
        tiles = ceil_div(lanes, np.maximum(c.block_lanes * c.vec_lane, 1)) if s.grouped else c.block_rows * 0 + s.groups
        tiles_m, tiles_n = tiles, c.block_rows * 0 + 1
    margin = c.strip_results * 0
    in_smem, maps, weights = c.feature_map_bytes > 0, c.feature_map_bytes * 0, taps * where(patches, 1, c.vec_lane)
    if s is not None and s.feature_maps is not None:
        height, width = s.feature_maps.rows, s.feature_maps.columns
        of_column = ceil_div(c.strip_results * height.taps, height.ratio)  # products of a column of taps
        pixels_of_column = (
            (c.strip_results - 1) * height.stride + (height.taps - 1) * height.dilation
        ) // height.ratio + 1
        taps_of_map, of_image = s.feature_maps.taps, c.feature_map_bytes
        maps = s.feature_maps.maps_in(of_image)
        groups = ceil_div(s.feature_maps.count, np.maximum(maps, 1))
        steps, weights = where(in_smem, 1, steps), where(in_smem, taps_of_map, weights)
        loads = where(in_smem, np.minimum(pixels_of_column, of_column) * width.taps, loads)
        products = where(in_smem, of_column * width.taps, products)
        held = (c.strip_results + taps_of_map) * words + width.taps + FEATURE_MAP_REGISTERS
        early = np.maximum(loads - FEATURE_MAP_PIXELS, 0) * 7 // 8
        held = np.maximum(held, np.minimum(held + early, FEATURE_MAP_LIMIT))
        registers = where(in_smem, held - FIXED_REGISTERS, registers)
        margin = (FEATURE_MAP_MARGIN + RESULT_MARGIN * c.strip_results) * words * bool(p.sink.ops)
        if s.wgrad:
            maps = s.feature_maps.channels_in(of_image, np.maximum(threads, 1), np.maximum(c.strip_results, 1))
            groups = ceil_div(s.feature_maps.channels, np.maximum(maps, 1))
            of_image = np.maximum(of_image, taps_of_map * threads * max(4, p.accumulator.bytes))
            weights = where(in_smem, c.strip_results, weights)
        shared = where(in_smem, of_image, shared)
        tiles_m = where(in_smem, groups, tiles_m)
        tiles_n = where(in_smem, 1, tiles_n)
        tiles = where(in_smem, tiles_m, tiles)
    return DepthwiseGeometry(
        a=OperandGeometry(loads=threads * loads),
        b=OperandGeometry(loads=threads * taps),
        threads=threads,
        loads=loads,
        products=products,
        steps=steps,
        weights=weights,
        maps=maps,
        reg_margin=where(in_smem, margin, where(patches, PATCH_MARGIN * bool(p.sink.ops), 0)),
        shared=shared,
        registers=registers + FIXED_REGISTERS,
        uk=c.u,
        c_row_pitch=c.block_lanes + 4,
        sum_bytes=max(4, p.accumulator.bytes),
        c_via_smem=c.block_rows < 0,
        tiles_m=tiles_m,
        tiles_n=tiles_n,
        tiles=tiles,
        slice_k=ceil_div(p.k, c.u) * c.u,
        slices=np.maximum(c.kg, 1),
        blocks=tiles * np.maximum(c.kg, 1),
        workspace=c.block_rows * 0,
    )
