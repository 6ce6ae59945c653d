"""The algebra of a product: the step that combines two elements, and the operator that reduces steps over K."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from ptxgen.expr.node import Node, constant, node, variable, variables
from ptxgen.expr.operators import OPERATORS
from ptxgen.expr.simplify import is_absorbed_at_zero, is_identity_at_zero
from ptxgen.expr.value_types import type_of
from ptxgen.lowering.states import INDEX, NO_INDEX, POSITIONS, State, StateReduction

ACCUMULATOR = "accum"  #: in expressions, the name of the variable with the reduced value
BEST = "best"  #: in expressions, the name of the variable with the best value of argmin or argmax


@dataclass(frozen=True)
class Scalar:
    """A number that a call passes to kernels as a parameter. ``type``: its type in expressions."""

    name: str
    type: str


@dataclass(frozen=True)
class Vector:
    """An array that expressions read. ``name``: the kernel parameter with its address; ``axis``: the axis of its index
    (i, j or k), or two axes in the order of storage; an array with two axes has its leading dimension in the parameter
    ``step_ld_`` + name. ``element``: the variable that stands for an element."""

    name: str
    axis: str
    element: Node


@dataclass(frozen=True)
class Algebra:
    """How kernels combine two elements and reduce the results over K. ``reduce``: the operator of the reduction, from
    ``expr.operators``, or argmin or argmax; ``identity``: its identity; ``pads_with_zero``: True if operands may be
    padded with zeros; ``atomic``: True if red.global can reduce; ``vectors``, ``scalars``: what a step reads besides
    the operands; ``fmas``: multiply-adds of a step of a product."""

    name: str
    reduce: str
    identity: float
    pads_with_zero: bool
    atomic: bool

    vectors: tuple[Vector, ...] = ()
    scalars: tuple[Scalar, ...] = ()

    fmas: ClassVar[int] = 1

    @property
    def needs(self) -> frozenset[str]:
        """The capabilities that a family must provide: the instructions of this algebra."""
        return frozenset((self.name,))

    @property
    def matrices(self) -> tuple[Vector, ...]:
        """The arrays with two axes that steps read besides the operands."""
        return tuple(v for v in self.vectors if len(v.axis) > 1)

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of the arrays that steps read besides the operands, in the order of the kernel parameters."""
        return tuple(v.name for v in self.vectors)

    @property
    def state(self) -> StateReduction | None:
        """The reduction to a position (argmin, argmax), whose accumulator is two registers; None for other
        reductions."""
        return None

    def held_type(self, name: str, sums: str) -> str:
        """The type in which kernels hold elements of operand ``name`` in shared memory and registers. ``sums``: the
        type of the reduction."""
        return sums


@dataclass(frozen=True, kw_only=True)
class InnerExpression(Algebra):
    """The reduction of an expression over k. ``step``: the expression for one k; ``a``, ``b``: its subexpressions (an
    element, or a cast of one) that kernels hold in shared memory and registers as operands A and B, integers in at
    least 32 bits. argmin and argmax give the first k with the least or greatest step, ``NO_INDEX`` if K is 0.

    ``terms``: the expressions that a step reduces into the accumulator one after the other. ``paired``: the same
    reduction for two adjacent columns at once, on pairs of 16-bit values (``expr.value_types.PAIRS``); extended to the
    type of this reduction, its results are the same for the sink. None: there is none.
    """

    step: Node
    a: Node
    b: Node
    terms: tuple[Node, ...]
    paired: InnerExpression | None = None

    @property
    def type(self) -> str:
        """The type of the reduction's result."""
        return self.step.type if self.state is None else INDEX

    @property
    def state(self) -> StateReduction | None:
        return StateReduction(self.reduce, self.step.type) if self.reduce in POSITIONS else None

    @property
    def components(self) -> tuple[Node, ...]:
        """The variables of an accumulator, one per register: the result, then the best value of argmin or argmax."""
        result = variable(ACCUMULATOR, self.type)
        return (result,) if self.state is None else (result, variable(BEST, self.step.type))

    @cached_property
    def next(self) -> tuple[Node, ...]:
        """The components of the accumulator after a step."""
        if self.state is None:
            return (self.reduced,)
        result, best = self.components
        value, position = self.state.added((best, result), self.step, variable("k", INDEX))
        return position, value

    def joined(self, x: State, y: State) -> State:
        """The components of the accumulator that combines two partial results over different k."""
        if self.state is None:
            return (node(self.reduce, self.type, x[0], y[0]),)
        value, position = self.state.joined((x[1], x[0]), (y[1], y[0]))
        return position, value

    def held_type(self, name: str, sums: str) -> str:
        held = type_of((self.a if name == "A" else self.b).type)
        return f"{held.name[0]}32" if held.integer and held.bits < 32 else held.name

    @property
    def identities(self) -> tuple[Node, ...]:
        """The components of the accumulator before the first step."""
        if self.state is None:
            return (constant(self.identity, self.type),)
        value, position = self.state.identity
        return position, value

    @cached_property
    def reduced(self) -> Node:
        """The accumulator after a step, for reductions by an operator."""
        root = variable(ACCUMULATOR, self.type)
        for term in self.terms:
            root = node(self.reduce, self.type, root, term)
        return root


PLUS_TIMES = Algebra("plus_times", "+", 0.0, pads_with_zero=True, atomic=True)


def terms_of(step: Node, reduce: str, rewrite: bool) -> tuple[Node, ...]:
    """The terms of a step, which are reduced into the accumulator one after the other; products come first.

    A step is split at the reduction's own operator if the order does not matter, as for integers. ``rewrite``: True if
    a sum of floats with a product may be split, too; the product then needs no instruction of its own, and the error
    stays relative to the terms.
    """

    def parts(x: Node) -> list[Node]:
        return [z for y in x.arguments for z in parts(y)] if x.op == reduce else [x]

    terms = sorted(parts(step), key=lambda x: x.op != "*")
    if reduce in POSITIONS or len(terms) == 1:
        return (step,)
    exact = OPERATORS[reduce].idempotent or not type_of(step.type).floating
    return tuple(terms) if exact or (rewrite and reduce == "+" and terms[0].op == "*") else (step,)


def paired_expression(whole: InnerExpression, step: Node, a: Node, b: Node) -> InnerExpression:
    """The field ``paired`` of ``whole``, for the step and the operands ``a`` and ``b`` on pairs. Zeros may pad operands
    if they may for ``whole``."""
    identity = OPERATORS[whole.reduce].identity
    assert identity is not None
    return replace(
        whole,
        identity=identity(type_of(step.type)),
        step=step,
        terms=terms_of(step, whole.reduce, False),
        a=a,
        b=b,
        paired=None,
    )


def inner_expression(
    step: Node,
    reduce: str,
    a: Node,
    b: Node,
    vectors: tuple[Vector, ...] = (),
    scalars: tuple[Scalar, ...] = (),
    rewrite: bool = True,
) -> InnerExpression:
    """The algebra that reduces ``step`` by ``reduce``; the other fields are derived. ``rewrite``: see ``terms_of``."""
    if reduce in POSITIONS:
        identity = float(NO_INDEX)
    else:
        of_operator = OPERATORS[reduce].identity
        assert of_operator is not None
        identity = of_operator(type_of(step.type))
    zeroed = set(variables(a, b, *(v.element for v in vectors if "k" in v.axis)))
    return InnerExpression(
        name="inner_expression",
        reduce=reduce,
        identity=identity,
        pads_with_zero=reduce not in POSITIONS
        and (is_identity_at_zero(step, reduce, zeroed) or is_absorbed_at_zero(step, reduce, zeroed)),
        atomic=False,
        step=step,
        terms=terms_of(step, reduce, rewrite),
        a=a,
        b=b,
        vectors=vectors,
        scalars=scalars,
    )
