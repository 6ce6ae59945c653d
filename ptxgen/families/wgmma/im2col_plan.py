"""Loads of convolutions: im2col tensor maps load windows of images, so that no kernel writes the im2col matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.config.config import Config
from ptxgen.codegen.launches.launched import Launched
from ptxgen.codegen.parts.addressing import CAddressing, multiplier
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.source import PixelBox, TensorMap
from ptxgen.families.wgmma.geometry import STEP, loads_tiled, stage_depth
from ptxgen.families.wgmma.layout import Box, Multicast, OperandPath
from ptxgen.families.wgmma.loads import MatrixLoads
from ptxgen.families.wgmma.operand_packing import TMA_ALIGNED
from ptxgen.families.wgmma.tensor_batch import TensorBatch
from ptxgen.lowering import implicit_gemm
from ptxgen.lowering.im2col_descriptor import Digits, Im2colDescriptor, im2col, tma_n, with_descriptor
from ptxgen.lowering.kernel_problem import STRIDED, KernelProblem
from ptxgen.lowering.table import Table

#: parameters of an axis of the images
PER_AXIS = ("positions", "lower_corner", "stride", "taps", "filter_extent", "dilation")


class RunLayout:
    """Offsets of rows (or columns) of C in runs of constant stride, which a kernel computes from ``parameters``."""

    def __init__(self, name: str, digits: Digits) -> None:
        self.name = name
        #: axes of an image along which the number has a position; none: it is composed of a run and a position in it
        self.axes = range(0)
        #: whether there are several runs, with a gap between them
        self.has_gaps = len(digits) > 1
        self.parameters = (
            f"step_{name}",
            *([f"magic_{name}", f"shift_{name}", f"run_gap_{name}"] if self.has_gaps else []),
        )

    @property
    def registers(self) -> tuple[str, ...]:
        """The kernel parameters that its offsets are computed from."""
        return self.parameters

    def values(self, digits: Digits) -> tuple[int, ...]:
        """The values of ``parameters``: number n is at n · step + n // extent · run_gap."""
        extent, step = digits[-1]
        if len(digits) == 1:
            return (step,)
        return step, *multiplier(extent), (digits[0][1] - extent * step) & 0xFFFFFFFF


class PhasePixels(RunLayout):
    """Offsets of rows (or columns) of C that are pixels of a phase of a strided input gradient: the number is composed
    of an image and a position along each axis. Positions past the last pixel of the phase are out of bounds."""

    def __init__(self, name: str, digits: Digits) -> None:
        self.name, self.axes, self.has_gaps = name, range(len(digits) - 1), True
        self.parameters = (f"image_step_{name}", *(f"step_{name}{a}" for a in self.axes))

    @property
    def registers(self) -> tuple[str, ...]:
        dividers = ((f"positions{a}", f"magic_positions{a}", f"shift_positions{a}") for a in self.axes)
        return (*self.parameters, *(name for names in dividers for name in names))

    def values(self, digits: Digits) -> tuple[int, ...]:
        (_, image), *axes = digits
        return image, *(step for _, step in reversed(axes))


class Im2colPixels(OperandPath):
    """Images whose rows are pixels and whose K is contiguous: a unit is some channels of one tap."""

    tma_mode = "im2col"

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast)
        self.tma_rank = loads.window.rank
        self.boxes = [Box(b.offset, 0, n) for n, b in enumerate(self.boxes)]
        self.pixel = "".join(f", %pixel{a}" for a in loads.axes)
        self.copy_operands = ", {" + ", ".join(f"%im2col_offset{a}" for a in loads.axes) + "}" + self.copy_operands

    def inner_coordinate(self, b: Box, first: str) -> str:
        return "%channel"

    def coordinates(self, b: Box, first: str) -> str:
        return f"%inner_coord{self.pixel}, %image"


class FilterTaps(OperandPath):
    """Filters, one after the other, each of taps of channels: contiguous along K, or along the other side."""

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast)
        self.tma_rank = 3
        self.filter_tap = loads.filter_tap
        if self.kmajor:
            self.boxes = [Box(b.offset, 0, n) for n, b in enumerate(self.boxes)]
            self.box = (self.box[0], 1, self.box[1])
        else:
            unit_bytes = loads.unit * self.span
            self.boxes = [
                Box(b.offset + n * unit_bytes, b.inner, n) for n in range(self.depth // loads.unit) for b in self.boxes
            ]
            self.box = (self.box[0], 1, loads.unit)

    def inner_coordinate(self, b: Box, first: str) -> str:
        return "%channel" if self.kmajor else first

    def tap(self, b: Box) -> str:
        """Register with the number of a box's tap in the filter."""
        return "%box_tap" if self.tap_offset(b) else self.filter_tap

    def coordinates(self, b: Box, first: str) -> str:
        return f"%inner_coord, {self.tap(b)}, {first if self.kmajor else '%channel'}"


class RowTapPixels(Im2colPixels):
    """Images whose pixels all taps of a filter row read, from shared memory: a box has a tile and its halo. The rows of
    tap n begin n pixels later; wgmma swizzles by addresses, so an operand may begin at any row."""

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(loads, role, name, config, base, multicast)
        self.box = (self.box[0], self.box[1] + loads.window.row_taps - 1)
        self.tx_bytes = self.box[0] * self.box[1] * self.element

    def k_step_offset(self, k: int) -> int:
        tap, inner = divmod(k * STEP, self.span)
        return tap * self.span + inner


class RowTapFilters(FilterTaps):
    """Filters of a row of taps: a stage has them in the order of the pixels that they are multiplied by."""

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(loads, role, name, config, base, multicast)
        last = loads.window.row_taps - 1
        self.tap_offsets = {b.offset: last - b.unit if loads.flipped else b.unit for b in self.boxes}
        self.boxes = [Box(b.offset, b.inner) for b in self.boxes]

    def tap_offset(self, b: Box) -> int:
        return self.tap_offsets[b.offset]


class Im2colColumns(OperandPath):
    """Images whose columns are taps of channels, contiguous, and whose rows, along K, are pixels."""

    tma_mode = "im2col"

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast)
        self.axes = loads.axes
        self.tma_rank = loads.window.rank
        self.pixel = "".join(f", %pixel{a}" for a in self.axes)
        #: first column of each box, from the tile's first
        self.columns = [b.inner for b in self.boxes]
        self.boxes = [Box(b.offset, 0) for b in self.boxes]

    def inner_coordinate(self, b: Box, first: str) -> str:
        return f"%channel{self.boxes.index(b)}"

    def coordinates(self, b: Box, first: str) -> str:
        return f"%inner_coord{self.pixel}, %image"

    def trailing_operands(self, b: Box) -> str:
        offsets = ", ".join(f"%im2col_offset{self.boxes.index(b) * len(self.axes) + a}" for a in self.axes)
        return f", {{{offsets}}}{self.copy_operands}"


@dataclass(frozen=True)
class Im2colLoads(MatrixLoads):
    """Loads of the forward convolution, and of the gradient of images where the stride is one: K is taps of
    channels."""

    template = "addr/im2col.mako"

    @property
    def window(self) -> Im2colDescriptor:
        window: Im2colDescriptor | None = im2col(self.problem)
        assert window is not None
        return window

    @property
    def filter_tap(self) -> str:
        """The register with the tap's number in the filter."""
        return "%filter_tap" if self.flipped else "%tap"

    @property
    def flipped(self) -> bool:
        """Whether the filter's last tap is multiplied by the first pixel."""
        return self.window.flipped

    @property
    def unit(self) -> int:
        """Extent of K that one box loads."""
        return int(self.geometry.unit)

    @property
    def units(self) -> int:  # type: ignore[override]
        return self.config.u // self.unit

    @property
    def axes(self) -> range:
        """The axes of the images, the innermost first."""
        return range(len(self.window.extents))

    @property
    def splits_k(self) -> bool:
        return self.config.kg * self.config.cluster_k > 1

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        kind = Im2colPixels if name == self.window.side else FilterTaps
        return kind(self, role, name, self.config, base, multicast)

    @property
    def dividers(self) -> list[str]:
        """Run-time numbers that the kernel divides by, each as a multiplier and a shift."""
        positions = [f"positions{a}" for a in self.axes]
        return positions + (["units_per_tap", *(f"taps{a}" for a in self.axes[:-1])] if self.splits_k else [])

    @property
    def runs(self) -> list[RunLayout]:
        """The run layouts of rows and columns of C, if C is not a matrix."""
        return run_layouts(self.problem)

    @property
    def parameters(self) -> list[Parameters]:
        return [
            Parameters("u32", ("channels", "taps", "units_per_tap"), lambda x: self._counts(x.p)),
            *map(self._of_axis, self.axes),
            *map(self._of_divider, self.dividers),
            *(self._of_run(n, run) for n, run in enumerate(self.runs)),
        ]

    def _counts(self, p: KernelProblem) -> tuple[int, int, int]:
        x = im2col(p)
        # the coordinate after the last channel must be a multiple of 16 bytes too
        chunk = max(TMA_ALIGNED // p.element.bytes, 1)
        channels = x.channels if x.wgrad else -(-x.channels // chunk) * chunk
        return channels, x.tap_count, self.divisors(x)["units_per_tap"]

    def _of_axis(self, a: int) -> Parameters:
        def values(launched: Launched) -> Iterator[int]:
            x = im2col(launched.p)
            filter_extent = x.taps[a] * x.dilation[a]
            numbers = (x.positions[a], x.lower[a], x.steps[a], x.taps[a], filter_extent, x.dilation[a])
            return (n & 0xFFFFFFFF for n in numbers)

        return Parameters("u32", tuple(f"{name}{a}" for name in PER_AXIS), values)

    def _of_divider(self, name: str) -> Parameters:
        names = (f"magic_{name}", f"shift_{name}")
        return Parameters("u32", names, lambda x: multiplier(self.divisors(im2col(x.p))[name]))

    def _of_run(self, n: int, run: RunLayout) -> Parameters:
        return Parameters("u32", run.parameters, lambda x: run.values((im2col(x.p).result or ())[n]))

    def divisors(self, x: Im2colDescriptor) -> dict[str, int]:
        """The values of ``dividers``, and of others."""
        divisors = {"channels": x.channels, "units_per_tap": -(-x.channels // self.unit)}
        divisors.update((f"positions{a}", x.positions[a]) for a in self.axes)
        divisors.update((f"taps{a}", x.taps[a]) for a in self.axes)
        return divisors

    def box_text(self, x: OperandPath) -> str:
        return f"{x.box[0]} x {x.box[-1]}" + (" pixels" if x.name == self.window.side else "")

    def tensor_map(self, p: KernelProblem, x: OperandPath, kind: str) -> TensorMap:
        window, size = im2col(p), p.element.bytes
        assert window is not None
        if isinstance(x, Im2colPixels | Im2colColumns):
            return im2col_map(window, x, kind, size)
        along = tma_n(p) if x.name == "b" else p.m
        inner, outer = (window.channels, along) if x.kmajor else (along, window.channels)
        taps = window.tap_count * window.row_taps
        pitches = (window.row * size, window.row * size * taps)
        return TensorMap(x.name.upper(), kind, (inner, taps, outer), pitches, x.box, x.span)


@dataclass(frozen=True)
class WgradLoads(Im2colLoads):
    """Loads of the gradient of filters: K is pixels."""

    template = "addr/wgrad_im2col.mako"
    units = 1

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        if name != self.window.side:
            return OperandPath(role, name, self.geometry, self.config, base, multicast)
        return Im2colColumns(self, role, name, self.config, base, multicast)

    @property
    def dividers(self) -> list[str]:
        return ["channels", *(f"positions{a}" for a in self.axes), *(f"taps{a}" for a in self.axes[:-1])]

    def tensor_map(self, p: KernelProblem, x: OperandPath, kind: str) -> TensorMap:
        if isinstance(x, Im2colColumns):
            return super().tensor_map(p, x, kind)
        assert im2col(p) is not None
        along = p.n if x.name == "b" else p.m
        extents = (p.k, along) if x.kmajor else (along, p.k)
        return TensorMap(x.name.upper(), kind, extents, (im2col(p).row * p.element.bytes,), x.box, x.span)


class ImageGradients(OperandPath):
    """Gradients of results: a box has pixels of an image, and filters."""

    def __init__(
        self, loads: Im2colLoads, role: str, name: str, config: Config, base: int, multicast: Multicast | None
    ) -> None:
        super().__init__(role, name, loads.geometry, config, base, multicast)
        self.tma_rank = 3
        self.box = (*self.box, 1)

    def inner_coordinate(self, b: Box, first: str) -> str:
        return "%position"

    def coordinates(self, b: Box, first: str) -> str:
        return f"%inner_coord, {first}, %image"


@dataclass(frozen=True)
class ImageWgradLoads(WgradLoads):
    """Loads of the gradient of filters: K is pixels, those of each image padded to whole stages."""

    template = "addr/wgrad_by_image.mako"

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        if name == self.window.side:
            return super().operand(role, name, base, multicast)
        return ImageGradients(self, role, name, self.config, base, multicast)

    @property
    def dividers(self) -> list[str]:
        return [*super().dividers, "stages_per_image"]

    def divisors(self, x: Im2colDescriptor) -> dict[str, int]:
        stages = -(-math.prod(x.positions) // self.config.u)
        return {**super().divisors(x), "stages_per_image": stages}

    @property
    def parameters(self) -> list[Parameters]:
        names = ("stages_per_image", "image_pixels")
        return [*super().parameters, Parameters("u32", names, lambda x: self._images(im2col(x.p)))]

    def _images(self, x: Im2colDescriptor) -> tuple[int, int]:
        return self.divisors(x)["stages_per_image"], math.prod(x.positions)

    def box_text(self, x: OperandPath) -> str:
        return f"{x.box[0]} pixels x {x.box[1]}" if isinstance(x, ImageGradients) else super().box_text(x)

    def tensor_map(self, p: KernelProblem, x: OperandPath, kind: str) -> TensorMap:
        if not isinstance(x, ImageGradients):
            return super().tensor_map(p, x, kind)
        window = im2col(p)
        assert window is not None
        filters, row = p.n if x.name == "b" else p.m, window.row * p.element.bytes
        extents = (math.prod(window.positions), filters, window.count)
        return TensorMap(x.name.upper(), kind, extents, (row, row * filters), x.box, x.span)


@dataclass(frozen=True)
class PhasedLoads(Im2colLoads):
    """Loads of a strided input gradient: K is the taps of a phase, of channels."""

    template = "addr/phased_im2col.mako"
    filter_tap = "%filter_tap"

    @property
    def parameters(self) -> list[Parameters]:
        names = tuple(f"tap_step{a}" for a in self.axes)
        steps = Parameters("u32", names, lambda x: (n & 0xFFFFFFFF for n in im2col(x.p).tap_steps))
        return [*super().parameters, steps]


@dataclass(frozen=True)
class RowTapLoads(PhasedLoads):
    """Loads of a convolution whose stages have a row of filter taps: K is rows of taps, of channels."""

    template = "addr/row_taps.mako"
    units = 1

    def operand(self, role: str, name: str, base: int, multicast: Multicast | None) -> OperandPath:
        if name == self.window.side:
            return RowTapPixels(self, role, name, self.config, base, multicast)
        deep = self.config.replace(u=stage_depth(self.config))
        return RowTapFilters(self, role, name, deep, base, multicast)


@dataclass(frozen=True)
class PhaseTable(Table):
    """The table of the phases of a strided input gradient, WORDS words each.

    The words: K iterations, first element in C, first filter tap, number of taps; then for each axis: pixels, offset of
    the first tap in pixels, that of the tap after the last one, filter taps between these two. ``unit``: channels of a
    box; ``u``: elements of K of a stage."""

    window: Im2colDescriptor
    unit: int
    u: int

    WORDS = 16

    def words(self) -> NDArray[np.uint32]:
        x, units = self.window, -(-self.window.channels // self.unit)
        out = np.zeros((len(x.phases), self.WORDS), np.int64)
        for row, phase in zip(out, x.phases, strict=True):
            iterations = -(-phase.tap_count * units * self.unit // self.u)
            row[:4] = iterations, phase.start, phase.filter_tap, phase.tap_count
            for a, taps in enumerate(phase.taps):
                end = phase.shift[a] + taps * x.dilation[a]
                row[4 + 4 * a : 8 + 4 * a] = phase.counts[a], phase.shift[a], end, taps * x.tap_steps[a]
        return out.astype(np.uint32)


@dataclass(frozen=True)
class PhaseBatch(TensorBatch):
    """The phases of a strided input gradient take the place of batch items: the tile scheduler assigns a phase and a
    tile of it to a block. ``unit``: channels of a box, ``u``: of a stage, ``axes``: of an image; ``by_phase``: whether
    C is images of the phases, which are at the start of the workspace."""

    unit: int
    u: int
    axes: int
    by_phase: bool = False

    template = "sched/phases.mako"
    skipped, frees_last = "%skipped_iters", "%arrives_prev"
    row_bytes = 4 * PhaseTable.WORDS

    @property
    def phases_base(self) -> str:
        """The register with the address that offsets of phases start at."""
        return "%workspace" if self.by_phase else "%C"

    @property
    def parameters(self) -> list[Parameters]:
        return [
            Parameters("u64", ("phase_table",), lambda x: (PhaseTable(im2col(x.p), self.unit, self.u),)),
            Parameters("u32", ("phases",), lambda x: (len(im2col(x.p).phases),), same_line=True),
        ]


def with_row_taps(p: KernelProblem, c: Config) -> KernelProblem:
    """The problem whose taps are rows of filter taps, if ``c`` asks for it: its pixels have a halo."""
    x = im2col(p)
    if c.row_taps == 1 or x is None or x.row_taps > 1:
        return p
    shared = x.with_row_taps(p.operand("C").access.ld)
    if x.side == "a":
        return with_descriptor(p.with_extents("A", m=x.halo_pixels), shared)
    return with_descriptor(p.with_extents("BC", n=x.halo_pixels), shared)


def unpacked(p: KernelProblem, c: Config) -> KernelProblem:
    """The problem without packed copies of its operands, if ``c`` loads these from where they are."""
    if im2col(p) is None or im2col(p).unpacked is None or not loads_tiled(p, c):
        return p
    return with_descriptor(p, im2col(p).unpacked)


def run_layouts(p: KernelProblem) -> list[RunLayout]:
    """The run layouts of rows and columns of C, if C is not a matrix; else none."""
    if im2col(p) is None or not im2col(p).result:
        return []
    strided = im2col(p).phases and not im2col(p).by_phase
    pixels = ("rows" if im2col(p).side == "a" else "columns") if strided else ""
    named = zip(("rows", "columns"), im2col(p).result, strict=True)
    return [(PhasePixels if name == pixels else RunLayout)(name, digits) for name, digits in named]


@dataclass(frozen=True)
class RunAddressing(CAddressing):
    """C where its rows and columns may be in runs of constant stride: auxiliary kernels address it through tables."""

    runs: bool

    @classmethod
    def of(cls, p: KernelProblem) -> RunAddressing:
        tables = p.operand("C").access.mode != STRIDED or (im2col(p) is not None and im2col(p).result is not None)
        phased = im2col(p) is not None and bool(im2col(p).phases)  # no auxiliary kernel reads C
        return cls(tables, bool(run_layouts(p)) and not phased)

    @property
    def parameters(self) -> list[Parameters]:
        if not self.runs:
            return []
        return [Parameters("u64", ("rows_c", "columns_c"), lambda x: c_tables(*im2col(x.p).result))]


@lru_cache(maxsize=64)
def c_tables(rows: Digits, columns: Digits) -> tuple[implicit_gemm.OffsetTable, implicit_gemm.OffsetTable]:
    """Offset tables of C, for kernels that scale or reduce it."""
    maps = [implicit_gemm.IndexMap(tuple(n for n, _ in x), tuple(step for _, step in x)) for x in (rows, columns)]
    return implicit_gemm.ImplicitOperand(maps[0], maps[1]).tables


def im2col_map(window: Im2colDescriptor, x: OperandPath, kind: str, size: int) -> TensorMap:
    """The im2col map of images, in boxes of ``x``."""
    pitches = tuple(n * size for n in window.pitches)
    extents = (window.channels, *window.extents, window.count)
    pixel_box = PixelBox(window.lower, window.upper, window.steps)
    return TensorMap(x.name.upper(), kind, extents, tuple(pitches), x.box, x.span, pixel_box)
