"""Strided input gradients in one launch: phases take the place of batch items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.families.wgmma.conv.im2col_loads import Im2colLoads
from ptxgen.families.wgmma.matrix.scheduler import TileScheduler
from ptxgen.families.wgmma.matrix.tensor_batch import TensorBatch
from ptxgen.lowering.im2col_descriptor import Im2colDescriptor, im2col
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.table import Table


@dataclass(frozen=True)
class PhasedLoads(Im2colLoads):
    """The loads of a strided input gradient. K is taps of a phase times channels."""

    template = "addr/phased_im2col.mako"
    filter_tap = "%filter_tap"

    @property
    def parameters(self) -> list[Parameters]:
        names = tuple(f"tap_step{a}" for a in self.axes)
        steps = Parameters("u32", names, lambda x: (n & 0xFFFFFFFF for n in im2col(x.p).tap_steps))
        return [*super().parameters, steps]


@dataclass(frozen=True)
class PhaseTable(Table):
    """The table of the phases of a strided input gradient, with WORDS words for each phase.

    The words are: K iterations; first element in C; first filter tap; number of taps; then for each axis: pixels;
    offset of the first tap in pixels; offset of the tap after the last one; filter taps between these two. ``unit``:
    channels of a box; ``u``: elements of K of a stage.
    """

    im2col: Im2colDescriptor
    unit: int
    u: int

    WORDS = 16

    def words(self) -> NDArray[np.uint32]:
        x, units = self.im2col, -(-self.im2col.channels // self.unit)
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
    """The batch of a strided input gradient, whose items are phases: the tile scheduler assigns a phase and a tile of
    it to a block. ``unit``: channels of a box; ``u``: elements of K of a stage; ``axes``: axes of an image;
    ``by_phase``: True if C is the images of the phases, which are at the start of the workspace; ``groups``: True if
    each phase has the items of a batch, which are groups of channels."""

    unit: int
    u: int
    axes: int
    by_phase: bool = False
    groups: bool = False

    template = "sched/phases.mako"
    skipped, frees_last = "%skipped_iters", "%arrives_prev"
    row_bytes = 4 * PhaseTable.WORDS

    @property
    def items_template(self) -> str:
        """The template file with the items of a phase."""
        return "sched/phase_items.mako" if self.groups else "sched/phase_item.mako"

    @property
    def phases_base(self) -> str:
        """The register with the address to which offsets of phases are added."""
        return "%workspace" if self.by_phase else "%C"

    @property
    def parameters(self) -> list[Parameters]:
        return [
            Parameters("u64", ("phase_table",), lambda x: (PhaseTable(im2col(x.p), self.unit, self.u),)),
            Parameters("u32", ("phases",), lambda x: (len(im2col(x.p).phases),), same_line=True),
            *(super().parameters if self.groups else ()),
        ]

    @property
    def phase_number(self) -> str:
        """The register with the number of the block's phase."""
        return "%phase_number" if self.groups else "%item"

    @property
    def axis_offsets(self) -> range:
        """For each axis, the offset of its number of pixels in a row of the table."""
        return range(16, 16 + 16 * self.axes, 16)

    @property
    def tap_offsets(self) -> range:
        """For each axis, the offset of its first tap in a row of the table."""
        return range(20, 20 + 16 * self.axes, 16)

    @property
    def step_offsets(self) -> range:
        """For each axis, the offset of the end of its taps in a row of the table."""
        return range(24, 24 + 16 * self.axes, 16)


@dataclass(frozen=True)
class MergedPhaseScheduler(TileScheduler):
    """The scheduler of the tiles of a strided input gradient whose phases are columns of C."""

    def gemms(self, p: KernelProblem) -> tuple[KernelProblem, ...]:
        return (p,)


@dataclass(frozen=True)
class PhaseScheduler(TileScheduler):
    """The scheduler of the tiles of all phases of a strided input gradient, in one launch."""

    grid_z_text = "phases"

    def gemms(self, p: KernelProblem) -> tuple[KernelProblem, ...]:
        return (p,)

    def grid(self, p: KernelProblem, items: int) -> tuple[int, int, int]:
        """The grid of a launch of all phases."""
        assert im2col(p) is not None
        return super().grid(p, len(im2col(p).phases) * items)

    def batch_limit(self, p: KernelProblem) -> int:
        """The most items of one launch, each of which has all phases."""
        return max(super().batch_limit(p) // len(im2col(p).phases), 1)
