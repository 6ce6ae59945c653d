"""Rewrites sums of squares of differences as sums of squares and a matrix product, which tensor cores compute with
every sink.

Σ_k (x·A[i,k] - y·B[k,j])² = x²·Σ_k A[i,k]² + y²·Σ_k B[k,j]² - 2·x·y·Σ_k A[i,k]·B[k,j], where x depends only on i and y
only on j; if they are the reciprocal norms of rows, the result is twice the cosine distance. Close pairs lose digits,
because the error is relative to the sums of squares, not to their difference; results below 0 become 0. Therefore only
calls with precision fast use this form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from ptxgen.expr.node import Node, constant, node, variable
from ptxgen.expr.simplify import cast
from ptxgen.lowering.algebra import PLUS_TIMES
from ptxgen.operations.task.assembling import depends_on
from ptxgen.operations.task.lowering import algebra_of
from ptxgen.operations.task.problem import read_again
from ptxgen.operations.task.program import ACCUMULATOR, Input, Program, RowReduce
from ptxgen.operations.task.roles import Roles, Use, with_variables
from ptxgen.problem.base import COMPUTE_MODES, SUMS
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.peak_rates import peak_rate, scalar_rate

ROWS, COLUMNS = "row_squares", "column_squares"

#: the value of ``compute`` with which tensor cores multiply f32 with f32 accuracy
SPLIT = "f32_bf16x6"
SM = 90  #: the architecture that has kernels for SPLIT
LEAST = 1 << 30  #: from so many steps on, SPLIT may be faster, because both operands are converted before
DEPTH = 32  #: kernels of SPLIT compute K in multiples of this
FASTER = 1.5  #: products with SPLIT must be so many times as fast as scalar instructions


@dataclass(frozen=True)
class Squares:
    """The computation of the sums of squares of A or of B. ``program``: a program of the array X, the operand as the
    task indexes it; its own A and B have no elements; ``by_rows``: True if there is one sum for each row of X, else for
    each column."""

    program: Program
    by_rows: bool


@dataclass(frozen=True)
class FastDistance:
    """A task of squared distances as a product of matrices. ``program`` reads the inputs of the task, under the names
    of their roles, and the arrays ``ROWS`` and ``COLUMNS``, which the programs ``rows`` and ``columns`` compute."""

    program: Program
    rows: Squares
    columns: Squares


@lru_cache(maxsize=256)
def fast_distance(roles: Roles) -> FastDistance | None:
    """The rewritten program; None: the step is not the square of a difference of elements of A and B."""
    program, accumulator = roles.program, roles.program.accumulator
    a, b, step = roles.use("A"), roles.use("B"), program.step
    if program.reduction != "+" or program.initial is not None or accumulator not in ("f32", "f64"):
        return None
    if a.dtype != b.dtype or accumulator not in {SUMS.get(mode, mode) for mode in COMPUTE_MODES.get(a.dtype, ())}:
        return None
    if step.op != "*" or step.arguments[0] is not step.arguments[1] or step.arguments[0].op != "-":
        return None
    elements = [cast(_element(u), accumulator) for u in (a, b)]
    parts = step.arguments[0].arguments
    factors = None
    for one, other in (parts, parts[::-1]):
        x, y = _factor(one, elements[0], "j"), _factor(other, elements[1], "i")
        factors = (x, y) if x is not None and y is not None else factors
    if factors is None:
        return None
    x, y = factors
    sums = [variable(f"{ROWS}[i]", accumulator), variable(f"{COLUMNS}[j]", accumulator)]
    squares = [_product(accumulator, total, factor, factor) for total, factor in zip(sums, (x, y), strict=True)]
    product = _product(
        accumulator, node("*", accumulator, constant(2, accumulator), variable(ACCUMULATOR, accumulator)), x, y
    )
    difference = node("-", accumulator, node("+", accumulator, *squares), product)
    changes = {ACCUMULATOR: node("max", accumulator, difference, constant(0, accumulator))}
    outputs = tuple(with_variables(each, changes) for each in program.outputs)
    inputs = (*program.inputs, Input(ROWS, accumulator, (("i",),)), Input(COLUMNS, accumulator, (("j",),)))
    made = replace(program, inputs=inputs, step=node("*", accumulator, *elements), outputs=outputs)
    return FastDistance(read_again(made), _squares(a, accumulator), _squares(b, accumulator))


def fast_compute(roles: Roles, extents: tuple[int, int, int], d: Device) -> str:
    """The value of ``compute`` with which tensor cores sum f32 products as exactly as scalar instructions in less time;
    empty if they take longer. ``extents``: M, N, K."""
    m, n, k = extents
    f32 = dtype("f32")
    if any(roles.use(role).dtype != "f32" for role in "AB") or roles.program.accumulator != "f32":
        return ""
    if d.sm != SM or algebra_of(roles) is not PLUS_TIMES:
        return ""
    padded = -(-k // DEPTH) * DEPTH
    faster = padded * scalar_rate(f32, d) * FASTER <= k * peak_rate(f32, SPLIT, d)
    return SPLIT if faster and m * n * k >= LEAST else ""


def _element(use: Use) -> Node:
    return variable(f"{use.role}[{','.join(use.axes)}]", use.dtype)


def _factor(x: Node, element: Node, other: str) -> Node | None:
    """The factor by which ``x`` is a multiple of an element; None: ``x`` is not a multiple of it, or the factor depends
    on k or on the axis ``other``."""
    if x is element:
        return constant(1, x.type)
    if x.op not in ("*", "/"):
        return None
    for each, rest in (x.arguments, x.arguments[::-1])[: 2 if x.op == "*" else 1]:
        factor = _factor(each, element, other)
        if factor is None or depends_on("k", rest) or depends_on(other, rest):
            continue
        return node(x.op, x.type, factor, rest) if x.op == "/" else _product(x.type, factor, rest)
    return None


def _product(element_type: str, x: Node, *factors: Node) -> Node:
    """The product without factors that are 1."""
    for factor in factors:
        if factor is not constant(1, element_type):
            x = factor if x is constant(1, element_type) else node("*", element_type, x, factor)
    return x


def _squares(use: Use, element_type: str) -> Squares:
    """The sums of squares of the operand ``use``, A or B."""
    a, b, x = (
        Input(name, element_type, (axes,)) for name, axes in (("A", ("i", "k")), ("B", ("k", "j")), ("X", ("i", "j")))
    )
    x = replace(x, dtype=use.dtype)
    step = node("*", element_type, a.variable(("i", "k")), b.variable(("k", "j")))
    element, by_rows = cast(x.variable(("i", "j")), element_type), use.axes[0] != "k"
    output = RowReduce("C", node("*", element_type, element, element), "i" if by_rows else "j", "+")
    return Squares(Program((a, b, x), step, "+", element_type, (output,)), by_rows)
