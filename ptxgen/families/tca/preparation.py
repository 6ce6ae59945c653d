"""The preparation of tca kernels: the assignment of a row to each warp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ptxgen.codegen.parts.parameters import ParameterList, Parameters, given
from ptxgen.codegen.preparation import SIZES, Preparation, Stage, Stages
from ptxgen.codegen.source import Step
from ptxgen.codegen.vectorized import WARP, Log2, Mask
from ptxgen.families.tca import layout
from ptxgen.families.tca.geometry import NONZERO_LIMIT, most_blocks
from ptxgen.lowering.kernel_problem import KernelProblem

ROWS = 1024  #: rows of a block of the preparation, one for each thread
WORD = 4
BLOCKS = "blocks"  #: name of the size that counts blocks of 8 warps
#: names of the arrays that launches read
WARPS_OF_ROW, ROW_OF_WARP, PLACE_OF_WARP = "num_warps_per_row", "row_id_for_each_warp", "warpid_within_row"


def _rows(p: KernelProblem) -> tuple[int]:
    return (p.extents.m,)


@dataclass(frozen=True)
class AssignWarps(Preparation):
    """The preparation of the three arrays of TCA-SpMM: the row of each warp (-1: none), the number of each warp among
    the warps of its row, and the number of warps of each row.

    Rows are sorted by class of length. Each class begins with a new block, so that no row of fewer than 8 warps is in
    two blocks. Empty rows are the last class; each has one warp, which sets C.

    ``tiles``: the number of tiles of columns, which is the most blocks of a row. The preparation reads only the
    pattern.
    """

    tiles: int

    kernel: ClassVar[str] = "prepare/tca_warps.mako"
    description: ClassVar[list[str]] = ["the row of each warp, by classes of row lengths"]
    counting: ClassVar[ParameterList] = ParameterList(
        (given("u64", "indptr", WARPS_OF_ROW, "class_units"), Parameters("u32", ("rows",), _rows))
    )
    adding: ClassVar[ParameterList] = ParameterList(
        (
            given("u64", "class_units", "classes", SIZES),
            Parameters("u32", ("groups",), lambda p: (groups(p),)),
        )
    )
    placing: ClassVar[ParameterList] = ParameterList(
        (
            given("u64", "indptr", "class_units", "classes", ROW_OF_WARP, PLACE_OF_WARP),
            Parameters("u32", ("rows",), _rows),
        )
    )

    # numbers of the template
    threads: ClassVar[int] = ROWS
    group_warps: ClassVar[int] = ROWS // WARP
    classes: ClassVar[int] = layout.CLASSES
    block_warps: ClassVar[int] = layout.WARPS
    #: a row is in the first class whose limit its length exceeds, else in the last class
    lengths: ClassVar[tuple[int, ...]] = (*(layout.PART * w for w in layout.SHARES), 0)
    part: ClassVar[int] = layout.NONZEROS
    #: log2 of the rows of a block, for each class
    row_shifts: ClassVar[tuple[int, ...]] = (0, 0, 1, 2, 3, 3)

    def read_bytes(self, p: KernelProblem) -> int:
        return int(2 * WORD * p.extents.m)

    def expected(self, p: KernelProblem) -> dict[str, int]:
        return {BLOCKS: int(p.extents.m // layout.WARPS + p.extents.nnz // layout.NONZEROS)}

    def stages(self, p: KernelProblem) -> Stages:
        rows, n = p.extents.m, groups(p)
        units = {"class_units": WORD * layout.CLASSES * n, "classes": 2 * WORD * layout.CLASSES}
        count = Step("count_warps", (n, 1, 1), (ROWS, 1, 1), 0, self.counting.arguments(p))
        add = Step("add_warps", (1, 1, 1), (WARP * layout.CLASSES, 1, 1), 0, self.adding.arguments(p))
        [blocks] = yield Stage(
            (count, add), {WARPS_OF_ROW: WORD * rows}, units, {BLOCKS: most_blocks(p, NONZERO_LIMIT)}
        )
        place = Step("place_warps", (n, 1, 1), (ROWS, 1, 1), 0, self.placing.arguments(p))
        arrays = dict.fromkeys((ROW_OF_WARP, PLACE_OF_WARP), WORD * layout.WARPS * blocks)
        yield Stage((place,), arrays)

    @property
    def adding_threads(self) -> int:
        return WARP * self.classes

    @property
    def counts_bytes(self) -> int:
        return WORD * self.group_warps

    @property
    def block_bytes(self) -> int:
        return WORD * self.block_warps

    @property
    def placed_warps(self) -> int:
        return self.block_warps * self.classes

    log2_block_warps = Log2("block_warps")
    block_warp_mask = Mask("block_warps")

    @property
    def group_counts(self) -> int:
        return self.classes * self.group_warps

    part_mask = Mask("part")
    log2_part = Log2("part")

    @property
    def shifted_warps(self) -> int:
        """The number that gives the warps of a row of class c if it is shifted right by c bits."""
        return 2 * self.block_warps

    @property
    def class_offsets(self) -> list[tuple[int, int]]:
        """For each class but the first: its number, and the offset of its counts of warps."""
        return [(c, c * self.counts_bytes) for c in range(1, self.classes)]

    @property
    def class_records(self) -> list[tuple[int, int, int, int, int]]:
        """For each class: log2 of the rows of a block, that number of rows minus 1, and three offsets: of the class's
        total units, of the stored number of its first block, of its stored units."""
        return [
            (shift, (1 << shift) - 1, WORD * c, 2 * WORD * c, 2 * WORD * c + WORD)
            for c, shift in enumerate(self.row_shifts)
        ]


def groups(p: KernelProblem) -> int:
    """The number of blocks of the counting kernels."""
    return max(-(-int(p.extents.m) // ROWS), 1)
