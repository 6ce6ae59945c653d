"""Lists exactly the pairs whose f32 sum of products, or of squares of differences, passes a threshold. Tensor cores
find candidate pairs, so that few sums are computed in f32.

Tensor cores sum products of operands with 11 significant bits. For one pair, their sum t and the f32 sum r differ by at
most

    e = sqrt(Σ_k w_k·A[i,k]²) · sqrt(Σ_k w_k·B[k,j]²),    w_k = FACTORS + n·2⁻²⁴ + SUMS·(K - k),

by the inequality of Cauchy and Schwarz: docs/adr/exact-select.md has the proof. So a pair whose r exceeds the threshold
is a candidate: not (t + e < threshold). A kernel of listed pairs computes r of each candidate, and lists those for
which the condition of the task holds. Where a bound is infinite or NaN, pairs are candidates.

A sum of squares of differences is at least Σ_k (1 - w_k)·A[i,k]² + Σ_k (1 - w_k)·B[k,j]² - 2·t, and at most the same
expression with 1 + w_k; these w_k are other numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

from ptxgen.expr.node import Node, constant, node, select, variable, variables
from ptxgen.expr.value_types import PRED
from ptxgen.lowering.algebra import PLUS_TIMES
from ptxgen.operations.task.assembling import array_of
from ptxgen.operations.task.fast_distances import SPLIT
from ptxgen.operations.task.lowering import algebra_of
from ptxgen.operations.task.problem import Task, read_again
from ptxgen.operations.task.program import ACCUMULATOR, Input, Program, RowReduce, Select, Store
from ptxgen.operations.task.roles import Roles
from ptxgen.problem.device import Device
from ptxgen.problem.dtypes import dtype
from ptxgen.problem.peak_rates import peak_rate, scalar_rate

COMPUTED = ("f32", SPLIT)  #: values of ``compute`` whose results are sums of f32, or as exact
LEAST = 1 << 33  #: from so many steps on, the filter takes less time than the f32 kernel
DEEPEST = 1 << 16  #: the greatest K for which the proof holds
LEAST_K = 24  #: the least K of filters; below, scalar kernels take less
FASTER = 4  #: tensor cores must be so many times as fast as scalar instructions
PAIRS = 64  #: one pair in so many may be a candidate; more would take as long as the f32 kernel
LEAST_PAIRS = 1024

#: term of w_k: the relative change of a product when both operands are rounded to nearest tf32
FACTORS = 2.0**-10 + 2.0**-22
#: term of w_k: tensor cores truncate each addend, and each sum of four products or more, to 24 bits
SUMS = 1.5 * 2.0**-23
BLOCK = 32  #: the most products that are summed at once
JOINED = 64  #: the most sums of K slices and of groups of threads that are joined
SLACK = 1 + 2.0**-5  #: factor of w_k for roundings of the bound itself, and for products of errors
FLOOR = 2.0**-74  #: added to sums of squares, for subnormal values
#: from this root of a sum of squares on, the bound is infinite, because magnitudes of sums may be
LARGEST_ROOT = 2.0**58

#: for squares of differences: an element of at least this magnitude makes its pairs candidates, so that no sum
#: overflows
LARGEST = 2.0**50
#: numbers of roundings: of a difference and its square, and of the ends of a sum of squares
DIFFERENCE, ENDS = 4, 8

ROWS, COLUMNS = "row_bounds", "column_bounds"
#: names of the arrays of sums of squares with the weights 1 - w_k, and with 1 + w_k
LEAST_ENDS, GREATEST_ENDS = ("least_rows", "least_columns"), ("greatest_rows", "greatest_columns")
ALPHA, BETA = "alpha_weight", "beta_weight"


@dataclass(frozen=True)
class BoundArray:
    """An array of bounds that the program of candidates reads. ``role``: A: the array has an element for each row of A;
    B: for each column of B; ``sign``: -1 or 1: the weights are 1 - w_k or 1 + w_k; 0: they are w_k."""

    role: str
    sign: int = 0

    @property
    def program(self) -> Program:
        return squares(self.sign)


#: name -> the array of bounds
BOUNDS = {name: BoundArray(role) for name, role in zip((ROWS, COLUMNS), "AB", strict=True)} | {
    name: BoundArray(role, sign)
    for names, sign in ((LEAST_ENDS, -1), (GREATEST_ENDS, 1))
    for name, role in zip(names, "AB", strict=True)
}

#: function that returns the ends (least, greatest) of an f32 value, as expressions of the sum of tensor cores; None:
#: they are not known
Ends = Callable[[Node], "tuple[Node, Node] | None"]
#: function that returns one end of a sum of f32, with the arguments of ``end_of``; None: the value is no sum
EndOfSum = Callable[[Node, bool, tuple[Node, ...]], "Node | None"]


def is_distance(program: Program) -> bool:
    """True if a program, with roles as names, sums squares of differences of elements of A and B."""
    x = program.step
    if program.reduction != "+" or x.op != "*" or x.arguments[0] is not x.arguments[1]:
        return False
    elements = {input.variable(input.uses[0]) for input in program.inputs if input.name in ("A", "B")}
    return x.arguments[0].op == "-" and {*x.arguments[0].arguments} == elements and len(elements) == 2


@lru_cache(maxsize=256)
def candidates_of(roles: Roles) -> Program | None:
    """The program that lists the candidates (i, j) for a program. It reads the inputs of the program and arrays of
    ``BOUNDS``. None: the program does not list pairs by a threshold of f32 sums of products or of squares of
    differences."""
    program = roles.program
    output = program.outputs[0]
    if len(program.outputs) > 1 or not isinstance(output, Select) or program.accumulator != "f32":
        return None
    distance = is_distance(program)
    if (
        program.reduction != "+"
        or program.initial is not None
        or (algebra_of(roles) is not PLUS_TIMES and not distance)
    ):
        return None
    if any(roles.use(role).dtype != "f32" for role in "AB"):
        return None
    ends = distance_ends if distance else products_ends
    condition = relaxed(output.condition, ends) if ACCUMULATOR in variables(output.condition) else None
    if condition is None:
        return None
    index = tuple(variable(axis, "s32") for axis in "ij")
    read = {array_of(x) for x in variables(condition, *([] if program.when is None else [program.when]))}
    bounds = [Input(name, "f32", (("i",) if x.role == "A" else ("j",),)) for name, x in BOUNDS.items() if name in read]
    inputs = (*(x for x in program.inputs if x.name in {"A", "B", *read}), *bounds)
    if distance:
        program = replace(program, step=node("*", "f32", *program.step.arguments[0].arguments))
    listed = Select("C", index[0], condition, index)
    return read_again(replace(program, inputs=inputs, outputs=(listed,)))


def relaxed(condition: Node, ends: Ends) -> Node | None:
    """The condition that candidates fulfil, as an expression of the sum of tensor cores; None: it is not known."""
    if ACCUMULATOR not in variables(condition):
        return condition
    if condition.op in ("&", "|") and condition.type == PRED:
        parts = [relaxed(x, ends) for x in condition.arguments]
        return None if None in parts else node(condition.op, PRED, *(x for x in parts if x is not None))
    negated = condition.op == "not" and condition.arguments[0].op in ("<", "<=")
    if negated:
        condition = condition.arguments[0]
    if condition.op not in ("<", "<=", "=="):
        return None
    low, high = condition.arguments[:: -1 if negated else 1]  # neither bound leaves out NaN
    if low.type != "f32":
        return None
    above = ends(high) if _is_free(low) else None
    below = ends(low) if _is_free(high) else None
    limit, threshold = (above, low) if above is not None else (below, high)
    if limit is None:
        return None
    least, greatest = limit
    not_below = node("not", PRED, node("<", PRED, greatest, threshold))
    not_above = node("not", PRED, node("<", PRED, threshold, least))
    if condition.op == "==":
        return node("&", PRED, not_below, not_above)
    return not_below if above is not None else not_above


def end_of(value: Node, upper: bool, factors: tuple[Node, ...], sum_end: EndOfSum) -> Node | None:
    """One end of a value that is monotone in the sum, as rounded operations with values without the sum are. It is NaN
    where the value of a sum between the ends may be NaN, and the end itself would not show it. None: the value is
    another one. ``upper``: True: the upper end if the product of ``factors`` is not negative, and the lower end if it
    is; ``sum_end``: the end of the sum, and of what changes at most as much as the sum."""
    if (own := sum_end(value, upper, factors)) is not None:
        return own
    free = [_is_free(x) for x in value.arguments]
    if free.count(False) != 1 or value.type != "f32":
        return None
    at = free.index(False)
    of_sum, others = value.arguments[at], [x for n, x in enumerate(value.arguments) if n != at]
    if value.op == "neg" or (value.op == "-" and at > 0):
        upper = not upper
    elif value.op == "*" or (value.op == "/" and at == 0):
        other = others[0]
        if other.op == "constant":
            upper = upper != (math.copysign(1, float(other.value)) < 0)
        else:
            factor = other if value.op == "*" else node("/", "f32", constant(1, "f32"), other)  # zeros have a sign
            factors = (*factors, factor)
            if sum_end(of_sum, upper, factors) is None:  # infinity times 0 is NaN
                zero = node("==", PRED, factor, constant(0, "f32"))
                others = [select(zero, constant(math.nan, "f32"), other)]
    elif value.op not in ("+", "-", "max", "min") and (value.op != "sqrt" or not _is_not_negative(of_sum)):
        return None
    inner = end_of(of_sum, upper, factors, sum_end)
    if inner is None:
        return None
    if value.op in ("max", "min"):  # infinity minus infinity, or infinity times 0, between the ends
        inner = node("+", "f32", inner, node("*", "f32", inner, constant(0, "f32")))
    return node(value.op, value.type, *others[:at], inner, *others[at:])


def _is_not_negative(value: Node) -> bool:
    """True if a value is known to be at least 0, or NaN."""
    return value.op == "max" and any(x.op == "constant" and float(x.value) >= 0 for x in value.arguments)


def products_ends(value: Node) -> tuple[Node, Node] | None:
    """The ends of a value that is monotone in a sum of products; None: it is another one."""
    return _ends(value, _end_of_products)


def distance_ends(value: Node) -> tuple[Node, Node] | None:
    """The ends of a value that is monotone in a sum of squares of differences; None: it is another one."""
    return _ends(value, _end_of_squares)


def _ends(value: Node, sum_end: EndOfSum) -> tuple[Node, Node] | None:
    least, greatest = (end_of(value, upper, (), sum_end) for upper in (False, True))
    return None if least is None or greatest is None else (least, greatest)


def _end_of_products(value: Node, upper: bool, factors: tuple[Node, ...]) -> Node | None:
    return node("+" if upper else "-", "f32", value, bound(factors)) if _is_sum(value) else None


def _end_of_squares(value: Node, upper: bool, factors: tuple[Node, ...]) -> Node | None:
    """An end of the sum of squares of differences, or of its root, as an expression of the sum of products. The root of
    an end below 0 is NaN: a candidate."""
    if value.op == "sqrt":
        end = _end_of_squares(value.arguments[0], upper, factors)
        return None if end is None or value.arguments[0].op == "sqrt" else node("sqrt", "f32", end)
    if value.op != "variable" or value.value != ACCUMULATOR:
        return None
    least, greatest = (
        node("+", "f32", *(variable(f"{name}[{axis}]", "f32") for name, axis in zip(names, "ij", strict=True)))
        for names in (LEAST_ENDS, GREATEST_ENDS)
    )
    yes, no = (least, greatest) if upper else (greatest, least)
    squares = select(negative_product(factors), yes, no) if factors else no
    return node("-", "f32", squares, node("*", "f32", constant(2, "f32"), value))


def negative_product(factors: tuple[Node, ...]) -> Node:
    """The predicate that an odd number of ``factors`` is negative."""
    negative = [node("<", PRED, x, constant(0, "f32")) for x in factors]
    return reduce(lambda x, y: node("^", PRED, x, y), negative)


def _is_free(x: Node) -> bool:
    return ACCUMULATOR not in variables(x)


def _is_sum(x: Node) -> bool:
    """True if a value changes at most as much as the sum."""
    if x.op in ("abs", "neg"):
        return _is_sum(x.arguments[0])
    return x.op == "variable" and x.value == ACCUMULATOR


def bound(factors: tuple[Node, ...] = ()) -> Node:
    """The expression of the bound e of a pair, with the sign of the product of ``factors``. The signs of vectors of
    columns are those of the root of the column."""
    roots = []
    for name, axis in ((ROWS, "i"), (COLUMNS, "j")):
        magnitude = node("abs", "f32", variable(f"{name}[{axis}]", "f32"))  # of the random numbers of timings, too
        root = node("sqrt", "f32", node("+", "f32", magnitude, constant(FLOOR, "f32")))
        small = node("<", PRED, root, constant(LARGEST_ROOT, "f32"))
        roots.append(select(small, root, constant(math.inf, "f32")))
    for x in factors:
        negative = node("<", PRED, x, constant(0, "f32"))
        at = int(all(name.endswith("[j]") for name in variables(x)))
        roots[at] = select(negative, node("neg", "f32", roots[at]), roots[at])
    return node("*", "f32", *roots)


def weights(k: int, roundings: int, distance: bool = False) -> dict[str, float]:
    """The scalars ALPHA and BETA of w_k = ALPHA + BETA·(K - k). ``roundings``: the number of roundings of an f32 sum;
    ``distance``: True for squares of differences, whose magnitude is at most twice the sums of squares."""
    sums = SLACK * SUMS
    count = roundings + JOINED
    if distance:
        count = 2 * (count + DIFFERENCE) + k + ENDS  # k: of the sums of squares
    return {ALPHA: SLACK * (FACTORS + count * 2.0**-24) + sums * BLOCK, BETA: sums}


def without_steps(*others: Input) -> tuple[tuple[Input, ...], Node]:
    """The inputs and the step of a program without steps over k: the operands A and B, which have no elements, then
    ``others``; and the product of A and B."""
    a, b = Input("A", "f32", (("i", "k"),)), Input("B", "f32", (("k", "j"),))
    return (a, b, *others), node("*", "f32", a.variable(("i", "k")), b.variable(("k", "j")))


@lru_cache(maxsize=8)
def squares(sign: int = 0) -> Program:
    """The program that sums weighted squares of the rows of an array X, with the scalars of ``weights``; the j of the
    program is k. ``sign``: as in ``BoundArray``; if it is not 0, a sum is infinite if an element is not below
    ``LARGEST``."""
    x, scalars = Input("X", "f32", (("i", "j"),)), [Input(name, "f32") for name in (ALPHA, BETA)]
    inputs, step = without_steps(x, *scalars)
    left = node("-", "s32", variable("N", "s32"), variable("j", "s32"))
    alpha, beta = (each.variable() for each in scalars)
    weight = node("+", "f32", alpha, node("*", "f32", beta, node("cast", "f32", left)))
    element = x.variable(("i", "j"))
    if sign:
        weight = node("+" if sign > 0 else "-", "f32", constant(1, "f32"), weight)
    value = node("*", "f32", node("*", "f32", element, element), weight)
    if sign:
        small = node("<", PRED, node("abs", "f32", element), constant(LARGEST, "f32"))
        moved = node("+", "f32", value, constant(sign * FLOOR, "f32"))
        value = select(small, moved, constant(sign * math.inf, "f32"))
    return Program(inputs, step, "+", "f32", (RowReduce("C", value, "i", "+"),))


def transposed() -> Program:
    """The program that transposes an array X."""
    x = Input("X", "f32", (("j", "i"),))
    inputs, step = without_steps(x)
    return Program(inputs, step, "+", "f32", (Store("C", x.variable(("j", "i"))),))


def pays(p: Task, d: Device) -> bool:
    """True if a filter on tensor cores takes less time than the f32 kernel, provided that there are few candidates."""
    packed = p.lda == p.stored[0][1] and p.ldb == p.stored[1][1]
    return packed and may_pay(p.m, p.n, p.k, d)


def may_pay(m: int, n: int, k: int, d: Device) -> bool:
    """As ``pays``, for operands without gaps between rows."""
    f32 = dtype("f32")
    faster = peak_rate(f32, "tf32", d) >= FASTER * scalar_rate(f32, d)
    return faster and m * n * k >= LEAST and LEAST_K <= k <= DEEPEST


def room(p: Task) -> int:
    """The most candidates of a problem."""
    return min(p.m * p.n, max(LEAST_PAIRS, p.m * p.n // PAIRS))
