"""The axes of the family resident_rows."""

from __future__ import annotations

from ptxgen.codegen.config.axes import Axis

LONGEST = 32  #: the largest K
MOST_COLUMNS = 8  #: most columns that a thread computes together
LOAD_BYTES = 16  #: most bytes of an access to shared memory

AXES = (
    Axis(
        "resident_k",
        3,
        "elements of K, all of which a thread keeps of its rows: K of the problem",
        (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 28, 32),
        least=1,
        most=LONGEST,
        feature=False,
    ),
    Axis(
        "thread_rows",
        4,
        "rows of A that a thread keeps in registers",
        (1, 2, 3, 4, 6, 8),
        least=1,
        most=16,
        feature=False,
    ),
    Axis("row_warps", 4, "warps of a block, each with other rows", (1, 2, 4, 8), least=1, most=32, feature=False),
    Axis(
        "columns_at_once",
        4,
        "columns of B that a thread reads from shared memory, and computes together",
        (1, 2, 4, 8),
        least=1,
        most=MOST_COLUMNS,
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "tile_columns",
        256,
        "columns of B in shared memory",
        (64, 128, 256, 512),
        least=4,
        most=4096,
        power_of_two=True,
        feature=False,
    ),
    Axis(
        "lower_bounds",
        0,
        "1: lower bounds of the sums of squares of differences, which take half of their instructions, tell which sums"
        " need not be computed",
        (0, 1),
        least=0,
        most=1,
        feature=False,
    ),
    Axis(
        "column_parts",
        1,
        "parts of the columns, each with a state of every row, which a second kernel joins",
        (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
        least=1,
        most=1024,
        feature=False,
    ),
)
