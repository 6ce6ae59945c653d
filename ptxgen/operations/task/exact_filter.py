"""Lists of pairs whose sum of products of f32 compares with a threshold: which pairs tensor cores may leave out.

Tensor cores sum products of operands of 11 bits. Their sum t and a sum r in f32 of the same pair differ by at most

    e = sqrt(Σ_k w_k·A[i,k]²) · sqrt(Σ_k w_k·B[k,j]²),    w_k = FACTORS + n·2⁻²⁴ + SUMS·(K - k),

by the inequality of Cauchy and Schwarz: docs/adr/exact-select.md has the proof. So a pair whose r exceeds the threshold
is a candidate: not (t + e < threshold). A kernel of listed pairs computes r of each candidate, and lists those for
which the condition of the task holds. Where a bound is infinite or NaN, pairs are candidates.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ptxgen.expr.node import Node, constant, node, variable, variables
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.algebra import PLUS_TIMES
from ptxgen.operations.task.assembling import array_of
from ptxgen.operations.task.lowering import algebra_of
from ptxgen.operations.task.problem import Task, read_again
from ptxgen.operations.task.program import ACCUMULATOR, Input, Program, RowReduce, Select, Store
from ptxgen.operations.task.roles import Roles
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.peak_rates import peak_rate, scalar_rate

LEAST = 1 << 33  #: steps from which the launches take less time than the kernel of f32
DEEPEST = 1 << 16  #: the greatest K of the proof
FASTER = 4  #: how many times the rate of tensor cores must be that of scalar instructions
PAIRS = 64  #: at most one of so many pairs may be a candidate; more take as long as the kernel of f32
LEAST_PAIRS = 1024

#: of w_k: what a product changes by as both operands are rounded to tf32, to nearest
FACTORS = 2.0**-10 + 2.0**-22
#: of w_k: the sums of tensor cores truncate each addend, and each sum of four products or more, to 24 bits
SUMS = 1.5 * 2.0**-23
BLOCK = 32  #: products that are summed at once, at most
JOINED = 64  #: sums of slices of K and of groups of threads that are joined, at most
SLACK = 1 + 2.0**-5  #: of w_k: for roundings of the bound itself, and products of the errors
FLOOR = 2.0**-74  #: added to the sums of squares: for values below the normal ones
#: the bound is infinite if the magnitudes of sums may be
SCALE = 64.0

ROWS, COLUMNS = "row_bounds", "column_bounds"
ALPHA, BETA = "alpha_weight", "beta_weight"


@lru_cache(maxsize=256)
def candidates_of(roles: Roles) -> Program | None:
    """The program that lists i and j of the candidates of a program, of its inputs and of ``ROWS`` and ``COLUMNS``, the
    sums of weighted squares; None: it lists no pairs by a threshold of sums of products of f32."""
    program = roles.program
    output = program.outputs[0]
    if len(program.outputs) > 1 or not isinstance(output, Select) or program.accumulator != "f32":
        return None
    if program.reduction != "+" or program.initial is not None or algebra_of(roles) is not PLUS_TIMES:
        return None
    if any(roles.use(role).dtype != "f32" for role in "AB"):
        return None
    condition = relaxed(output.condition) if ACCUMULATOR in variables(output.condition) else None
    if condition is None:
        return None
    index = tuple(variable(axis, "s32") for axis in "ij")
    read = {array_of(x) for x in variables(condition, *([] if program.when is None else [program.when]))}
    bounds = (Input(ROWS, "f32", (("i",),)), Input(COLUMNS, "f32", (("j",),)))
    inputs = (*(x for x in program.inputs if x.name in {"A", "B", *read}), *bounds)
    listed = Select("C", index[0], condition, index)
    return read_again(replace(program, inputs=inputs, outputs=(listed,)))


def relaxed(condition: Node) -> Node | None:
    """The condition of candidates, of the sum of tensor cores; None: it is not known."""
    if ACCUMULATOR not in variables(condition):
        return condition
    if condition.op in ("&", "|") and condition.type == PRED:
        parts = [relaxed(x) for x in condition.arguments]
        return None if None in parts else node(condition.op, PRED, *(x for x in parts if x is not None))
    negated = condition.op == "not" and condition.arguments[0].op in ("<", "<=")
    if negated:
        condition = condition.arguments[0]
    if condition.op not in ("<", "<=", "=="):
        return None
    low, high = condition.arguments[:: -1 if negated else 1]  # neither bound leaves out NaN
    if low.type != "f32" or (_is_sum(low) and _is_sum(high)):
        return None
    above, below = _is_sum(high) and _is_free(low), _is_sum(low) and _is_free(high)
    if not above and not below:
        return None
    value, threshold = (high, low) if above else (low, high)
    greatest, least = (node(op, "f32", value, bound()) for op in ("+", "-"))
    not_below = node("not", PRED, node("<", PRED, greatest, threshold))
    not_above = node("not", PRED, node("<", PRED, threshold, least))
    if condition.op == "==":
        return node("&", PRED, not_below, not_above)
    return not_below if above else not_above


def _is_free(x: Node) -> bool:
    return ACCUMULATOR not in variables(x)


def _is_sum(x: Node) -> bool:
    """True if a value changes by no more than the sum."""
    if x.op in ("abs", "neg"):
        return _is_sum(x.arguments[0])
    return x.op == "variable" and x.value == ACCUMULATOR


def bound() -> Node:
    """The bound e of a pair."""
    roots = []
    for name, axis in ((ROWS, "i"), (COLUMNS, "j")):
        found = node("abs", "f32", variable(f"{name}[{axis}]", "f32"))  # of the random numbers of timings, too
        squares = node("+", "f32", found, constant(FLOOR, "f32"))
        roots.append(node("*", "f32", node("sqrt", "f32", squares), constant(SCALE, "f32")))
    return node("*", "f32", node("*", "f32", *roots), constant(SCALE**-2, "f32"))


def weights(k: int, roundings: int) -> dict[str, float]:
    """The scalars of w_k = ALPHA + BETA·(K - k). ``roundings``: of a sum in f32."""
    sums = SLACK * SUMS
    return {ALPHA: SLACK * (FACTORS + (roundings + JOINED) * 2.0**-24) + sums * BLOCK, BETA: sums}


def _product(*others: Input) -> tuple[tuple[Input, ...], Node]:
    """The tuple (the operands A and B, of which a call has no elements, and other inputs, their product)."""
    a, b = Input("A", "f32", (("i", "k"),)), Input("B", "f32", (("k", "j"),))
    return (a, b, *others), node("*", "f32", a.variable(("i", "k")), b.variable(("k", "j")))


def squares() -> Program:
    """The sums of weighted squares of the rows of an array X, of the scalars of ``weights``. Its k is the j of X."""
    x, scalars = Input("X", "f32", (("i", "j"),)), [Input(name, "f32") for name in (ALPHA, BETA)]
    inputs, step = _product(x, *scalars)
    left = node("-", "s32", variable("N", "s32"), variable("j", "s32"))
    alpha, beta = (each.variable() for each in scalars)
    weight = node("+", "f32", alpha, node("*", "f32", beta, node("cast", "f32", left)))
    element = x.variable(("i", "j"))
    value = node("*", "f32", node("*", "f32", element, element), weight)
    return Program(inputs, step, "+", "f32", (RowReduce("C", value, "i", "+"),))


def transposed() -> Program:
    """The array X, stored by columns."""
    x = Input("X", "f32", (("j", "i"),))
    inputs, step = _product(x)
    return Program(inputs, step, "+", "f32", (Store("C", x.variable(("j", "i"))),))


def pays(p: Task, d: Device) -> bool:
    """True if a filter on tensor cores takes less time than the kernel of f32, where there are few candidates."""
    packed = p.lda == p.stored[0][1] and p.ldb == p.stored[1][1]
    return packed and may_pay(p.m, p.n, p.k, d)


def may_pay(m: int, n: int, k: int, d: Device) -> bool:
    """``pays``, of operands without gaps between rows."""
    f32 = dtype("f32")
    faster = peak_rate(f32, "tf32", d) >= FASTER * scalar_rate(f32, d)
    return faster and m * n * k >= LEAST and 0 < k <= DEEPEST


def room(p: Task) -> int:
    """Candidates of a problem, at most."""
    return min(p.m * p.n, max(LEAST_PAIRS, p.m * p.n // PAIRS))
