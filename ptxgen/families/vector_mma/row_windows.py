"""The preparation of row windows: a sparse matrix as blocks of 8×1 vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.preparation import SIZES, Preparation, Scan, Stage, Stages
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import Log2, Mask, ceil_div
from ptxgen.families.vector_mma.geometry import WINDOW
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.problem.dtypes import dtype

ABSENT = 0xFFFFFFFF  #: the column index of a vector that pads the last block of a window
WORD = 4
#: most blocks of all windows: each block has a nonzero, and row pointers have 32 bits
BLOCK_LIMIT = (1 << 31) - 1
PAD = 0.45  #: mean share of a window's last block that is padding
_LANES = 4  #: lanes that share a block of the left operand


def rows_of(p: KernelProblem) -> tuple[int]:
    return (p.extents.m,)


def windows_of(p: KernelProblem) -> tuple[int]:
    return (ceil_div(p.extents.m, WINDOW),)


@dataclass(frozen=True)
class RowWindows(Scan, Preparation):
    """The preparation of blocks of ``depth`` 8×1 vectors for each row window. The vectors are the distinct columns of
    the window, in ascending order; a padding vector has the column ``ABSENT`` and zeros.

    It makes three arrays. ``window_starts``: the first block of each window, and the number of blocks.
    ``window_columns``: the columns of each block. ``window_values``: for each block 8 rows of ``depth`` values, in the
    type ``element``; f32 values are rounded to tf32. A vector is stored at the place that ``place`` gives: lane t of 4
    adjacent lanes reads ``depth`` / 4 adjacent places, and load i of the 4 lanes reads 4 adjacent vectors.
    """

    element: str
    depth: int

    kernel = "prepare/row_windows.mako"
    reads_values = True

    threads: ClassVar[int] = 256  #: threads of a block, which prepares one window
    bitmap: ClassVar[int] = 4096  #: words of the bitmap of columns; a multiple of 4 for each thread
    counted: ClassVar[ParameterList] = ParameterList(
        (given("u64", "indptr", "indices", "window_starts"), Parameters("u32", ("M",), rows_of))
    )
    scanned: ClassVar[ParameterList] = ParameterList(
        (given("u64", "window_starts", SIZES), Parameters("u32", ("windows",), windows_of))
    )
    filled: ClassVar[ParameterList] = ParameterList(
        (
            given("u64", "indptr", "indices", "values", "window_starts", "window_columns", "window_values"),
            Parameters("u32", ("M",), rows_of),
        )
    )

    @property
    def description(self) -> list[str]:
        return [f"row windows of a sparse matrix in CSR: blocks of {self.depth} 8x1 vectors of {self.element}"]

    @property
    def size(self) -> int:
        """The number of bytes of an element."""
        return dtype(self.element).bytes

    #: rows of a window
    rows = WINDOW
    absent = ABSENT

    @property
    def warps(self) -> int:
        return self.threads // 32

    @property
    def lane_places(self) -> int:
        """The number of adjacent places of a lane."""
        return self.depth // _LANES

    def place(self, vector: int) -> int:
        """The place of a vector in its block."""
        return vector % _LANES * self.lane_places + vector // _LANES

    @property
    def block_bytes(self) -> int:
        """The number of bytes of the values of a block."""
        return WINDOW * self.depth * self.size

    def read_bytes(self, p: KernelProblem) -> int:
        """The bytes that the preparation reads: columns twice, values once."""
        return int(p.extents.nnz * (2 * WORD + self.size) + 2 * p.extents.m * WORD)

    def expected(self, p: KernelProblem) -> dict[str, int]:
        [windows] = windows_of(p)
        return {"blocks": int(p.extents.vectors / self.depth + PAD * min(windows, p.extents.vectors))}

    def stages(self, p: KernelProblem) -> Stages:
        [windows] = windows_of(p)
        count, scan, fill = "count_window_blocks", "scan_window_blocks", "fill_window_blocks"
        grid, block = (max(windows, 1), 1, 1), (self.threads, 1, 1)
        first = (
            Step(count, grid, block, 0, self.counted.arguments(p)),
            Step(scan, (1, 1, 1), (self.scan_threads, 1, 1), 0, self.scanned.arguments(p)),
        )
        most = min(windows * ceil_div(p.extents.k, self.depth), BLOCK_LIMIT)
        [blocks] = yield Stage(first, {"window_starts": WORD * (windows + 1)}, sizes={"blocks": most})
        arrays = {"window_columns": blocks * self.depth * WORD, "window_values": blocks * self.block_bytes}
        yield Stage((Step(fill, grid, block, 0, self.filled.arguments(p)),), arrays)

    depth_mask = Mask("depth")
    log2_depth = Log2("depth")

    @property
    def column_bytes(self) -> int:
        """The number of bytes of the column indices of a block."""
        return WORD * self.depth

    @property
    def block_stores(self) -> int:
        """The number of 16-byte stores that clear a block."""
        return self.block_bytes // 16

    @property
    def bitmap_bytes(self) -> int:
        return WORD * self.bitmap

    @property
    def arrays_bytes(self) -> dict[int, int]:
        """The bytes of one array, and of two arrays, with as many words as the bitmap, by the number of arrays."""
        return {n: n * self.bitmap_bytes for n in (1, 2)}

    @property
    def slot_bytes(self) -> int:
        return 8 * self.warps

    warp_mask = Mask("warps")

    @property
    def round_mask(self) -> int:
        return 4 * self.threads - 1

    @property
    def log2_round_words(self) -> int:
        """log2 of the words that the threads clear at once."""
        return (4 * self.threads).bit_length() - 1

    @property
    def round_bytes(self) -> int:
        return 16 * self.threads

    @property
    def range_columns(self) -> int:
        """The number of columns of a range, which are the bits of the bitmap."""
        return 32 * self.bitmap

    log2_lane_places = Log2("lane_places")
