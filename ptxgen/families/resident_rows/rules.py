"""The rules of legal configurations of the family resident_rows."""

from __future__ import annotations

from ptxgen.codegen.config.rule import Rule
from ptxgen.families.resident_rows.axes import LOAD_BYTES
from ptxgen.families.resident_rows.geometry import column_lanes
from ptxgen.families.resident_rows.sum_bounds import bound_of
from ptxgen.lowering.kernel_problem import KernelProblem
from ptxgen.lowering.row_reduce import RowReduce
from ptxgen.lowering.row_top import RowTop
from ptxgen.lowering.sink import SelectValues

WORKSPACE_LIMIT = 1 << 30  #: most bytes of the states
MOST_COPIES = 16  #: most elements of a tile of columns that a thread copies
HELD = (4, 8)  #: bytes of an element in registers
PITCH_LIMIT = 1 << 31  #: exclusive limit of the elements of A and of B


def holds_elements(p: KernelProblem) -> bool:
    """True if registers hold elements of A and B in the type that memory has."""
    return p.element.bytes in HELD and all(p.held_type(x.name) == x.dtype for x in p.operands)


def reads_operands_alone(p: KernelProblem) -> bool:
    """True if steps read A, B and numbers, and values the reduction, numbers, indices and arrays along i or j."""
    return not (p.sink.elements or p.algebra.vectors or p.algebra.state)


RULES = (
    Rule(
        "resident_rows_sink",
        lambda p, c, g, d: (
            isinstance(p.sink, SelectValues | RowTop) or (isinstance(p.sink, RowReduce) and p.sink.axis == "i")
        ),
        "lists of pairs, and reductions or best values of rows, over j: threads have rows of A",
    ),
    Rule(
        "resident_rows_types",
        lambda p, c, g, d: holds_elements(p),
        "elements of type {p.dtype}; registers hold elements of 32 or 64 bits, without a cast",
    ),
    Rule(
        "resident_rows_arrays",
        lambda p, c, g, d: reads_operands_alone(p),
        "steps that read only A, B and numbers, values that also read arrays along i or j, and reductions over k to"
        " values",
    ),
    Rule(
        "resident_rows_k",
        lambda p, c, g, d: c.resident_k == p.k,
        "resident_k={c.resident_k}; it must be K, {p.k}",
    ),
    Rule(
        "resident_rows_copies",
        lambda p, c, g, d: g.copies <= MOST_COPIES,
        "tile_columns={c.tile_columns} of {p.k} elements: a thread copies {g.copies}, each at an address of its own; at"
        f" most {MOST_COPIES}",
    ),
    Rule(
        "resident_rows_columns",
        lambda p, c, g, d: c.columns_at_once <= c.tile_columns,
        "columns_at_once={c.columns_at_once}; a tile of tile_columns={c.tile_columns} must have as many",
    ),
    Rule(
        "resident_rows_lanes",
        lambda p, c, g, d: (
            (column_lanes(p) == 1)
            | (
                (c.columns_at_once * p.element.bytes <= LOAD_BYTES)
                & (column_lanes(p) * c.columns_at_once <= c.tile_columns)
            )
        ),
        "columns_at_once={c.columns_at_once}; each lane of a warp has as many, which one access loads, and a tile of"
        " tile_columns={c.tile_columns} must have those of all lanes",
    ),
    Rule(
        "resident_rows_bounds",
        lambda p, c, g, d: (c.lower_bounds == 0) | (bound_of(p) is not None),
        "lower_bounds=1; sums must be those of squares of differences of f32, and what takes them min or argmin of"
        " sums, or a list or number of the pairs whose sums are at most a number of the row",
    ),
    Rule(
        "resident_rows_extents",
        lambda p, c, g, d: (p.m * p.k < PITCH_LIMIT) & (p.n * p.k < PITCH_LIMIT),
        f"A and B must have less than {PITCH_LIMIT} elements",
    ),
    Rule(
        "resident_rows_parts",
        lambda p, c, g, d: (c.column_parts == 1) | ((c.column_parts - 1) * g.part_columns < p.n),
        "column_parts={c.column_parts} of {p.n} columns: parts of {g.part_columns} leave one without a column",
    ),
    Rule(
        "resident_rows_one_part",
        lambda p, c, g, d: (c.column_parts == 1) | (not isinstance(p.sink, RowTop)),
        "column_parts={c.column_parts}; it must be 1 for best values of rows",
    ),
    Rule(
        "resident_rows_workspace",
        lambda p, c, g, d: g.workspace <= WORKSPACE_LIMIT,
        f"{{g.workspace}} bytes of states; at most {WORKSPACE_LIMIT}",
    ),
)
