"""Packing of filters for strided input gradients whose phases are columns of one product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ptxgen.codegen.launches.c_kernels import AUX_KERNEL_THREADS
from ptxgen.codegen.launches.launched import Launched
from ptxgen.codegen.launches.packing import ROW
from ptxgen.codegen.parts.parameters import Parameters
from ptxgen.codegen.registers import Tile, braces
from ptxgen.codegen.source import Step
from ptxgen.families.wgmma.packing.channels import CHUNK, WORD, ChannelPacking, image_copy
from ptxgen.lowering.im2col_descriptor import MergedFilters
from ptxgen.lowering.kernel_problem import KernelProblem


@dataclass(frozen=True)
class MergedFilterPacking(ChannelPacking):
    """Filters in rows of channels, a row for each column of C and each tap: a thread copies CHUNK bytes of a row."""

    template = "copy/pack_merged_filters.mako"
    THREADS, ROW = AUX_KERNEL_THREADS, ROW
    #: parameters of the kernel: rows and chunks of a row; digits of a row number; the filter tap of the first tap, the
    #: stride and the extent along each axis; strides of taps, columns and channels; channels; offset in the workspace
    #: in units of 128 bytes
    NAMES = (
        "rows",
        "row_chunks",
        "taps0",
        "taps1",
        "columns",
        "first0",
        "first1",
        "stride0",
        "stride1",
        "extent0",
        "extent1",
        "tap_step0",
        "tap_step1",
        "column_step",
        "channel_step",
        "channels",
        "copy_offset128",
    )

    @property
    def name(self) -> str:
        """The operand with the filters."""
        return self.names[0]

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.problem.element.bytes

    @cached_property
    def loaded(self) -> Tile:
        """The elements of a chunk."""
        return Tile("element", f"b{8 * self.size}", (CHUNK // self.size,))

    @property
    def words(self) -> list[str]:
        """The words of a chunk: a register each, or the two that hold its halves."""
        registers, each = self.loaded.all, WORD // self.size
        return [braces(registers[n : n + each]) if each > 1 else registers[n] for n in range(0, len(registers), each)]

    @property
    def summary(self) -> str:
        return f"; a kernel packs {self.name.upper()} to a row of channels for each phase, channel of C and tap first"

    @property
    def parameters(self) -> list[Parameters]:
        return [Parameters("u32", self.NAMES, self._numbers)]

    def _filters(self, p: KernelProblem) -> MergedFilters:
        copy = image_copy(p, self.name)
        assert isinstance(copy, MergedFilters)
        return copy

    def _chunks(self, copy: MergedFilters) -> int:
        """Chunks of a row."""
        return copy.pitch * self.size // CHUNK

    def _numbers(self, launched: Launched) -> tuple[int, ...]:
        """The values of ``NAMES``."""
        copy = self._filters(launched.p)
        return (
            copy.row_count,
            self._chunks(copy),
            *copy.taps,
            copy.column_count,
            *(n & 0xFFFFFFFF for n in copy.first),
            *copy.stride,
            *copy.extents,
            *copy.tap_steps,
            copy.column_step,
            copy.step,
            copy.depth,
            launched.buffers.packed[self.name] // ROW,
        )

    def steps(self, launched: Launched) -> tuple[Step, ...]:
        copy = self._filters(launched.p)
        blocks = -(-copy.row_count * self._chunks(copy) // AUX_KERNEL_THREADS)
        block = (AUX_KERNEL_THREADS, 1, 1)
        return (Step(f"{self.entry}_pack_filters", (blocks, 1, 1), block, 0, self.parameter_list.arguments(launched)),)
