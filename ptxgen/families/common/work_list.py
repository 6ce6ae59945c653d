"""Work lists of sparse matrices: rows, or row windows, ordered by length, of which long ones are split into parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.preparation import SIZES, Preparation, Scan, Stage, Stages
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import Last, ceil_div
from ptxgen.lowering.kernel_problem import KernelProblem

ITEM_BYTES, PART_BYTES = 16, 8
WHOLE = 0xFFFFFFFF  #: the part number of an item that is a whole segment
#: upper limit of the elements of all segments; the problem may state fewer than the matrix has
ELEMENT_LIMIT = (1 << 31) - 1
UNLIMITED = 0x3FFFFFFF  #: the greatest length of a part if parts are not limited


@dataclass(frozen=True)
class WorkList(Scan, Preparation):
    """The preparation of a work list. A segment is the nonzeros (or blocks of nonzeros) of ``rows`` rows of A.
    ``starts``: the name of the array with the first element of each segment, and the end; ``longest``: the most
    elements of a part.

    It makes two arrays. ``items``: {segment, first element, end, part or WHOLE}, 32 bits each, the longest first.
    ``parts``: for each part of a split segment {first part of the segment, number of its parts}. Its sizes are
    ``items`` and ``parts``, the lengths of these arrays.
    """

    starts: str = "indptr"
    rows: int = 1
    longest: int = UNLIMITED

    kernel = "prepare/work_list.mako"
    threads: ClassVar[int] = 256
    each: ClassVar[int] = 4  #: segments per thread
    bins: ClassVar[int] = 128
    whole: ClassVar[int] = WHOLE

    @property
    def description(self) -> list[str]:
        return [f"work list of the segments {self.starts}: items by length, long segments in parts"]

    @property
    def count(self) -> ParameterList:
        return ParameterList((given("u64", self.starts, "counts"), *self._numbers))

    @property
    def scan(self) -> ParameterList:
        return ParameterList(
            (given("u64", "counts", SIZES), Parameters("u32", ("blocks",), lambda p: (self._blocks(p),)))
        )

    @property
    def place(self) -> ParameterList:
        return ParameterList((given("u64", self.starts, "counts", "items", "parts"), *self._numbers))

    @property
    def _numbers(self) -> tuple[Parameters, ...]:
        return (Parameters("u32", ("segments", "longest"), lambda p: (self._segments(p), self.longest)),)

    def _segments(self, p: Any) -> int:
        return int(ceil_div(p.extents.m, self.rows))

    def _blocks(self, p: Any) -> int:
        return int(ceil_div(self._segments(p), self.threads * self.each))

    def read_bytes(self, p: KernelProblem) -> int:
        return 2 * 4 * self._segments(p)

    def expected(self, p: KernelProblem) -> Mapping[str, int]:
        elements = p.extents.nnz if self.rows == 1 else p.extents.vectors // self.rows
        return {"items": self._segments(p) + elements // self.longest, "parts": 2 * elements // self.longest}

    def stages(self, p: KernelProblem) -> Stages:
        blocks, segments = self._blocks(p), self._segments(p)
        limits = {"items": segments + ELEMENT_LIMIT // self.longest, "parts": 2 * ELEMENT_LIMIT // self.longest}
        grid, block = (blocks, 1, 1), (self.threads, 1, 1)
        items, parts = yield Stage(
            (
                Step("count_parts", grid, block, 0, self.count.arguments(p)),
                Step("scan_parts", (1, 1, 1), (self.scan_threads, 1, 1), 0, self.scan.arguments(p)),
            ),
            scratch={"counts": 4 * (self.bins + 1) * blocks},
            sizes=limits,
        )
        yield Stage(
            (Step("place_parts", grid, block, 0, self.place.arguments(p)),),
            {"items": ITEM_BYTES * items, "parts": PART_BYTES * parts},
        )

    @property
    def bin_bytes(self) -> int:
        return 4 * self.bins

    @property
    def counter_bytes(self) -> int:
        return 4 * (self.bins + 1)

    last_bin = Last("bins")

    @property
    def block_segments(self) -> int:
        return self.each * self.threads

    @property
    def segment_offsets(self) -> range:
        """The distances from a thread's first segment to each of its segments."""
        return range(0, self.block_segments, self.threads)


def sizes_of(sizes: Mapping[str, int]) -> tuple[int, int]:
    """The numbers of items and of parts in ``sizes``."""
    return sizes["items"], sizes["parts"]
